"""Trainings from several seeds, and numbers over them with t intervals: means, differences and ratios by seed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.errors import UsageError
from interp.findings import ALPHA, Findings, Interval, Null, Scalar
from interp.registry import load_entry
from interp.statistics.intervals import TMean, t_mean
from interp.system.progress import Report, part_of
from interp.table import LABEL, Table, number_columns

from ..networks.weights import weights_fingerprint
from ..plans.settings import read_settings
from ..plans.train_tunnel import FinishedTraining, Keep, TrainingPlan, make_plan, train_tunnels
from ..validation import check_distinct

if TYPE_CHECKING:
    from interp.model import Model

METHOD = "t over seeds of the training"
ALIKE = "all seeds give the same"


def plans_over_seeds(
    study: Any, task: str = "", *, fixed: Mapping[str, Any] | None = None, variant: str = "", keep: Keep = ()
) -> list[TrainingPlan]:
    """One training of a task (the study's, if it is not named) for every seed of a study, with its `settings`.

    `fixed` is what the study sets itself, and `variant` begins the name that the seed ends. `UsageError` for settings
    that make no sense, for a seed among them, and for one that is named twice.
    """
    check_distinct(study.name, "seeds", study.seeds)
    kind, given = load_entry("tunnel", task or study.task), read_settings(study.settings) | dict(fixed or {})
    if "seed" in given:
        raise UsageError(
            asked=f"trainings from several seeds with seed={given['seed']} among their settings",
            found="their seeds are named by themselves",
            fix=f"Write seeds={given['seed']} instead.",
        )
    return [make_plan(kind, {**given, "seed": n}, variant=f"{variant}seed{n}", keep=keep) for n in study.seeds]


def trained(plans: Sequence[TrainingPlan], work: Path, progress: Report) -> Iterator[FinishedTraining]:
    """Train all, side by side, then give one after the other to be read; what was trained and what was read count."""
    finished = train_tunnels(plans, work, part_of(progress, 2 * len(plans)))
    for i, training in enumerate(finished, 1):
        yield training
        progress(len(plans) + i, 2 * len(plans))


def read_by_probes(
    plans: Sequence[TrainingPlan], work: Path, progress: Report, asked: Mapping[str, Mapping[str, Any]], n_pool: int
) -> tuple[list[Mapping[str, Findings]], list[float], Table]:
    """Train all, then run the probes that are `asked` over each: their findings, the KL of each, and the models."""
    from interp.running.run import run

    settings, finished, found = {probe: dict(given) for probe, given in asked.items()}, [], []
    for training in trained(plans, work, progress):
        folder = str(training.folder)
        found.append(run(folder, probes=list(asked), settings=settings, n_pool=n_pool, out=None, quiet=True).findings)
        finished.append(training)
    kl_bits = [training.card.figures["kl_bits"].value for training in finished]
    return found, kl_bits, models_table(finished)


def scalars_table(rows: Iterable[Mapping[str, Any]], units: Mapping[str, str], caption: str) -> Table:
    """A row for every network: what names it, and its numbers with their intervals, NaN where it lacks one."""

    def columns(name: str, given: Any) -> dict[str, Any]:
        if isinstance(given, Scalar):
            return number_columns(name, given.value, given.interval or (np.nan, np.nan))
        return {name: given} if given is not None else number_columns(name, np.nan, (np.nan, np.nan))

    found = [{k: v for name in units for k, v in columns(name, row.get(name)).items()} for row in rows]
    return Table.from_rows(found, units, caption)


def models_table(trainings: Iterable[FinishedTraining]) -> Table:
    """The trained networks by name, each with the fingerprint of its weights."""
    return fingerprint_table((each.card.name, weights_fingerprint(each.folder)) for each in trainings)


def fingerprint_table(models: Iterable[tuple[str, str]]) -> Table:
    """The table in which a study lists its models and their fingerprints."""
    rows = [{"model": name, "fingerprint": fingerprint} for name, fingerprint in models]
    caption = "Networks behind these numbers, with the fingerprints of their weights."
    return Table.from_rows(rows, {"model": LABEL, "fingerprint": LABEL}, caption)


def scalar_over_seeds(
    found: TMean, unit: str, null: Null | str, n: int, meaning: str, *, method: str = METHOD, alike: str = ALIKE
) -> Scalar:
    """A number with its interval over `n` seeds; without one where there is one seed or, `alike`, no spread."""
    reason = "one seed" if n == 1 else alike
    interval = Interval(found.low, found.high, method) if found.low < found.high else reason
    return Scalar.of(found.value, unit, interval, null, p=found.p, n=n, n_unit="seed", meaning=meaning)


def mean_scalar(values: Sequence[float], unit: str, null: Null | str, meaning: str) -> Scalar:
    """The mean of what cannot be negative, one value a seed; its interval is cut at 0."""
    found = t_mean(values)
    not_negative = replace(found, low=float(np.maximum(found.low, 0.0)), p=np.nan)
    return scalar_over_seeds(not_negative, unit, null, len(values), meaning)


def mean_over_seeds(values: Sequence[float], unit: str, null: Null | str, meaning: str) -> Scalar:
    """The mean, one value a seed, with the p of the t test against 0 where there is a null."""
    found = t_mean(values)
    found = replace(found, p=np.nan) if isinstance(null, str) else found
    return _powered(scalar_over_seeds(found, unit, null, len(values), meaning))


def difference_scalar(first: Sequence[float], second: Sequence[float], unit: str, meaning: str) -> Scalar:
    """The mean of `first` minus `second`, paired by seed, with the p of the paired t test; null: no difference."""
    found, null = t_mean(np.subtract(first, second)), Null("no difference", 0.0, (0.0, 0.0))
    return _powered(scalar_over_seeds(found, unit, null, len(first), meaning, method=f"{METHOD}, paired"))


def ratio_scalar(first: Sequence[float], second: Sequence[float], meaning: str) -> Scalar:
    """The geometric mean of `first` over `second`, paired by seed; the interval and the test are of its logarithm."""
    found, null = geometric(t_mean(np.log(np.divide(first, second)))), Null("no difference", 1.0, (1.0, 1.0))
    return _powered(scalar_over_seeds(found, "1", null, len(first), meaning, method=f"{METHOD}, paired"))


def _powered(scalar: Scalar) -> Scalar:
    return replace(scalar, underpowered=scalar.interval is None)


def geometric(logs: TMean) -> TMean:
    """A mean of logarithms as a geometric mean."""
    return TMean(float(np.exp(logs.value)), float(np.exp(logs.low)), float(np.exp(logs.high)), logs.p)


def beside_null(
    values: Sequence[float], nulls: Sequence[float], unit: str, name: str, meaning: str
) -> Scalar:  # fmt: skip
    """The mean, one value a seed, beside the mean of what each seed's null gives; p of the t test paired by seed."""
    found, drawn = t_mean(values), t_mean(nulls)
    found = replace(found, p=t_mean(np.subtract(values, nulls)).p)
    null = Null(f"{name}, mean over seeds", drawn.value, (float(np.min(nulls)), float(np.max(nulls))))
    scalar = scalar_over_seeds(found, unit, null, len(values), meaning)
    # the same in every network, 1 in each, is no lack of power, unless the nulls scatter too far to tell it from them
    is_open = scalar.interval is None and scalar.p is not None and scalar.p > ALPHA
    return replace(scalar, underpowered=len(values) == 1 or is_open)


Meanings = Mapping[str, tuple[str, Null | str, str]]
"""Unit, null (of a number without one the reason) and meaning of every number by name."""


def over_networks(
    name: str, tunnels: str, read: "Callable[[Model], dict[str, float]]", meanings: Meanings, progress: Report, *,
    headline: Sequence[str], more: Mapping[str, str] = MappingProxyType({}), notes: Sequence[str] = (),
    beside_untrained: bool = False,
) -> Findings:  # fmt: skip
    """The findings of a study that reads networks one by one: means over them, each beside the mean of its null.

    `read` takes a network and gives numbers by name, what stands for chance as `NAME null`: where that is not given,
    and `beside_untrained`, it is the number of an untrained copy. A number without it has the null that `meanings` say.
    Numbers of `more`, units by name, are in the table alone.
    """
    from interp.loading.untrained import untrained_twin

    models, found = [], []
    for i, (tunnel, model) in enumerate(opened(tunnels, progress), 1):
        models.append((tunnel, model.fingerprint))
        found.append(read(model))
        if beside_untrained:
            untrained = read(untrained_twin(model, i, is_one_of_several=True)[0])
            found[-1] |= {f"{of} null": untrained[of] for of in meanings if f"{of} null" not in found[-1]}
    units = {"network": LABEL} | {of: meanings[of][0] for of in meanings} | dict(more)
    rows = [{"network": tunnel} | each for (tunnel, _), each in zip(models, found, strict=True)]
    table = Table.from_rows(
        rows, {of: units[of.removesuffix(" null")] for of in rows[0]}, "Every network beside what stands for chance."
    )
    scalars = {}
    for of, (unit, null, meaning) in meanings.items():
        values = [each[of] for each in found if of in each]
        if values and f"{of} null" in found[0]:
            scalars[of] = beside_null(values, [each[f"{of} null"] for each in found], unit, str(null), meaning)
        elif values:
            scalars[of] = mean_over_seeds(values, unit, null, meaning)
    notes = ("Intervals are over networks, one training each.", *notes)
    return Findings(
        name, scalars, {"networks": table, "models": fingerprint_table(models)}, notes=notes, headline=tuple(headline)
    )


def opened(pattern: str, progress: Report) -> "Iterator[tuple[str, Model]]":
    """The tunnels that a name stands for, one after the other, with the names of their folders."""
    import interp

    for i, tunnel in enumerate(names := tunnels_named(pattern), 1):
        yield Path(tunnel).name, interp.load(tunnel)
        progress(i, len(names))


def tunnels_named(pattern: str) -> list[str]:
    """The tunnels that a name stands for: folders that match a pattern with `*`, or that one; commas part several."""
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
