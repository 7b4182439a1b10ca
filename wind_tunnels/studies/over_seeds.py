"""Studies of several networks: open or train them, read each, and average over them with t intervals."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np

import interp
from interp.errors import UsageError
from interp.findings import ALPHA, Findings, Interval, Null, Scalar
from interp.model import Model
from interp.registry import load_entry
from interp.settings import by_name, split_commas
from interp.statistics.intervals import TMean, t_mean
from interp.study import Study
from interp.system.progress import Report, part_of
from interp.table import LABEL, Table, number_columns
from interp.tunnel import Task

from ..plans.settings import read_settings
from ..validation import DISTINCT, Checked, Rule

if TYPE_CHECKING:
    from ..plans.train_tunnel import Keep, TrainingPlan

METHOD = "t over seeds of the training"
PAIRED = f"{METHOD}, paired"

NO_DIFFERENCE = Null("no difference", 0.0, (0.0, 0.0))

Labels = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]
"""For each network its labels and numbers."""

Trainings = Iterable[tuple[Labels, "TrainingPlan"]]
"""For each training the labels of its network, without the seed, and its plan."""


class Kind(NamedTuple):
    """The unit of a number and its possible values, where intervals are cut."""

    unit: str
    low: float = -np.inf
    high: float = np.inf


KINDS = {
    "share": Kind("fraction", 0.0, 1.0), "difference": Kind("fraction", -1.0, 1.0), "r2": Kind("fraction", high=1.0),
    "correlation": Kind("1", -1.0, 1.0), "cosine": Kind("1", 0.0, 1.0), "positive": Kind("1", 0.0),
    "error": Kind("bits", 0.0),
}  # fmt: skip
"""Kinds by name, `cosine` without sign and `difference` of shares; other names are units of numbers without bounds."""


def kind_of(kind: str | Kind) -> Kind:
    """The kind of this name."""
    return kind if isinstance(kind, Kind) else KINDS.get(kind, Kind(kind))


def scalar_over_seeds(
    found: TMean, kind: str | Kind, null: Null | str, n: int, meaning: str, *,
    method: str = METHOD, no_spread: str = "all seeds give the same",
) -> Scalar:  # fmt: skip
    """A number with its interval over `n` seeds, or the reason for none: one seed, or `no_spread` between them."""
    unit, least, most = kind_of(kind)
    low, high = np.clip([found.low, found.high], least, most)
    interval = Interval(low, high, method) if low < high else "one seed" if n == 1 else no_spread
    about = {"n": n, "n_unit": "seed", "underpowered": n == 1, "meaning": meaning}
    return Scalar.of(found.value, unit, interval, null, p=None if isinstance(null, str) else found.p, **about)


def mean_scalar(values: Sequence[float], kind: str | Kind, null: Null | str, meaning: str) -> Scalar:
    """The mean over seeds without a test."""
    return scalar_over_seeds(replace(t_mean(values), p=np.nan), kind, null, len(values), meaning)


def mean_over_seeds(
    values: Sequence[float], kind: str | Kind, null: Null | str, meaning: str, method: str = METHOD
) -> Scalar:  # fmt: skip
    """The mean over seeds, with the p of the t test against 0 if there is a null and values can be below it."""
    if isinstance(null, Null) and kind_of(kind).low == null.value:
        return mean_scalar(values, kind, null, meaning)
    scalar = scalar_over_seeds(t_mean(values), kind, null, len(values), meaning, method=method)
    return replace(scalar, underpowered=scalar.interval is None)


def difference_scalar(first: Sequence[float], second: Sequence[float], kind: str, meaning: str) -> Scalar:
    """The mean of `first` minus `second`, paired by seed, with the p of the paired t test."""
    return mean_over_seeds(list(np.subtract(first, second)), kind, NO_DIFFERENCE, meaning, PAIRED)


def ratio_scalar(first: Sequence[float], second: Sequence[float] | float, meaning: str) -> Scalar:
    """The geometric mean of `first` over `second`, paired by seed; interval and test are on the log scale."""
    found, null = geometric(t_mean(np.log(np.divide(first, second)))), Null("no difference", 1.0, (1.0, 1.0))
    scalar = scalar_over_seeds(found, "1", null, len(first), meaning, method=PAIRED)
    return replace(scalar, underpowered=scalar.interval is None)


def geometric(logs: TMean) -> TMean:
    """A mean of logarithms as a geometric mean."""
    return TMean(float(np.exp(logs.value)), float(np.exp(logs.low)), float(np.exp(logs.high)), logs.p)


def beside_null(
    values: Sequence[float], nulls: Sequence[float], kind: str | Kind, name: object, meaning: str
) -> Scalar:  # fmt: skip
    """The mean over seeds, compared with the mean of each seed's null by a t test paired by seed."""
    drawn = t_mean(nulls)
    found = replace(t_mean(values), p=t_mean(np.subtract(values, nulls)).p)
    null = Null(f"{name}, mean over seeds", drawn.value, (float(np.min(nulls)), float(np.max(nulls))))
    scalar = scalar_over_seeds(found, kind, null, len(values), meaning)
    # equal values in all networks are no lack of power, unless the nulls scatter too far
    is_open = scalar.interval is None and scalar.p is not None and scalar.p > ALPHA
    return replace(scalar, underpowered=len(values) == 1 or is_open)


class CheckedStudy(Study, Checked):
    """A study that validates its fields."""

    rules: ClassVar[Mapping[str, int | Rule]] = {"seeds": DISTINCT, "n": 20, "n_pool": 20}

    @property
    def asked(self) -> str:
        return self.name


class NetworkStudy(CheckedStudy):
    """A study that reads its networks one by one, and averages or compares what it read.

    `numbers` (kind, null, meaning) are averaged; `more` has the units of further ones. All are columns of the table
    `networks`. If networks have nulls of their own, or `beside_untrained` those of an untrained copy, the null of a
    number is their name.
    """

    numbers: ClassVar[Mapping[str, tuple[str, Null | str, str]]] = {}
    more: ClassVar[Mapping[str, str]] = {}
    beside_untrained: ClassVar[bool] = False
    headline: ClassVar[tuple[str, ...]]
    intervals: ClassVar[str] = "Intervals are over networks, one training each."

    @property
    def notes(self) -> tuple[str, ...]:
        return ()

    def models(self, work: Path, progress: Report) -> Iterator[tuple[Labels, Model, Task]]:
        """Every network with its labels and its task."""
        raise NotImplementedError

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        """What one network gives: numbers (a value, a value and that of its null, or a `Scalar`), tables, `notes`."""
        raise NotImplementedError

    def scalars(self, rows: Rows, tables: Mapping[str, Table]) -> dict[str, Scalar]:
        """The numbers of the study, from those of the networks and their stacked tables."""
        found = {}
        for name, about in self.numbers.items():
            values, nulls = values_of(rows, name), [row[name][1] for row in rows if isinstance(row.get(name), tuple)]
            if values:
                found[name] = beside_null(values, nulls, *about) if nulls else mean_over_seeds(values, *about)
        return found

    def measure(self, work: Path, progress: Report) -> Findings:
        from interp.loading.untrained import untrained_copy

        models, rows, parts = [], [], dict[str, list[tuple[Labels, Table]]]()
        notes = dict.fromkeys((self.intervals, *self.notes))
        for i, (labels, model, task) in enumerate(self.models(work, progress), 1):
            models.append((Path(model.name).name, model.fingerprint))
            found, row = self.read(model, task), dict(labels)
            untrained = self.read(untrained_copy(model, i)[0], task) if self.beside_untrained else {}
            notes |= dict.fromkeys(found.pop("notes", ()))
            for name, value in found.items():
                if isinstance(value, Table):
                    parts.setdefault(name, []).append((labels, value))
                    continue
                row[name] = (value, untrained[name]) if untrained and not isinstance(value, tuple) else value
            rows.append(row)
        tables = {"networks": self._table(rows)} if rows[-1].keys() > labels.keys() else {}
        tables |= {name: stacked(each) for name, each in parts.items()} | {"models": fingerprint_table(models)}
        return Findings(self.name, self.scalars(rows, tables), tables, notes=tuple(notes), headline=self.headline)

    def _table(self, rows: Rows) -> Table:
        """Every network by itself, with NaN for what it lacks, as numbers of deeper layers."""
        units = {name: kind_of(kind).unit for name, (kind, *_) in self.numbers.items()} | dict(self.more)
        units |= {name: each.unit for row in rows for name, each in row.items() if isinstance(each, Scalar)}
        flat = [{k: v for name, each in row.items() for k, v in _columns(name, each).items()} for row in rows]
        lacking = {name: np.nan for row in flat for name in row}
        units = {name: units.get(name, LABEL) for row in rows for name in row}
        return Table.from_rows([lacking | row for row in flat], units, "Every network by itself.")


@dataclass(frozen=True)
class TunnelStudy(NetworkStudy):
    """A study of the networks `tunnels`: names or folder patterns with `*`, separated by commas."""

    tunnels: str = "tunnel:bijection-gpt-neox"

    def models(self, work: Path, progress: Report) -> Iterator[tuple[Labels, Model, Task]]:
        for i, tunnel in enumerate(names := tunnels_named(self.tunnels), 1):
            model = interp.load(tunnel)
            if model.task is None:
                found, fix = "no posterior is known of a language model", "Name a tunnel: `interp list tunnels`."
                raise UsageError(asked=f"the tunnel {tunnel}", found=found, fix=fix)
            yield {"network": Path(tunnel).name}, model, model.task
            progress(i, len(names))


class TrainedStudy(NetworkStudy):
    """A study of networks that it trains: by default of `task` with `settings`, from each of `seeds`."""

    keep: ClassVar[tuple[int, ...] | Literal["log"]] = ()

    def trainings(self) -> Trainings:
        """What is trained."""
        return [({}, plan) for plan in plans_over_seeds(self, keep=self.keep)]

    def models(self, work: Path, progress: Report) -> Iterator[tuple[Labels, Model, Task]]:
        from ..plans.train_tunnel import train_tunnels

        labels, plans = zip(*self.trainings(), strict=True)
        n, total = len(plans), 2 * len(plans)  # each is trained, and then read
        for i, training in enumerate(train_tunnels(plans, work, part_of(progress, total))):
            yield labels[i] | {"seed": plans[i].recipe.seed}, interp.load(str(training.folder)), plans[i].task
            progress(n + i + 1, total)


def plans_over_seeds(
    study: Any, task: str = "", *, fixed: Mapping[str, Any] | None = None, variant: str = "", keep: "Keep" = ()
) -> "list[TrainingPlan]":
    """One training per seed of a study, of `task` (default: the study's), with its `settings` and those in `fixed`.

    The seed completes the name that `variant` begins. `UsageError` for invalid settings, a seed among them included.
    """
    from ..plans.train_tunnel import make_plan

    kind = load_entry("tunnel", task or study.task)
    given = by_name([*read_settings(study.settings).items(), *(fixed or {}).items()])
    if "seed" in given:
        found = f"seed={given['seed']} is among the settings, and seeds are a field of the study"
        raise study.refusal(found, f"Write seeds={given['seed']} instead.")
    return [make_plan(kind, {**given, "seed": n}, variant=f"{variant}seed{n}", keep=keep) for n in study.seeds]


def tunnels_named(patterns: str) -> list[str]:
    """The tunnels in a comma-separated list of names and of folder patterns with `*`."""
    found = []
    for each in split_commas(patterns):
        anchor = Path(each).anchor
        folders = Path(anchor).glob(str(Path(each).relative_to(anchor))) if "*" in each else [each]
        found.append(sorted(map(str, folders)))
    if not found or not all(found):
        raise UsageError(
            asked=f"the tunnels {patterns}",
            found="no folder matches",
            fix="Train some (`interp tunnel train`), or name one that is shipped: tunnel:bijection-gpt-neox.",
        )
    return [name for names in found for name in names]


def read_by(probes: Mapping[str, Mapping[str, Any]], model: Model | str, **of_run: Any) -> Mapping[str, Findings]:
    """Findings of `probes` (settings by name) on one network, without a record."""
    settings = {probe: dict(given) for probe, given in probes.items()}
    return interp.run(model, probes=list(probes), settings=settings, out=None, quiet=True, **of_run).findings


def kl_of(model: Model) -> float:
    """KL(exact posterior || prediction) in bits, as the card of a trained network has it."""
    assert model.card is not None, "a tunnel has one"
    return model.card["figures"]["kl_bits"]["value"]


def value_and_null(scalar: Scalar) -> tuple[float, float]:
    """The value of a number of a probe, and that of its null."""
    assert scalar.null is not None, "the probe gives a null with this number"
    return scalar.value, scalar.null.value


def values_of(rows: Rows, name: str, **labels: object) -> list[float]:
    """A number of every network that has it, of those with these labels."""
    found = [row[name] for row in rows if name in row and all(row[of] == label for of, label in labels.items())]
    return [float(each[0] if isinstance(each, tuple) else each) for each in found]


def by_network(table: Table, name: str, of: Callable[[np.ndarray], Any] = np.mean, **labels: object) -> list[float]:
    """A column as one value per seed: `of` the values in the rows of that seed that have these labels."""
    for label, value in labels.items():
        table = table.where(table[label] == value)
    return [float(of(rows[name])) for _, rows in table.groups("seed")]


def stacked(parts: Sequence[tuple[Labels, Table]]) -> Table:
    """The tables of several networks one below the other, with the labels of the networks as first columns."""
    labels, first = parts[0]
    columns = [{name: [label] for name, label in mine.items()} | dict(table.columns) for mine, table in parts]
    return Table.stacked(columns, dict.fromkeys(labels, LABEL) | dict(first.units), first.caption)


def _columns(name: str, value: Any) -> dict[str, Any]:
    """A label or a number, with its null, or as a `Scalar` with its interval and p."""
    if isinstance(value, Scalar):
        return number_columns(name, value.value, value.interval or (np.nan, np.nan), p=value.p)
    return {name: value[0], f"{name}_null": value[1]} if isinstance(value, tuple) else {name: value}


def fingerprint_table(models: Iterable[tuple[str, str]]) -> Table:
    """Names and fingerprints of the models of a study."""
    rows = [{"model": name, "fingerprint": fingerprint} for name, fingerprint in models]
    caption = "Networks behind these numbers, with the fingerprints of their weights."
    return Table.from_rows(rows, {"model": LABEL, "fingerprint": LABEL}, caption)
