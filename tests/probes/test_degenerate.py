"""Data with nothing in it, given to every probe that reads a capture: findings with reasons, or a refusal in words.

Never a silent number, a bare exception or a numpy warning: warnings are errors in all tests.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from interp.prompts.evidence import draw_problems, evidence_columns, posterior

from interp.capture import Capture
from interp.errors import InterpError, ModelError, PromptError
from interp.findings import Findings
from interp.need import Need
from interp.probe import Probe
from interp.prompting.pools import refuse_few
from interp.registry import entries, load_entry
from interp.testing import Shape, _check_findings, synthetic_capture
from tests.quick import quick

FEW = {"n_permutations": 24, "n_bootstrap": 20, "n_null": 20, "n_splits": 2, "interchange": False}
READ_UNEDITED = tuple(
    name for name in entries("probe") if load_entry("probe", name).observational or name in ("belief", "causal")
)
N = 30


def small(name: str) -> Probe:
    probe = load_entry("probe", name)()
    return replace(probe, **{key: value for key, value in FEW.items() if key in probe.parameters()})


def noise(probe: Probe, **changes: np.ndarray) -> Capture:
    """Evidence at five amounts, exact posteriors, tokens that recur, one frame: everything a probe may ask for."""
    rng = np.random.default_rng(0)
    problems = draw_problems((0, 1, 2, 4, 8), N // 5, 0.9, rng)
    known = evidence_columns(problems.shown, 0.9)
    columns = known | {
        "problem": np.arange(N),
        "token": np.arange(N) % 6,
        "domain": np.array(["code", "news"])[np.arange(N) % 2],
    }
    return synthetic_capture(
        probe.needs, Shape(N), columns=columns | changes, posterior=posterior(known["log_odds_bits"]),
        outcome_ids=np.where(problems.swapped[:, None], [[7, 3]], [[3, 7]]),
    )  # fmt: skip


def changed(capture: Capture, change: Callable[[Need, np.ndarray], np.ndarray]) -> Capture:
    arrays = {
        need: {name: change(need, array.copy()) for name, array in reduced.items()}
        for need, reduced in capture.arrays.items()
    }
    return replace(capture, arrays=arrays)


def is_captured(need: Need, array: np.ndarray) -> bool:
    return need.described.source != "weights" and array.size > 0


def all_rows_the_first(need: Need, array: np.ndarray) -> np.ndarray:
    rows = 0 if need.described.layers == "once" else 1
    return np.repeat(array.take([0], axis=rows), array.shape[rows], axis=rows) if is_captured(need, array) else array


def every_other_column_constant(need: Need, array: np.ndarray) -> np.ndarray:
    if is_captured(need, array) and "outcome" not in need.described.axes and array.ndim > 2:
        array[..., ::2] = 0.5
    return array


def nothing_at_all(need: Need, array: np.ndarray) -> np.ndarray:
    return array if "outcome" in need.described.axes else np.zeros_like(array)


CASES: dict[str, Callable[[Probe], Capture]] = {
    "all rows are one": lambda probe: changed(noise(probe), all_rows_the_first),
    "constant columns": lambda probe: changed(noise(probe), every_other_column_constant),
    "everything is zero": lambda probe: changed(noise(probe), nothing_at_all),
    "equal entropies": lambda probe: noise(probe, next_entropy_bits=np.full(N, 2.0)),
    "one amount of evidence": lambda probe: noise(probe, k=np.zeros(N, dtype=int), log_odds_bits=np.zeros(N)),
    "one token and one domain": lambda probe: noise(probe, token=np.zeros(N, dtype=int), domain=np.full(N, "code")),
    "fewer prompts than features": lambda probe: synthetic_capture(probe.needs, Shape(5, d_model=64, d_head=32)),
    "two prompts": lambda probe: synthetic_capture(probe.needs, Shape(2)),
    "one prompt": lambda probe: synthetic_capture(probe.needs, Shape(1)),
    "one layer, one head": lambda probe: synthetic_capture(probe.needs, Shape(N, n_layers=1, n_heads=1, n_kv_heads=1)),
    "two of thirty prompts are drawn": lambda probe: noise(probe, drawn=np.arange(N) < 2),
    "one of three clusters is drawn": lambda probe: noise(probe, drawn=np.arange(N) < 10, cluster=np.arange(N) // 10),
    "sequences of equal entropies": lambda probe: synthetic_capture(
        probe.needs, Shape(8, n_scored=4), columns={"next_entropy_bits": np.full(32, 2.0)}
    ),
}  # fmt: skip


def spoken(probe: Probe, capture: Capture) -> Findings | InterpError:
    """What the probe says: findings that keep the contract and can be drawn, or an error of ours with its advice."""
    try:
        refuse_few(capture.prompts, probe)
        found = probe.analyse(capture, {})
    except InterpError as refusal:
        assert refusal.asked and refusal.found and refusal.fix
        return refusal
    _check_findings(probe, found)
    for figure in probe.figures(found):
        figure.plot.to_json()
    return found


QUICK = (
    "all rows are one",
    "equal entropies",
    "one token and one domain",
    "one prompt",
    "one of three clusters is drawn",
)


@pytest.mark.parametrize("case", quick(QUICK, CASES))
@pytest.mark.parametrize("name", READ_UNEDITED)
def test_degenerate_data_gives_reasons_or_a_refusal(name: str, case: str) -> None:
    probe = small(name)
    spoken(probe, CASES[case](probe))


def one_nan(capture: Capture, spoilt: Need) -> Capture:
    def spoil(need: Need, array: np.ndarray) -> np.ndarray:
        if need == spoilt and array.size and array.dtype.kind == "f":
            array.reshape(-1)[array.size // 2] = np.nan
        return array

    return changed(capture, spoil)


NEEDS = [(name, need) for name in READ_UNEDITED for need in small(name).needs]
NOT_READ_HERE = {
    ("components", "lens_log_prob"): "only wind tunnels are compared with the exact posterior",
    ("causal", "v@all"): "only the edit reads it",
    ("qk_alignment", "pattern_log_weight"): "whole rows are read in wind tunnels alone; NaN stands for an unseen key",
    ("qk_alignment", "k_pre@tunnel"): "there are no rows of a tunnel here",
    ("qk_alignment", "mass_previous@tunnel"): "there are no rows of a tunnel here",
}


def _name(need: Need) -> str:
    return need.site if need.at == "scored" else f"{need.site}@{need.at}"


@pytest.mark.parametrize(("name", "need"), NEEDS, ids=[f"{name} {_name(need)}" for name, need in NEEDS])
def test_one_nan_never_leaves_a_silent_number(name: str, need: Need) -> None:
    probe = small(name)
    sound = noise(probe)
    spoilt = one_nan(sound, need)
    said = spoken(probe, spoilt)
    if (name, _name(need)) in NOT_READ_HERE:
        before = spoken(probe, sound)
        assert isinstance(said, Findings) and isinstance(before, Findings)
        assert repr(said.scalars) == repr(before.scalars), "it is read after all"
        return
    if isinstance(said, Findings):
        before = spoken(probe, sound)
        assert isinstance(before, Findings)
        lost = [key for key in before.scalars if np.isfinite(before[key].value) and np.isnan(said[key].value)]
        kept = [key for key in before.scalars if key not in lost]
        assert lost, "no number noticed"
        assert all(repr(said[key]) == repr(before[key]) for key in kept), "a number changed and did not say so"
    else:
        assert isinstance(said, ModelError | PromptError)


@pytest.mark.parametrize(
    "name", [name for name in READ_UNEDITED if any(n.site in "vzresid" for n in small(name).needs)]
)
def test_an_entropy_that_is_nan_is_refused(name: str) -> None:
    probe = small(name)
    entropies = np.r_[np.nan, np.linspace(0, 3, N - 1)]
    with pytest.raises(ModelError, match="entropies of synthetic"):
        probe.analyse(noise(probe, next_entropy_bits=entropies), {})
