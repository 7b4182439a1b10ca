"""The conditions of the causal probe, by name.

One intervention edits one layer or several together, each along its own axis. Its conditions are

    axis        removed, kept alone, shifted by ±1 standard deviation
    control i   refitted (random for `pc1`) and matched in removed variance: removed
    random i    random directions matched likewise, beside refitted controls: removed
    top n, resample             positive controls: the first n principal axes removed, and all head outputs of the
                                layers replaced by another prompt's
    matched_top                 the first n principal axes at the dose at which they change as much as the axis does

Removal sets a coordinate to its mean over the edited positions (`fill="mean"`) or to 0 (Paper III, section 4.5: this
removes the mean too, and controls are matched in mean square).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from interp.edit import Edit
from interp.edits import AblateHeads, KeepAxis, RemoveAxis, ReplaceCoordinates, ShiftAxis
from interp.probe import Readout
from interp.statistics.spectra import principal_axes

from .axis import Axis
from .controls import Cut, Edited, random_controls, refitted_controls

Fill = Literal["mean", "zero"]
N_RANDOM = 40
"""Random directions beside controls that are fitted."""

N_TOP = 10

REMOVED, KEPT, SHIFTS = "removed", "kept", {"+1 sd": 1.0, "−1 sd": -1.0}
BASELINE = "baseline"


@dataclass(frozen=True)
class Name:
    """A condition: where it is read, which layers are edited, what is edited and how."""

    layers: tuple[int, ...]
    subject: str
    how: str = REMOVED
    on: str = ""

    def __str__(self) -> str:
        return "|".join([self.on, ",".join(map(str, self.layers)), self.subject, self.how])

    @classmethod
    def parse(cls, text: str) -> "Name":
        on, layers, subject, how = text.split("|")
        return cls(tuple(int(x) for x in layers.split(",") if x), subject, how, on)

    @property
    def is_compared(self) -> bool:
        """Whether it has every readout; an axis kept or shifted has the change of the prediction alone."""
        return self.how == REMOVED


def compared(layers: tuple[int, ...], n_controls: int, has_heads: bool) -> Iterator[Name]:
    """Controls and positive controls, for every set of prompts."""
    subjects = [*(f"control {i}" for i in range(n_controls)), "top", *["resample"] * has_heads]
    return (Name(layers, subject) for subject in subjects)


def on_the_run(layers: tuple[int, ...], n_controls: int, has_heads: bool, is_refitted: bool) -> Iterator[Name]:
    """Every condition on the prompts of the run; `Intervention.named` leaves out impossible ones."""
    yield from (Name(layers, "axis", how) for how in (REMOVED, KEPT, *SHIFTS))
    yield from compared(layers, n_controls, has_heads)
    yield Name(layers, "matched_top")
    yield from (Name(layers, f"random {i}") for i in range(min(N_RANDOM, n_controls) * is_refitted))


@dataclass(frozen=True)
class EditedLayer:
    """One edited layer: mean of its edited rows, their spread along the axis, and the cut of every subject."""

    layer: int
    mean: Float[np.ndarray, " feature"]
    spread: float
    cuts: Mapping[str, Cut]

    @classmethod
    def of(
        cls, layer: int, axis: Axis, rows: np.ndarray, scored: np.ndarray, refits: Sequence[Axis], fill: Fill, n: int,
        seed: int,
    ) -> "EditedLayer":  # fmt: skip
        """Controls are the `refits` or else `n` random ones, matched at the `scored` rows."""
        edited = Edited.of(rows, fill, scored)
        rng = np.random.default_rng([seed, 1, layer])
        random = random_controls(edited, axis, min(n, N_RANDOM) if refits else n, rng)
        top = principal_axes(rows - edited.mean, N_TOP).directions
        cuts = {"axis": Cut(axis.covector[None], axis.displacement[None]), "top": Cut(top)}
        cuts["matched_top"] = Cut(top, dose=edited.dose(top, axis))
        fitted = {"control": refitted_controls(edited, axis, refits), "random": random} if refits else {}
        for kind, controls in (fitted or {"control": random}).items():
            cuts |= {f"{kind} {i}": cut for i, cut in enumerate(controls)}
        return cls(layer, edited.mean, float((rows @ axis.covector).std()), cuts)


@dataclass(frozen=True)
class Intervention:
    """Edits of one or several layers at once."""

    places: Sequence[EditedLayer]
    site: str
    at: str
    fill: Fill
    heads: tuple[int, ...]
    n_layers: int

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(place.layer for place in self.places)

    def cuts(self, subject: str) -> list[Cut]:
        """One for each layer; none if a layer lacks it."""
        found = [place.cuts[subject] for place in self.places if subject in place.cuts]
        return found if len(found) == len(self.places) else []

    def facts(self, subject: str) -> Readout:
        """The facts of a subject, one entry a layer."""
        cuts = self.cuts(subject)
        return {fact: np.array([cut.facts[fact] for cut in cuts]) for fact in (cuts[0].facts if cuts else ())}

    def named(self, names: Iterable[Name]) -> Iterator[tuple[Name, tuple[Edit, ...]]]:
        """The edits of these conditions, none of the baseline; those that a layer lacks are left out."""
        for name in names:
            if name.subject == BASELINE:
                yield name, ()
            elif name.subject == "resample":
                blocks = tuple(sorted({min(layer, self.n_layers - 1) for layer in self.layers}))
                yield name, (AblateHeads(layer=blocks, heads=self.heads, by="resample", at=self.at),)
            elif cuts := self.cuts(name.subject):
                pairs = zip(self.places, cuts, strict=True)
                yield name, tuple(edit for place, cut in pairs for edit in self._edits(place, cut, name))

    def _edits(self, place: EditedLayer, cut: Cut, name: Name) -> Iterator[Edit]:
        at: dict[str, Any] = {"layer": place.layer, "site": self.site, "at": self.at}
        if name.how == KEPT:  # all else becomes its mean (or 0): then the mean's part off the axis is added
            yield KeepAxis(**at, **cut.fields())
            if self.fill == "mean":
                rest = place.mean - (place.mean @ cut.covectors[0]) * cut.moved[0]
                length = float(np.linalg.norm(rest))
                along = rest[None] / length if length else cut.covectors[:1]
                yield ShiftAxis(**at, axis=along, deviations=1.0, score_sigma=length)
        elif name.how in SHIFTS:
            yield ShiftAxis(**at, **cut.fields(), deviations=SHIFTS[name.how], score_sigma=place.spread)
        else:
            at |= {**cut.fields(), "dose": cut.dose}
            zeroed = self.fill == "zero"
            yield RemoveAxis(**at) if zeroed else ReplaceCoordinates(**at, values=cut.covectors @ place.mean)
