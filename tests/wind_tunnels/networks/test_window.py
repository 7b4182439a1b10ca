"""The two mistral tunnels: equal but for the window, and what leaves the shorter one is lost.

A pair shown d pairs before a key has its value 2d − 1 tokens back, and a window of w tokens reaches w − 1 back: it is
in sight where 2d <= w. Several layers could hand on more, up to n_layers (w − 1) tokens, beyond which no token can
change a logit. The shipped network does not: it is the ideal observer of the last w // 2 pairs.
"""

import numpy as np
import pytest
from interp.wind_tunnels.networks.networks import predict
from interp.wind_tunnels.networks.weights import load_weights
from interp.wind_tunnels.tasks.bijection import Bijection, exact_posterior

from interp.information import kl_bits
from interp.records.tunnel_card import read_card

SHORT = Bijection.checkpoints / "bijection-mistral-short"
LONG = Bijection.checkpoints / "bijection-mistral"
CARD = read_card(SHORT)
WINDOW = CARD.network["window"]
IN_SIGHT = WINDOW // 2
TASK = Bijection(**CARD.parameters)


@pytest.fixture(scope="module")
def sequences():
    return TASK.sample(np.random.default_rng(77), 1000)


@pytest.fixture(scope="module")
def answers(sequences):
    """The short tunnel's distribution over the values at every key."""
    log_q = predict(load_weights(SHORT), sequences.tokens, sequences.scored)
    return np.exp(log_q[..., sequences.slice_ids])


def pairs_back(keys):
    """How many pairs ago each key came last; 0 where it is new."""
    back = np.zeros(keys.shape, dtype=int)
    for k in range(keys.shape[1]):
        for d in range(k, 0, -1):
            back[keys[:, k - d] == keys[:, k], k] = d
    return back


def observer(sequences, n_pairs):
    """The posterior of whoever sees no more than the last `n_pairs` pairs and the key."""
    keys, values = sequences.tokens[:, ::2], sequences.targets - TASK.V
    seen = [slice(max(k - n_pairs, 0), k + 1) for k in range(TASK.L)]
    return np.stack([exact_posterior(keys[:, s], values[:, s], TASK.V)[0][:, -1] for s in seen], axis=1)


def test_the_two_tunnels_differ_in_the_window_alone():
    long = read_card(LONG)
    assert {**long.network, "window": None} == {**CARD.network, "window": None}
    assert WINDOW < TASK.n_positions < long.network["window"]


def test_no_token_beyond_the_reach_of_all_layers_changes_a_logit(sequences):
    reach = CARD.network["n_layers"] * (WINDOW - 1)
    model, last = load_weights(SHORT), sequences.scored[-1:]
    assert last[0] > reach
    changed = sequences.tokens[:50].copy()
    changed[:, : last[0] - reach] = 0
    np.testing.assert_array_equal(predict(model, changed, last), predict(model, sequences.tokens[:50], last))
    changed[:, last[0] - reach] = 1
    assert (predict(model, changed, last) != predict(model, sequences.tokens[:50], last)).any()


def test_repeats_in_sight_are_answered_as_the_ideal_observer_does(sequences, answers):
    # Out of sight it is as good as new: uniform over the values that no pair in sight has taken.
    back = pairs_back(sequences.tokens[:, ::2])
    right = np.take_along_axis(answers, (sequences.targets - TASK.V)[..., None], axis=2)[..., 0]
    for d in range(1, TASK.L):
        at = back == d
        if d <= IN_SIGHT:
            assert right[at].mean() > 0.98
        else:
            assert right[at].max() < 0.5 and right[at].mean() < 0.2
    kl = kl_bits(sequences.posterior, answers).mean(axis=0)
    np.testing.assert_array_equal(kl > 0.05, np.arange(TASK.L) > IN_SIGHT)
    distance = {n: kl_bits(observer(sequences, n), answers).mean() for n in range(1, TASK.L)}
    assert min(distance, key=lambda n: distance[n]) == IN_SIGHT
    assert distance[IN_SIGHT] < 0.01
    floor = kl_bits(sequences.posterior, observer(sequences, IN_SIGHT)).mean()
    assert kl_bits(sequences.posterior, answers).mean() == pytest.approx(floor, abs=0.02)
