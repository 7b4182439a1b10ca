"""The same numbers again: of one command, over threads, orders of prompts, cuts into batches, and bases of values."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import ortho_group

from interp.need import Need
from interp.reading.forward import capture
from interp.reductions import PromptMean
from interp.registry import load_entry
from interp.testing import Shape, synthetic_capture
from tests.interp.hooks.test_ropes import prompts_of
from tests.interp.system.test_processes import sequences
from tests.quick import quick
from tests.tiny_models import FAMILIES, VOCAB, tiny_model

NEEDS = (
    Need("v"),
    Need("resid"),
    Need("pattern_entropy"),
    Need("next_loss", at="followed"),
    Need("v", PromptMean(), "all"),
)
CLOSE = {"rtol": 1e-4, "atol": 1e-5}
"""Another batch is another shape of the same products: float32 rounds elsewhere."""


def captured(family: str, ids: list[np.ndarray], tokens_per_batch: int = 10_000):
    return capture(tiny_model(family), prompts_of(*ids), ids, NEEDS, tokens_per_batch=tokens_per_batch)


@settings(max_examples=20, deadline=None)
@given(
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 3),
    cut=st.integers(1, 120),
    longer=st.sampled_from([0, 13, 40]),
)
def test_no_number_depends_on_the_cut_into_batches_or_on_a_longer_prompt_beside_it(family, seed, cut, longer):
    _, ids = sequences(9, seed)
    whole = captured(family, [*ids, *([np.arange(longer) % VOCAB] if longer else [])])
    parts = captured(family, ids, cut)
    for need in NEEDS[:3]:
        np.testing.assert_allclose(parts[need], whole[need][:, : len(ids)], **CLOSE)
    for need in () if longer else NEEDS[3:]:
        for name, array in whole.reduced(need).items():
            np.testing.assert_allclose(parts.reduced(need)[name], array, **CLOSE, err_msg=f"{need} {name}")


@settings(max_examples=12, deadline=None)
@given(family=st.sampled_from(FAMILIES), seed=st.integers(0, 3), order=st.permutations(range(9)))
def test_the_order_of_the_prompts_is_the_order_of_the_rows_and_nothing_else(family, seed, order):
    _, ids = sequences(9, seed)
    as_given, reordered = captured(family, ids), captured(family, [ids[i] for i in order], 30)
    for need in (*NEEDS[:3], NEEDS[4]):
        np.testing.assert_allclose(reordered[need], as_given[need][:, list(order)], **CLOSE)
    np.testing.assert_allclose(
        reordered.rows["next_entropy_bits"], as_given.rows["next_entropy_bits"][list(order)], **CLOSE
    )


def turned(values: np.ndarray, seed: int) -> np.ndarray:
    """Every layer's values, heads side by side, in another orthonormal basis."""
    flat = values.reshape(*values.shape[:2], -1)
    turns = [ortho_group.rvs(flat.shape[-1], random_state=seed + k) for k in range(len(flat))]
    return np.stack([layer @ turn for layer, turn in zip(flat, turns, strict=True)]).reshape(values.shape)


@pytest.mark.parametrize("seed", quick([0], [0, 1]))
def test_centred_geometry_and_ridge_axes_do_not_know_the_basis_of_the_values(seed):
    """Promised of covariances and distances; not of single coordinates (`_dropped`), z-scores, or nulls by column."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((2, 60, 2, 8)) * rng.uniform(0.5, 3, (1, 1, 2, 8))
    entropy = 5 + values[-1, :, 0, 0] + rng.standard_normal(60)
    columns = {"next_entropy_bits": entropy, "token": np.arange(60) % 3}
    promised = {
        "manifold": ("pc1_share", "pc1_plus_pc2_share", "participation_ratio", "intrinsic_dimension",
                     "entropy_correlation", "curve_order", "axis_stability"),
        "value_axis": ("r2", "correlation", "pc1_r2", "axis_cosine", "selectivity", "r2_beyond_token"),
    }  # fmt: skip
    small = {
        "manifold": {"n_permutations": 24, "n_null": 20, "n_splits": 2, "n_bootstrap": 20},
        "value_axis": {"n_permutations": 24, "sites": ("v",)},
    }
    for name, numbers in promised.items():
        probe = load_entry("probe", name)(**small[name])
        found, again = (
            probe.analyse(
                synthetic_capture(probe.needs, Shape(60, n_layers=2), planted={"v": v}, columns=columns),
                {},
            )
            for v in (values, turned(values, seed))
        )
        for number in numbers:
            assert again[number].value == pytest.approx(found[number].value, rel=1e-6, abs=1e-9), number
            if found[number].interval is not None:
                assert again[number].interval == pytest.approx(found[number].interval, rel=1e-5, abs=1e-8), number
