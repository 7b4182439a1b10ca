"""Planted proofs: an axis that carries everything, an axis that is a copy nobody reads, and noise."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from interp.probes.causal.probe import Causal

from interp.editing.conditions import Run, read_conditions
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from tests.quick import quick
from tests.tiny_models import VOCAB, fresh_model

N = 160
HEAD, DIM = 1, 5
"""The one feature of the head outputs at layer 1 that is read, or of the values that is not."""

PROBE = Causal(site="z", axis="ridge", layers=(("middle",),), n_prompts=40, n_controls=39, n_bootstrap=60)


def tokens(last):
    rng = np.random.default_rng(0)
    ids = [
        np.append(rng.integers(1, VOCAB, size=7), last if last is not None else rng.integers(1, 12)) for _ in range(N)
    ]
    prompts = [Prompt(token_ids=tuple(x.tolist())) for x in ids]
    return Run(PromptSet("tokens", prompts), ids)


def run(model, source, probe):
    base = capture(model, source.prompts, source.ids, probe.needs)
    return probe.analyse(base, read_conditions(model, source, probe.conditions(base)))


def one_feature_tells(loud):
    """All prompts end alike, and the only thing that comes from elsewhere is one feature of the head outputs."""
    model = fresh_model("llama")
    layers = model.module.model.layers
    with torch.no_grad():
        for layer in (0, 2):
            layers[layer].self_attn.o_proj.weight.zero_()
        layers[2].mlp.down_proj.weight.zero_()
        layers[1].mlp.down_proj.weight.zero_()
        out = layers[1].self_attn.o_proj.weight
        out.zero_()
        direction = model.module.lm_head.weight[17]
        out[:, HEAD * 12 + DIM] = 2.0 * direction / direction.norm() / loud
        layers[1].self_attn.v_proj.weight[DIM] *= loud  # of KV head 0, which serves heads 0 and 1
    return model


@pytest.mark.parametrize(
    ("axis", "loud"), quick([("encoding", 6.0)], [("leace", 1.0), ("ridge", 1.0), ("encoding", 6.0), ("pc1", 6.0)])
)
def test_an_axis_that_carries_everything_is_found_causal(axis, loud):
    found = run(one_feature_tells(loud), tokens(last=3), replace(PROBE, axis=axis))
    beyond = found["kl_beyond_controls"]
    assert found["axis_r2"].value > (0.8 if axis in ("leace", "ridge") else 0.3)
    assert beyond.value > beyond.null.band[1] and beyond.interval[0] > 0.4 * found["kl"].value
    assert found["kl_z"].value > 2, "refits lean to a loud feature too"
    assert found["kl_of_resample"].value > 0.3, "resampling doubles the variance of what removal takes out"
    if axis == "pc1":
        assert beyond.p is None, "it does not depend on the entropies: there is nothing to exchange"
    else:
        assert beyond.p == 1 / 40
        moved = found["entropy_moved_beyond_controls"]
        assert moved.value > moved.null.band[1] and (axis == "encoding" or moved.p == 1 / 40)
        assert found["kl_beyond_random"].stands_out and found["kl_beyond_random"].p is None
    saved = found.arrays[f"z.{axis}.axis"][1]
    # with head 0 the same values are mixed by another pattern: the ridge axis may share some of it
    assert abs(saved[HEAD * 12 + DIM]) > (0.8 if axis in ("leace", "ridge") else 0.6)


@pytest.mark.parametrize("axis", ["encoding", "leace"])
def test_an_axis_that_is_a_copy_nobody_reads_is_found_inert(axis):
    """A feature of the values tells the entropy best and loudest, and W_O maps it to zero in both heads it serves.

    The entropy is mostly that of the last token: what comes from elsewhere is turned down.
    """
    model, source = fresh_model("llama"), tokens(last=None)
    layer = model.module.model.layers[1]
    entering = Need("resid")
    with torch.no_grad():
        for each in (0, 2):
            model.module.model.layers[each].self_attn.o_proj.weight.zero_()
        layer.self_attn.o_proj.weight *= 0.3
        for head in (0, 1):
            layer.self_attn.o_proj.weight[:, head * 12 + DIM] = 0.0
        base = capture(model, source.prompts, source.ids, [entering])
        x = layer.input_layernorm(torch.from_numpy(base[entering][1])).double().numpy()
        entropy = base.rows["next_entropy_bits"]
        w = np.linalg.lstsq(x - x.mean(axis=0), entropy - entropy.mean(), rcond=None)[0]
        layer.self_attn.v_proj.weight[DIM] = torch.from_numpy(200 * w)
    probe = replace(PROBE, site="v", axis=axis)
    found = run(model, source, probe)
    after = capture(model, source.prompts, source.ids, [entering]).rows["next_entropy_bits"]
    np.testing.assert_array_equal(after, entropy, err_msg="nobody reads the copy")
    kl, beyond, random = (found[name] for name in ("kl", "kl_beyond_controls", "kl_beyond_random"))
    assert found["axis_r2"].value > 0.3, "the entropy can be told from it"
    assert abs(found.arrays[f"v.{axis}.displacement"][1][DIM]) > 0.9 * np.linalg.norm(
        found.arrays[f"v.{axis}.displacement"][1]
    )
    assert beyond.standing() != "above" and found["kl_z"].value < 0
    assert random.value < random.null.band[0] and random.interval[1] < 0 and kl.value < -0.2 * random.value
    assert found["resample_kl"].value > 10 * kl.value, "and the layer is used: a cut could have told"
