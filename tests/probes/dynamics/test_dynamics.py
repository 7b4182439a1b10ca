"""Dynamics: planted trainings with known curves, the formulas by brute force, and the null over noise worlds."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.dynamics.entropy_order import EntropyOrder, ordered_statistics
from interp.probes.dynamics.probe import Dynamics
from interp.probes.dynamics.read import MAX_POINTS, NEEDS, of_another, row_distances, shown_rows
from interp.probes.measures.cloud import Cloud
from scipy.spatial.distance import jensenshannon

from interp.errors import UsageError
from interp.need import Need
from interp.testing import Shape, same_findings, synthetic_capture
from tests.captures import planted_curve
from tests.read_back import not_in_tables

STEPS = (0, 10, 100, 1000)
PROBE = Dynamics(n_permutations=40, n_bootstrap=60)
SHAPE = Shape(
    n_prompts=30, n_scored=5, n_layers=2, n_heads=4, n_kv_heads=2, d_head=4, d_model=12, vocab_size=6, n_keys=9
)
N_ROWS = SHAPE.n_prompts * SHAPE.n_scored
EARLY, LATE = (1.0, 0.5, 0.02, 0.0), (1.0, 0.9, 0.6, 0.0)


def rng_of(*seed):
    return np.random.default_rng(list(seed))


POSTERIOR = rng_of(1).dirichlet(np.ones(4), N_ROWS)
POSITION = np.tile(2 * np.arange(SHAPE.n_scored), SHAPE.n_prompts)


def attention(left):
    """Rows that are so far, in total variation, from the end's on the way to unrelated ones; later keys unseen."""
    first, last = (rng_of(2, i).dirichlet(np.ones(9), (2, N_ROWS, 4)) for i in range(2))
    seen = np.arange(9) <= POSITION[:, None]
    ends = [x * seen[None, :, None] / (x * seen[None, :, None]).sum(axis=-1, keepdims=True) for x in (first, last)]
    rows = left * ends[0] + (1 - left) * ends[1]
    with np.errstate(divide="ignore"):
        return np.where(seen[None, :, None], np.log2(rows), np.nan).astype(np.float32)


def prediction(left):
    """The exact posterior, mixed with as much of the uniform distribution."""
    p = left / 4 + (1 - left) * POSTERIOR
    with np.errstate(divide="ignore"):
        return np.log2(p).astype(np.float32), np.log2(np.pad(p, ((0, 0), (0, 2)))).astype(np.float32)


def values(left):
    curve = planted_curve(POSTERIOR.max(axis=1), 8, rng_of(3)).reshape(1, N_ROWS, 2, 4)
    return ((1 + left) * np.concatenate([curve, 2 * curve])).astype(np.float32)


def weights(left):
    ends = {s: [rng_of(4, i, n).standard_normal((2, n, 12, 4)) for i in range(2)] for s, n in
            (("W_Q", 4), ("W_K", 2))}  # fmt: skip
    return {s: ((1 - left) * end + left * start).astype(np.float32) for s, (end, start) in ends.items()}


def checkpoint(frame, error, moved):
    """A capture whose frame, prediction and values are this far from the end."""
    outcomes, following = prediction(error)
    planted = {
        "pattern_row": attention(frame), "outcome_log_prob": outcomes[None][0], "next_log_prob": following,
        "v": values(moved), **weights(frame),
    }  # fmt: skip
    columns = {"position": POSITION, "bayes_entropy_bits": -np.sum(POSTERIOR * np.log2(POSTERIOR), axis=1),
               "token": np.tile(np.arange(3), N_ROWS // 3)}  # fmt: skip
    return synthetic_capture(PROBE.needs, SHAPE, planted=planted, columns=columns, posterior=POSTERIOR)


def train(probe, *, frame, error, moved, n=30, some=None):
    """Where patterns are exchanged, the error is that of the frame with them, and of the values in the network."""

    def of(prompts, *left):
        capture = checkpoint(*left)
        return capture.where(np.isin(capture.rows["prompt"], prompts))

    some = np.arange(n) if some is None else some
    captures = [of(range(n), *left) for left in zip(frame, error, moved, strict=True)]
    final, under = captures[-1], {}
    for i, (step, capture) in enumerate(zip(STEPS, captures, strict=True)):
        permuted = [of(some, 0.0, left, 0.0) for left in (frame[i], moved[i])]
        under[str(step)] = probe.read_checkpoint(capture, final) | probe.read_exchanged(*permuted, some)
    return probe.analyse(final, under)


def kl_of(left):
    """KL of the prediction that is so far from the posterior, by the definition, for every sequence."""
    q = left / 4 + (1 - left) * POSTERIOR
    return (POSTERIOR * np.log2(POSTERIOR / q)).sum(axis=1).reshape(30, 5).mean(axis=1)


def crossing(curve):
    """Brute force: the last place of a fine grid over log(1 + step) at which the curve is outside."""
    grid = np.linspace(0, np.log1p(STEPS[-1]), 200_001)
    outside = np.interp(grid, np.log1p(STEPS), curve) > 0.1
    return np.expm1(grid[np.flatnonzero(outside)[-1]])


@pytest.fixture(scope="module")
def frame_first():
    return train(PROBE, frame=EARLY, error=LATE, moved=LATE)


def test_a_frame_that_freezes_while_values_unfurl_has_an_index_below_one(frame_first):
    expected = crossing(EARLY) / crossing(LATE)
    for name in ("dissociation_index_output", "dissociation_index_values"):
        found = frame_first[name]
        assert found.value == pytest.approx(expected, rel=2e-3) and found.value < 0.2
        assert found.p is None and found.null is None and "a description" in found.null_reason
        assert found.interval[1] < 1
    index = frame_first["dissociation_index"]
    assert index.value < 1 and index.interval[1] < 1
    assert "frame between the steps 10 and 100, the other between 100 and 1000" in index.meaning
    assert "without interpolation, the index is between 0.01 and 1." in index.meaning
    assert not index.underpowered
    assert frame_first["frame_step"].value == pytest.approx(crossing(EARLY), rel=2e-3)
    assert frame_first["frame_left"].value < 0.02


@pytest.mark.slow
def test_courses_in_reverse_or_together_have_another_index():
    found = train(PROBE, frame=LATE, error=EARLY, moved=LATE)
    index = found["dissociation_index_output"]
    assert index.value == pytest.approx(crossing(LATE) / crossing(EARLY), rel=2e-3)
    assert index.interval[0] > 1
    assert found["frame_left"].value > 0.5
    curve = (1.0, 0.7, 0.05, 0.0)
    index = train(PROBE, frame=curve, error=curve, moved=curve)["dissociation_index_output"]
    assert index.value == pytest.approx(1, rel=1e-5)
    assert index.underpowered and "the order rests on interpolation" in index.meaning


def test_the_tables_hold_the_planted_distances(frame_first):
    table = frame_first.to_frame("by_step")
    assert (table.frame_tv / table.frame_tv[0]).to_numpy() == pytest.approx(EARLY, abs=1e-5)
    assert (table.output / table.output[0]).to_numpy() == pytest.approx(LATE, abs=1e-5)
    assert (table.value_distance / table.value_distance[0]).to_numpy() == pytest.approx(LATE, abs=1e-5)
    assert table.entropy_error.iloc[-1] == pytest.approx(0, abs=1e-5)
    assert table.kl.iloc[-1] == pytest.approx(0, abs=1e-5)
    assert (table.frame_tv_low <= table.frame_tv).all() and (table.frame_tv <= table.frame_tv_high + 1e-12).all()
    assert table.frame_tv_exchanged.iloc[-1] > 0.1, "another sequence attends elsewhere"
    # the values are one curve at every checkpoint, twice as large at the first
    length, relative = table.manifold_length, table.relative_length
    assert (length / length.iloc[-1]).to_numpy() == pytest.approx([2.0, 1.9, 1.6, 1.0], rel=1e-4)
    assert relative.to_numpy() == pytest.approx(np.full(4, relative[0]), rel=1e-4)
    layers = frame_first.to_frame("by_step_layer")
    assert layers.groupby("step").frame_tv.mean().to_numpy() == pytest.approx(table.frame_tv.to_numpy())
    for table in frame_first.tables.values():
        assert all(table.units.values())


def test_identical_checkpoints_and_points_move_nothing():
    found = train(PROBE, frame=(0.3,) * 4, error=(0.5,) * 4, moved=(0.2,) * 4)
    table = found.to_frame("by_step")
    for column in ("frame_tv", "frame_js", "wqk_drift", "value_distance", "output"):
        assert table[column].abs().max() < 1e-7, column
    index = found["dissociation_index"]
    assert np.isnan(index.value) and "begins where it ends" in index.interval_reason
    found = ordered_statistics(np.ones((20, 3)), EntropyOrder.of(np.arange(20.0), 20), np.arange(20), 20, 0)
    assert found[0, 0] == 0 and np.isnan(found[1:, 0]).all() and np.isnan(found[:, 1]).all()
    assert found.shape[1] == 6, "value, interval, null and its band"


@pytest.mark.slow
def test_courses_that_do_not_settle_leave_no_index_and_say_why():
    found = train(PROBE, frame=EARLY, error=(0.4, 0.4, 0.4, 0.4), moved=LATE)
    index = found["dissociation_index"]
    assert np.isnan(index.value) and "there is nothing to approach" in index.null_reason
    assert found["frame_step"].value > 0 and np.isnan(found["error_step"].value)
    probe, captures = PROBE, [checkpoint(left, left, left) for left in (1.0, 0.8, 0.5, 0.0)]
    under = {str(step): probe.read_checkpoint(c, captures[-1]) for step, c in zip(STEPS, captures[:3])}  # noqa: B905
    index = probe.analyse(captures[-1], under)["dissociation_index"]
    assert (
        np.isnan(index.value) and "is not within 0.1 of its first distance at the last checkpoint" in index.null_reason
    )


@pytest.mark.slow
def test_the_contract_holds_with_checkpoints_too(frame_first):
    again = train(PROBE, frame=EARLY, error=LATE, moved=LATE)
    assert same_findings(frame_first, again)
    figures = PROBE.figures(frame_first)
    assert [f.name for f in figures] == ["unfurling", "courses", "refinement", "errors", "exchange"]
    worked_out = {"courses"}  # distances relative to the first
    assert {said.partition(":")[0] for said in not_in_tables(frame_first, figures)} == worked_out
    scrubber = figures[0].plot.layout.sliders[0]
    assert (
        [step.args[0][0] for step in scrubber.steps] == [f.name for f in figures[0].plot.frames] == [*map(str, STEPS)]
    )


def test_the_animation_ends_with_the_end_and_moves(frame_first):
    plot = PROBE.figures(frame_first)[0].plot
    points = frame_first.to_frame("points")
    last = points[points.step == STEPS[-1]]
    np.testing.assert_array_equal(plot.data[0].x, last.pc1)
    np.testing.assert_array_equal(plot.frames[-1].data[0].x, plot.data[0].x)
    assert np.ptp(plot.frames[0].data[0].x) > 1.9 * np.ptp(plot.frames[-1].data[0].x), "values begin twice as large"


@pytest.mark.parametrize(("n", "few"), [(19, True), (20, False)])
def test_fewer_than_twenty_prompts_are_underpowered_and_an_exchange_on_some_is_told_of_these(n, few):
    some = np.array([0, 7, 8, 15, 18])
    found = train(PROBE, frame=EARLY, error=LATE, moved=LATE, n=n, some=some)
    assert found["dissociation_index"].value < 1 and found["dissociation_index"].n == n
    assert found["dissociation_index"].underpowered == found["frame_step"].underpowered == few
    assert found["error_step"].underpowered, "it settles in the last interval"
    lead = found["exchange_lead"]
    assert lead.n == 5 and lead.value == pytest.approx((kl_of(0.6) - kl_of(0.02))[some].mean(), abs=1e-5)


def test_texts_are_followed_by_their_loss():
    shape, length = Shape(n_prompts=24, n_layers=2, n_keys=30), np.arange(24) % 9 + 20
    seen = np.arange(30) < length[:, None, None]

    def capture(seed):
        rows = rng_of(5, seed).dirichlet(np.ones(30), (2, 24, 4)) * seen
        with np.errstate(divide="ignore"):
            rows = np.where(seen, np.log2(rows / rows.sum(axis=-1, keepdims=True)), np.nan)
        made = synthetic_capture(PROBE.needs, shape, planted={"pattern_row": rows}, columns={"length": length}, seed=9)
        noise = synthetic_capture(
            PROBE.needs, shape, planted={"pattern_row": rows}, columns={"length": length}, seed=seed
        )
        losses = {need: noise.arrays[need] for need in PROBE.needs if need.site == "next_loss"}
        return replace(made, posterior=None, arrays={**made.arrays, **losses})

    captures = [capture(i) for i in range(3)]
    under = {str(i): PROBE.read_checkpoint(c, captures[-1]) for i, c in enumerate(captures)}
    found = PROBE.analyse(captures[-1], under)
    table = found.to_frame("by_step")
    loss = [
        c[Need("next_loss", next(n for n in PROBE.needs if n.site == "next_loss").reduction, "followed")]
        for c in captures
    ]
    assert table.loss.to_numpy() == pytest.approx([x.mean() for x in loss])
    assert "kl" not in table and "entropy_error" not in table
    assert table.frame_tv_exchanged.isna().all(), "texts see unlike keys"
    assert 0 < table.frame_tv[0] < 1 and table.frame_js[0] < table.frame_tv[0]
    assert "loss" in found["error_step"].meaning or "surprise" in found["error_step"].meaning


def test_without_attention_rows_or_checkpoints_it_says_so():
    shape = replace(SHAPE, n_keys=0)
    captures = [synthetic_capture(PROBE.needs, shape, seed=i) for i in range(3)]
    under = {str(i): PROBE.read_checkpoint(c, captures[-1]) for i, c in enumerate(captures)}
    index = PROBE.analyse(captures[-1], under)["dissociation_index"]
    assert np.isnan(index.value) and "no attention rows were kept" in index.null_reason
    found = PROBE.analyse(synthetic_capture(PROBE.needs, SHAPE), {})
    assert "was not read at checkpoints" in found["dissociation_index"].null_reason and not found.tables


def test_a_fraction_of_nothing_is_refused():
    with pytest.raises(UsageError, match="a fraction of the first distance"):
        train(replace(PROBE, epsilon=0.0), frame=EARLY, error=LATE, moved=LATE)


def test_the_exchange_is_the_paired_difference_of_the_errors_by_their_definition(frame_first):
    table = frame_first.to_frame("exchange")
    assert table.final_with_patterns.to_numpy() == pytest.approx([kl_of(x).mean() for x in EARLY], abs=1e-5)
    assert table.with_final_patterns.to_numpy() == pytest.approx([kl_of(x).mean() for x in LATE], abs=1e-5)
    assert table.lead.to_numpy() == pytest.approx((table.network - table.patterns).to_numpy())
    lead = frame_first["exchange_lead"]
    assert "step 100" in lead.meaning, "the last checkpoint that is worse than the end"
    assert lead.value == pytest.approx((kl_of(0.6) - kl_of(0.02)).mean(), abs=1e-5)
    assert lead.p == lead.p_least == pytest.approx(1 / 41) and lead.interval[0] > 0 and lead.stands_out
    assert frame_first["patterns_share"].value == pytest.approx(kl_of(0.02).mean() / kl_of(0.6).mean(), abs=1e-5)
    assert frame_first["network_share"].value == pytest.approx(1, abs=1e-5)


def test_attention_that_comes_last_or_tells_nothing_apart_has_no_lead():
    lead = train(PROBE, frame=LATE, error=LATE, moved=EARLY)["exchange_lead"]
    assert lead.interval[1] < 0 and lead.standing() == "below"
    probe = replace(PROBE, exchange=False)
    assert probe.exchange_needs == () and set(PROBE.exchange_needs) < set(PROBE.needs)
    captures = [checkpoint(left, left, left) for left in EARLY]
    under = {str(step): probe.read_checkpoint(c, captures[-1]) for step, c in zip(STEPS, captures, strict=True)}
    found = probe.analyse(captures[-1], under)
    assert "were not exchanged" in found["exchange_lead"].null_reason and "exchange" not in found.tables
    found = train(PROBE, frame=EARLY, error=(0.4,) * 4, moved=LATE)
    assert np.isnan(found["exchange_lead"].value) and "clearly worse" in found["exchange_lead"].null_reason


def test_row_distances_equal_scipy_and_the_sum_by_hand():
    rng = rng_of(11)
    a, b = rng.dirichlet(np.ones(7), 20), rng.dirichlet(np.ones(7), 20)
    a[3], b[3] = np.eye(7)[0], np.eye(7)[1]
    with np.errstate(divide="ignore"):
        tv, js = row_distances(np.log2(a), np.log2(b))
    for i in range(20):
        assert tv[i] == pytest.approx(sum(abs(x - y) for x, y in zip(a[i], b[i], strict=True)) / 2)
        assert js[i] == pytest.approx(jensenshannon(a[i], b[i], base=2) ** 2)
    assert (tv[3], js[3]) == pytest.approx((1, 1))
    same_tv, same_js = row_distances(np.log2(a[5:]), np.log2(a[5:]))
    assert same_tv.max() == 0 and same_js.max() < 1e-12
    a[9] = np.nan  # a row of which nothing was kept is not one that has stayed
    assert all(np.flatnonzero(np.isnan(x)).tolist() == [4] for x in row_distances(np.log2(a[5:]), np.log2(a[5:])))


def test_rows_of_another_sequence_stand_at_the_same_positions():
    rows = np.arange(2 * 6 * 1 * 2, dtype=np.float64).reshape(2, 6, 1, 2)
    moved = of_another(rows, np.repeat([0, 1, 2], 2))
    assert moved is not None
    np.testing.assert_array_equal(moved[:, [0, 1]], rows[:, [4, 5]])
    np.testing.assert_array_equal(moved[:, [2, 3]], rows[:, [0, 1]])
    assert of_another(rows, np.array([0, 0, 0, 1, 1, 1])[[0, 0, 0, 0, 1, 1]]) is None, "unlike lengths"
    masked = rows.copy()
    masked[:, 0, :, 1] = np.nan
    assert of_another(masked, np.repeat([0, 1, 2], 2)) is None, "unlike keys"
    assert of_another(rows, np.zeros(6, int)) is None and of_another(rows[..., :0], np.repeat([0, 1, 2], 2)) is None


def test_the_points_that_are_shown_are_whole_prompts_on_the_axes_of_the_end():
    shape = replace(SHAPE, n_prompts=90)  # 450 rows, more than are shown
    capture = synthetic_capture(NEEDS, shape, seed=3)
    shown, layer = shown_rows(Cloud.of(capture, Need("v"))), 1
    prompts = capture.rows["prompt"]
    assert MAX_POINTS - SHAPE.n_scored < shown.sum() <= MAX_POINTS
    assert np.isin(np.bincount(prompts[shown], minlength=90), (0, SHAPE.n_scored)).all()
    points = capture[Need("v")][layer].reshape(450, -1).astype(np.float64)
    points -= points.mean(axis=0)
    axes = np.linalg.svd(points, full_matrices=False)[2][:2]
    found = replace(PROBE, layer=layer).read_checkpoint(capture, capture)["coordinates"]
    np.testing.assert_allclose(np.abs(found), np.abs(points[shown] @ axes.T), atol=1e-5)
