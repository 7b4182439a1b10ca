"""Decoder rows of a sparse autoencoder, as axes of edits and compared with other axes.

A folder in SAELens' layout has `cfg.json` (the site of the autoencoder) and `sae_weights.safetensors`, of which only
`W_dec` `[feature, d_in]` is read. A decoder row is the change of activations with its feature, at the site that the
autoencoder writes to: for a transcoder not the site that it reads.

The cosine of a fixed direction with a random one in d dimensions has cos² ~ Beta(1/2, (d − 1)/2), so the null of the
nearest of n random directions is exact: P(the k-th nearest is at least c) is that of k or more hits in n.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from jaxtyping import Float, Int
from scipy import special

from interp.errors import RecordError, UsageError
from interp.records.record import RunRecord
from interp.statistics.intervals import TAILS
from interp.system.foreign_files import read_json, readable

if TYPE_CHECKING:
    import pandas

CONFIG, WEIGHTS, DECODER = "cfg.json", "sae_weights.safetensors", "W_dec"

_HOOKS = {
    "hook_resid_pre": ("resid", 0),
    "hook_resid_post": ("resid", 1),
    "attn.hook_z": ("z", 0),
    "attn.hook_v": ("v", 0),
}
"""By TransformerLens' name, the site, and the offset of its layer."""


@dataclass(frozen=True, eq=False)
class Features:
    """The decoder rows of a sparse autoencoder, and their TransformerLens `hook`; `place` is where edits reach them.

    >>> features = interp.Features("made", "blocks.1.hook_resid_pre", np.eye(64)[:8])
    >>> interp.RemoveAxis(**features.place, axis=features.directions[3]).place
    'resid'
    """

    name: str
    hook: str
    directions: Float[np.ndarray, "feature d_in"] = field(repr=False)
    head: int | None = None
    model: str = ""

    @property
    def place(self) -> Mapping[str, Any]:
        """The `site`, `layer` (and `head`) for edits; raises `UsageError` for a hook that edits cannot reach."""
        found = re.fullmatch(r"blocks\.(\d+)\.(.+)", self.hook)
        if not found or found[2] not in _HOOKS:
            raise UsageError(
                asked=f"an edit where {self.name} writes, {self.hook!r}",
                found="edits act on " + ", ".join(f"blocks.L.{hook}" for hook in _HOOKS),
                fix="Use an autoencoder of one of these, or name site and layer of the edit yourself.",
            )
        site, further = _HOOKS[found[2]]
        where = {"site": site, "layer": int(found[1]) + further}
        return where if self.head is None else where | {"head": self.head}


@dataclass(frozen=True, eq=False)
class FeatureOverlap:
    """The features nearest to an axis by |cosine|, the nearest first.

    `p` of the k-th is the probability that the k-th nearest of `n` random directions in `d` dimensions is as near;
    `null` and `null_band` are mean and 95 % band of the nearest one. `n_dead` features are zero and left out.

    >>> features = interp.Features("made", "blocks.1.hook_resid_pre", np.eye(64))
    >>> found = interp.feature_overlap(np.eye(64)[5], features, n=2)
    >>> print(found)
    nearest of 64 features: 5, cosine +1.000, p = ...
    """

    features: Int[np.ndarray, " rank"]
    cosine: Float[np.ndarray, " rank"]
    p: Float[np.ndarray, " rank"]
    null: float
    null_band: tuple[float, float]
    n: int
    n_dead: int
    d: int

    def to_frame(self) -> "pandas.DataFrame":
        """One row per feature: its number, cosine and p."""
        import pandas

        return pandas.DataFrame({"feature": self.features, "cosine": self.cosine, "p": self.p})

    def __str__(self) -> str:
        low, high = self.null_band
        return (
            f"nearest of {self.n:,} features: {self.features[0]}, cosine {self.cosine[0]:+.3f}, p = {self.p[0]:.2g}; "
            f"nearest of as many random directions: {self.null:.3f} ({low:.3f} to {high:.3f})"
        )


def open_features(folder: str | Path) -> Features:
    """Open the decoder rows of a sparse autoencoder in SAELens' layout.

    Args:
        folder: A folder with `cfg.json` and `sae_weights.safetensors`.

    Returns:
        The features, with the site and layer that they belong to.

    Raises:
        RecordError: A file is missing or damaged, or weights and configuration do not agree.

    Examples:
        >>> from pathlib import Path
        >>> from safetensors.numpy import save_file
        >>> Path("sae").mkdir()
        >>> _ = Path("sae/cfg.json").write_text('{"hook_name": "blocks.1.hook_resid_post"}')
        >>> save_file({"W_dec": np.eye(8, dtype=np.float32)}, "sae/sae_weights.safetensors")
        >>> interp.open_features("sae").place
        {'site': 'resid', 'layer': 2}
    """
    from safetensors import safe_open

    home = Path(folder)
    asked = f"the autoencoder {home}"
    for name in (CONFIG, WEIGHTS):
        if not (home / name).is_file():
            fix = "Give the folder that SAELens saved, or one of the folders of its repository."
            raise RecordError(asked=asked, found=f"there is no {name} in it", fix=fix)
    with readable(asked, "Download it again."):
        config = read_json(home / CONFIG)
        with safe_open(home / WEIGHTS, framework="pt") as file:
            if DECODER not in file.keys():  # noqa: SIM118 (a safetensors file is no mapping)
                found = f"{WEIGHTS} contains {', '.join(sorted(file.keys())) or 'nothing'}"
                raise RecordError(asked=asked, found=found, fix=f"Its decoder has to be called {DECODER}.")
            weights = file.get_tensor(DECODER).to(torch.float64).numpy()
    if not isinstance(config, dict):
        raise RecordError(asked=asked, found=f"{CONFIG} is not a mapping", fix="Give the file that SAELens wrote.")
    about = config.get("metadata") if isinstance(config.get("metadata"), dict) else config
    hook, head = _written_to(asked, config, about)
    width = config.get("d_out") or config.get("d_in") or weights.shape[-1]
    shape = (config.get("d_sae") or weights.shape[0], width)
    if weights.shape != shape or not np.isfinite(weights).all():
        found = f"{DECODER} has the shape {weights.shape}" if weights.shape != shape else f"{DECODER} is not finite"
        raise RecordError(asked=asked, found=f"{found}; {CONFIG} says {shape}", fix="Download it again.")
    return Features(home.name, hook, weights, head, str(about.get("model_name", "")))


def _written_to(asked: str, config: Mapping[str, Any], about: Mapping[str, Any]) -> tuple[str, Any]:
    """The hook that the decoder writes to, and its head: for a transcoder, those of its output."""
    stated: dict[str, Any] = {**config, **about}
    layer = stated.get("hook_layer_out")
    is_transcoder = "transcoder" in str(stated.get("architecture")) or layer is not None or stated.get("hook_name_out")
    out = "_out" if is_transcoder else ""
    hook, head = stated.get(f"hook_name{out}"), stated.get(f"hook_head_index{out}")
    hook = hook or (None if is_transcoder else stated.get("hook_point"))
    found = ""
    if not isinstance(hook, str):
        found = f"{CONFIG} has no hook_name{out}" + (", where a transcoder writes" if out else "")
    elif layer is not None and f".{layer}." not in hook:
        found = f"hook_layer_out is {layer!r} and hook_name_out {hook!r}"
    elif head is not None and (isinstance(head, bool) or not isinstance(head, int) or head < 0):
        found = f"hook_head_index{out} is {head!r}, which is no head counted from 0"
    if found:
        raise RecordError(asked=asked, found=found, fix="Make Features(name, hook, W_dec, head) of the array.")
    return str(hook), head


def feature_overlap(
    axis: Float[np.ndarray, " d_in"] | RunRecord,
    features: Features,
    *,
    fit: Literal["ridge", "pc1"] = "ridge",
    n: int = 10,
) -> FeatureOverlap:
    """Find the sparse-autoencoder features nearest to an axis, compared with random directions.

    Args:
        axis: A direction `[d_in]` in the space of the decoder rows, or a record with the probe `value_axis`, whose axis
            at the site and layer of the features is taken.
        features: The features, from `interp.open_features`.
        fit: Which axis of a record: `ridge` or `pc1`.
        n: How many features are returned, at most.

    Returns:
        The nearest features, their cosines, and what equally many random directions give. Features whose row is zero
        are left out and counted.

    Raises:
        UsageError: The record has no axis at the site and layer of the features, sizes differ, or the axis is zero.

    Examples:
        >>> features = interp.Features("made", "blocks.1.hook_resid_pre", np.eye(64))
        >>> interp.feature_overlap(np.eye(64)[5], features, n=1).features.tolist()
        [5]
    """
    direction = _value_axis(axis, features, fit) if isinstance(axis, RunRecord) else np.asarray(axis, dtype=np.float64)
    d = features.directions.shape[1]
    length = np.linalg.norm(direction)
    if direction.shape != (d,) or not np.isfinite(length) or length == 0:
        found = f"it has the shape {direction.shape}" if direction.shape != (d,) else "it is zero or not finite"
        raise UsageError(
            asked=f"an axis beside the features of {features.name}",
            found=f"{found}; the features have {d} dimensions",
            fix="Take the axis at the same site of the same model.",
        )
    lengths = np.linalg.norm(features.directions, axis=1)
    alive = np.flatnonzero(lengths > 0)
    if n < 1 or not len(alive):
        found = "every row of the decoder is zero" if n > 0 else "that is not a positive number"
        raise UsageError(asked=f"the {n} nearest features of {features.name}", found=found, fix="Ask for one or more.")
    cosines = features.directions[alive] @ (direction / length) / lengths[alive]
    order = np.argsort(-np.abs(cosines), kind="stable")[:n]
    beyond = special.betaincc(0.5, (d - 1) / 2, np.square(cosines[order]).clip(max=1.0))
    ranks = np.arange(len(order))
    nearest = _nearest(np.array(TAILS), len(alive), d)
    return FeatureOverlap(
        features=alive[order],
        cosine=cosines[order],
        p=special.bdtrc(ranks, len(alive), beyond),
        null=float(_nearest((np.arange(1000) + 0.5) / 1000, len(alive), d).mean()),
        null_band=(float(nearest[0]), float(nearest[1])),
        n=len(alive),
        n_dead=len(lengths) - len(alive),
        d=d,
    )


def _nearest(quantile: np.ndarray, n: int, d: int) -> np.ndarray:
    """Quantiles of the largest |cosine| of n random directions: P(all below c) = P(one below c)^n."""
    return np.sqrt(special.betainccinv(0.5, (d - 1) / 2, -np.expm1(np.log(quantile) / n)))


def _value_axis(record: RunRecord, features: Features, fit: str) -> np.ndarray:
    place = features.place
    name = f"{place['site']}.{fit}.displacement"
    arrays = record.findings["value_axis"].arrays if "value_axis" in record.findings else {}
    if name not in arrays:
        raise UsageError(
            asked=f"the value axis of a record at {place['site']}",
            found=f"it contains {', '.join(sorted(arrays)) or 'no findings of value_axis'}",
            fix=f"Run --probe value_axis --set value_axis.sites={place['site']}.",
        )
    if place["layer"] >= len(arrays[name]):
        raise UsageError(
            asked=f"the value axis at layer {place['layer']}",
            found=f"the record has {len(arrays[name])} of them",
            fix="Take features of this model.",
        )
    return np.asarray(arrays[name][place["layer"]], dtype=np.float64)
