"""The conditions of the causal probe: what is edited in each, under a name that says what it is.

One intervention edits one layer or several together, each along its own axis. Its conditions are

    axis        removed at every dose, kept alone, shifted by ±1 standard deviation
    control i   fitted to permuted entropies (random for `pc1`, which does not depend on them) and matched in removed
                variance: removed at dose 1; the first few also at the other doses, kept and shifted
    random i    random directions matched likewise, where controls are fitted: removed
    principal i, gaussian i     other principal axes, and directions distributed as the data: removed
    top n, resample             positive controls: the first n principal axes removed, and all head outputs of the
                                layers replaced by another prompt's

Removal puts a coordinate to its mean over the edited positions (`fill="mean"`: all that is taken out is variance) or
to 0 (Paper III, section 4.5: takes out the mean too, and controls are matched in mean square).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from jaxtyping import Float

from interp.edits import AblateHeads, Edit, KeepAxis, RemoveAxis, ReplaceCoordinates, ShiftAxis
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

_COMPARED = {BASELINE, "axis", "control", "random", "top", "resample"}
"""First words of the subjects of which every readout is shown; of others the change of the prediction alone."""


def n_compared(n_controls: int, has_heads: bool) -> int:
    """How many conditions `Intervention.compared` has, where nothing is left out."""
    return n_controls + 1 + has_heads


def n_whole(n_controls: int, has_heads: bool, is_refitted: bool) -> int:
    """How many conditions of an intervention are compared on every readout: the axis, controls, random directions."""
    return 1 + n_compared(n_controls, has_heads) + is_refitted * min(n_controls, N_RANDOM)


def n_conditions(doses: Sequence[float], n_controls: int, has_heads: bool, is_refitted: bool) -> int:
    """How many conditions `Intervention.conditions` has, where nothing is left out."""
    of_control = sum(dose != 1 for dose in doses) + 3
    others = N_PRINCIPAL + min(n_controls, N_GAUSSIAN) + len(doses) - 1 + 3
    return n_whole(n_controls, has_heads, is_refitted) + min(N_CLOUD, n_controls) * of_control + others


def control(i: int) -> str:
    return f"control {i}"


def random(i: int) -> str:
    return f"random {i}"


@dataclass(frozen=True)
class Place:
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
    ) -> "Place":  # fmt: skip
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

    places: Sequence[Place]
    site: str
    at: str
    fill: Fill
    heads: tuple[int, ...]
    n_layers: int

    @property
    def layers(self) -> tuple[int, ...]:
        return tuple(place.layer for place in self.places)

    def conditions(self, doses: Sequence[float], n_controls: int) -> Iterator[tuple[Name, tuple[Edit, ...]]]:
        """Every condition of this intervention on the prompts of the run."""
        for dose in doses:
            yield Name(self.layers, "axis", dose=dose), self._remove_axis(dose)
        yield from self._kept_and_shifted("axis", [place.axis for place in self.places], is_control=False)
        yield from self.compared(n_controls)
        for i in range(min(N_CLOUD, n_controls)):
            for dose in doses:
                if dose != 1:
                    yield Name(self.layers, control(i), dose=dose), self._remove_control(i, dose)
            yield from self._kept_and_shifted(
                control(i), [_as_axis(p.matched, i) for p in self.places], is_control=True
            )
        for subject, controls in self._random().items():
            yield Name(self.layers, subject), self._remove_matched(controls, int(subject.split()[1]), 1.0)
        for subject, frames in self._others().items():
            yield from self._frames(subject, frames)

    def compared(self, n_controls: int) -> Iterator[tuple[Name, tuple[Edit, ...]]]:
        """What every set of prompts is run with: controls at dose 1 and positive controls."""
        for i in range(n_controls):
            yield Name(self.layers, control(i)), self._remove_control(i, 1.0)
        top = [_principal(p, N_TOP) for p in self.places]
        yield from self._frames("top", top)
        if self.heads:
            blocks = tuple(sorted({min(layer, self.n_layers - 1) for layer in self.layers}))
            edit = AblateHeads(layer=blocks, heads=self.heads, by="resample", at=self.at)
            yield Name(self.layers, "resample"), (edit,)

    def facts(self) -> dict[str, dict[str, np.ndarray]]:
        """What is known of a subject before it is run: how a control was matched, how near others are to the axis."""
        found: dict[str, dict[str, np.ndarray]] = {}
        subjects = {control(i): self._matched for i in range(len(self._matched[0].frames))} | self._random()
        for subject, matched in subjects.items():
            i = int(subject.split()[1])
            found[subject] = {
                "ratio": np.array([m.ratio[i] for m in matched]), "dose": np.array([m.dose[i] for m in matched]),
                "matching": np.array(
                    [[HOW.index(m.how), m.n_axes, m.alike, m.n_rejected] for m in matched], np.float64
                ),
            }  # fmt: skip
        for name, frames in self._others().items():
            near = [np.abs(f @ p.axis.covector) for f, p in zip(frames, self.places, strict=True)]
            found[name] = {"overlap": np.concatenate(near)}
        return found

    def _others(self) -> dict[str, list[np.ndarray]]:
        """Single directions that are no matched controls, one a place: principal axes, and some like the data."""
        found = {
            f"principal {i + 1}": [_principal(p, i + 1)[i : i + 1] for p in self.places] for i in range(N_PRINCIPAL)
        }
        n_gaussian = len(self.places[0].gaussian)
        return found | {f"gaussian {i}": [p.gaussian[i : i + 1] for p in self.places] for i in range(n_gaussian)}

    @property
    def _matched(self) -> list[Matched]:
        return [place.matched for place in self.places]

    def _random(self) -> dict[str, list[Matched]]:
        """The random controls of all places beside fitted ones, by their names."""
        drawn = [place.random for place in self.places if place.random is not None]
        return {random(i): drawn for i in range(len(drawn[0].frames))} if drawn else {}

    def axis_removed(self) -> tuple[Name, tuple[Edit, ...]]:
        return Name(self.layers, "axis"), self._remove_axis(1.0)

    def _frames(self, subject: str, frames: Sequence[np.ndarray]) -> Iterator[tuple[Name, tuple[Edit, ...]]]:
        if all(len(frame) for frame in frames):
            edits = [self._remove(p, frame, 1.0) for p, frame in zip(self.places, frames, strict=True)]
            yield Name(self.layers, subject), tuple(edits)

    def _remove_axis(self, dose: float) -> tuple[Edit, ...]:
        return tuple(self._remove(p, p.axis.covector[None], dose, _displacement(p.axis)) for p in self.places)

    def _remove_control(self, i: int, dose: float) -> tuple[Edit, ...]:
        return self._remove_matched(self._matched, i, dose)

    def _remove_matched(self, controls: Sequence[Matched], i: int, dose: float) -> tuple[Edit, ...]:
        edits = []
        for place, matched in zip(self.places, controls, strict=True):
            a, d = matched.frames[i], matched.displacements[i]
            oblique = None if np.array_equal(a, d) else d
            edits.append(self._remove(place, a, dose * float(matched.dose[i]), oblique))
        return tuple(edits)

    def _remove(self, place: Place, axes: np.ndarray, dose: float, displacement: np.ndarray | None = None) -> Edit:
        """Coordinates read by the rows of `axes` are put to their mean, or to 0."""
        where: dict[str, Any] = {
            "layer": place.layer, "site": self.site, "at": self.at, "axis": axes, "dose": float(dose),
        }  # fmt: skip
        where |= _oblique(displacement)
        if self.fill == "zero":
            return RemoveAxis(**where)
        return ReplaceCoordinates(**where, values=axes @ place.edited.mean)

    def _keep(self, axes: Sequence[Axis]) -> tuple[Edit, ...]:
        """Everything but the axis is put to its mean (or to 0): keep its part, then add what the mean has beside it."""
        edits: list[Edit] = []
        for place, axis in zip(self.places, axes, strict=True):
            where: dict[str, Any] = {"layer": place.layer, "site": self.site, "at": self.at}
            edits.append(KeepAxis(**where, axis=axis.covector[None], **_oblique(_displacement(axis))))
            if self.fill == "mean":
                rest = place.edited.mean - (place.edited.mean @ axis.covector) * axis.displacement
                length = float(np.linalg.norm(rest))
                edits.append(
                    ShiftAxis(**where, axis=rest[None] / length if length else axis.covector[None], deviations=1.0,
                              score_sigma=length)
                )  # fmt: skip
        return tuple(edits)

    def _kept_and_shifted(
        self, subject: str, axes: Sequence[Axis], *, is_control: bool
    ) -> Iterator[tuple[Name, tuple[Edit, ...]]]:
        yield Name(self.layers, subject, "kept"), self._keep(axes)
        for sign, how in ((1.0, "+1 sd"), (-1.0, "−1 sd")):
            yield Name(self.layers, subject, how), self._shift(axes, sign, is_control)

    def _shift(self, axes: Sequence[Axis], deviations: float, is_control: bool) -> tuple[Edit, ...]:
        """By one standard deviation of the axis' coordinate; controls are moved as far."""
        edits = []
        for place, axis in zip(self.places, axes, strict=True):
            spread = float((place.rows @ place.axis.covector).std())
            ratio = np.linalg.norm(place.axis.displacement) / np.linalg.norm(axis.displacement)
            far = spread * float(ratio) if is_control else spread
            edits.append(
                ShiftAxis(layer=place.layer, site=self.site, at=self.at, axis=axis.covector[None],
                          deviations=deviations, score_sigma=far, **_oblique(_displacement(axis)))
            )  # fmt: skip
        return tuple(edits)


def _oblique(displacement: np.ndarray | None) -> dict[str, Any]:
    return {} if displacement is None else {"metric": "z-scored", "displacement": displacement}


def _displacement(axis: Axis) -> np.ndarray | None:
    return None if axis.is_orthogonal else axis.displacement[None]


def _as_axis(matched: Matched, i: int) -> Axis:
    """The first dimension of a control."""
    return Axis(matched.frames[i, 0], matched.displacements[i, 0], 0.0)


def _principal(place: Place, n: int) -> np.ndarray:
    return principal_axes(place.rows - place.rows.mean(axis=0), n).directions
