"""What `applied` edits: the same as `collect` does, of every family."""

import numpy as np
import pytest
import torch

import interp
from interp.need import Need
from tests.interp.test_families import CONFIGS, FEW, tiny
from tests.quick import quick
from tests.tiny_models import FAMILIES, tiny_model

NEXT = Need("next_log_prob")


@pytest.mark.parametrize("kind", quick(FEW, [*FAMILIES, *CONFIGS]))
def test_parts_that_are_switched_off_are_those_that_collect_switches_off(kind):
    """Also where a part returns batch and position in one row."""
    model = tiny_model(kind) if kind in FAMILIES else tiny(kind)
    ids = np.random.default_rng(0).integers(3, 101, (2, 6))
    prompts = interp.PromptSet(
        "p", [interp.Prompt(token_ids=tuple(row.tolist()), scored=tuple(range(6))) for row in ids]
    )
    for part in (interp.FeedForwardOff, interp.AttentionOff, interp.BypassLayer):
        for at in ("all", (1, 4)):
            edit = part(layer=-1, at=at)
            expected = interp.collect(model, prompts, [NEXT], edits=[edit])[NEXT].reshape(2, 6, -1)
            with torch.inference_mode(), interp.applied(model, edit):
                logits = model.module(torch.from_numpy(ids), use_cache=False).logits
            found = torch.log_softmax(logits, dim=-1).numpy() / np.log(2)
            np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3, err_msg=f"{edit} at {at}")
