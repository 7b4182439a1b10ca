"""The manifold probe on planted truth, on noise, and on captures that go wrong."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from interp.probes.manifold.figures import _add_axis, _loudest
from interp.probes.manifold.probe import Manifold
from interp.probes.measures.target import Target
from scipy import stats

from interp.capture import Capture
from interp.errors import ModelError
from interp.findings import Findings
from interp.statistics.entropy_draw import entropy_quintiles
from interp.table import LABEL, Table
from interp.testing import Shape, synthetic_capture
from tests.captures import planted_curve

QUICK = Manifold(n_permutations=99, n_null=20, n_bootstrap=100, per_quintile=6)
SHAPE = Shape(n_prompts=75, n_layers=3)


def capture_of(values: np.ndarray, shape: Shape = SHAPE, **columns: np.ndarray) -> Capture:
    """A capture with these values `[layer, row, feature]`."""
    planted = values.reshape(*values.shape[:2], shape.n_kv_heads, -1)
    return synthetic_capture(Manifold().needs, shape, planted={"v": planted}, columns=columns)


def noise(seed: int, shape: Shape = SHAPE) -> np.ndarray:
    rows = shape.n_prompts * shape.n_scored
    return np.random.default_rng(seed).standard_normal((shape.n_layers, rows, shape.n_kv_heads * shape.d_head))


def curve_findings() -> Findings:
    """A curve ordered by entropy in the last layer, noise in the others."""
    rng = np.random.default_rng(0)
    entropy = rng.uniform(0, 8, 75)
    values = noise(0) * 0.1
    values[-1] = planted_curve(entropy, 16, rng)
    return QUICK.analyse(capture_of(values, next_entropy_bits=entropy), {})


def test_a_planted_curve_is_found_in_its_layer_and_order() -> None:
    found = curve_findings()
    assert found["pc1_plus_pc2_share"].value > 0.98
    assert found["participation_ratio"].value < 2.1
    assert found["curve_order"].value > 0.99 and found["curve_order"].p == pytest.approx(0.01)
    null = found["pc1_plus_pc2_share"].null
    assert null is not None and found["pc1_plus_pc2_share"].value > null.band[1]
    assert found["intrinsic_dimension"].value < 16
    table = found.tables["by_layer"]
    assert (table["curve_order_p"][:2] > 0.05).all() and table["curve_order_p"][2] == pytest.approx(0.01)


def test_every_number_of_a_layer_equals_its_definition() -> None:
    rng = np.random.default_rng(1)
    entropy, values = rng.exponential(size=75), noise(1) * np.linspace(0.5, 3, 16)
    found = QUICK.analyse(capture_of(values, next_entropy_bits=entropy), {})
    for layer in range(3):
        covariance = np.cov(values[layer].T)
        eigen, vectors = np.linalg.eigh(covariance)
        table = found.tables["by_layer"]
        assert table["pc1_share"][layer] == pytest.approx(eigen[-1] / eigen.sum())
        assert table["pc1_plus_pc2_share"][layer] == pytest.approx(eigen[-2:].sum() / eigen.sum())
        assert table["participation_ratio"][layer] == pytest.approx(eigen.sum() ** 2 / np.square(eigen).sum())
        rho = stats.spearmanr(values[layer] @ vectors[:, -1], entropy)[0]
        assert table["entropy_correlation"][layer] == pytest.approx(abs(rho))
        axis = found.arrays["pc1_axis"][layer]
        assert abs(axis @ vectors[:, -1]) == pytest.approx(1)
        np.testing.assert_allclose(found.arrays["mean"][layer], values[layer].mean(axis=0))


@pytest.mark.slow
def test_z_scores_and_constant_columns_leave_the_correlation_matrix() -> None:
    values = noise(2) * np.linspace(0.01, 30, 16)
    found = replace(QUICK, scaling="zscored").analyse(capture_of(values), {})
    eigen = np.linalg.eigvalsh(np.corrcoef(values[-1].T))
    assert found["pc1_share"].value == pytest.approx(eigen[-1] / 16)
    centred = QUICK.analyse(capture_of(values), {})
    assert centred["pc1_share"].value > 1.5 * found["pc1_share"].value
    values = noise(7)
    values[:, :, 3:6] = 2.5
    without = np.delete(values, [3, 4, 5], axis=2)
    for scaling in ("centred", "zscored"):
        found = replace(QUICK, scaling=scaling).analyse(capture_of(values), {})
        rows = (without[-1] - without[-1].mean(axis=0)) / (without[-1].std(axis=0) if scaling == "zscored" else 1)
        eigen = np.linalg.eigvalsh(rows.T @ rows)
        assert found["pc1_share"].value == pytest.approx(eigen[-1] / eigen.sum())


def domain_capture(collapsed: bool, seed: int) -> Capture:
    """Three domains; the values of the first lie near a plane where `collapsed`."""
    n, rng = 240, np.random.default_rng(seed)
    shape = Shape(n_prompts=n, n_layers=2)
    domain, values = np.array(["algebra", "botany", "code"])[np.arange(n) % 3], noise(seed, shape)
    if collapsed:
        values[:, domain == "algebra", 2:] *= 0.2
    entropy = rng.uniform(0, 8, n)
    draw = entropy_quintiles(entropy, 15, rng)
    drawn = np.isin(np.arange(n), draw.index)
    columns = {"domain": domain, "next_entropy_bits": entropy, "drawn": drawn, "stratum": draw.stratum}
    return capture_of(values, shape, **columns)


def test_collapses_are_found() -> None:
    found = QUICK.analyse(domain_capture(True, 0), {})
    table = found.tables["collapse"].to_frame().set_index("set")
    assert found["collapse"].p == pytest.approx(0.01) and "algebra" in found["collapse"].meaning
    assert found["collapse"].interval is not None and found["collapse"].interval[0] > 0.2
    assert found["collapse"].value == pytest.approx(table.loc["algebra", "share"] - table.loc["mixed", "share"])
    assert (table.loc[["botany", "code"], "share_change_p"] > 0.05).all()
    assert found["collapse_participation_ratio"].value < -4


def test_entropies_are_held_against_all_prompts_and_the_drawn_ones_stand_beside_them() -> None:
    capture = domain_capture(False, 1)
    found = QUICK.analyse(capture, {})
    assert found["entropy_correlation"].n == 240 and found["entropy_correlation_drawn"].n == 75
    assert found["pc1_share"].n == 75
    alone = QUICK.analyse(capture.drawn, {})
    assert alone["pc1_share"].value == found["pc1_share"].value
    assert alone["entropy_correlation"].value == found["entropy_correlation_drawn"].value
    assert "entropy_correlation_drawn" not in alone.scalars
    assert [c.scalar for c in found.controls["curve_order"]] == ["curve_order_within_token", "curve_order_drawn"]
    assert any("inflates" in note for note in found.notes)


def sequences(seed: int, extra: float = 0.0) -> Capture:
    """Sequences whose entropy falls with position, and an axis that follows position (and `extra` of the rest)."""
    rng = np.random.default_rng(seed)
    shape = Shape(n_prompts=60, n_scored=5, n_layers=2)
    position = np.tile(np.arange(5.0), 60)
    own = rng.standard_normal(300) * 0.5
    values = noise(seed, shape) * 0.3
    values[:, :, 0] += 4 * (position - extra * own)
    columns = {"next_entropy_bits": 8 - position + own, "bayes_entropy_bits": 8 - position + own}
    return capture_of(values, shape, **columns)


def test_in_sequences_position_is_the_null_and_what_goes_beyond_it_found() -> None:
    found = QUICK.analyse(sequences(0), {})
    assert found["entropy_correlation"].value > 0.8
    assert found["entropy_correlation"].null is not None and found["entropy_correlation"].null.value > 0.8
    assert found["entropy_correlation"].p is not None and found["entropy_correlation"].p > 0.05
    assert found["entropy_correlation_within_position"].p is not None
    assert found["entropy_correlation_within_position"].p > 0.05
    assert found["entropy_correlation"].n == 60 and found["entropy_correlation"].n_unit == "sequence"
    assert found["bayes_entropy_correlation"].value == found["entropy_correlation"].value
    found = QUICK.analyse(sequences(0, extra=1.0), {})
    assert found["entropy_correlation_within_position"].value > 0.8
    assert found["entropy_correlation_within_position"].p == pytest.approx(0.01)
    assert found["entropy_correlation"].p == pytest.approx(0.01)


@pytest.mark.slow
def test_a_layer_that_depends_on_the_last_token_alone_is_underpowered() -> None:
    rng = np.random.default_rng(5)
    values = noise(5)
    token = rng.integers(0, 6, 75)
    values[0] = noise(6)[0][token]
    found = replace(QUICK, layer=0).analyse(capture_of(values, token=token), {})
    assert found["pc1_share"].n_distinct_rows == 6 and found["pc1_share"].underpowered
    assert np.isnan(found["intrinsic_dimension"].value)
    assert not QUICK.analyse(capture_of(values), {})["pc1_share"].underpowered


def test_rows_and_numbers_that_say_nothing_give_reasons() -> None:
    found = QUICK.analyse(capture_of(np.ones_like(noise(0)), domain=np.array(list("ab") * 37 + ["a"])), {})
    for name, scalar in found.scalars.items():
        assert np.isnan(scalar.value) and scalar.interval_reason and scalar.null_reason, name
    assert any("same point" in note for note in found.notes)
    values = noise(9)
    values[1, 5, 3] = np.nan
    with pytest.raises(ModelError, match=r"values of synthetic at layer 1: 1 of 1200 numbers are not finite"):
        QUICK.analyse(capture_of(values), {})


@pytest.mark.parametrize(
    ("domain", "note"),
    [
        (None, "the prompts have no column `domain`"),
        pytest.param(np.full(75, "prose"), "all prompts are of one domain", marks=pytest.mark.slow),
        pytest.param(np.array(["prose"] * 70 + ["code"] * 5), "fewer than two domains", marks=pytest.mark.slow),
    ],
)
def test_without_domains_to_compare_a_note_says_why(domain: np.ndarray | None, note: str) -> None:
    columns = {} if domain is None else {"domain": domain}
    found = QUICK.analyse(capture_of(noise(0), **columns), {})
    assert any(note in n for n in found.notes) and "collapse" not in found.scalars


def test_figures_are_drawn_from_the_findings_and_escape_what_prompts_say() -> None:
    capture = domain_capture(True, 0)
    hostile = np.where(capture.rows["domain"] == "code", "<b>code</b>", capture.rows["domain"])
    rows = capture.rows.with_column("domain", hostile, LABEL)
    found = QUICK.analyse(replace(capture, tables={"scored": rows}), {})
    figures = {figure.name: figure for figure in QUICK.figures(found)}
    assert {"map", "pc1_plus_pc2_share", "spectrum", "collapse"} <= set(figures)
    hover = figures["map"].plot.data[1].text
    assert any("&lt;b&gt;code" in line for line in hover) and not any("<b>" in line for line in hover)
    assert len(figures["map"].plot.layout.sliders[0].steps) == 2


def test_the_entropy_axis_of_the_map_points_where_entropy_rises_in_its_plane() -> None:
    """Entropy planted along (3, 4) of the plane: the arrow has that direction, and says how much the plane tells."""
    rng = np.random.default_rng(5)
    pc1, pc2 = rng.normal(size=400) * 5, rng.normal(size=400)
    columns = {"pc1": pc1, "pc2": pc2, "next_entropy_bits": 3 * pc1 + 4 * pc2 + 7}
    plot = go.Figure()
    assert _add_axis(plot, Table(columns, dict.fromkeys(columns, "1")), ("pc1", "pc2"), Target())
    (arrow,) = plot.data
    across, up = np.diff(arrow.x)[0], np.diff(arrow.y)[0]
    assert up / across == pytest.approx(4 / 3) and across > 0
    assert np.hypot(across, up) == pytest.approx(4 * np.std((3 * pc1 + 4 * pc2) / 5))
    assert "explains 1.00 of" in arrow.hovertemplate
    level = {**columns, "next_entropy_bits": np.ones(400)}
    assert not _add_axis(plot, Table(level, dict.fromkeys(level, "1")), ("pc1", "pc2"), Target())


def test_the_map_names_a_prompt_that_is_the_first_axis_by_itself() -> None:
    def words(loud: float) -> str:
        pc1 = np.array([loud, *np.ones(20), *-np.ones(20)])
        columns = {"pc1": pc1, "prompt": np.arange(41), "text": np.array([f"text {i}" for i in range(41)])}
        return _loudest(Table(columns, dict.fromkeys(columns, "1")))

    assert "“text 0”, makes 71 % of PC1's variance" in words(10.0) and words(1.0) == ""


def test_the_slider_of_the_map_shows_one_layer_with_its_axis_and_the_null_at_the_primary_one() -> None:
    found = curve_findings()
    plot = next(figure for figure in QUICK.figures(found) if figure.name == "map").plot
    names = [trace.name for trace in plot.data]
    assert names == ["null: noise of the same size", "layer 0", "layer 1", "layer 2", *["entropy axis"] * 3]
    shown = np.array([step.args[0]["visible"] for step in plot.layout.sliders[0].steps])
    np.testing.assert_array_equal(shown[:, 1:4], np.eye(3, dtype=bool))
    np.testing.assert_array_equal(shown[:, 4:], np.eye(3, dtype=bool))
    assert shown[:, 0].tolist() == [layer == int(found.arrays["primary_layer"]) for layer in range(3)]


@pytest.mark.parametrize(("per_quintile", "is_compared"), [(3, False), (4, True)])
def test_domains_are_compared_with_twenty_prompts_or_more(per_quintile: int, is_compared: bool) -> None:
    probe = replace(QUICK, per_quintile=per_quintile, n_permutations=19)
    found = probe.analyse(domain_capture(True, 0), {})
    assert ("collapse" in found.scalars) is is_compared
    if is_compared:
        table = found.tables["collapse"]
        assert (table["n"] == 20).all() and found["collapse"].n == 20
        change = table["share_change"][1:]
        assert found["collapse"].value == pytest.approx(change.max())
        ratio = table["ratio_change"][1:]
        assert found["collapse_participation_ratio"].value == pytest.approx(ratio.min())
        for name, statistic, best in (
            ("collapse", "share", change.argmax()),
            ("collapse_participation_ratio", "ratio", ratio.argmin()),
        ):
            ends = (table[f"{statistic}_change_low"][1 + best], table[f"{statistic}_change_high"][1 + best])
            assert found[name].interval == pytest.approx(ends) and found[name].interval_reason == ""
            assert found[name].p == table[f"{statistic}_change_p"][1 + best]
        assert np.isnan([table["share_change"][0], table["ratio_change_p"][0]]).all(), (
            "the mixed set is compared with none"
        )
