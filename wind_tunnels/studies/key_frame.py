"""The keys and the binding head of a bijection network, changed: what each change adds to the KL from the posterior.

    collapsed   every head keeps the first principal axis of its keys alone: no two keys are orthogonal any more
    turned      keys are turned by 60 degrees in random planes, which moves each by its own length and leaves all
                cosines between them as they are: a change as large as the collapse, without its loss of orthogonality
    stretched   keys are stretched along one direction a head and queries shrunk along it: cosines as large as one
                likes, and every score as it was

The binding head is the one of the first layer that attends most from values to the keys before them; it and, one by
one, the other heads of that layer are set to zero.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag

from interp.need import Need
from interp.statistics.spectra import principal_axes

if TYPE_CHECKING:
    from interp.edit import Edit
    from interp.model import Model
    from interp.prompt import PromptSet

KEYS, BEFORE = Need("k", at="tunnel"), Need("mass_previous", at="tunnel")
_STRETCH = 30.0


def key_frame(
    model: "Model", prompts: "PromptSet", harm: Callable[["Sequence[Edit]"], float]
) -> "dict[str, float | tuple[float, float]]":  # fmt: skip
    """|cos| of keys as they are and stretched, the bits that each change adds (`harm`), those of the heads removed."""
    import interp

    read = interp.collect(model, prompts, [KEYS, BEFORE])
    rows = read.rows_at("tunnel")
    changes = key_changes(model, read[KEYS].astype(np.float64))
    stretched = interp.collect(model, prompts, [KEYS], edits=changes["stretched"])[KEYS]
    binds = int(read[BEFORE][0, rows["position"] % 2 == 1].mean(axis=0).argmax())
    zeroed = [harm([interp.AblateHeads(layer=0, heads=head)]) for head in range(model.info.n_heads)]
    return {
        "keys_cosine": mean_cosine(read[KEYS], rows["prompt"]),
        "keys_stretched_cosine": mean_cosine(stretched, rows["prompt"]),
        **{f"keys_{name}_bits": harm(edits) for name, edits in changes.items()},
        "binding_head_bits": (zeroed.pop(binds), float(np.mean(zeroed))),
    }


def key_changes(model: "Model", keys: Float[np.ndarray, "layer row head feature"]) -> "dict[str, list[Edit]]":
    """The edits of each change, in all layers at once."""
    import interp

    (n_layers, _, n_heads, d_head), rng = keys.shape, np.random.default_rng(0)
    whole, all_layers = np.eye(n_heads * d_head), tuple(range(n_layers))
    turn = np.kron(np.eye(d_head // 2), np.array([[0.5, -np.sqrt(0.75)], [np.sqrt(0.75), 0.5]]))
    bases = [np.linalg.qr(rng.standard_normal((d_head, d_head)))[0] for _ in range(n_heads)]
    along = rng.standard_normal((n_heads, d_head))
    of_queries = np.repeat(along, model.info.n_heads // n_heads, axis=0)
    return {
        "collapsed": [
            interp.KeepAxis(layer=layer, site="k", axis=block_diag(*(_first_axis(of_head) for of_head in heads)))
            for layer, heads in enumerate(keys.swapaxes(1, 2))
        ],
        "turned": [
            interp.RotateAxes(
                layer=all_layers, site="k", axis=whole, rotation=block_diag(*(b @ turn @ b.T for b in bases))
            )
        ],
        "stretched": [  # a dose of t leaves 1 - t of a coordinate that is removed
            interp.RemoveAxis(layer=all_layers, site="k", axis=block_diag(*along), dose=1 - _STRETCH),
            interp.RemoveAxis(layer=all_layers, site="q", axis=block_diag(*of_queries), dose=1 - 1 / _STRETCH),
        ],
    }


def _first_axis(keys: Float[np.ndarray, "row feature"]) -> Float[np.ndarray, " feature"]:
    return principal_axes(keys - keys.mean(axis=0), 1).directions[0]


def mean_cosine(keys: Float[np.ndarray, "layer row head feature"], sequence: np.ndarray) -> float:
    """Mean |cos| of the keys of one sequence and head about their mean, which attention does not see."""
    found = []
    for each in np.unique(sequence):
        mine = keys[:, sequence == each].astype(np.float64).swapaxes(1, 2)  # [layer, head, row, feature]
        mine = mine - mine.mean(axis=2, keepdims=True)
        mine /= np.linalg.norm(mine, axis=3, keepdims=True)
        upper = np.triu_indices(mine.shape[2], 1)
        found.append(np.abs(mine @ mine.swapaxes(2, 3))[:, :, *upper].mean())
    return float(np.mean(found))
