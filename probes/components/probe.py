"""Components: what attention and feed-forward write, which of them makes the prediction, and when it is made.

Layer by layer: lengths of the two updates, their shares of the final stream (measures.updates), and what each adds to
the logit of the predicted token (direct attribution, interp.reading.lens). Depth by depth: entropy of what the residual
stream decodes to, its KL from the final prediction and, on wind tunnels, from the exact posterior, with the trend in
depth (measures.depth_trend): the residual stream as a store of belief that is refined. Where a model computes both
blocks from the same stream, neither comes after the other. Of a mixture of experts it can also ask whether they divide
domains (`experts`).

Source: Paper I (arXiv 2512.22471), the roles of the components; nostalgebraist (2020) and Elhage et al. (2021) for
lens and attribution. Formulas, nulls and failure modes are in docs/reference/probes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import ALPHA, Control, Findings, Interval, Scalar
from interp.folds import NarrowRows
from interp.need import Need
from interp.probe import ADDED, Figure, Probe, Readout, Sentences
from interp.statistics.estimate import maximum_statistic_p, null_from_permutations
from interp.statistics.resampling import random_signs
from interp.statistics.units import Units, mean_of_units
from interp.table import Table

from ..measures.cloud import Cloud
from ..measures.depth_curve import ONE_DRAW
from ..measures.field_checks import refuse_too_few
from .depth_trend import MIN_DEPTHS, depth_trend
from .experts import ROUTED, experts
from .posterior import posterior_divergence
from .tables import DepthCurves, by_depth_table, by_layer_table, layer_values
from .updates import FinalShares, final_shares, loudest_dimension, sizes

DECODED = Need("lens_log_prob", NarrowRows())
"""The whole distribution at every depth, where the vocabulary is a wind tunnel's."""

_SITES = ("resid", "attn_out", "mlp_out", "attn_logit", "mlp_logit", "lens_entropy", "lens_kl")
_SHARES, _QUIET = ("attention_share", "feed_forward_share"), "_quiet"
_NO_LENGTH = "undefined: a residual stream without length"

TRENDS = {
    "lens_kl": "Whether the residual stream comes closer to the final prediction from depth to depth (−1: always). "
    "The last depth is left out: there it is the prediction.",
    "lens_entropy": "Whether what the residual stream decodes to grows more certain from depth to depth (−1: always).",
    "posterior_kl": "Whether the residual stream comes closer to the exact posterior from depth to depth (−1: always).",
}


@dataclass(frozen=True)
class Components(Probe):
    """Updates of attention and feed-forward, direct logit attribution, and the logit lens by depth.

    `n_permutations`: random signs and exchanges of posteriors in the nulls; `n_bootstrap`: resamples of the prompts.
    `experts` asks whether experts divide domains; a model without routers that can be read is refused then.
    """

    n_permutations: int = 500
    n_bootstrap: int = 1000
    seed: int = 0
    experts: bool = field(default=False, metadata=ADDED)

    name: ClassVar[str] = "components"
    question: ClassVar[str] = "Which block writes the prediction, and does the residual stream refine it with depth?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            50, "Does {model} predict the exact posterior?", ("posterior_kl",),
            "Its prediction lies {posterior_kl} (KL) from the exact posterior.",
            "Its prediction is no nearer to the exact posterior than to those of other sequences.",
            expected="below", limit="This reads the output that the model was trained on, not how it comes about.",
        ),
        Sentences(
            110, "Does attention write a consistent part of the final residual stream?", ("attention_share",),
            "Attention has written {attention_share} of the final residual stream, more than updates of random "
            "sign would.",
            "Attention has written {attention_share} of the final residual stream, as updates of random sign could.",
            "Attention has written {attention_share} of the final residual stream, less than updates of random "
            "sign would.",
        ),
    )  # fmt: skip
    on_drawn: ClassVar[bool] = True

    @property
    def needs(self) -> tuple[Need, ...]:
        return (*(Need(site) for site in _SITES), DECODED, *((ROUTED,) if self.experts else ()))

    def refuse_fields(self, n_layers: int | None) -> None:
        refuse_too_few(self, {"n_permutations": 24, "n_bootstrap": 20}, "too few to make a reference distribution from")

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        drawn = base.drawn
        captured = {site: Cloud.of(drawn, Need(site)).points for site in _SITES}
        units = Units.of(drawn.rows, drawn.prompts.unit, self.n_bootstrap, np.random.default_rng([self.seed, 1]))
        stream = (captured["resid"], captured["attn_out"], captured["mlp_out"])
        signs, loudest = self._signs(len(stream[1])), loudest_dimension(stream[0][-1])
        shares, quiet = final_shares(*stream, signs), final_shares(*stream, signs, loudest)
        logits = {site: captured[site][..., 0].astype(np.float64) for site in ("attn_logit", "mlp_logit")}
        curves = {name: captured[name][..., 0].astype(np.float64) for name in ("lens_entropy", "lens_kl")}
        exchanged = None
        if drawn.posterior is not None and drawn[DECODED].shape[-1]:
            divergence = posterior_divergence(drawn, DECODED, self.n_permutations, self.seed)
            curves["posterior_kl"], exchanged = divergence.kl_bits, divergence.exchanged
        depths = DepthCurves(curves, exchanged)
        scalars = {
            **_share_scalars(shares, units, ""),
            **_share_scalars(quiet, units, f", without its loudest dimension ({loudest})", _QUIET),
            **{name: self._logit_scalar(name, rows, units) for name, rows in logits.items()},
            **_trend_scalars(depths, units),
        }
        headline = ["attention_share", "lens_kl_trend"]
        if exchanged is not None:
            scalars["posterior_kl"] = _posterior_scalar(depths, units)
            headline += ["posterior_kl_trend", "posterior_kl"]
        tables: dict[str, Table] = {}
        if self.experts:
            routed, by_expert = experts(drawn, self.n_permutations, self.seed)
            scalars |= routed
            headline += routed
            tables |= {} if by_expert is None else {"experts_by_layer": by_expert}
        values = layer_values(sizes(*stream), shares, logits)
        return Findings(
            probe=self.name,
            scalars=scalars,
            tables={
                "by_layer": by_layer_table(values, shares, units),
                "by_depth": by_depth_table(depths, units),
                "embedding": _embedding_table(shares, units),
                **tables,
            },
            notes=self._notes(drawn, shares),
            headline=tuple(headline),
            controls={name: (Control("without the loudest dimension", name + _QUIET),) for name in _SHARES},
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        from .figures import figures

        return figures(findings)

    def _signs(self, n_layers: int) -> Float[np.ndarray, "draw part"]:
        rng = np.random.default_rng([self.seed, 2])
        return random_signs(np.arange(1 + 2 * n_layers), self.n_permutations, rng)

    def _logit_scalar(self, name: str, rows: Float[np.ndarray, "layer row"], units: Units) -> Scalar:
        block = "attention" if name == "attn_logit" else "feed-forward"
        return Scalar.of(
            *_mean(rows.sum(axis=0), "logits", units),
            "an exact decomposition: the parts add up to the logit, and none is expected to be zero",
            meaning=f"What {block} of all layers adds to the logit of the predicted token, above the mean token's.",
            **units.counted,
        )  # fmt: skip

    def _notes(self, drawn: Capture, shares: FinalShares) -> tuple[str, ...]:
        notes = [
            f"Embedding and updates add up to the final residual stream but for {shares.missing:.1e} of its length. "
            "A few massive dimensions can carry most of that length; attribution to the logit does not see them unless "
            "the output head does.",
            "Attribution holds the scale of the final norm at its value, and leaves out biases and any soft-cap.",
        ]
        if drawn.model.lens:
            notes.append(
                f"Decoded and attributed through the {drawn.model.lens.split()[0]} lens: what a block adds is told as "
                "later blocks carry it on average, and the parts do not add up to the logit."
            )
        else:
            notes.append(
                "The lens puts a residual stream through a norm and a head that were trained for the last one: early "
                "depths may hold what it cannot read."
            )
        if drawn.model.parallel_blocks:
            notes.append(
                "Attention and feed-forward of a layer read the same stream: they are parallel, and neither comes "
                "after the other."
            )
        if drawn.posterior is not None and not drawn[DECODED].shape[-1]:
            notes.append(
                f"posterior_kl: undefined (a vocabulary of {drawn.model.vocab_size} is too large to keep at every "
                f"depth; the limit is {NarrowRows().max_width})."
            )
        return tuple(notes)


def _mean(rows: Float[np.ndarray, " row"], unit: str, units: Units) -> tuple[float, str, Interval | str]:
    """Mean over prompts, its unit and its bootstrap interval."""
    by_unit = units.means(rows[None])[:, 0]
    method = f"bootstrap over {units.name}s within strata"
    return float(mean_of_units(by_unit)), unit, units.mean_interval(by_unit, method, _NO_LENGTH)


def _share_scalars(shares: FinalShares, units: Units, without: str, suffix: str = "") -> dict[str, Scalar]:
    """What all attention, and all feed-forward, has written of the final stream."""
    n_layers = len(shares.share) // 2
    parts = slice(1, 1 + n_layers), slice(1 + n_layers, None)
    return {
        name + suffix: _share_scalar(name, part, shares, units, without)
        for name, part in zip(_SHARES, parts, strict=True)
    }


def _share_scalar(name: str, parts: slice, shares: FinalShares, units: Units, without: str) -> Scalar:
    value, unit, interval = _mean(shares.share[parts].sum(axis=0), "fraction", units)
    drawn = shares.flipped[:, parts].sum(axis=1)
    middle = drawn.mean(keepdims=True)
    known = bool(np.isfinite([value, *drawn]).all())
    block = name.removesuffix("_share").replace("_", "-")
    smallest = 0.5 ** (len(shares.share) - 1)  # all signs alike, of all patterns
    is_out_of_reach = smallest > ALPHA
    few = f"; {len(shares.share)} updates have too few patterns of sign for a p below {smallest:.2g}"
    about = units.counted
    about["underpowered"] |= is_out_of_reach
    return Scalar.of(
        value, unit, interval,
        null_from_permutations("every update with a random sign", drawn) if known else _NO_LENGTH,
        p=maximum_statistic_p(abs(value - middle), np.abs(drawn[:, None] - middle))[0] if known else None,
        meaning=f"The share of the final residual stream{without} that {block} has written, over all layers; with the "
        f"embedding's, the shares of both blocks add up to 1{few if is_out_of_reach else ''}.", **about,
    )  # fmt: skip


def _trend_scalars(depths: DepthCurves, units: Units) -> dict[str, Scalar]:
    # The last depth decodes to the final prediction itself: a KL of zero in every model.
    curves = {name: rows[:-1] if name == "lens_kl" else rows for name, rows in depths.curves.items()}
    return {f"{name}_trend": _trend(name, rows, units) for name, rows in curves.items()}


def _trend(name: str, curves: Float[np.ndarray, "depth row"], units: Units) -> Scalar:
    if len(curves) < MIN_DEPTHS:
        reason = f"undefined (a trend over {len(curves)} depths)"
        return Scalar.undefined(reason, underpowered=True, meaning=TRENDS[name])
    about = units.counted | {"meaning": TRENDS[name], "reference": 0.0}
    return Scalar.of(*_mean(depth_trend(curves), "1", units), ONE_DRAW, **about)


def _posterior_scalar(depths: DepthCurves, units: Units) -> Scalar:
    assert depths.exchanged is not None
    return Scalar.of(
        *_mean(depths.curves["posterior_kl"][-1], "bits", units),
        null_from_permutations(f"posteriors permuted between {units.name}s", depths.exchanged[:, -1]),
        p=depths.exchange_p[-1], p_over="depths",
        meaning="KL of the exact posterior from what the final residual stream decodes to.", **units.counted,
    )  # fmt: skip


def _embedding_table(shares: FinalShares, units: Units) -> Table:
    columns = units.mean_columns({"share": units.means(shares.share[:1])})
    return Table(columns, {"share": "fraction"}, "The embedding's share of the final residual stream.")
