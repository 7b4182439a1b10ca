"""The surprise at a text, taken in parts of the vocabulary, is that of all logits at once."""

import numpy as np
import pytest
import torch

from interp.reading import lens
from interp.reading.lens import Lens
from tests.interp.test_families import tiny
from tests.tiny_models import FAMILIES, VOCAB, tiny_model


@pytest.mark.parametrize("family", [*FAMILIES, "gemma2"])
@pytest.mark.parametrize("columns", [1, 7, VOCAB, 10 * VOCAB])
def test_surprise_in_parts_of_the_vocabulary_is_that_of_the_models_own_logits(family, columns, monkeypatch):
    monkeypatch.setattr(lens, "_AT_ONCE", {True: 1})
    monkeypatch.setattr(lens, "_FEWEST_COLUMNS", columns)
    model = tiny_model(family) if family in FAMILIES else tiny(family)  # Gemma 2 soft-caps its logits
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, VOCAB, size=(3, 9)))
    entering = []
    handle = model.module.get_output_embeddings().register_forward_pre_hook(lambda m, args: entering.append(args[0]))
    with torch.inference_mode():
        logits = model.module(input_ids=ids).logits[:, :-1].double()
        handle.remove()
        found = Lens(model).surprise(entering[0][:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        nothing = Lens(model).surprise(entering[0][0, :0], ids[0, :0])
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    assert nothing.shape == (0,)
