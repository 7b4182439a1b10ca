"""The gradient laws of attention as checks on any model, and whether attention moves as they predict.

A study, since it changes weights. On a copy of the model in float64, at one layer: the laws of `layer_gradients`
against autograd through the model's own kernel; the first-order change of the loss when values move; and whether, over
one small descent step on the layer's queries and keys alone or on all weights, attention grows where the advantage is
positive (`routing`). The laws are identities: a residual above rounding is an error in reading the model.

Source: Paper II (arXiv 2512.22473).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from jaxtyping import Float

from interp.errors import UsageError
from interp.findings import Findings
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantities
from interp.statistics.resampling import bootstrap_weights
from interp.study import Study
from interp.system.progress import Report
from interp.table import Table

from ..measures.field_checks import check_fields, refused
from .figures import gradient_figures
from .quantities import LAWS, QUANTITIES
from .routing import MEASURES, Pairs, Routed

if TYPE_CHECKING:
    import torch

    from interp.hooks.layer_gradients import LayerGradients, ScoredSequence
    from interp.model import Model

_LEAST = {"n_prompts": 2, "n_permutations": 19, "n_bootstrap": 20}
_LONGEST_STEP = 0.1


@dataclass(frozen=True)
class GradientLaws(Study):
    """The laws at `layer` (−1: the last) of `model`, on `n_prompts` texts of `prompts` or sequences of a wind tunnel.

    `head`: one head's agreement (none: the mean over all). `step` is the length of every step over that of what it
    moves. `is_whole` False leaves out the step on all weights, which needs memory for their gradients.
    """

    model: str = "tunnel:bijection-gpt-neox"
    layer: int = -1
    head: int | None = None
    prompts: str | None = None
    n_prompts: int = 32
    step: float = 1e-3
    is_whole: bool = True
    n_permutations: int = 200
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "gradient_laws"
    quantities: ClassVar[Quantities] = QUANTITIES
    question: ClassVar[str] = "Do attention's gradients obey their laws, and does attention move to better values?"

    def measure(self, work: Path, progress: Report) -> Findings:
        from interp.hooks.layer_gradients import with_gradients

        with with_gradients():
            return self._measured(progress)

    def _measured(self, progress: Report) -> Findings:
        from interp.hooks.layer_gradients import in_float64, layer_gradients, queries_and_keys, step_all_weights
        from interp.loading.load import load

        check_fields(self, _LEAST)
        if not 0 < self.step <= _LONGEST_STEP:
            fix = f"Choose one above 0, at most {_LONGEST_STEP}."
            raise refused(self, "step", "a law of first order wants a small step", fix)
        model = in_float64(load(self.model), n_copies=2 if self.is_whole else 1)
        layer = self._layer(model)
        heads = list(range(model.info.n_heads)) if self.head is None else [self.head]
        sequences, unit = self._sequences(model)
        rng = np.random.default_rng([self.seed, 1])
        found: list[LayerGradients] = []
        first_order = []
        n_parts = len(sequences) * (2 if self.is_whole else 1)
        for i, sequence in enumerate(sequences):
            found.append(layer_gradients(model, layer, sequence))
            if not found[-1].d_scores.any():
                raise UsageError(
                    asked=f"the gradients at layer {layer} of {model.name}",
                    found="the loss does not depend on what this layer attends to, so there is no gradient to explain",
                    fix="Choose another layer, or a model whose attention is not switched off there.",
                )
            first_order.append(self._first_order(model, layer, sequence, found[-1], rng))
            progress(i + 1, n_parts)
        after = {"queries_and_keys": [self._after_own_step(each) for each in found]}
        if self.is_whole:
            step_all_weights(model, sequences, self.step)
            after["model"] = []
            for i, (sequence, each) in enumerate(zip(sequences, found, strict=True)):
                after["model"].append(each.alpha_after(*queries_and_keys(model, layer, sequence)))
                progress(len(sequences) + i + 1, n_parts)
        routed = {
            name: Routed.of([_pairs(g, a, heads) for g, a in zip(found, alphas, strict=True)], self.n_permutations, rng)
            for name, alphas in after.items()
        }
        n = len(found)
        weights = bootstrap_weights(np.arange(n), None, self.n_bootstrap, rng)
        weights = weights / weights.sum(axis=1, keepdims=True)
        residuals = _residuals([each.residuals() for each in found], [each.residuals_of_wrong_laws() for each in found])
        laws = _laws_table(residuals, f"Layer {layer}: largest residual of each law over {n} {unit}s")
        numbers = {f"residual_{law}": residuals.at([i]) for i, law in enumerate(LAWS)}
        ratios, random = np.array(first_order).T[:, :, None]
        numbers["first_order_values"] = _mean(ratios, weights).permuted(random, asks="nothing")
        for step, by_head in routed.items():
            numbers |= {f"{name}_{step}": _agreement(by_head, i, weights, unit) for i, name in enumerate(MEASURES)}
        about, quantities = {"n": n, "n_unit": unit}, QUANTITIES.filled(unit=unit)
        by_head = _by_head_table(routed, np.array(heads), weights, f"Layer {layer}, head by head")
        loss_bits = np.mean([each.loss_bits for each in found])
        return quantities.findings(
            self.name,
            quantities.scalars({name: replace(of, about=about) for name, of in numbers.items()}),
            {"laws": laws, "by_head": by_head},
            notes=(
                f"Layer {layer} of {model.info.name}, {n} {unit}s with a mean loss of {loss_bits:.4f} bits; a copy of "
                "the model in float64, gradients through its own kernel.",
                "Residuals are of identities: above about 1e-10 something is read wrongly. They are no evidence for "
                "any account of what training does.",
                "The law is of scores. A step on weights or on queries and keys moves all scores of a key together, "
                "and α is renormalised, so agreement below 1 is no fault.",
                "Primary: moved. signs and rho are exploratory.",
            ),
        )  # fmt: skip

    figures = staticmethod(gradient_figures)

    def _first_order(
        self, model: "Model", layer: int, sequence: "ScoredSequence", found: "LayerGradients", rng: np.random.Generator
    ) -> tuple[float, float]:
        """Loss change over what the value law predicts, along its direction and along a random one of its length.

        Half the difference of a step forward and one back, so that what is quadratic in the step drops out.
        """
        import torch

        from interp.hooks.layer_gradients import loss_with_values

        along = found.value_law()
        rate = self.step * found.v.norm() / along.norm()
        predicted = float(-rate * along.square().sum())
        other = torch.from_numpy(rng.standard_normal(tuple(along.shape))).to(along)
        ratios = []
        for direction in (along, other * along.norm() / other.norm()):
            ahead, back = (
                loss_with_values(model, layer, sequence, found.v - sign * rate * direction) for sign in (1, -1)
            )
            ratios.append((ahead - back) / 2 / predicted)
        return ratios[0], ratios[1]

    def _after_own_step(self, found: "LayerGradients") -> "torch.Tensor":
        """Attention after one step on this layer's queries and keys, those of this sequence alone."""
        import torch

        def length(a: "torch.Tensor", b: "torch.Tensor") -> float:
            return float(torch.cat([a.ravel(), b.ravel()]).norm())

        rate = self.step * length(found.q, found.k) / length(found.d_q, found.d_k)
        return found.alpha_after(found.q - rate * found.d_q, found.k - rate * found.d_k)

    def _sequences(self, model: "Model") -> "tuple[list[ScoredSequence], str]":
        """The sequences of the loss: a tunnel's answers at its scored positions, or the next tokens of texts."""
        import torch

        from interp.hooks.layer_gradients import ScoredSequence
        from interp.options import RunOptions
        from interp.prompting.pools import prompts_for
        from interp.prompting.tokens import as_tokens

        if model.task is not None and self.prompts is None:
            drawn = model.task.sample(np.random.default_rng(self.seed), self.n_prompts)
            scored = torch.from_numpy(drawn.scored)
            tokens, targets = torch.from_numpy(drawn.tokens), torch.from_numpy(drawn.targets)
            return [ScoredSequence(t, scored, y) for t, y in zip(tokens, targets, strict=True)], "sequence"
        pool = prompts_for(model, RunOptions(prompts=self.prompts, n_pool=self.n_prompts, seed=self.seed))
        ids = [x for x in as_tokens(model, pool, (), None).ids if len(x) > 1][: self.n_prompts]
        if len(ids) < 2:
            raise UsageError(
                asked=f"gradient_laws on the prompts {pool.name!r}",
                found=f"{len(ids)} of them have a token that follows another",
                fix="Give two texts or more of several tokens each.",
            )
        return [ScoredSequence.of_text(torch.from_numpy(np.asarray(x, dtype=np.int64))) for x in ids], pool.unit

    def _layer(self, model: "Model") -> int:
        n_layers, n_heads = model.info.n_layers, model.info.n_heads
        check_fields(self, {}, n_layers, "layer")
        if self.head is not None and not 0 <= self.head < n_heads:
            raise refused(self, "head", f"{model.name} has {n_heads} a layer", f"Choose 0 to {n_heads - 1}, or none.")
        return self.layer % n_layers


def _pairs(found: "LayerGradients", after: "torch.Tensor", heads: list[int]) -> Pairs:
    advantage, change = (x[heads].cpu().numpy() for x in (found.advantage, after - found.alpha))
    return Pairs.of(advantage, change, found.visible[0].cpu().numpy())


def _mean(by_unit: Float[np.ndarray, "unit place"], weights: np.ndarray) -> Estimates:
    return Estimates.resampled(by_unit.mean(axis=0), weights @ by_unit)


def _residuals(right: Sequence[Mapping[str, float]], wrong: Sequence[Mapping[str, float]]) -> Estimates:
    """The largest residual of every law over all sequences, beside those of a law that is nearly right."""
    value, null = (np.array([[each[law] for each in by_law] for law in LAWS]) for by_law in (right, wrong))
    return Estimates(value.max(axis=1)).against(np.array([null.mean(axis=1), null.min(axis=1), null.max(axis=1)]))


def _agreement(routed: Routed, measure: int, weights: np.ndarray, unit: str) -> Estimates:
    by_unit, expected = (each[:, measure].mean(axis=1, keepdims=True) for each in (routed.observed, routed.expected))
    if np.isnan(by_unit).any():
        return Estimates.undefined(f"in some {unit}s no attention moved")
    p, flipped = routed.test(by_unit, expected)
    return _mean(by_unit, weights).permuted(flipped, p)


def _laws_table(residuals: Estimates, what: str) -> Table:
    assert residuals.null is not None
    caption = (
        f"{what}, relative to the largest gradient, and the smallest one of a law that is nearly right (b not centred; "
        "even attention)."
    )
    names = {"law": np.array([*LAWS]), "formula": np.array([*LAWS.values()])}
    return QUANTITIES.table({**names, "residual": residuals.value, "wrong_law": residuals.null[1]}, caption)


def _by_head_table(steps: Mapping[str, Routed], heads: np.ndarray, weights: np.ndarray, what: str) -> Table:
    """Every measure by step and head; p over the largest of all heads of a step, under the same signs."""
    parts = []
    for step, routed in steps.items():
        columns: dict[str, np.ndarray | Estimates] = {"step": np.full(len(heads), step), "head": heads}
        for i, name in enumerate(MEASURES):
            p, flipped = routed.test(routed.observed[:, i], routed.expected[:, i])
            columns[name] = _mean(routed.observed[:, i], weights).permuted(flipped, p)
        parts.append(columns)
    return QUANTITIES.stacked(parts, f"{what}; p corrected over the heads of a step (flipped signs).", head="index")
