"""Several models, revisions or prompt sets with the same options: a record each, and a page that compares them.

Finished runs are not repeated, so the same call resumes; a model that fails is reported, and the others go on.
"""

import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate.utils.memory import clear_device_cache

from interp.errors import InterpError, UsageError
from interp.loading.identity import files_identity
from interp.options import OPTIONS, RunOptions
from interp.records.record import RunRecord, finished_record
from interp.running.choose_probes import choose_probes
from interp.running.meta_model import meta_model
from interp.running.run import codes_of, is_of_prompts, run_as_asked, specify
from interp.running.study import compare
from interp.system.calls import refuse_unknown_keywords
from interp.system.processes import n_started
from interp.system.progress import stage


@dataclass(frozen=True)
class RunOutcome:
    """The record of one model, new or found (`is_new` False), or why there is none (`failure`)."""

    model: str
    record: RunRecord | None
    is_new: bool
    failure: str = ""

    def __str__(self) -> str:
        if self.record is None:
            return f"FAILED: {self.model}: {self.failure}"
        return f"{self.model}: {'measured' if self.is_new else 'found'}, {self.record.path}"


@dataclass(frozen=True)
class ManyRuns:
    """All outcomes in order, and the record that compares the runs; None where fewer than two came out.

    >>> done = interp.run_many(["./base", "./tuned"], options={"probes": "manifold"})  # doctest: +SKIP
    >>> done.comparison.path  # doctest: +SKIP
    """

    outcomes: tuple[RunOutcome, ...]
    comparison: RunRecord | None

    def __repr__(self) -> str:
        return "\n".join(map(str, self.outcomes))

    @property
    def records(self) -> tuple[RunRecord, ...]:
        return tuple(outcome.record for outcome in self.outcomes if outcome.record is not None)

    @property
    def failures(self) -> tuple[RunOutcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.record is None)


def run_many(
    models: Sequence[str],
    *,
    revisions: Sequence[str] = (),
    prompts: Sequence[str] = (),
    options: RunOptions | Mapping[str, Any] | None = None,
    out: str | Path = "runs",
    on_outcome: Callable[[RunOutcome], None] | None = None,
    quiet: bool = False,
) -> ManyRuns:
    """Measure several models (or revisions, or prompt sets) with the same options, and compare them.

    One model is in memory at a time. A finished run in `out` of the same specification, revision, prompts, weights,
    lens and code of the probes is not repeated.

    Args:
        models: Names of models.
        revisions: Revisions of each model. For probes that follow checkpoints they are the checkpoints of one run.
        prompts: Prompt sets. Each model is measured on each, and compared with the first model on the same set.
        options: Keyword arguments of `interp.run`.
        out: Folder for the runs and the comparison.
        on_outcome: Called with the outcome of each run.
        quiet: Whether to print no progress.

    Returns:
        The outcome of each run, and the comparison.

    Raises:
        UsageError: The options fit no model, or a launcher has started several processes.

    Examples:
        >>> done = interp.run_many(["pythia-70m", "pythia-160m"], options={"probes": "manifold"})  # doctest: +SKIP
    """
    if not isinstance(options, RunOptions):
        options = RunOptions(**_keywords_of_all(options or {}))
    shared = replace(options, out=out, quiet=quiet)
    models = list(models) if isinstance(models, Iterable) else [models]
    _refuse_misuse(models, revisions, prompts, shared)
    follow = all(probe.follows_checkpoints for probe in choose_probes(shared.probes, shared.settings).probes)
    changes: list[dict[str, Any]] = [{}]
    if revisions:
        steps = tuple(revisions)
        changes = [{"checkpoints": steps}] if follow else [{"revision": each} for each in dict.fromkeys(steps)]
    read = {each if isinstance(each, str | Path) else i: each for i, each in enumerate(prompts)}.values()
    runs = [
        replace(shared, model=model, prompts=each, **change)
        for model in dict.fromkeys(models) for change in changes for each in read or (shared.prompts,)
    ]  # fmt: skip
    named = [f"{asked.model}@{asked.revision}" if asked.revision else str(asked.model) for asked in runs]
    sets = [asked.prompts if isinstance(asked.prompts, str) else "" for asked in runs]
    on = [f" on {each}" if len({*sets}) > 1 else "" for each in sets]
    outcomes = []
    for i, asked in enumerate(runs):
        with stage(f"run {i + 1} of {len(runs)}{on[i]}") if len(runs) > 1 else nullcontext():
            outcomes.append(_outcome(named[i] + on[i], asked))
        clear_device_cache(garbage_collection=True)  # before the next is loaded: modules are cycles
        if on_outcome is not None:
            on_outcome(outcomes[-1])
    done = [(o.record, model, each) for o, model, each in zip(outcomes, named, sets, strict=True) if o.record]
    return ManyRuns(tuple(outcomes), _compared(done, Path(out), quiet) if len(done) > 1 else None)


def _keywords_of_all(options: Mapping[str, Any]) -> Mapping[str, Any]:
    refuse_unknown_keywords(options, OPTIONS, "interp.run")
    beside = sorted({"model", "out", "quiet"} & set(options))
    if beside:
        raise UsageError(
            asked=f"several runs with the options {', '.join(beside)}",
            found="interp.run_many has an argument of this name",
            fix="Pass it as that argument, not in the options.",
        )
    return options


def _outcome(name: str, asked: RunOptions) -> RunOutcome:
    """Find or measure one model; of an error only the message is kept, so that the model can be freed."""
    try:
        spec, pools = specify(meta_model(asked).model, asked, choose_probes(asked.probes, asked.settings))
        files = files_identity(asked)

        def is_same(record: RunRecord) -> bool:
            is_of_these = record.model.get("files", {}) == files and is_of_prompts(record, pools)
            return is_of_these and record.environment.get("probe_code") == codes_of(pools)

        found = finished_record(spec.hash, Path(str(asked.out)), is_same)
        if found is not None and not found.page.is_file():
            found.show()  # it was stopped between its record and its page
        return RunOutcome(name, found or run_as_asked(asked), is_new=found is None)
    except InterpError as error:
        return RunOutcome(name, None, False, str(error))
    except Exception:  # reported in full, and the other models go on
        return RunOutcome(name, None, False, traceback.format_exc())


def _compared(done: Sequence[tuple[RunRecord, str, str]], out: Path, quiet: bool) -> RunRecord:
    """The comparison of runs: with the first model on the same prompts, or of one model with its first set."""
    records, models, sets = zip(*done, strict=True)
    if len({*sets}) < 2:
        return compare(records, out=out, quiet=quiet, reuse=True)
    if len({*models}) == 1:
        return compare(records, labels=sets, out=out, quiet=quiet, reuse=True)
    names = [f"{model} on {each}" for model, each in zip(models, sets, strict=True)]
    against = [names[sets.index(each)] for each in sets]
    return compare(records, labels=names, groups=names, against=against, out=out, quiet=quiet, reuse=True)


def _refuse_misuse(
    models: Sequence[str], revisions: Sequence[str], prompts: Sequence[str], options: RunOptions
) -> None:
    unnamed = [type(model).__name__ for model in models if not isinstance(model, str | Path)]
    if unnamed or not models:
        raise UsageError(
            asked="several runs",
            found=f"a {unnamed[0]} is among the models" if unnamed else "no model is named",
            fix="Name one or more, or their folders; interp.run measures one in memory, interp.compare compares runs.",
        )
    for name, several, what in (("revision", revisions, "the weights"), ("prompts", prompts, "what is read")):
        if several and getattr(options, name) is not None:
            asked = f"{', '.join(several)} and the option {name}"
            raise UsageError(asked=asked, found=f"both select {what}", fix="Keep one of them.")
    if n_started() > 1:
        raise UsageError(
            asked=f"several models in {n_started()} processes",
            found="processes share the prompts of a single run",
            fix="Launch a run for each model, then `interp compare`; or measure them all in one process.",
        )
