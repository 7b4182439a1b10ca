"""The studies behind the ledger: against brute force, against their parts, and gone on with."""

from dataclasses import replace

import numpy as np
import pytest
from interp.wind_tunnels.evaluation.checkpoint import evaluate_longer, evaluate_model
from interp.wind_tunnels.evaluation.evaluation import by_predictor
from interp.wind_tunnels.networks.networks import count_parameters, predict
from interp.wind_tunnels.networks.weights import load_weights, open_tunnel
from interp.wind_tunnels.studies.late_attention import LateAttention
from interp.wind_tunnels.studies.over_seeds import difference_scalar, mean_scalar, ratio_scalar
from interp.wind_tunnels.studies.primitives.plans import BARE, is_tuned, plan_of
from interp.wind_tunnels.studies.primitives.study import Primitives, dissociation
from interp.wind_tunnels.studies.training_courses import INDICES, TrainingCourses, exchange_over_seeds, index_over_seeds
from interp.wind_tunnels.studies.tunnel_evaluation import TunnelEvaluation
from interp.wind_tunnels.studies.tunnel_training import TunnelTraining
from interp.wind_tunnels.training.sampling import evaluation_generators
from scipy import stats

import interp
from interp.errors import UnknownName
from interp.findings import Null, Scalar
from interp.information import entropy_bits, total_variation
from interp.records.tunnel_card import read_card
from interp.running.spec import make_study
from interp.running.study import run_study
from tests.progress import nothing

N = 120
TUNNEL = "tunnel:bijection-gpt-neox"


@pytest.fixture(scope="module")
def evaluated(tmp_path_factory):
    return TunnelEvaluation(n=N, length=16, n_relabellings=2).measure(tmp_path_factory.mktemp("work"), nothing)


@pytest.fixture(scope="module")
def opened():
    found = open_tunnel(TUNNEL)
    return found.task, load_weights(found.folder)


def test_an_evaluation_has_the_figures_of_the_cards_own(evaluated, opened):
    task, network = opened
    plain, longer = evaluate_model(network, task, n=N, seed=1), evaluate_longer(network, task, 16, n=N, seed=1)
    for name, figure in {**plain.figures, **longer.figures}.items():
        found = evaluated[name]
        assert found.value == pytest.approx(figure.value, rel=1e-3), name
        assert found.interval == pytest.approx((figure.low, figure.high), rel=1e-2, abs=1e-9), name
        assert found.n == N and found.n_unit == "sequence"
    assert evaluated["kl_bits"].null.value == pytest.approx(by_predictor(plain.baselines)["uniform"]["kl_bits"])


def predictions(opened):
    task, network = opened
    sequences = task.sample(evaluation_generators(1)[0], N)
    q = np.exp(predict(network, sequences.tokens, sequences.scored))[..., sequences.slice_ids]
    return sequences, q / q.sum(axis=-1, keepdims=True)


def test_tracking_and_repeats_follow_from_their_definition(evaluated, opened):
    sequences, q = predictions(opened)
    error, blind, repeats = [], [], []
    exact = entropy_bits(sequences.posterior)
    for row in range(N):
        for place in range(q.shape[1]):
            h = -sum(x * np.log2(x) for x in q[row, place] if x > 0)
            error.append(abs(h - exact[row, place]))
            blind.append(abs(exact[row, place] - np.median(exact[:, place])))
            if exact[row, place] < 1e-12:
                repeats.append(h)
    assert evaluated["sequence_tracking"].value == pytest.approx(1 - np.mean(error) / np.mean(blind), rel=1e-4)
    # a key that came before, and the last value left, are both certain: here the latter never happens
    assert len(repeats) == int(sequences.columns["is_repeat"].sum())
    assert evaluated["repeat_entropy_bits"].value == pytest.approx(np.mean(repeats), rel=1e-3)


def test_relabelling_is_judged_against_the_renamed_prediction(evaluated, opened):
    """One sequence after the other, and token by token, with the same permutations."""
    _, network = opened
    sequences, q = predictions(opened)
    rng, ids = np.random.default_rng([1, 7]), sequences.slice_ids
    moved, kept = [], []
    for _ in range(2):
        order = rng.permuted(np.tile(np.arange(len(ids)), (N, 1)), axis=1)
        renamed = sequences.tokens.copy()
        for row in range(N):
            new = {int(ids[i]): int(ids[order[row, i]]) for i in range(len(ids))}
            renamed[row] = [new.get(int(token), int(token)) for token in sequences.tokens[row]]
        r = np.exp(predict(network, renamed, sequences.scored))[..., ids]
        r /= r.sum(axis=-1, keepdims=True)
        for row in range(N):
            said = np.stack([r[row, :, order[row, i]] for i in range(len(ids))], axis=-1)  # of what outcome i became
            moved.append(total_variation(q[row], said).mean())
            kept.append(total_variation(q[row], r[row]).mean())
        rng.permutation(N)  # the study draws strangers here
    assert evaluated["relabelling_tvd"].value == pytest.approx(np.mean(moved), rel=1e-3)
    assert evaluated["relabelling_tvd"].null.value == pytest.approx(np.mean(kept), rel=1e-3)
    assert evaluated["relabelling_tvd"].value < 0.1 < evaluated["relabelling_tvd"].null.band[0]


def test_the_evaluation_names_its_weights_and_attention_that_is_off(evaluated, tmp_path):
    assert evaluated.tables["models"]["fingerprint"].tolist() == [interp.load(TUNNEL).fingerprint]
    off = TunnelEvaluation(n=N, attention_off=(1, 2), n_relabellings=1).measure(tmp_path, nothing)
    assert off["kl_bits"].value > 100 * evaluated["kl_bits"].value
    assert any("attention off in layers 1, 2" in note for note in off.notes)


def test_what_cannot_be_renamed_or_found_is_said(tmp_path):
    found = TunnelEvaluation(tunnel="mess3-gpt-neox", n=40).measure(tmp_path, nothing)
    assert "relabelling_tvd" not in found.scalars and any("cannot be renamed" in note for note in found.notes)
    for task, name in (("bijections", "lstm"), ("hmm", "lsmt")):
        with pytest.raises(UnknownName, match="Did you mean"):
            plan_of(task, name, 1, "small", None)


def test_the_papers_lstm_is_bare_and_as_large_as_widths_allow():
    plan, reference = (plan_of("hmm", name, 1, "small", None) for name in (BARE, "gpt-neox"))
    assert plan.network.n_layers == 9 and not plan.network.has_residual
    ratio = count_parameters(plan.network, plan.task) / count_parameters(reference.network, reference.task)
    assert 0.95 < ratio < 1.05 and plan.name == "hmm-lstm-bare-seed1"
    assert is_tuned("hmm", BARE, "small") and not is_tuned("hmm", "phi", "small")


QUICK = Primitives(tasks=("recall",), networks=("gpt-neox", "mlp-position"), seeds=(1, 2), n_steps=2)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    work = tmp_path_factory.mktemp("trained")
    return work, QUICK.measure(work, nothing)


def test_primitives_are_means_index_over_seeds_what_the_cards_say(trained):
    work, found = trained
    cards = {name: [read_card(work / f"recall-{name}-seed{seed}") for seed in (1, 2)] for name in QUICK.networks}
    for name, mine in cards.items():
        key = f"recall_{name.replace('-', '_')}"
        values = [card.figures["kl_bits"].value for card in mine]
        low, high = stats.t.interval(0.95, 1, np.mean(values), np.std(values, ddof=1) / np.sqrt(2))
        assert found[f"{key}_kl_bits"].value == pytest.approx(np.mean(values))
        assert found[f"{key}_kl_bits"].interval == pytest.approx((max(low, 0), high))
        assert found[f"{key}_kl_bits"].null.value == mine[0].baselines["uniform"]["kl_bits"]
        assert found[f"{key}_accuracy"].null.value == 1 / mine[0].parameters["n_pairs"]
    gaps = [
        a.figures["kl_bits"].value - b.figures["kl_bits"].value for a, b in zip(*reversed(cards.values()), strict=True)
    ]
    assert found["recall_mlp_position_kl_bits_beyond_gpt_neox"].value == pytest.approx(np.mean(gaps))
    assert found.tables["networks"].n_rows == 4 and len(set(found.tables["models"]["fingerprint"].tolist())) == 4
    assert any("2 steps" in note for note in found.notes)


def test_a_dissociation_is_of_the_network_that_other_seeds_choose():
    """Shares of the uniform predictor's KL: `one` lacks recall alone, `two` lacks both; seed 3 alone says otherwise."""
    lacking = {
        ("bijection", "one"): np.array([0.1, 0.1, 0.1]), ("recall", "one"): np.array([0.8, 0.9, 0.3]),
        ("bijection", "two"): np.array([0.7, 0.7, 0.0]), ("recall", "two"): np.array([0.9, 0.9, 0.5]),
    }  # fmt: skip
    scalar = dissociation(lacking, "recall")
    assert scalar.value == pytest.approx(np.mean([0.7, 0.8, 0.2])) and "(one)" in scalar.meaning
    assert dissociation(lacking, "bijection").value < 0


@pytest.mark.slow
def test_primitives_hold_filtering_against_the_best_window_reader(tmp_path):
    study = Primitives(tasks=("hmm",), networks=("gpt-neox", "lstm"), seeds=(1, 2), n_steps=2)
    found = study.measure(tmp_path, nothing)
    for name in study.networks:
        cards = [read_card(tmp_path / f"hmm-{name}-seed{seed}") for seed in (1, 2)]
        values = [
            card.figures["kl_bits"].value - min(card.baselines[f"window-{w}"]["kl_bits"] for w in (1, 2, 3))
            for card in cards
        ]
        scalar = found[f"hmm_{name.replace('-', '_')}_kl_bits_beyond_window"]
        assert scalar.value == pytest.approx(np.mean(values)) and scalar.null.value == 0
        assert scalar.value > 0  # after two steps
    assert "uniform_kl_bits" in found.tables["networks"] and "window-1_kl_bits" not in found.tables["networks"]


def test_a_shipped_filter_is_held_against_the_best_window_reader(tmp_path):
    found = TunnelEvaluation(tunnel="hmm-fixed-gpt-neox", n=N).measure(tmp_path, nothing)
    blind = by_predictor(found.tables["baselines"])
    best = min(blind[f"window-{w}"]["kl_bits"] for w in (1, 2, 3))
    scalar = found["kl_bits_beyond_window"]
    assert scalar.value == pytest.approx(found["kl_bits"].value - best) and scalar.null.value == 0
    assert scalar.interval[0] < scalar.value < scalar.interval[1] < 0


def test_what_is_trained_is_not_trained_again_and_shown(trained):
    work, found = trained
    times = {path: path.stat().st_mtime_ns for path in work.glob("*/model.safetensors")}
    again = QUICK.measure(work, nothing)
    assert again.scalars == found.scalars and len(times) == 4
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/model.safetensors")} == times
    _, found = trained
    (figure,) = QUICK.figures(found)
    shown = [trace for trace in figure.plot.data if trace.mode == "markers"]
    assert sum(len(trace.x) for trace in shown) == 4 and figure.table == "networks"
    assert replace(QUICK, n_steps=None).command == (
        "interp study primitives --set tasks=recall --set networks=gpt-neox,mlp-position --set seeds=1,2"
    )


@pytest.mark.slow
def test_late_attention_is_off_in_one_arm_alone(tmp_path):
    study = LateAttention(seeds=(1,), n_off=1, n_steps=2, trained_length=9, length=12, n=40)
    found = study.measure(tmp_path, nothing)
    silent = {
        arm: read_card(tmp_path / f"hmm-gpt-neox-{arm}-seed1").network["attention_layers"] for arm in ("whole", "off")
    }
    assert silent["whole"] is None and tuple(silent["off"]) == (0, 1)
    assert read_card(tmp_path / "hmm-gpt-neox-off-seed1").parameters["K"] == 9
    runs = found.tables["networks"]
    within = dict(zip(runs["arm"].tolist(), runs["mae_per_sequence_bits_within"].tolist(), strict=True))
    assert found["error_within_ratio"].value == pytest.approx(within["off"] / within["whole"])
    assert found["error_within_ratio"].underpowered  # one seed


@pytest.mark.slow
def test_a_training_is_an_ordinary_tunnel(tmp_path):
    settings = ("V=4", "L=3", "replacement=false", "n_layers=1", "d_model=16", "n_steps=3", "batch=10", "n_copies=1")
    record = run_study(make_study("tunnel_training", {"settings": ",".join(settings)}), out=tmp_path, quiet=True)
    study = TunnelTraining(settings=settings)
    folder = tmp_path / ".partial" / study.hash / "bijection-gpt-neox-seed0"
    model, found = interp.load(str(folder)), record.findings["tunnel_training"]
    assert record.spec_hash == study.hash and model.task.describe()["V"] == 4
    assert found.tables["models"]["fingerprint"].tolist() == [model.fingerprint]
    assert found["kl_bits"].null.value == pytest.approx(read_card(folder).baselines["uniform"]["kl_bits"])


def indexed(*values, unresolved=()):
    """One training a value, as the probe would have found it."""
    return [
        {"dissociation_index": Scalar(
            value, "1", interval_reason="it does not settle" if np.isnan(value) else "not asked",
            null_reason="not asked", underpowered=i in unresolved, meaning="A over B. Frame between 1 and 2.",
        )}
        for i, value in enumerate(values)
    ]  # fmt: skip


def test_an_index_over_trainings_is_their_geometric_mean():
    values = (2.0, 3.0, 4.5)
    found = index_over_seeds("dissociation_index", indexed(*values))
    test = stats.ttest_1samp(np.log(values), 0.0)
    assert found.value == pytest.approx(3.0) and found.p is None and found.null is None
    assert found.interval == pytest.approx(np.exp(test.confidence_interval()))
    assert (found.null_reason, found.n, found.n_unit) == ("not asked", 3, "seed") and not found.underpowered
    assert found.meaning == "Geometric mean over seeds: A over B."
    assert index_over_seeds("dissociation_index", indexed(*values, unresolved=(1,))).underpowered
    assert index_over_seeds("dissociation_index", indexed(2.0)).interval_reason == "one seed"
    undefined = index_over_seeds("dissociation_index", indexed(2.0, np.nan, 3.0))
    assert np.isnan(undefined.value) and undefined.interval_reason == "in a training it does not settle"


def test_the_lead_of_attention_over_trainings_is_the_mean_difference_of_both_shares():
    shares = [(0.1, 1.0), (0.2, 0.9), (0.05, 1.1)]
    found = [
        {
            name: Scalar.of(value, "1", "not asked", "not asked")
            for name, value in zip(("patterns_share", "network_share"), pair, strict=True)
        }
        for pair in shares
    ]  # fmt: skip
    test = stats.ttest_1samp([network - patterns for patterns, network in shares], 0.0)
    lead = exchange_over_seeds("exchange_lead_share", found)
    assert lead.value == pytest.approx(2.65 / 3) and lead.p == pytest.approx(test.pvalue)
    assert lead.interval == pytest.approx(test.confidence_interval()) and lead.null.value == 0 and lead.n == 3
    share = exchange_over_seeds("patterns_share", found)
    assert share.value == pytest.approx(0.35 / 3) and share.p is None and share.null is None
    assert exchange_over_seeds("patterns_share", found[:1]).underpowered
    none = {"patterns_share": Scalar.undefined("x"), "network_share": Scalar.undefined("x")}
    assert "clearly worse" in exchange_over_seeds("exchange_lead_share", [*found, none]).null_reason


@pytest.mark.slow
def test_every_training_is_read_by_the_probe_at_its_own_checkpoints(tmp_path):
    """The numbers of a study are those of `interp run` on the tunnels that it leaves."""
    settings = ("V=4", "L=3", "n_layers=1", "d_model=16", "n_steps=16", "batch=10", "n_copies=1", "curriculum=none")
    asked = {"n_permutations": 19, "n_bootstrap": 20}
    found = TrainingCourses(settings=settings, seeds=(1, 2), n_pool=20, **asked).measure(tmp_path, nothing)
    seeds = found.tables["networks"]
    assert seeds["seed"].tolist() == [1, 2]
    for row, seed in enumerate((1, 2)):
        folder = tmp_path / f"bijection-gpt-neox-seed{seed}"
        assert {path.name for path in (folder / "steps").iterdir()} == {"0", "1", "2", "4", "8"}
        record = interp.run(
            str(folder), probes=["dynamics"], settings={"dynamics": asked}, n_pool=20, out=None, quiet=True
        )
        for name in INDICES:
            assert seeds[name][row] == pytest.approx(record.findings["dynamics"][name].value, nan_ok=True)
        course, steps = found.tables["courses"], record.findings["dynamics"].tables["by_step"]
        course = course.where(course["seed"] == seed)
        assert course["step"].tolist() == [0, 1, 2, 4, 8, 16]
        for name in ("kl", "frame_tv", "value_distance"):
            assert course[name] == pytest.approx(steps[name]), name
    assert len(set(found.tables["models"]["fingerprint"].tolist())) == 2


def test_pairs_over_seeds_are_t_tested_and_one_seed_says_so():
    first, second = [1.0, 2.0, 4.0], [0.5, 1.5, 2.0]
    test = stats.ttest_rel(first, second)
    found = difference_scalar(first, second, "bits", "x")
    assert found.p == pytest.approx(test.pvalue) and found.interval == pytest.approx(tuple(test.confidence_interval()))
    logs = stats.ttest_1samp(np.log(np.divide(first, second)), 0.0)
    ratio = ratio_scalar(first, second, "x")
    assert ratio.p == pytest.approx(logs.pvalue) and ratio.interval == pytest.approx(np.exp(logs.confidence_interval()))
    assert ratio.value == pytest.approx(np.prod(np.divide(first, second)) ** (1 / 3))
    assert difference_scalar([1.0], [2.0], "bits", "x").interval_reason == "one seed"
    assert difference_scalar([1.0, 2.0], [0.0, 1.0], "bits", "x").interval_reason == "all seeds give the same"
    nothing_there = Null("none", 0.0, (0.0, 0.0))
    for values, reason in (([1.0], "one seed"), ([1.0, 1.0, 1.0], "all seeds give the same")):
        alone = mean_scalar(values, "bits", nothing_there, "x")
        assert alone.value == 1.0 and alone.interval is None and alone.interval_reason == reason
        assert alone.standing() == ("unjudged" if len(values) == 1 else "above")
