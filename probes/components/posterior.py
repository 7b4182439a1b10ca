"""What a residual stream decodes to, compared with the exact posterior of a wind tunnel.

KL(posterior ‖ decoded) in bits, over the full vocabulary: mass that the model puts outside the possible outcomes
counts against it. Null: the posteriors of whole sequences (clusters of prompts) are exchanged, so that what position
alone says about the posterior (how many values are left) stays in it.
"""

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.information import cross_entropy_bits, entropy_bits
from interp.need import Need
from interp.statistics.resampling import shuffles
from interp.statistics.units import clusters_of


def posterior_divergence(
    capture: Capture, need: Need, n_permutations: int, seed: int
) -> tuple[Float[np.ndarray, "depth row"], Float[np.ndarray, "permutation depth"]]:
    """KL at every depth and row, and its mean over rows for every exchange of the posteriors.

    Of the log-probabilities (bits) that `need` holds, `[depth, row, vocab]`.
    """
    posterior, outcomes = capture.posterior, capture.outcomes
    assert posterior is not None and outcomes is not None
    log_q = np.take_along_axis(capture[need], outcomes[None], axis=-1).astype(np.float64)
    certainty = -entropy_bits(posterior)
    kl = certainty + cross_entropy_bits(posterior, log_q)
    orders = shuffles(clusters_of(capture.rows), n_permutations, np.random.default_rng([seed, 4]))
    flat = log_q.reshape(len(log_q), -1)
    # the posteriors' own entropies only change places, so their mean stays
    exchanged = np.array([certainty.mean() - flat @ posterior[order].ravel() / len(posterior) for order in orders])
    return kl, exchanged
