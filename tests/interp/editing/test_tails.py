"""Passes over ends of prompts: what they give is what whole passes give, and the tokens before pass once."""

import numpy as np
import pytest

from interp.editing.conditions import read_conditions
from interp.editing.tails import Prefixes, tail_starts
from interp.edits import AblateHeads, AttentionOff, RemoveAxis, ReplaceCoordinates
from interp.need import Need
from interp.probe import Condition
from interp.reading.batches import RowIndex, row_index
from tests.interp.editing.test_conditions import axis, token_run
from tests.interp.test_families import tiny
from tests.quick import quick
from tests.tiny_models import FAMILIES, fresh_model, shapes_of_passes

NEEDS = (Need("next_log_prob"), Need("next_kl"), Need("edit_size"))
LENGTHS = (9, 13, 4, 9, 2)


def everything(under):
    return {need.site: under[need] for need in NEEDS}


def at_the_end(model, at="scored"):
    """Conditions at every kind of site, in every layer, that edit the last positions alone."""
    info, rng = model.info, np.random.default_rng(0)
    conditions = [Condition("plain", (), NEEDS, lambda under: {need.site: under[need] for need in NEEDS[:2]})]
    for i in range(3):
        values, frame = rng.normal(size=(len(LENGTHS), 2)), np.linalg.qr(rng.normal(size=(info.d_model, 2)))[0].T
        for depth in range(info.n_layers + 1):
            swap = ReplaceCoordinates(layer=depth, site="resid", axis=frame, values=values, at=at)
            conditions.append(Condition(f"swap {depth} {i}", (swap,), NEEDS, everything))
        for site, d in (("v", info.n_kv_heads), ("k", info.n_kv_heads), ("q", info.n_heads), ("z", info.n_heads)):
            cut = RemoveAxis(layer=1, site=site, axis=axis(i, d * info.d_head), at=at)
            conditions.append(Condition(f"{site} {i}", (cut,), NEEDS, everything))
        off = (AblateHeads(layer=0, heads=i, at=at), AttentionOff(layer=1, at=at))
        conditions.append(Condition(f"off {i}", off, NEEDS, everything))
    return conditions


ON_TAILS = ("llama", "gpt_neox", "phi", "gpt2", "gpt_oss", "gemma2", "gemma3_text", "qwen3", "granite", "phi3")
ALL_OR_WHOLE = ("mistral", "opt", "gptj", "bloom", "mpt", "falcon", "gpt_neo")
"""Some of these have a window, or take no masks or positions of ours."""


@pytest.mark.parametrize("family", quick(["llama", "gpt_neox", "gpt2", "gemma2", "gpt_oss"], ON_TAILS + ALL_OR_WHOLE))
def test_ends_of_prompts_give_what_whole_ones_give(family):
    wide = {"sliding_window": 64} if family in ("gpt_oss", "gemma2", "gemma3_text") else {}
    model, source = fresh_model(family) if family in FAMILIES else tiny(family, **wide), token_run(LENGTHS)
    conditions, passes = at_the_end(model), shapes_of_passes(model)
    short = read_conditions(model, source, conditions)
    assert family in ALL_OR_WHOLE or np.median([n * length for n, length in passes]) <= 3 * len(LENGTHS)
    whole = read_conditions(model, source, conditions, restart=False)
    assert short["swap 1 0"]["next_kl"].max() > 1e-3
    for name, expected in whole.items():
        for site, array in expected.items():
            np.testing.assert_allclose(short[name][site], array, rtol=1e-3, atol=5e-5, err_msg=f"{name} {site}")


@pytest.mark.parametrize("change", ["at", "needs", "few", "resampled"])
def test_passes_are_whole_where_more_is_read_or_edited(change, monkeypatch):
    """All positions edited or read, too few conditions, or outputs of other prompts: no keys are kept."""
    model, source = fresh_model("llama"), token_run(LENGTHS)
    monkeypatch.setattr("interp.editing.conditions.Lending", None)
    needs = (*NEEDS, Need("next_loss", at="followed")) if change == "needs" else NEEDS
    made = {
        "at": lambda i: RemoveAxis(layer=1, axis=axis(i), at="all"),
        "resampled": lambda i: AblateHeads(layer=1, heads=i % 4, by="resample", at="last"),
    }.get(change, lambda i: RemoveAxis(layer=1, axis=axis(i), at="last"))
    conditions = [Condition(str(i), (made(i),), needs, everything) for i in range(3 if change == "few" else 6)]
    assert len(read_conditions(model, source, conditions)) == len(conditions)


def test_a_model_whose_ends_do_not_agree_is_read_whole(monkeypatch):
    model, source = fresh_model("llama"), token_run(LENGTHS)
    conditions = at_the_end(model)
    whole = read_conditions(model, source, conditions, restart=False)
    after = Prefixes.after

    def wrong(self, call, z):
        after(self, call, z)
        self._kept[call.layer] += 1.0
        return z

    monkeypatch.setattr(Prefixes, "after", wrong)
    read = read_conditions(model, source, conditions)
    for name, expected in whole.items():
        np.testing.assert_allclose(read[name]["next_kl"], expected["next_kl"], rtol=1e-3, atol=5e-5)


def test_a_tail_starts_at_the_first_edited_position_and_nothing_before_is_read():
    source = token_run((9, 6), scored=(1, 5))
    lengths = source.lengths
    scored, last = (row_index(source.prompts, lengths, at) for at in ("scored", "last"))
    assert tail_starts([last], [last], lengths).tolist() == [8, 5]
    assert tail_starts([last], [scored], lengths) is None
    assert tail_starts([scored], [scored], lengths) is None  # most tokens lie behind
    middle = RowIndex(np.array([0, 0, 1]), np.array([8, 5, 5]))
    assert tail_starts([last, middle], [last], lengths).tolist() == [5, 5]
