"""Depth and context: what does each layer add, and can evidence that is shown twice replace a layer?

The last m layers are bypassed (m = 0 .. all), so that the residual stream after the first ones is decoded directly, as
with the logit lens (`components` on the original sequences) or another lens of the model. Error against depth shows how
far the inference has come. A chain of thought gives a model more passes over the same evidence; its counterpart on a
wind tunnel is a repeated context, which leaves the exact posterior of a bijection unchanged: comparing error against
depth with one copy and with several shows whether copies can replace layers.

Source: the claim of more rounds of elimination, Paper III (arXiv 2512.23752), discussion.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.edits import BypassLayer
from interp.findings import Findings
from interp.need import Need
from interp.probe import Condition, Planned, Probe, Readout, Sentences
from interp.prompting.tunnel_sequences import copied_name
from interp.statistics.estimates import Estimates
from interp.statistics.quantities import Quantities, Quantity

from ..measures.field_checks import check_fields
from ..measures.harm import (
    NOTHING_TRIED,
    OUTCOME,
    SIGNED,
    SIZE,
    Scores,
    choose_prompts,
    measures_of,
    n_tried,
    needs_where,
    other_units,
    read_scores,
    units_of,
)
from ..measures.sign_flips import flipped_means, harm_estimates
from .figures import depth_figures

_DIVERGENCE = "a divergence from the unedited prediction: 0 without an edit, never below"


def _bits(meaning: str) -> Quantity:
    method = "percentile bootstrap over {drawn}s"
    return Quantity("bits", f"{meaning} ({{measure}})", "{null}", method, "no prompt has it", is_headline=True)


QUANTITIES = Quantities(
    {
        "last_layer": _bits("decrease of the error by layer {last}: error without it minus error with all layers"),
        "copies_gain": _bits(
            "decrease of the error when {n_shown} observations are shown {most} times instead of once, with all layers"
        ),
        "copies_for_layer": _bits(
            "error without layer {last} and with {n_shown} observations shown {most} times, minus error with all "
            "layers and these shown once; at most 0 if copies replace a layer"
        ),
    },
    {"copies": "1", "n_shown": "observations", "depth": "layers", "gain": "bits"},
)
BY_DEPTH = (
    "Error with only the first layers (their number is depth), the others bypassed. copies: how often the first "
    "n_shown observations are shown before the question (0: the original sequences, scored everywhere). 95 % bootstrap "
    "bands over prompts. gain: bits by which the last of these layers lowers the primary error; p from sign flips of "
    "whole prompts, corrected over depths."
)


@dataclass(frozen=True)
class DepthUse(Probe):
    """Error against the number of layers kept, with the context once and up to `copies` times (1: never copied).

    `n_prompts`: how many prompts (none: 200 sequences or 40 texts). Context is copied on wind tunnels whose sequences
    mark repeated evidence (`is_repeat`), as far as the trained length goes.
    """

    copies: int = 2
    n_prompts: int | None = None
    n_permutations: int = 1000
    n_bootstrap: int = 1000
    seed: int = 0

    name: ClassVar[str] = "depth_use"
    quantities: ClassVar[Quantities] = QUANTITIES
    question: ClassVar[str] = "What does each layer add, and can repeated evidence replace a layer?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            105, "Does {model} need its last layer?", ("last_layer",),
            "The last layer lowers the error by {value}.",
            "The last layer does not change the error beyond chance.",
            "The last layer raises the error by {size}.",
        ),
    )  # fmt: skip
    observational: ClassVar[bool] = False

    @property
    def needs(self) -> tuple[Need, ...]:
        return (OUTCOME,)

    def conditions(self, base: Capture) -> Iterable[Condition]:
        self.refuse_fields(base.model.n_layers)
        n_layers = base.model.n_layers
        is_exact = base.posterior is not None
        needs = tuple(need for need in needs_where(is_exact) if need != SIZE)  # blocks that are cut need not run
        chosen = choose_prompts(base, self.n_prompts, self.seed)
        for copies in (0, *self._copies(base)):
            on: dict[str, Any] = {"prompts": chosen}
            if copies:
                on = {"on": copied_name(self._n_shown(base), copies), "n_pool": len(chosen)}
            for depth in range(n_layers + 1):
                cut = tuple(range(depth, n_layers))
                edits = (BypassLayer(layer=cut, lens=True),) if cut else ()
                yield Condition(_name(copies, depth), edits, needs, read_scores, **on)

    def planned(self, info: ModelInfo, n_prompts: int, *, is_text: bool) -> Iterable[Planned]:
        """Every depth for every number of copies."""
        n = min(n_prompts, n_tried(self.n_prompts, not is_text))
        n_times = 1 if is_text or self.copies == 1 else 1 + self.copies
        yield from (Planned(n_times, n, depth, needs_where(not is_text)) for depth in range(info.n_layers))

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        self.refuse_fields(base.model.n_layers)
        if _name(0, 0) not in under:
            return QUANTITIES.findings(self.name, QUANTITIES.scalars({"last_layer": NOTHING_TRIED}), {})
        measures, copies, whole = measures_of(base.prompts), self._copies(base), base.model.n_layers
        scores = {c: self._scores(base, under, c) for c in (0, *copies)}
        asked = {"last_layer": (0, (0, whole - 1), (0, whole))}
        if copies:
            most = copies[-1]
            asked["copies_gain"] = (1, (1, whole), (most, whole))
            asked["copies_for_layer"] = (1, (most, whole - 1), (1, whole))
        words = {"most": str(copies[-1] if copies else 1), "n_shown": str(self._n_shown(base)), "last": str(whole - 1)}
        quantities = QUANTITIES.filled(**words, measure=measures[0])
        scalars = {
            name: quantities.scalar(name, _difference(scores[c], (_name(*more), _name(*fewer)), measures[0]))
            for name, (c, more, fewer) in asked.items()
        }
        parts = [_columns(scores[c], c, self._n_shown(base) if c else 0, whole, measures) for c in scores]
        table = quantities.stacked(parts, BY_DEPTH, **dict.fromkeys(measures, "bits"))
        return quantities.findings(
            self.name, scalars, {"by_depth": table}, notes=self._notes(base, scores[0], copies)
        )  # fmt: skip

    figures = staticmethod(depth_figures)

    def refuse_fields(self, n_layers: int | None) -> None:
        check_fields(self, {"copies": 1, "n_prompts": 2, "n_permutations": 19, "n_bootstrap": 20})

    def _copies(self, base: Capture) -> tuple[int, ...]:
        """1 .. `copies`; none where nothing says that repeated evidence is legal, or sequences are too short."""
        rows = base.rows
        is_legal = base.prompts.is_tunnel and "is_repeat" in rows and bool(np.asarray(rows["is_repeat"]).any())
        if not is_legal or self.copies == 1 or self._n_shown(base) < 1:
            return ()
        return tuple(range(1, self.copies + 1))

    def _n_shown(self, base: Capture) -> int:
        """As many observations as fit into the trained length when shown `copies` times."""
        return int(base.rows["evidence"].max()) // self.copies if "evidence" in base.rows else 0

    def _scores(self, base: Capture, under: Mapping[str, Readout], copies: int) -> Scores:
        rng, unedited = np.random.default_rng([self.seed, 4, copies]), _name(copies, base.model.n_layers)
        if copies:
            units = other_units(under[unedited], self.n_bootstrap, rng)
        else:
            units = units_of(base, choose_prompts(base, self.n_prompts, self.seed), self.n_bootstrap, rng)
        signs = units.signs(self.n_permutations, np.random.default_rng([self.seed, 5, copies]))
        return Scores(under, unedited, units, signs)

    def _notes(self, base: Capture, scores: Scores, copies: tuple[int, ...]) -> tuple[str, ...]:
        notes = [
            f"{scores.units.n} {scores.units.name}s; layers are cut from the end. A cut model answers through the "
            f"{(base.model.lens or 'logit').split()[0]} lens and an output head trained for the last depth alone: its "
            "error is an upper bound of what is known at its depth.",
        ]
        if copies:
            notes.append(
                f"Copies: the question after the first {self._n_shown(base)} observations of other sequences of the "
                f"same task, these shown 1 to {copies[-1]} times; within the trained length, and with the same exact "
                "posterior. Contexts repeated in order are legal but rare in training."
            )
        elif self.copies > 1:
            notes.append(
                "Context was not copied: the prompts do not mark repeated evidence (is_repeat), without which an "
                "observation shown twice counts twice; or they are too short to show it twice."
            )
        return tuple(notes)


def _name(copies: int, depth: int) -> str:
    return f"{depth} layers, " + (f"context shown {copies} times" if copies else "as drawn")


def _difference(scores: Scores, names: tuple[str, str], measure: str) -> Estimates:
    """Error under the first condition minus that under the second, paired by prompt. Null: signs flipped."""
    by_unit = (scores.score(names[0], measure) - scores.score(names[1], measure))[:, None]
    found = scores.harm(by_unit, measure)
    if measure not in SIGNED:
        return found.with_words(null=_DIVERGENCE)
    named = found.with_words(null=f"signs of whole {scores.units.drawn}s flipped")
    return named.permuted(flipped_means(by_unit, scores.signs), found.p)


def _columns(
    scores: Scores, copies: int, n_shown: int, n_layers: int, measures: Sequence[str]
) -> dict[str, np.ndarray | Estimates]:
    """One row a depth, 0 layers first."""
    names = [_name(copies, depth) for depth in range(n_layers + 1)]
    columns: dict[str, np.ndarray | Estimates] = {"copies": np.array(copies), "n_shown": np.array(n_shown)}
    columns["depth"] = np.arange(len(names))
    columns |= {m: scores.units.estimates(scores.scores(names, m)) for m in measures}
    errors = scores.scores(names, measures[0])
    gain = harm_estimates(errors[:, :-1] - errors[:, 1:], scores.units, scores.signs).columns("gain")
    return columns | {name: np.r_[np.nan, values] for name, values in gain.items()}
