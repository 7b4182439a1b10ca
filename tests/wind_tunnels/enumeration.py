"""The exact predictive of a task by counting: all sequences it can make, each with its probability."""

import numpy as np
from jaxtyping import Float

from interp.tunnel import Sequences


def predictive(
    sequences: Sequences, weight: Float[np.ndarray, " sequence"]
) -> Float[np.ndarray, "sequence scored outcome"]:
    """Of all sequences that agree with each one up to a scored position, the share that goes on with each outcome."""
    is_answer = (sequences.targets[..., None] == sequences.slice_ids) * weight[:, None, None]
    shares = np.empty(sequences.posterior.shape)
    for index, position in enumerate(sequences.scored):
        _, group = np.unique(sequences.tokens[:, : position + 1], axis=0, return_inverse=True)
        sums = np.zeros((group.max() + 1, shares.shape[2]))
        np.add.at(sums, group, is_answer[:, index])
        shares[:, index] = (sums / sums.sum(axis=1, keepdims=True))[group]
    return shares
