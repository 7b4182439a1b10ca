"""Studies that read networks one by one: against brute force, other probes' numbers, planted truths and identities."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from interp.wind_tunnels.networks.weights import open_tunnel
from interp.wind_tunnels.studies.component_roles import KEYS, ComponentRoles, key_changes, mean_cosine
from interp.wind_tunnels.studies.decoded_parameters import DecodedParameters, of_equal_variance, share_held
from interp.wind_tunnels.studies.fine_tuning import ARMS, FineTuning, distances, moved_scalars, token_cosines
from interp.wind_tunnels.studies.j_spaces import JSpaces
from interp.wind_tunnels.studies.moving_programs import ending_in, moving_programs, onward, prompts_of, run
from interp.wind_tunnels.studies.other_variants import OtherVariants
from interp.wind_tunnels.studies.over_seeds import NetworkStudy, beside_null, mean_over_seeds, tunnels_named
from interp.wind_tunnels.studies.transplants import Transplants, _rotated
from interp.wind_tunnels.studies.update_courses import UpdateCourses, late_share
from interp.wind_tunnels.studies.value_curve import ValueCurve
from interp.wind_tunnels.tasks.bijection import exact_posterior
from scipy import stats

import interp
from interp.errors import UsageError
from interp.ledger.claims import load_claims
from interp.loading.untrained import untrained_copy
from interp.running.spec import make_study
from interp.table import LABEL, Table
from tests.progress import nothing

TUNNEL = "tunnel:bijection-gpt-neox"


@pytest.fixture(scope="module")
def roles(tmp_path_factory):
    study = ComponentRoles(n_pool=40, n_permutations=24, n_bootstrap=20)
    return study.measure(tmp_path_factory.mktemp("roles"), nothing)


def test_the_posterior_for_another_key_is_that_of_all_bijections_which_agree():
    rng, every = np.random.default_rng(3), np.array([*permutations(range(4))])
    keys, cues = rng.integers(4, size=(2, 6, 5))
    values = np.take_along_axis(every[rng.integers(24, size=6)], keys, axis=1)
    found = exact_posterior(keys, values, 4, cues)[0]
    for row, i in np.ndindex(6, 5):
        agree = every[(every[:, keys[row, :i]] == values[row, :i]).all(axis=1)]
        assert found[row, i] == pytest.approx(np.bincount(agree[:, cues[row, i]], minlength=4) / len(agree))


@pytest.mark.slow
def test_removed_blocks_do_the_harm_that_the_probe_heads_tells(roles):
    small = {"n_random": 3, "n_sets": 3, "n_permutations": 24, "n_bootstrap": 20, "how": ("zero",)}
    probe = interp.run(TUNNEL, probes=["heads"], settings={"heads": small}, n_pool=40, out=None, quiet=True)
    table = probe.findings["heads"].tables["by_layer"]
    for field, words in (("feed_forward_off_bits", "feed-forward off"), ("attention_off_bits", "attention off")):
        harm = table.where(table["part"] == words)["posterior_kl"]
        assert roles[field].value == pytest.approx(float(harm.min()), rel=1e-3)


def test_exchanged_queries_fetch_what_they_ask_for(roles):
    """The shipped tunnel recalls: it answers for the other's key, and not for a third one's."""
    assert roles["routed_share"].value > 0.5 > roles["routed_share"].null.value


def test_the_least_gain_is_the_smallest_fall_of_the_table(roles):
    falls = -np.diff(roles.tables["by_depth"]["posterior_kl"])
    assert roles["least_gain_bits"].value == pytest.approx(falls.min())
    assert roles["least_gain_bits"].underpowered  # one network


def test_changed_keys_are_what_they_say():
    """Collapsed on one axis, turned by their own length with all cosines kept, stretched without any effect."""
    model = interp.load(TUNNEL)
    prompts = interp.sampled_prompts(model.task, 12)
    plain = interp.collect(model, prompts, [KEYS, "outcome_log_prob"])
    rows, keys = plain.rows_at("tunnel")["prompt"], plain[KEYS].astype(np.float64)
    found = {
        name: interp.collect(model, prompts, [KEYS, "outcome_log_prob"], edits=edits)
        for name, edits in key_changes(model, keys).items()
    }
    after = {name: read[KEYS].astype(np.float64)[:1] for name, read in found.items()}  # later layers read other streams
    assert mean_cosine(after["collapsed"], rows) == pytest.approx(1.0, abs=1e-4)
    assert mean_cosine(after["turned"], rows) == pytest.approx(mean_cosine(keys[:1], rows), abs=1e-4)
    moved = np.linalg.norm(after["turned"] - keys[:1], axis=-1) / np.linalg.norm(keys[:1], axis=-1)
    np.testing.assert_allclose(moved, 1.0, atol=1e-3)
    assert mean_cosine(after["stretched"], rows) > 2 * mean_cosine(keys[:1], rows)
    said = interp.Need("outcome_log_prob")
    np.testing.assert_allclose(found["stretched"][said], plain[said], atol=2e-3)
    assert np.abs(found["collapsed"][said] - plain[said]).max() > 1


def test_the_binding_head_of_the_shipped_tunnel_is_the_one_that_the_probe_heads_finds(roles):
    assert roles["binding_head_bits"].value > 2 > roles["binding_head_bits"].null.value
    assert roles["keys_stretched_bits"].value == pytest.approx(0, abs=1e-5)
    gap = roles["keys_collapsed_bits"].value - roles["keys_turned_bits"].value
    assert roles["keys_collapsed_beyond_turned_bits"].value == pytest.approx(gap)


def test_mean_values_are_those_of_rows_of_equal_entropy(tmp_path):
    """Against a loop and LAPACK's singular values, and beside an untrained copy."""
    found, model = ValueCurve(n_pool=60).measure(tmp_path, nothing), interp.load(TUNNEL)
    read = interp.collect(model, interp.sampled_prompts(model.task, 60), ["v"])
    values = read[interp.Need("v")][-1].astype(np.float64).reshape(len(read.posterior), -1)
    entropy = [round(float(-(p[p > 0] * np.log2(p[p > 0])).sum()), 6) + 0.0 for p in read.posterior]
    levels = sorted(set(entropy))
    means = np.array(
        [np.mean([v for v, h in zip(values, entropy, strict=True) if h == level], axis=0) for level in levels]
    )
    left, lengths, _ = np.linalg.svd(means - means.mean(axis=0), full_matrices=False)
    assert found["pc1_share"].value == pytest.approx(lengths[0] ** 2 / (lengths**2).sum())
    assert found["entropy_order"].value == pytest.approx(abs(stats.spearmanr(left[:, 0], levels)[0]))
    table = found.tables["networks"]
    assert found["pc1_share"].null.value == pytest.approx(float(table["pc1_share_null"][0]))
    untrained = ValueCurve(n_pool=60).read(untrained_copy(model, 1)[0], model.task)
    assert found["pc1_share"].null.value == untrained["pc1_share"] < found["pc1_share"].value


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)], ids=["deeper first", "deeper last"])
def test_what_one_network_has_and_another_lacks_is_a_mean_over_those_that_have_it(order, tmp_path):
    model = interp.load(TUNNEL)
    found = {"deep": {"a": (1.0, 0.5), "b": (0.8, 0.2)}, "flat": {"a": (3.0, 0.5)}}
    named = [({"network": name}, replace(model, info=replace(model.info, name=name)), model.task) for name in found]

    class Planted(NetworkStudy):
        name, question, headline = "planted", "Is it found?", ("a",)
        numbers = dict.fromkeys("ab", ("1", "chance", "a number"))

        def models(self, work, progress):
            return iter(named[order])

        def read(self, model, task):
            return found[model.name]

    measured = Planted().measure(tmp_path, nothing)
    assert (measured["a"].value, measured["a"].n, measured["b"].value, measured["b"].n) == (2.0, 2, 0.8, 1)
    assert measured["b"].null.value == 0.2
    table = measured.to_frame("networks").set_index("network")
    assert table.loc["deep", "b"] == 0.8 and np.isnan(table.loc["flat", ["b", "b_null"]].astype(float)).all()


def test_a_number_beside_its_null_is_paired_by_seed():
    values, nulls = [0.5, 0.7, 0.6], [0.1, 0.2, 0.3]
    found = beside_null(values, nulls, "fraction", "chance", "a share")
    assert found.p == pytest.approx(stats.ttest_rel(values, nulls).pvalue)
    assert found.interval == pytest.approx(stats.t.interval(0.95, 2, np.mean(values), stats.sem(values)))
    assert (found.null.value, found.null.band) == (pytest.approx(0.2), (0.1, 0.3)) and found.n_unit == "seed"


@pytest.mark.parametrize(
    ("kind", "values", "bounds"),
    [
        ("share", [0.5, 0.9], (0, 1)), ("correlation", [0.2, -0.9], (-1, 1)), ("error", [0.1, 0.4], (0, None)),
        ("r2", [0.6, 0.9], (None, 1)), ("bits", [0.1, 0.4], (None, None)), ("fraction", [0.5, 0.9], (None, None)),
    ],
)  # fmt: skip
def test_an_interval_over_two_networks_ends_where_values_are_impossible(kind, values, bounds):
    beyond = stats.t.interval(0.95, 1, np.mean(values), stats.sem(values))
    expected = [own if bound is None else bound for own, bound in zip(beyond, bounds, strict=True)]
    for found in (mean_over_seeds(values, kind, "none", "x"), beside_null(values, [0.1, 0.2], kind, "chance", "x")):
        assert found.interval == pytest.approx(expected)
        assert found.unit == ("bits" if kind in ("error", "bits") else "1" if kind == "correlation" else "fraction")


@pytest.mark.parametrize(
    ("values", "nulls", "is_open"),
    [
        ([1.0, 1.0, 1.0], [0.4, 0.5, 0.6], False),
        ([1.0, 1.0, 1.0], [0.57, 0.86, 0.89], True),
        ([1.0, 1.0], [1.0, 1.0], False),
        ([1.0], [0.5], True),
    ],
)
def test_what_is_the_same_in_every_network_is_open_only_where_its_nulls_scatter_too_far(values, nulls, is_open):
    found = beside_null(values, nulls, "fraction", "chance", "a share")
    assert found.interval is None and found.underpowered == is_open


def test_a_pattern_names_the_folders_that_match(tmp_path):
    for name in ("net-seed2", "net-seed1", "other"):
        (tmp_path / name).mkdir()
    assert tunnels_named(f"{tmp_path}/net-*") == [f"{tmp_path}/net-seed1", f"{tmp_path}/net-seed2"]
    assert tunnels_named(TUNNEL) == [TUNNEL]
    for none in (f"{tmp_path}/nets-*", f"{TUNNEL},{tmp_path}/nets-*", ",", ""):
        with pytest.raises(UsageError, match="no folder matches"):
            tunnels_named(none)


def test_late_updates_are_those_after_the_first_quarter():
    updates = np.array([[8.0, 1.0], [4.0, 1.0], [2.0, 1.0], [2.0, 5.0]])
    assert late_share(updates, np.array([0, 16, 32, 64]), 100) == pytest.approx([4 / 16, 6 / 8])


@pytest.mark.slow
def test_a_course_tells_the_gradient_study_of_every_checkpoint(tmp_path):
    found = UpdateCourses(n_prompts=3, n_permutations=19).measure(tmp_path, nothing)
    table = found.tables["by_step"]
    middle = int(table["step"][5])
    asked = {"model": f"{TUNNEL}@{middle}", "n_prompts": 3, "n_permutations": 19, "n_bootstrap": 20}
    alone = make_study("gradient_laws", asked).measure(tmp_path, nothing)["moved_model"]
    assert table["moved"][5] == pytest.approx(alone.value) and table["expected"][5] == pytest.approx(alone.null.value)
    assert found["moved_over_training"].value == pytest.approx(table["moved"].mean())


def network(cosines, axis, rows) -> dict[str, np.ndarray]:
    return {"cosines": np.array(cosines), "axis": np.array(axis), "rows": np.array(rows)}


BEFORE = network([0.1, 0.2], [1.0, 0.0], [[[[0.5, 0.5, np.nan]]]])


def test_distances_and_ratios_are_those_planted_and_0_where_nothing_has_moved():
    mirrored = network([0.1, 0.2], [-2.0, 0.0], [[[[0.5, 0.5, np.nan]]]])  # the sign of an axis says nothing
    assert distances(mirrored, BEFORE) == {"orthogonality": 0.0, "axis": 0.0, "frame": 0.0}
    same = distances(network([0.2, 0.1], [1.0, 1.0], [[[[0.6, 0.4, np.nan]]]]), BEFORE)
    further = distances(network([0.4, 0.1], [0.0, 1.0], [[[[0.9, 0.1, np.nan]]]]), BEFORE)
    assert same == pytest.approx({"orthogonality": 0.1, "axis": 1 - 1 / np.sqrt(2), "frame": 0.1})
    arms = {"same": same, "shifted": further, "memorised": same}
    rows = [{"seed": i, "data": arm, "kl_bits": 0.01, **arms[arm]} for i in range(3) for arm in ARMS]
    table = Table.from_rows(rows, {"seed": LABEL, "data": LABEL} | dict.fromkeys((*same, "kl_bits"), "1"))
    found = moved_scalars(table, table)
    assert found["orthogonality_shifted"].value == pytest.approx(2.0)
    assert found["axis_shifted"].value == pytest.approx(1 / (1 - 1 / np.sqrt(2)))
    assert found["frame_shifted"].value == pytest.approx(4.0)
    assert found["frame_memorised"].value == pytest.approx(1.0)
    assert found["forgotten_shifted_bits"].value == pytest.approx(0.0)


def test_cosines_of_tokens_are_of_their_mean_keys_about_the_common_mean():
    rng = np.random.default_rng(0)
    tokens = np.array([3, 1, 3, 2, 1, 2])
    keys = rng.standard_normal((6, 2, 3))
    means = [keys[tokens == token].mean(axis=0).ravel() for token in (1, 2, 3)]
    centred = [mean - sum(means) / 3 for mean in means]
    expected = [
        centred[a] @ centred[b] / np.linalg.norm(centred[a]) / np.linalg.norm(centred[b])
        for a, b in ((0, 1), (0, 2), (1, 2))
    ]
    assert token_cosines(keys, tokens) == pytest.approx(expected)


@pytest.mark.slow
def test_every_way_starts_from_the_same_network_and_ends_elsewhere(tmp_path):
    settings = ("concentration=[1, 1, 1]", "layout=plain", "n_layers=1", "d_model=16", "n_heads=2", "n_steps=6")
    study = FineTuning(
        settings=settings, shifted=("concentration=[6, 1, 1]",), n_distinct=4, n_further=3, seeds=(1, 2), n_pool=50
    )
    found = study.measure(tmp_path, nothing)
    fingerprints = found.tables["models"]["fingerprint"]
    assert len(set(fingerprints.tolist())) == 2 * (1 + len(ARMS))
    base = interp.load(str(tmp_path / "coin-gpt-neox-seed1")).fingerprint
    for arm in ARMS:
        card = open_tunnel(tmp_path / f"coin-gpt-neox-{arm}-seed1").card
        assert card["init"]["fingerprint"] == base and card["recipe"]["n_steps"] == 3
    assert (np.array([found.tables["moved"][name] for name in ("orthogonality", "axis", "frame")]) > 0).all()


P = 7


def table_of(study, folder):
    (row,) = study.measure(folder, nothing).to_frame("networks").to_dict("records")
    return row


def test_programs_move_run_onward_and_end_where_they_are_told():
    rng = np.random.default_rng(0)
    program, other = moving_programs(rng, 500, P)
    assert (program[0] >= 2).all() and (other[0] >= 2).all() and (program[0] != other[0]).all()
    values = run(program, rng, 6, P)
    assert (values[:, 1:] == (program[0][:, None] * values[:, :-1] + program[1][:, None]) % P).all()
    assert (values[:, 0] != values[:, 1]).all() and set(values[:, 0]) == set(range(P))
    last = rng.integers(P, size=500)
    before = ending_in(other, last, 4, P)
    assert (before[:, -1] == last).all()
    assert all((onward(other, before[:, i], P) == before[:, i + 1]).all() for i in range(3))


def test_prompts_are_those_of_the_task_and_rotations_keep_lengths():
    task = open_tunnel("tunnel:recurrence-gpt-neox").task
    values = run(moving_programs(np.random.default_rng(1), 3, P)[0], np.random.default_rng(2), task.length, P)
    tokens = task.encode(values, np.full(3, True)).tokens
    mine = [prompt.token_ids for prompt in prompts_of(values[:, : task.length - 1], P).prompts]
    assert tokens.tolist() == [list(ids) for ids in mine]
    rng = np.random.default_rng(0)
    rows, axes = rng.standard_normal((5, 9)), np.linalg.qr(rng.standard_normal((9, 3)))[0]
    turned = _rotated(rows, axes, 1)
    np.testing.assert_allclose(np.linalg.norm(turned, axis=1), np.linalg.norm(rows, axis=1))
    np.testing.assert_allclose(turned - turned @ axes @ axes.T, rows - rows @ axes @ axes.T, atol=1e-12)
    assert np.abs(turned - rows).max() > 0.1


def test_transplants_give_the_donors_answer_beyond_the_horizon(tmp_path):
    # An identity: whatever the donor predicts where it stands is predicted, and nothing of the own sequence.
    found = table_of(Transplants(n=30), tmp_path)
    assert found["rescued_depth3"] == found["donor_accuracy"] == 1.0
    assert found["redirected_depth3"] == found["update_redirected_depth3"] == 1.0
    assert found["update_rescued_depth3"] == 0.0
    assert found["unedited_accuracy"] < 0.8 < found["rescued_depth2"]
    assert found["rescued_depth2_null"] < 0.6
    found = table_of(Transplants(tunnels="tunnel:recurrence-gpt-neox", n=30), tmp_path)
    assert found["unedited_accuracy"] == found["rescued_depth1"] == 1.0
    for study, other in (
        (Transplants, "recurrence-gpt-neox-opaque"), (DecodedParameters, "recurrence-gpt-neox-opaque"),
        (DecodedParameters, "bijection-gpt-neox"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match="programs over integers"):
            study(tunnels=f"tunnel:{other}", n=100).measure(tmp_path, nothing)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.7])
def test_random_subspaces_hold_the_share_of_the_variance_that_is_asked(share):
    rng = np.random.default_rng(0)
    centred = rng.standard_normal((200, 12)) * 2.0 ** -np.arange(12)
    found = of_equal_variance(centred, 3, share, rng)
    assert [share_held(centred, axes) for axes in found] == pytest.approx([share] * len(found), abs=5e-3)
    for axes in found:
        np.testing.assert_allclose(axes.T @ axes, np.eye(3), atol=1e-10)


def test_decoded_parameters_and_other_variants_are_held_against_their_own(tmp_path):
    found = table_of(DecodedParameters(n=100), tmp_path)
    assert found["dimension"] == 4 + 6  # differences of five values of a and of seven of b
    assert 0 < found["variance"] < 0.5 and abs(found["removed_bits"]) < 3
    found = OtherVariants("tunnel:recurrence-gpt-neox-opaque", ("symbols=integers",), 150).measure(tmp_path, nothing)
    model = interp.load("tunnel:recurrence-gpt-neox-opaque")
    card = model.card["figures"]["kl_bits"]
    assert found["kl_bits_own"].value == pytest.approx(card["value"], rel=0.3)
    assert found["kl_bits"].value > 5 * found["kl_bits_own"].value
    assert found["kl_bits_times"].value == pytest.approx(found["kl_bits"].value / found["kl_bits_own"].value)
    with pytest.raises(UsageError, match=r"it has 6 tokens, and .* knows 8"):
        OtherVariants(settings=("p=5",), n=20).measure(tmp_path, nothing)


@pytest.mark.slow
def test_j_spaces_hold_the_hypotheses_of_a_trained_network_only(tmp_path):
    found = table_of(JSpaces("tunnel:bijection-llama", n_pool=40, n_lens=10), tmp_path)
    assert 0.5 < found["axis_r2"] <= 1 and found["survivors_whole"] > 0.5
    assert found["swapped_whole_bits"] > found["swapped_bits"] - 1e-9
    assert found["times_random_embedding"] > found["times_random_embedding_null"]


def test_claims_of_the_newer_work_have_rules_and_tunnels_names():
    assert tunnels_named("tunnel:a,tunnel:b") == ["tunnel:a", "tunnel:b"]
    claims = load_claims("newer").claim
    others = {claim.number for paper in ("paper1", "paper2", "paper3") for claim in load_claims(paper).claim}
    assert all(any(part.rule for part in claim.parts) for claim in claims)
    assert not others & {claim.number for claim in claims}
