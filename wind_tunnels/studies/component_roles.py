"""The study `component_roles`: what residual stream, feed-forward and attention do for a belief, in several networks.

Keys collapsed to one axis per head are no longer orthogonal. Rotated keys move as far and keep their cosines; stretched
keys with shrunk queries have large cosines and the same scores.

Source: Paper I (arXiv 2512.22471), the roles of the components.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from jaxtyping import Float
from scipy.linalg import block_diag

import interp
from interp.capture import Capture
from interp.edit import Edit
from interp.findings import Null
from interp.information import kl_bits, restricted, total_variation
from interp.model import Model
from interp.need import Need
from interp.prompt import PromptSet
from interp.statistics.spectra import principal_axes
from interp.table import Table
from interp.tunnel import Task

from ..tasks.bijection import exact_posterior
from .over_seeds import NO_DIFFERENCE, TunnelStudy, read_by, value_and_null

OUTCOMES, QUERIES = Need("outcome_log_prob"), Need("q_pre")
KEYS, BEFORE = Need("k", at="tunnel"), Need("mass_previous", at="tunnel")
_STRETCH = 30.0
_LOGITS = ("attn_logit", "mlp_logit")
NOTHING = Null("nothing changes", 0.0, (0.0, 0.0))
NORMS = ("attn_norm", "mlp_norm", "stream_norm")
_DESCRIPTION = "a description: what no effect would give is not known"

_NUMBERS: Mapping[str, tuple[str, Null | str, str]] = {
    "keys_collapsed_beyond_turned_bits": (
        "bits", NO_DIFFERENCE, "KL added by collapsing keys, less that of turning them as far",
    ),
    "belief_r2_beyond_position": (
        "r2", "beliefs permuted between sequences", "R² of the exact belief in the final stream, beyond position",
    ),
    "belief_redirected_bits": (
        "bits", "random subspaces of the same dimension",
        "what a donor's belief, put into the stream at the middle depth, moves the prediction towards the donor's "
        "posterior",
    ),
    "feed_forward_logit_share": (
        "fraction", _DESCRIPTION, "what feed-forward writes of the predicted token's logit, of what both blocks write",
    ),
    "feed_forward_off_bits": (
        "bits", NOTHING, "KL from the posterior that removing feed-forward adds, in the layer where it is least",
    ),
    "attention_off_bits": (
        "bits", NOTHING, "KL from the posterior that removing attention adds, in the layer where it is least",
    ),
    "routed_share": (
        "r2", "the keys of a third sequence",
        "with another sequence's queries in all layers: share of the total variation from the posterior for the "
        "other's key in the own context that is gone",
    ),
    "least_gain_bits": (
        "bits", NOTHING,
        "how much closer to the posterior a layer brings what the stream decodes to, in the layer where it is least; "
        "below 0 some layer leads away",
    ),
    "depth_trend": (
        "correlation", _DESCRIPTION, "trend over depth of that KL; −1: closer at every depth of every sequence",
    ),
    "keys_cosine": ("cosine", _DESCRIPTION, "mean |cos| of the keys of one sequence and head, about their mean"),
    "keys_stretched_cosine": ("cosine", _DESCRIPTION, "the same with keys stretched along one direction a head"),
    "keys_collapsed_bits": (
        "bits", NOTHING, "KL added where every head keeps the first principal axis of its keys alone",
    ),
    "keys_turned_bits": (
        "bits", NOTHING,
        "KL added where keys are turned by 60 degrees, which moves each by its length and keeps their cosines",
    ),
    "keys_stretched_bits": (
        "bits", _DESCRIPTION, "KL added where keys are stretched and queries shrunk: every score is as it was",
    ),
    "binding_head_bits": (
        "bits", "the other heads of that layer, removed one by one",
        "KL added by removing the first layer's head that attends most from values to the keys before them",
    ),
    "stream_growth": (
        "positive", _DESCRIPTION,
        "length of the stream that enters a layer over that which enters the layer before, where it is least",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class ComponentRoles(TunnelStudy):
    """Roles of the components in bijection `tunnels` (a name or a folder pattern with `*`), on `n_pool` sequences.

    `n_permutations` and `n_bootstrap` are settings of the probes.
    """

    n_pool: int = 200
    n_permutations: int = 100
    n_bootstrap: int = 100
    seed: int = 0

    name: ClassVar[str] = "component_roles"
    question: ClassVar[str] = "Does the stream hold the belief, feed-forward update it, and attention route?"

    headline = ("belief_r2_beyond_position", "feed_forward_logit_share", "routed_share", "least_gain_bits")
    rules: ClassVar = {"n_pool": 20, "n_permutations": 24, "n_bootstrap": 20}
    notes = (
        "A removed block is set to zero at all positions. Queries are those that the other sequence has unedited; keys "
        "and values are the sequence's own.",
    )
    numbers = _NUMBERS

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        if task.name != "bijection" or getattr(task, "layout", "") != "sepvocab":
            only = "queries can be given another address only where a sequence is pairs of keys and values"
            raise self.refusal(f"{only}: {model.name}", "Name a bijection tunnel of separate vocabularies.")
        shared = {"n_permutations": self.n_permutations, "n_bootstrap": self.n_bootstrap, "seed": self.seed}
        findings = read_by({"belief": {"sites": ("resid",), **shared}, "components": shared}, model, n_pool=self.n_pool)
        belief, components = findings["belief"], findings["components"]
        prompts = interp.sampled_prompts(task, self.n_pool, self.seed)
        read = interp.collect(model, prompts, [OUTCOMES, QUERIES, *_LOGITS])

        def harm(edits: Sequence[Edit]) -> float:
            return _kl(interp.collect(model, prompts, [OUTCOMES], edits=edits)) - _kl(read)

        layers = range(model.info.n_layers)
        wrote = {site: float(read[Need(site)].astype(np.float64).sum(axis=0).mean()) for site in _LOGITS}
        depths, of_layers = components.tables["by_depth"], components.tables["by_layer"]
        norm = of_layers["stream_norm"]
        return {
            "belief_r2_beyond_position": value_and_null(belief["r2_beyond_position"]),
            "belief_redirected_bits": value_and_null(belief["redirected"]),
            "feed_forward_logit_share": wrote["mlp_logit"] / sum(wrote.values()),
            "feed_forward_off_bits": min(harm([interp.FeedForwardOff(layer=layer)]) for layer in layers),
            "attention_off_bits": min(harm([interp.AttentionOff(layer=layer)]) for layer in layers),
            "routed_share": routed_shares(model, prompts, read),
            "least_gain_bits": float(-np.diff(depths["posterior_kl"]).max()),
            "depth_trend": components["posterior_kl_trend"].value,
            "stream_growth": float(np.min(norm[1:] / norm[:-1])),
            "by_depth": Table(
                {name: depths[name] for name in ("depth", "posterior_kl")},
                {"depth": "depth", "posterior_kl": "bits"},
                "KL of the exact posterior from what each depth decodes to.",
            ),
            "by_layer": Table(
                {name: of_layers[name] for name in ("layer", *NORMS)},
                {"layer": "layer"} | dict.fromkeys(NORMS, "activation"),
                "Lengths of the updates and of the stream that enters the layer, means over rows.",
            ),
        } | key_frame(model, prompts, harm)


def routed_shares(model: Model, prompts: PromptSet, read: Capture) -> tuple[float, float]:
    """How far the next sequence's queries move the prediction to the posterior for its keys, as share of the distance.

    The second share is for the keys of the sequence after it, the null. Rows where both posteriors agree are left out.
    """
    tokens = np.array([prompt.token_ids for prompt in prompts.prompts])
    values = tokens[:, 1::2] - model.task.V  # pyrefly: ignore[missing-attribute]
    keys, values = tokens[:, 0::2], np.pad(values, ((0, 0), (0, 1)), constant_values=-1)  # the last is not shown
    posterior = read.posterior
    assert posterior is not None, "a tunnel's prompts have one"
    donor = np.roll(np.arange(posterior.size // posterior.shape[-1]), -keys.shape[1])  # the next sequence, same place
    layers = read[QUERIES].astype(np.float64)
    edits = [
        interp.ReplaceCoordinates(layer=layer, site="q", axis=np.eye(flat.shape[1]), values=flat[donor], at="scored")
        for layer, flat in enumerate(layers.reshape(*layers.shape[:2], -1))
    ]
    exchanged = interp.collect(model, prompts, [OUTCOMES], edits=edits)
    before, after = (np.exp2(restricted(each[OUTCOMES])) for each in (read, exchanged))
    shares = []
    for shift in (-1, -2):
        sought = exact_posterior(keys, values, posterior.shape[-1], np.roll(keys, shift, axis=0))[0]
        sought = sought.reshape(posterior.shape)
        asks = total_variation(sought, posterior) > 0
        left, distance = (total_variation(sought[asks], q[asks]).mean() for q in (after, before))
        shares.append(float(1 - left / distance))
    return shares[0], shares[1]


def _kl(read: Capture) -> float:
    assert read.posterior is not None, "a tunnel's prompts have one"
    return float(kl_bits(read.posterior, np.exp2(read[OUTCOMES].astype(np.float64))).mean())


def key_frame(
    model: Model, prompts: PromptSet, harm: Callable[[Sequence[Edit]], float]
) -> "dict[str, float | tuple[float, float]]":  # fmt: skip
    """|cos| of keys, plain and stretched, and the bits that changing the keys or removing a head adds (`harm`)."""
    read = interp.collect(model, prompts, [KEYS, BEFORE])
    rows = read.rows_at("tunnel")
    changes = key_changes(model, read[KEYS].astype(np.float64))
    stretched = interp.collect(model, prompts, [KEYS], edits=changes["stretched"])[KEYS]
    binds = int(read[BEFORE][0, rows["position"] % 2 == 1].mean(axis=0).argmax())
    zeroed = [harm([interp.AblateHeads(layer=0, heads=head)]) for head in range(model.info.n_heads)]
    added = {name: harm(edits) for name, edits in changes.items()}
    return {
        "keys_cosine": mean_cosine(read[KEYS], rows["prompt"]),
        "keys_stretched_cosine": mean_cosine(stretched, rows["prompt"]),
        **{f"keys_{name}_bits": bits for name, bits in added.items()},
        "keys_collapsed_beyond_turned_bits": added["collapsed"] - added["turned"],
        "binding_head_bits": (zeroed.pop(binds), float(np.mean(zeroed))),
    }


def key_changes(model: Model, keys: Float[np.ndarray, "layer row head feature"]) -> dict[str, list[Edit]]:
    """The edits of each change, in all layers at once."""
    (n_layers, _, n_heads, d_head), rng = keys.shape, np.random.default_rng(0)
    centred = keys - keys.mean(axis=1, keepdims=True)
    whole, all_layers = np.eye(n_heads * d_head), tuple(range(n_layers))
    turn = np.kron(np.eye(d_head // 2), np.array([[0.5, -np.sqrt(0.75)], [np.sqrt(0.75), 0.5]]))
    bases = [np.linalg.qr(rng.standard_normal((d_head, d_head)))[0] for _ in range(n_heads)]
    along = rng.standard_normal((n_heads, d_head))
    of_queries = np.repeat(along, model.info.n_heads // n_heads, axis=0)
    return {
        "collapsed": [
            interp.KeepAxis(layer=i, site="k", axis=block_diag(*(principal_axes(x, 1).directions[0] for x in heads)))
            for i, heads in enumerate(centred.swapaxes(1, 2))
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


def mean_cosine(keys: Float[np.ndarray, "layer row head feature"], sequence: np.ndarray) -> float:
    """Mean |cos| of the keys of one sequence and head, less their mean, which does not affect attention."""
    found = []
    for each in np.unique(sequence):
        mine = keys[:, sequence == each].astype(np.float64).swapaxes(1, 2)  # [layer, head, row, feature]
        mine = mine - mine.mean(axis=2, keepdims=True)
        mine /= np.linalg.norm(mine, axis=3, keepdims=True)
        upper = np.triu_indices(mine.shape[2], 1)
        found.append(np.abs(mine @ mine.swapaxes(2, 3))[:, :, *upper].mean())
    return float(np.mean(found))
