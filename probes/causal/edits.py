"""The conditions of the causal probe: what is edited in each, under a name that says what it is.

One intervention edits one layer or several together, each along its own axis. Its conditions are

    axis        removed at every dose, kept alone, shifted by ±1 standard deviation
    control i   fitted to permuted entropies (random for `pc1`, which does not depend on them) and matched in removed
                variance: removed at dose 1; the first few also at the other doses, kept and shifted
    random i    random directions matched likewise, where controls are fitted: removed
    principal i, gaussian i     other principal axes, and directions distributed as the data: removed
    top n, resample             positive controls: the first n principal axes removed, and all head outputs of the
                                layers replaced by another prompt's
    matched_top                 the first n principal axes at the dose at which they change as much as the axis does

Removal puts a coordinate to its mean over the edited positions (`fill="mean"`: all that is taken out is variance) or
to 0 (Paper III, section 4.5: takes out the mean too, and controls are matched in mean square).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from interp.edit import Edit
from interp.edits import AblateHeads, KeepAxis, RemoveAxis, ReplaceCoordinates, ShiftAxis
from interp.statistics.spectra import principal_axes

from .axis import Axis
from .controls import Edited, Matched, gaussian_directions, random_controls, refitted_controls

Fill = Literal["mean", "zero"]
HOW = ("direction", "subspace", "dose", "refit")

N_CLOUD = 20
"""Controls that are run at every dose, kept and shifted, too."""

N_RANDOM = 40
"""Random directions beside controls that are fitted."""

N_PRINCIPAL = 5
N_GAUSSIAN = 20
N_TOP = 10

REMOVED = "removed"


@dataclass(frozen=True)
class Name:
    """What a condition is: where it is read, which layers are edited, what is edited and how."""

    layers: tuple[int, ...]
    subject: str
    how: str = REMOVED
    dose: float = 1.0
    on: str = ""

    def __str__(self) -> str:
        return "|".join([self.on, ",".join(map(str, self.layers)), self.subject, self.how, repr(float(self.dose))])

    @classmethod
    def parse(cls, text: str) -> "Name":
        on, layers, subject, how, dose = text.split("|")
        return cls(tuple(int(x) for x in layers.split(",") if x), subject, how, float(dose), on)

    @property
    def is_compared(self) -> bool:
        """One of those whose effects on every readout are compared: the axis removed, controls, positive controls."""
        return (self.how, self.dose) == (REMOVED, 1.0) and self.subject.split()[0] in _COMPARED


BASELINE = "baseline"

_COMPARED = {BASELINE, "axis", "control", "random", "top", "matched_top", "resample"}
"""First words of the subjects of which every readout is shown; of others the change of the prediction alone."""


KEPT, SHIFTS = "kept", {"+1 sd": 1.0, "−1 sd": -1.0}


def compared(layers: tuple[int, ...], n_controls: int, has_heads: bool) -> Iterator[Name]:
    """What every set of prompts is run with beside the axis: controls at dose 1 and positive controls."""
    subjects = [*(f"control {i}" for i in range(n_controls)), "top", *["resample"] * has_heads]
    return (Name(layers, subject) for subject in subjects)


def on_the_run(
    layers: tuple[int, ...], doses: Sequence[float], n_controls: int, has_heads: bool, is_refitted: bool
) -> Iterator[Name]:
    """Every condition on the prompts of the run; `Intervention.named` leaves out what cannot be had there."""

    def moved(subject: str) -> Iterator[Name]:
        return (Name(layers, subject, how) for how in (KEPT, *SHIFTS))

    yield from (Name(layers, "axis", dose=dose) for dose in doses)
    yield from moved("axis")
    yield from compared(layers, n_controls, has_heads)
    yield Name(layers, "matched_top")
    for i in range(min(N_CLOUD, n_controls)):
        yield from (Name(layers, f"control {i}", dose=dose) for dose in doses if dose != 1)
        yield from moved(f"control {i}")
    others = {"random": N_RANDOM * is_refitted, "principal": N_PRINCIPAL, "gaussian": N_GAUSSIAN}
    for kind, most in others.items():
        numbers = range(1, most + 1) if kind == "principal" else range(min(most, n_controls))
        yield from (Name(layers, f"{kind} {i}") for i in numbers)


@dataclass(frozen=True)
class Cut:
    """What is taken out at one layer: this dose of the coordinates that `frame` reads, along `displacement`."""

    frame: Float[np.ndarray, "axis feature"]
    displacement: Float[np.ndarray, "axis feature"]
    dose: float = 1.0

    def fields(self, n_axes: int | None = None) -> dict[str, Any]:
        """Its first dimensions (None: all), as fields of an edit; along others where these do not read them too."""
        frame, displacement = self.frame[:n_axes], self.displacement[:n_axes]
        is_one = np.array_equal(frame, displacement)
        return {"axis": frame} | ({} if is_one else {"metric": "z-scored", "displacement": displacement})


@dataclass(frozen=True)
class EditedLayer:
    """One edited layer: its axis, its edited rows, its controls and, where these are fitted, random ones too."""

    layer: int
    axis: Axis
    rows: Float[np.ndarray, "row feature"]
    edited: Edited
    matched: Matched
    random: Matched | None
    gaussian: Float[np.ndarray, "control feature"]

    @classmethod
    def of(
        cls, layer: int, axis: Axis, rows: np.ndarray, scored: np.ndarray, refits: Sequence[Axis], fill: Fill, n: int,
        seed: int,
    ) -> "EditedLayer":  # fmt: skip
        """`n` controls are the `refits`, or random ones where there is none; all are matched at the `scored` rows."""
        edited = Edited.of(rows, fill, scored)
        rng = np.random.default_rng([seed, 1, layer])
        drawn = random_controls(edited, axis, min(n, N_RANDOM) if refits else n, rng)
        gaussian = gaussian_directions(edited, min(n, N_GAUSSIAN), rng)
        if not refits:
            return cls(layer, axis, rows, edited, drawn, None, gaussian)
        return cls(layer, axis, rows, edited, refitted_controls(edited, axis, refits), drawn, gaussian)


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

    @cached_property
    def cuts(self) -> dict[str, list[Cut]]:
        """What every subject takes out, one cut a place."""
        found = {"axis": [Cut(p.axis.covector[None], p.axis.displacement[None]) for p in self.places]}
        for subject, i, matched in self._matched():
            found[subject] = [Cut(m.frames[i], m.displacements[i], float(m.dose[i])) for m in matched]
        frames = {f"principal {i + 1}": [_principal(p, i + 1)[i : i + 1] for p in self.places]
                  for i in range(N_PRINCIPAL)}  # fmt: skip
        for i in range(len(self.places[0].gaussian)):
            frames[f"gaussian {i}"] = [p.gaussian[i : i + 1] for p in self.places]
        frames["top"] = [_principal(p, N_TOP) for p in self.places]
        if all(map(len, frames["top"])):
            found["matched_top"] = [
                Cut(f, f, p.edited.dose(f, p.axis)) for f, p in zip(frames["top"], self.places, strict=True)
            ]
        return found | {name: [Cut(f, f) for f in of] for name, of in frames.items() if all(map(len, of))}

    def _matched(self) -> Iterator[tuple[str, int, list[Matched]]]:
        """The controls of all places, and the random ones beside fitted ones: name, number among them, all of these."""
        random = [p.random for p in self.places if p.random is not None]
        for kind, of in (("control", [p.matched for p in self.places]), ("random", random)):
            yield from ((f"{kind} {i}", i, of) for i in range(len(of[0].frames) if of else 0))

    def named(self, names: Iterable[Name]) -> Iterator[tuple[Name, tuple[Edit, ...]]]:
        """The edits of these conditions, without those of which there is none at some place."""
        for name in names:
            if name.subject == "resample":
                blocks = tuple(sorted({min(layer, self.n_layers - 1) for layer in self.layers}))
                yield name, (AblateHeads(layer=blocks, heads=self.heads, by="resample", at=self.at),)
            elif name.subject in self.cuts:
                pairs = list(zip(self.places, self.cuts[name.subject], strict=True))
                yield name, tuple(edit for place, cut in pairs for edit in self._edits(place, cut, name))

    def facts(self) -> dict[str, dict[str, np.ndarray]]:
        """What is known of a subject before it is run: how a control was matched, how near others are to the axis."""
        found: dict[str, dict[str, np.ndarray]] = {}
        for subject, i, matched in self._matched():
            found[subject] = {
                "ratio": np.array([m.ratio[i] for m in matched]), "dose": np.array([m.dose[i] for m in matched]),
                "matching": np.array(
                    [[HOW.index(m.how), m.frames.shape[1], m.alike, m.n_rejected] for m in matched], np.float64
                ),
            }  # fmt: skip
        for subject, cuts in self.cuts.items():
            if subject.split()[0] in ("principal", "gaussian"):
                near = [np.abs(cut.frame @ p.axis.covector) for cut, p in zip(cuts, self.places, strict=True)]
                found[subject] = {"overlap": np.concatenate(near)}
        return found

    def _edits(self, place: EditedLayer, cut: Cut, name: Name) -> Iterator[Edit]:
        """Coordinates are put to their mean, or to 0; or the first is kept alone, or moved."""
        if name.how == KEPT:
            yield from self._kept(place, cut)
        elif name.how in SHIFTS:
            yield self._shifted(place, cut, SHIFTS[name.how])
        else:
            where = {**self._at(place), **cut.fields(), "dose": float(name.dose * cut.dose)}
            yield (
                RemoveAxis(**where)
                if self.fill == "zero"
                else ReplaceCoordinates(**where, values=cut.frame @ place.edited.mean)
            )

    def _kept(self, place: EditedLayer, cut: Cut) -> Iterator[Edit]:
        """All else is put to its mean (or to 0): keep the part along the axis, then add what the mean has beside it."""
        yield KeepAxis(**self._at(place), **cut.fields(1))
        if self.fill == "mean":
            mean = place.edited.mean
            rest = mean - (mean @ cut.frame[0]) * cut.displacement[0]
            length = float(np.linalg.norm(rest))
            along = rest[None] / length if length else cut.frame[:1]
            yield ShiftAxis(**self._at(place), axis=along, deviations=1.0, score_sigma=length)

    def _shifted(self, place: EditedLayer, cut: Cut, deviations: float) -> Edit:
        """As far as so many standard deviations of the axis."""
        axis = place.axis
        ratio = float(np.linalg.norm(axis.displacement) / np.linalg.norm(cut.displacement[0]))
        far = float((place.rows @ axis.covector).std()) * ratio
        return ShiftAxis(**self._at(place), **cut.fields(1), deviations=deviations, score_sigma=far)

    def _at(self, place: EditedLayer) -> dict[str, Any]:
        return {"layer": place.layer, "site": self.site, "at": self.at}


def _principal(place: EditedLayer, n: int) -> np.ndarray:
    return principal_axes(place.rows - place.rows.mean(axis=0), n).directions
