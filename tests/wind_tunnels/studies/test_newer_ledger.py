"""The studies of the newer ledger: planted truths, brute force, and what an identity has to give."""

import numpy as np
import pytest
from interp.wind_tunnels.networks.weights import open_tunnel
from interp.wind_tunnels.studies.decoded_parameters import DecodedParameters, of_equal_variance, share_held
from interp.wind_tunnels.studies.j_spaces import JSpaces
from interp.wind_tunnels.studies.moving_programs import ending_in, moving_programs, onward, prompts_of, run
from interp.wind_tunnels.studies.other_variants import OtherVariants
from interp.wind_tunnels.studies.over_seeds import tunnels_named
from interp.wind_tunnels.studies.transplants import Transplants, _rotated

import interp
from interp.errors import UsageError
from interp.ledger.claims import load_claims
from tests.progress import nothing

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
    assert found["rescued_depth2 null"] < 0.6
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
    assert found["times_random_embedding"] > found["times_random_embedding null"]


def test_claims_of_the_newer_work_have_rules_and_tunnels_names():
    assert tunnels_named("tunnel:a,tunnel:b") == ["tunnel:a", "tunnel:b"]
    claims = load_claims("newer").claim
    others = {claim.number for paper in ("paper1", "paper2", "paper3") for claim in load_claims(paper).claim}
    assert all(any(part.rule for part in claim.parts) for claim in claims)
    assert not others & {claim.number for claim in claims}
