"""Components: what attention and feed-forward write, which of them makes the prediction, and at which depth.

By layer: lengths of the two updates, their shares of the final stream (`updates`), and what each adds to the logit of
the predicted token (direct attribution, `interp.reading.lens`). By depth: entropy of what the residual stream decodes
to, its KL from the final prediction and, on wind tunnels, from the exact posterior, with the trend in depth. Where both
blocks read the same stream, neither comes after the other. `experts`: whether the experts of a mixture divide domains.

Source: Paper I (arXiv 2512.22471), the roles of the components; nostalgebraist (2020) and Elhage et al. (2021) for
lens and attribution. Formulas, nulls and failure modes are in docs/reference/probes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.findings import ALPHA, Findings
from interp.information import cross_entropy_bits, entropy_bits
from interp.need import Need
from interp.probe import ADDED, Probe, Readout, Sentences
from interp.reductions import NarrowRows
from interp.statistics.correlation import unit_ranks
from interp.statistics.cosines import largest_deviation_p
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantities
from interp.statistics.resampling import random_signs, shuffles
from interp.statistics.units import Units, clusters_of

from ..measures.cloud import Cloud
from ..measures.field_checks import check_fields
from ..measures.sample_sizes import MIN_CLOUD
from .experts import ROUTED, experts
from .figures import component_figures
from .quantities import BLOCKS, N_DEPTHS, QUANTITIES, QUIET
from .updates import FinalShares, final_shares, lengths

DECODED = Need("lens_log_prob", NarrowRows())
"""The whole distribution at every depth, where the vocabulary is a wind tunnel's."""

Rows = Float[np.ndarray, "layer row"]

_STREAM, _LOGITS, _CURVES = ("resid", "attn_out", "mlp_out"), ("attn_logit", "mlp_logit"), ("lens_entropy", "lens_kl")

BY_LAYER = (
    "Layer by layer, mean over prompts with its 95 % bootstrap band (_low, _high). norm: length of the update, or of "
    "the stream before the layer; final_share: share of the final stream, with its null of random signs; logit: direct "
    "attribution to the predicted token."
)
BY_DEPTH = "Depth by depth (0 is the embedding), mean over prompts with its 95 % bootstrap band."
EMBEDDING = "The embedding's share of the final residual stream."
BY_EXPERTS = "Information about the prompt's domain in the experts chosen in each layer."


@dataclass(frozen=True)
class Components(Probe):
    """Updates of attention and feed-forward, direct logit attribution, and the logit lens by depth.

    `n_permutations`: random signs and permuted posteriors in the nulls; `n_bootstrap`: resamples of the prompts.
    `experts` tests whether experts divide domains, in a model whose routers can be read.
    """

    n_permutations: int = 500
    n_bootstrap: int = 1000
    seed: int = 0
    experts: bool = field(default=False, metadata=ADDED)

    name: ClassVar[str] = "components"
    least_clusters: ClassVar[int] = MIN_CLOUD
    quantities: ClassVar[Quantities] = QUANTITIES
    question: ClassVar[str] = "Which block writes the prediction, and does the residual stream refine it with depth?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            50, "Does {model} predict the exact posterior?", ("posterior_kl",),
            "Its prediction lies {posterior_kl} (KL; 0 is exact) from the exact posterior.",
            "Its prediction is no nearer to the exact posterior than to those of other {unit}s.",
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
        return (*(Need(site) for site in (*_STREAM, *_LOGITS, *_CURVES)), DECODED, *((ROUTED,) if self.experts else ()))

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, {"n_permutations": 24, "n_bootstrap": 20})

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        drawn = base.drawn
        units = Units.of(drawn.rows, drawn.prompts.unit, self.n_bootstrap, np.random.default_rng([self.seed, 1]))
        resid, attention, feed_forward = (Cloud.of(drawn, Need(site)).points for site in _STREAM)
        stream = resid, attention, feed_forward
        rows, curves = (
            {site: Cloud.of(drawn, Need(site)).points[..., 0].astype(np.float64) for site in sites}
            for sites in (_LOGITS, _CURVES)
        )
        signs_rng = np.random.default_rng([self.seed, 2])
        signs = random_signs(np.arange(1 + 2 * len(attention)), self.n_permutations, signs_rng)
        # the dimension that most of the squared length of the final stream lies along
        loudest = int(np.einsum("rd,rd->d", resid[-1], resid[-1], dtype=np.float64).argmax())
        shares, quiet = final_shares(*stream, signs), final_shares(*stream, signs, loudest)
        by_depth = {name: _mean(of, units) for name, of in curves.items()}
        found = _summed_shares(shares, units, "") | _summed_shares(quiet, units, QUIET)
        if drawn.posterior is not None and drawn[DECODED].shape[-1]:
            kl, permuted = posterior_divergence(drawn, self.n_permutations, self.seed)
            p = largest_deviation_p(kl.mean(axis=1), permuted)
            curves["posterior_kl"], by_depth["posterior_kl"] = kl, _mean(kl, units).permuted(permuted, p)
            found["posterior_kl"] = by_depth["posterior_kl"].at([-1])
        found |= {site: _mean(of.sum(axis=0, keepdims=True), units) for site, of in rows.items()}
        # the last depth decodes to the final prediction itself: a KL of zero in every model
        trends = {f"{name}_trend": c[:-1] if name == "lens_kl" else c for name, c in curves.items()}
        found |= {name: _trend(c, units) for name, c in trends.items()}
        found["lens_kl_trend_spaced"] = _trend(trends["lens_kl_trend"], units, N_DEPTHS)
        routed = experts(drawn, self.n_permutations, self.seed) if self.experts else {}
        found |= {name: of.at([-1]) for name, of in routed.items()}
        quantities = QUANTITIES.filled(loudest=str(loudest))
        tables = {
            "by_layer": quantities.table(_by_layer(lengths(*stream), shares, rows, units), BY_LAYER),
            "by_depth": quantities.table({"depth": np.arange(len(resid)), **by_depth}, BY_DEPTH),
            "embedding": quantities.table({"share": _mean(shares.share[:1], units)}, EMBEDDING),
        }
        layers = range(drawn.model.n_layers)
        defined = {name: replace(of.at(layers), p=None) for name, of in routed.items() if len(of.value) > 1}
        if defined:
            tables["experts_by_layer"] = quantities.table({"layer": np.array(layers), **defined}, BY_EXPERTS)
        return quantities.findings(self.name, quantities.scalars(found), tables, notes=self._notes(drawn, shares))

    figures = staticmethod(component_figures)

    def _notes(self, drawn: Capture, shares: FinalShares) -> tuple[str, ...]:
        notes = [
            f"Embedding and updates add up to the final residual stream but for {shares.missing:.1e} of its length. "
            "A few massive dimensions can carry most of that length; attribution to the logit does not see them unless "
            "the output head does.",
            "Attribution holds the scale of the final norm at its value, and leaves out biases and any soft-cap.",
        ]
        least = shares.least_p
        if least > ALPHA:
            notes.append(
                f"Shares of the final residual stream: {len(shares.share)} updates have too few patterns of sign for "
                f"a p below {least:.2g}."
            )
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


def posterior_divergence(
    capture: Capture, n_permutations: int, seed: int
) -> tuple[Float[np.ndarray, "depth row"], Float[np.ndarray, "permutation depth"]]:
    """KL(posterior ‖ decoded) in bits at every depth and row, and its mean over rows for every permutation.

    Over the full vocabulary: probability outside the possible outcomes counts as error. Posteriors of whole sequences
    (clusters of prompts) are permuted, so that what position alone predicts of the posterior stays in the null.
    """
    posterior, outcomes = capture.posterior, capture.outcomes
    assert posterior is not None and outcomes is not None
    log_q = np.take_along_axis(capture[DECODED], outcomes[None], axis=-1).astype(np.float64)
    certainty = -entropy_bits(posterior)
    kl = certainty + cross_entropy_bits(posterior, log_q)
    orders = shuffles(clusters_of(capture.rows), n_permutations, np.random.default_rng([seed, 4]))
    flat = log_q.reshape(len(log_q), -1)
    permuted = [certainty[order].mean() - flat @ posterior[order].ravel() / len(posterior) for order in orders]
    return kl, np.array(permuted)


def _mean(rows: Float[np.ndarray, "place row"], units: Units) -> Estimates:
    return units.estimates(units.means(rows))


def _summed_shares(shares: FinalShares, units: Units, ending: str) -> dict[str, Estimates]:
    """The shares of all attention and of all feed-forward in the final stream, compared with random signs."""
    found = {}
    for block, parts in shares.blocks.items():
        mine, drawn = _mean(shares.share[parts].sum(axis=0, keepdims=True), units), shares.flipped[:, parts].sum(axis=1)
        about = {**mine.about, "underpowered": mine.about["underpowered"] or shares.least_p > ALPHA}
        p = largest_deviation_p(mine.value, drawn[:, None])
        name = f"{BLOCKS[block].replace('-', '_')}_share{ending}"
        why = "the final residual stream is zero" if np.isnan(mine.value[0]) else ""
        found[name] = replace(mine, about=about, why=why).permuted(drawn[:, None], p)
    return found


def depth_trend(curves: Float[np.ndarray, "depth row"]) -> Float[np.ndarray, " row"]:
    """Spearman's ρ between depth and every row: −1 where it falls at every step; a flat one counts as 0."""
    return unit_ranks(curves.T) @ unit_ranks(np.arange(len(curves))[None])[0]


def _trend(curves: Float[np.ndarray, "depth row"], units: Units, n: int | None = None) -> Estimates:
    """The mean over rows, at all depths or at `n` evenly spaced ones. Why it has no p: `measures.depth_curve`.

    Over two depths every curve has a trend of −1 or 1.
    """
    if len(curves) < (n or 3):
        return Estimates.undefined(f"undefined (a trend over {len(curves)} depths)")
    at = np.linspace(0, len(curves) - 1, n or len(curves)).round().astype(int)
    return _mean(depth_trend(curves[at])[None], units)


def _by_layer(
    norms: Mapping[str, Rows], shares: FinalShares, logits: Mapping[str, Rows], units: Units
) -> dict[str, np.ndarray | Estimates]:
    final = {
        f"{block}_final_share": _mean(shares.share[parts], units).permuted(shares.flipped[:, parts], asks="nothing")
        for block, parts in shares.blocks.items()
    }
    before, after = ({name: _mean(of, units) for name, of in rows.items()} for rows in (norms, logits))
    return {"layer": np.arange(len(logits["attn_logit"])), **before, **final, **after}
