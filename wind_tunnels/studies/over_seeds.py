"""Studies of several networks: train them from seeds or open them, and average their numbers with t intervals."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import interp
from interp.errors import UsageError
from interp.findings import ALPHA, Findings, Interval, Null, Scalar
from interp.model import Model
from interp.registry import load_entry
from interp.settings import by_name
from interp.statistics.intervals import TMean, t_mean
from interp.study import Study
from interp.system.progress import Report, part_of
from interp.table import LABEL, Table, number_columns
from interp.tunnel import Task

from ..plans.settings import read_settings
from ..validation import DISTINCT, Checked, Rule

if TYPE_CHECKING:
    from ..plans.train_tunnel import FinishedTraining, Keep, TrainingPlan

METHOD = "t over seeds of the training"
PAIRED = f"{METHOD}, paired"
OVER_SEEDS = "Intervals are over seeds of the training; the table has every network by itself."


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
        found = f"seed={given['seed']} is among the settings, and seeds are named by themselves"
        raise study.refusal(found, f"Write seeds={given['seed']} instead.")
    return [make_plan(kind, {**given, "seed": n}, variant=f"{variant}seed{n}", keep=keep) for n in study.seeds]


def trained(plans: "Sequence[TrainingPlan]", work: Path, progress: Report) -> "Iterator[FinishedTraining]":
    """Train all side by side, then yield them one by one; progress counts trainings and finished readings."""
    from ..plans.train_tunnel import train_tunnels

    finished = train_tunnels(plans, work, part_of(progress, 2 * len(plans)))
    for i, training in enumerate(finished, 1):
        yield training
        progress(len(plans) + i, 2 * len(plans))


def read_by_probes(
    plans: "Sequence[TrainingPlan]", work: Path, progress: Report, probes: Mapping[str, Mapping[str, Any]], n_pool: int
) -> tuple[list[Mapping[str, Findings]], list[float], Table]:
    """Train all and run `probes` (settings by name) on each: the findings, the KL of each, and the models."""
    finished, found = [], []
    for training in trained(plans, work, progress):
        found.append(read_by(probes, str(training.folder), n_pool=n_pool))
        finished.append(training)
    kl_bits = [training.card.figures["kl_bits"].value for training in finished]
    return found, kl_bits, models_table(finished)


def read_by(probes: Mapping[str, Mapping[str, Any]], model: Model | str, **of_run: Any) -> Mapping[str, Findings]:
    """Findings of `probes` (settings by name) on one network, without a record."""
    settings = {probe: dict(given) for probe, given in probes.items()}
    return interp.run(model, probes=list(probes), settings=settings, out=None, quiet=True, **of_run).findings


def scalars_table(
    rows: Iterable[Mapping[str, Any]], units: Mapping[str, str], *, with_p: bool = False,
    caption: str = "Each network by itself; intervals are over sequences.",
) -> Table:  # fmt: skip
    """One row per network: its labels and its numbers with their intervals, NaN where one is missing."""

    def columns(name: str, given: Any) -> dict[str, Any]:
        if isinstance(given, Scalar):
            p = given.p if with_p else None
            return number_columns(name, given.value, given.interval or (np.nan, np.nan), p=p)
        return {name: given} if given is not None else number_columns(name, np.nan, (np.nan, np.nan))

    found = [{k: v for name in units for k, v in columns(name, row.get(name)).items()} for row in rows]
    return Table.from_rows(found, units, caption)


def by_network(table: Table, name: str, of: Callable[[np.ndarray], Any] = np.mean, **labels: object) -> list[float]:
    """A column as one value per seed: `of` the values in the rows of that seed that have these labels."""
    for label, value in labels.items():
        table = table.where(table[label] == value)
    return [float(of(rows[name])) for _, rows in table.groups("seed")]


def models_table(trainings: "Iterable[FinishedTraining]") -> Table:
    """The trained networks with the fingerprints of their weights."""
    from ..networks.weights import weights_fingerprint

    return fingerprint_table((each.card.name, weights_fingerprint(each.folder)) for each in trainings)


def fingerprint_table(models: Iterable[tuple[str, str]]) -> Table:
    """Names and fingerprints of the models of a study."""
    rows = [{"model": name, "fingerprint": fingerprint} for name, fingerprint in models]
    caption = "Networks behind these numbers, with the fingerprints of their weights."
    return Table.from_rows(rows, {"model": LABEL, "fingerprint": LABEL}, caption)


def scalar_over_seeds(
    found: TMean, unit: str, null: Null | str, n: int, meaning: str, *,
    method: str = METHOD, no_spread: str = "all seeds give the same",
) -> Scalar:  # fmt: skip
    """A number with its interval over `n` seeds, or the reason for none: one seed, or `no_spread` between them."""
    reason = "one seed" if n == 1 else no_spread
    interval = Interval(found.low, found.high, method) if found.low < found.high else reason
    p = None if isinstance(null, str) else found.p
    return Scalar.of(found.value, unit, interval, null, p=p, n=n, n_unit="seed", meaning=meaning)


def mean_scalar(values: Sequence[float], unit: str, null: Null | str, meaning: str) -> Scalar:
    """The mean over seeds of a quantity that is never negative; its interval is cut at 0."""
    found = t_mean(values)
    not_negative = replace(found, low=float(np.maximum(found.low, 0.0)), p=np.nan)
    return scalar_over_seeds(not_negative, unit, null, len(values), meaning)


def mean_over_seeds(
    values: Sequence[float], unit: str, null: Null | str, meaning: str, method: str = METHOD
) -> Scalar:  # fmt: skip
    """The mean over seeds, with the p of the t test against 0 if there is a null."""
    scalar = scalar_over_seeds(t_mean(values), unit, null, len(values), meaning, method=method)
    return replace(scalar, underpowered=scalar.interval is None)


def difference_scalar(first: Sequence[float], second: Sequence[float], unit: str, meaning: str) -> Scalar:
    """The mean of `first` minus `second`, paired by seed, with the p of the paired t test."""
    null = Null("no difference", 0.0, (0.0, 0.0))
    return mean_over_seeds(list(np.subtract(first, second)), unit, null, meaning, PAIRED)


def ratio_scalar(first: Sequence[float], second: Sequence[float], meaning: str) -> Scalar:
    """The geometric mean of `first` over `second`, paired by seed; interval and test are on the log scale."""
    found, null = geometric(t_mean(np.log(np.divide(first, second)))), Null("no difference", 1.0, (1.0, 1.0))
    scalar = scalar_over_seeds(found, "1", null, len(first), meaning, method=PAIRED)
    return replace(scalar, underpowered=scalar.interval is None)


def geometric(logs: TMean) -> TMean:
    """A mean of logarithms as a geometric mean."""
    return TMean(float(np.exp(logs.value)), float(np.exp(logs.low)), float(np.exp(logs.high)), logs.p)


def beside_null(
    values: Sequence[float], nulls: Sequence[float], unit: str, name: str, meaning: str
) -> Scalar:  # fmt: skip
    """The mean over seeds, compared with the mean of each seed's null by a t test paired by seed."""
    drawn = t_mean(nulls)
    found = replace(t_mean(values), p=t_mean(np.subtract(values, nulls)).p)
    null = Null(f"{name}, mean over seeds", drawn.value, (float(np.min(nulls)), float(np.max(nulls))))
    scalar = scalar_over_seeds(found, unit, null, len(values), meaning)
    # equal values in all networks are no lack of power, unless the nulls scatter too far
    is_open = scalar.interval is None and scalar.p is not None and scalar.p > ALPHA
    return replace(scalar, underpowered=len(values) == 1 or is_open)


def value_and_null(scalar: Scalar) -> tuple[float, float]:
    """The value of a number of a probe, and that of its null."""
    assert scalar.null is not None, "the probe gives a null with this number"
    return scalar.value, scalar.null.value


class CheckedStudy(Study, Checked):
    """A study that validates its fields."""

    rules: ClassVar[Mapping[str, int | Rule]] = {"seeds": DISTINCT, "n": 20, "n_pool": 20}

    @property
    def asked(self) -> str:
        return self.name


@dataclass(frozen=True)
class NetworkStudy(CheckedStudy):
    """A study that reads networks one by one and compares means over them with means of their nulls.

    `read` returns numbers by name, each alone or with its null value. Without one, and `beside_untrained`, the null is
    the number of an untrained copy; else `meanings` (unit, null, meaning by name) has it. Numbers of `more` (units by
    name) appear only in the table of networks; an entry named in `layouts` (units, caption) holds columns of a table.
    """

    tunnels: str = "tunnel:bijection-gpt-neox"

    meanings: ClassVar[Mapping[str, tuple[str, Any, str]]]
    headline: ClassVar[tuple[str, ...]]
    more: ClassVar[Mapping[str, str]] = {}
    layouts: ClassVar[Mapping[str, tuple[Mapping[str, str], str]]] = {}
    notes: ClassVar[tuple[str, ...]] = ()
    beside_untrained: ClassVar[bool] = False

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        """The numbers of one network, and its columns of further tables."""
        raise NotImplementedError

    def measure(self, work: Path, progress: Report) -> Findings:
        from interp.loading.untrained import untrained_copy

        models, rows, parts = [], [], {name: [] for name in self.layouts}
        for i, (tunnel, model, task) in enumerate(opened(self.tunnels, progress), 1):
            models.append((tunnel, model.fingerprint))
            found = self.read(model, task)
            untrained = self.read(untrained_copy(model, i)[0], task) if self.beside_untrained else {}
            for name in parts:
                parts[name].append({"network": Path(model.name).name} | found.pop(name))
            row = {"network": tunnel}
            for name, value in found.items():
                row[name], null = value if isinstance(value, tuple) else (value, untrained.get(name))
                row |= {} if null is None else {f"{name} null": null}
            rows.append(row)
        units = {"network": LABEL} | {of: unit for of, (unit, *_) in self.meanings.items()} | dict(self.more)
        scalars = {}
        for of, (unit, null, meaning) in self.meanings.items():
            values, nulls = ([row[name] for row in rows if name in row] for name in (of, f"{of} null"))
            if nulls:
                scalars[of] = beside_null(values, nulls, unit, null, meaning)
            elif values:
                scalars[of] = mean_over_seeds(values, unit, null, meaning)
        lacking = {of: np.nan for row in rows for of in row}  # as those of deeper layers, in a shallower network
        units = {of: units[of.removesuffix(" null")] for of in lacking}
        rows = [lacking | row for row in rows]
        networks = Table.from_rows(rows, units, "Every network beside what stands for chance.")
        notes = ("Intervals are over networks, one training each.", *self.notes)
        tables = {"networks": networks, "models": fingerprint_table(models)}
        for name, (columns, caption) in self.layouts.items():
            tables[name] = Table.stacked(parts[name], {"network": LABEL} | dict(columns), caption)
        return Findings(self.name, scalars, tables, notes=notes, headline=self.headline)


def opened(pattern: str, progress: Report) -> Iterator[tuple[str, Model, Task]]:
    """Folder name, model and task of each tunnel that `pattern` names, loaded one by one."""
    for i, tunnel in enumerate(names := tunnels_named(pattern), 1):
        model = interp.load(tunnel)
        if model.task is None:
            found, fix = "no posterior is known of a language model", "Name a tunnel: `interp list tunnels`."
            raise UsageError(asked=f"the tunnel {tunnel}", found=found, fix=fix)
        yield Path(tunnel).name, model, model.task
        progress(i, len(names))


def tunnels_named(pattern: str) -> list[str]:
    """The tunnels in a comma-separated list of names and of folder patterns with `*`."""
    if "," in pattern:
        return [name for each in pattern.split(",") for name in tunnels_named(each)]
    anchor = Path(pattern).anchor
    given = Path(anchor).glob(str(Path(pattern).relative_to(anchor))) if "*" in pattern else [pattern]
    found = sorted(map(str, given))
    if not found:
        raise UsageError(
            asked=f"the tunnels {pattern}",
            found="no folder matches",
            fix="Train some (`interp tunnel train`), or name one that is shipped: tunnel:bijection-gpt-neox.",
        )
    return found
