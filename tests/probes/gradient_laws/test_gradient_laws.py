"""The study of gradient laws: agreement has its definition and its null, and the study says what it found."""

import numpy as np
import pytest
import torch
from interp.probes.gradient_laws.routing import Pairs, Routed, agreement, permutations
from interp.probes.gradient_laws.study import GradientLaws
from scipy import stats

from interp.errors import UsageError
from interp.hooks.layer_gradients import ScoredSequence
from interp.records.record import open_run
from interp.running.study import run_study
from tests.progress import nothing
from tests.tiny_models import fresh_model


def causal(n: int) -> np.ndarray:
    return np.tri(n, dtype=bool)


def random_pairs(seed: int) -> Pairs:
    rng = np.random.default_rng(seed)
    return Pairs.of(*rng.standard_normal((2, 2, 12, 12)), causal(12))


def test_noise_sits_on_the_null():
    rng = np.random.default_rng(3)
    routed = Routed.of([random_pairs(seed) for seed in range(20)], 200, rng)
    for i, expected in enumerate([0.5, 0.5, 0.0]):
        p, null = routed.test(routed.observed[:, i], routed.expected[:, i])
        assert null.shape == (200, 2) and null.mean() == pytest.approx(expected, abs=0.02)
        assert (np.abs(routed.observed[:, i].mean(axis=0) - null.mean(axis=0)) < 4 * null.std(axis=0)).all()
        assert (p > 0.01).all()


@pytest.fixture(scope="module")
def record(tmp_path_factory):
    study = GradientLaws(n_prompts=6, n_permutations=39, n_bootstrap=100)
    return run_study(study, out=tmp_path_factory.mktemp("runs"), quiet=True)


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_are_computed_where_the_caller_switched_them_off(record, off):
    with off():
        again = run_study(GradientLaws(n_prompts=6, n_permutations=39, n_bootstrap=100), out=None, quiet=True)
    assert again.findings["gradient_laws"].scalars == record.findings["gradient_laws"].scalars


def test_on_the_shipped_tunnel_the_laws_hold_and_attention_moves_to_better_values(record):
    found = open_run(record.path).findings["gradient_laws"]
    for law in ("scores", "values", "queries", "keys", "rows"):
        assert found[f"residual_{law}"].value < 1e-10
        assert found[f"residual_{law}"].null.band[0] > 1e-3
        assert found[f"residual_{law}"].n == 6 and found[f"residual_{law}"].n_unit == "sequence"
    first_order = found["first_order_values"]
    assert first_order.value == pytest.approx(1, abs=1e-3)
    assert abs(first_order.null.value) < 0.3
    moved = record.findings["gradient_laws"]["moved_queries_and_keys"]
    assert moved.interval[0] > moved.null.band[1] and moved.p == pytest.approx(1 / 40)
    assert moved.interval[0] <= moved.value <= moved.interval[1] <= 1
    by_head = record.findings["gradient_laws"].tables["by_head"]
    mine = by_head.where(by_head["step"] == "queries_and_keys")
    assert mine["moved"].mean() == pytest.approx(moved.value)
    assert (mine["moved_low"] <= mine["moved"]).all() and (mine["moved"] <= mine["moved_high"]).all()
    page = (record.path / "report.html").read_text()
    for words in ("Do the laws hold?", "Does attention move to better values?", "step on all weights"):
        assert words in page
    assert "cannot draw these findings" not in page


@pytest.mark.slow
def test_one_head_is_that_head_and_texts_are_read_on_next_tokens(tmp_path, tiny_folders):
    fields = {"n_prompts": 3, "n_permutations": 19, "n_bootstrap": 20, "is_whole": False, "layer": 1}
    every = GradientLaws(**fields).measure(tmp_path, nothing).tables["by_head"]
    one = GradientLaws(**fields, head=2).measure(tmp_path, nothing).tables["by_head"]
    assert one["head"].tolist() == [2] and set(every["step"]) == {"queries_and_keys"}
    assert one["moved"][0] == pytest.approx(every.where(every["head"] == 2)["moved"][0])
    texts = tmp_path / "texts.txt"
    texts.write_text("w1 w2 w3 w4 w5 w6\nw9 w8 w7 w6 w5\nw3\nw20 w30 w40 w50\n")
    study = GradientLaws(
        model=str(tiny_folders["llama"]), prompts=str(texts), n_prompts=4, n_permutations=19, n_bootstrap=20, layer=0
    )
    found = study.measure(tmp_path, nothing)
    assert found["residual_keys"].value < 1e-10
    assert found["residual_keys"].n == 3 and found["residual_keys"].n_unit == "prompt"


@pytest.mark.parametrize(
    "fields, words",
    [
        ({"layer": 7}, "layers 0 to 2"),
        ({"layer": -4}, "layers 0 to 2"),
        ({"head": 4}, "Choose 0 to 3"),
        ({"n_prompts": 1}, "Choose 2 or more"),
        ({"n_permutations": 5}, "Choose 19 or more"),
        ({"step": 0.0}, "Choose one above 0"),
        ({"step": 0.5}, "at most 0.1"),
    ],
)
def test_fields_that_do_not_fit_are_refused(fields, words, tmp_path):
    with pytest.raises(UsageError, match=words) as refused:
        GradientLaws(**fields).measure(tmp_path, nothing)
    assert f"gradient_laws.{next(iter(fields))}" in str(refused.value)


def test_a_layer_that_nothing_depends_on_is_refused(tmp_path, monkeypatch):
    """Its output projection is zero: no loss depends on what it attends to."""
    import interp.loading.load

    model = fresh_model("llama")
    with torch.no_grad():
        model.family.attention_modules(model.module)[2].o_proj.weight.zero_()
    monkeypatch.setattr(interp.loading.load, "load", lambda name: model)
    monkeypatch.setattr(GradientLaws, "_sequences", lambda self, model: (_texts(), "prompt"))
    with pytest.raises(UsageError, match="does not depend on what this layer attends to"):
        GradientLaws(n_prompts=2).measure(tmp_path, nothing)


def _texts():
    return [ScoredSequence.of_text(torch.arange(1, 9) * k) for k in (1, 2)]


ADVANTAGE = np.array([[2.0, -1.0, 0.0, 3.0, -2.0, 1.0], [1.0, 1.0, 1.0, -1.0, 2.0, 0.5]])
CHANGE = np.array([[4.0, 2.0, 1.0, -3.0, -6.0, 0.5], [0.0, 0.0, 0.0, 0.0, 0.0, 0.0]])


def test_measures_are_by_hand_and_by_sequence():
    (found,) = agreement(Pairs(np.zeros(6, dtype=int), ADVANTAGE, CHANGE), [np.arange(6)])
    # 4, −6 and 0.5 agree with the sign of their advantage; the pair of no advantage agrees with nothing
    rho = stats.spearmanr(ADVANTAGE[0], CHANGE[0])[0]
    assert found[:, 0] == pytest.approx([10.5 / 16.5, 3 / 6, rho])
    assert np.isnan(found[:, 1]).all(), "nothing moved in the second head"
    rng = np.random.default_rng(1)
    several = [Pairs(np.repeat(np.arange(4), 3), *rng.standard_normal((2, 2, 12))) for _ in range(3)]
    routed = Routed.of(several, 30, np.random.default_rng(2))
    assert routed.observed.shape == routed.expected.shape == (3, 3, 2) and routed.signs.shape == (30, 3)
    for found, pairs in zip(routed.observed, several, strict=True):
        np.testing.assert_allclose(found, agreement(pairs, [np.arange(12)])[0])
    again = np.random.default_rng(2)
    for expected, pairs in zip(routed.expected, several, strict=True):
        np.testing.assert_allclose(expected, agreement(pairs, permutations(pairs, 30, again)).mean(axis=0))


def test_pairs_are_those_that_are_seen_in_rows_with_a_choice_and_an_effect():
    visible = np.array([[1, 0, 0], [1, 1, 0], [1, 1, 1]], dtype=bool)
    advantage = np.zeros((2, 3, 3))
    advantage[1, 2, 1], advantage[0, 1, 2], advantage[0, 0, 0] = (
        1.0,
        5.0,
        1.0,
    )  # the second is not seen, the third alone
    pairs = Pairs.of(advantage, np.arange(18.0).reshape(2, 3, 3), visible)
    assert pairs.row.tolist() == [2, 2, 2] and pairs.change.tolist() == [[6, 7, 8], [15, 16, 17]]
    assert pairs.advantage.tolist() == [[0, 0, 0], [0, 1, 0]]


def test_permutations_are_of_the_advantages_of_each_row():
    """Rows of two pairs: a permutation leaves or swaps each, so that eight worlds are as likely."""
    pairs = Pairs(np.array([0, 0, 1, 1, 2, 2]), ADVANTAGE[:1], CHANGE[:1])
    found = agreement(pairs, permutations(pairs, 800, np.random.default_rng(0)))
    orders = []
    for swaps in np.ndindex(2, 2, 2):
        order = np.concatenate([[2 * i, 2 * i + 1][:: -1 if s else 1] for i, s in enumerate(swaps)])
        orders.append(order)
    far = np.abs(found[:, None, :, 0] - agreement(pairs, orders)[..., 0]).max(axis=2)
    assert (far.min(axis=1) < 1e-9).all() and (np.bincount(far.argmin(axis=1), minlength=8) > 60).all()


@pytest.mark.slow
def test_keys_that_rows_share_do_not_make_attention_follow_the_advantage():
    """Some keys are good for all rows, and some keys gain attention in all rows; which ones has nothing in common."""
    rng = np.random.default_rng(3)
    called = 0
    for _ in range(40):
        several = []
        for _ in range(10):
            row = np.repeat(np.arange(5), 6)
            good, gaining = np.tile(rng.standard_normal((2, 1, 6)), 5)
            several.append(Pairs(row, good + 0.1 * rng.standard_normal(30), gaining + 0.1 * rng.standard_normal(30)))
        routed = Routed.of(several, 59, rng)
        p, _ = routed.test(routed.observed[:, 0], routed.expected[:, 0])
        called += p[0] <= 0.05
    assert called <= 7  # 999 in 1,000 at a rate of 5 %
