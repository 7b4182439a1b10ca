"""Many models, or revisions of one, measured alike, one after the other: a record each and one page that compares them.

What was measured before is not measured again, so the same call goes on where it was stopped; a model that fails is
reported and stops nothing.
"""

import gc
import inspect
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from interp.editing.edit_files import resolve_edits
from interp.errors import InterpError, UsageError
from interp.loading.sources import locate
from interp.model import Model
from interp.prompting.pools import Pool, Reading
from interp.records.record import RunRecord, finished_record
from interp.records.unfinished import is_begun, nothing_begun
from interp.running.choose_probes import Chosen, choose_probes
from interp.running.compare import compare
from interp.running.run import DEFAULT_OUT, run, specify
from interp.running.sketch import sketch
from interp.running.spec import RunSpec
from interp.system.processes import n_started

Heard = Callable[["Outcome"], None]


@dataclass(frozen=True)
class Outcome:
    """What became of one model: its record, measured now or found (`is_new` False), or in words why there is none."""

    model: str
    record: RunRecord | None
    is_new: bool
    failure: str = ""


@dataclass(frozen=True)
class ManyRuns:
    """All outcomes in order, and the record that compares the runs; None where fewer than two came out."""

    outcomes: tuple[Outcome, ...]
    comparison: RunRecord | None

    @property
    def records(self) -> tuple[RunRecord, ...]:
        return tuple(outcome.record for outcome in self.outcomes if outcome.record is not None)

    @property
    def failures(self) -> tuple[Outcome, ...]:
        return tuple(outcome for outcome in self.outcomes if outcome.record is None)


@dataclass(frozen=True)
class _Ask:
    """One run of several: the model by name, and the keywords that `interp.run` takes."""

    model: str
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        revision = self.options.get("revision")
        return f"{self.model}@{revision}" if revision else self.model


def run_many(
    models: Sequence[str],
    *,
    revisions: Sequence[str] = (),
    options: Mapping[str, Any] | None = None,
    out: str | Path = DEFAULT_OUT,
    heard: Heard | None = None,
    resume: bool = False,
    quiet: bool = False,
) -> ManyRuns:
    """Measure every model (every revision of every model) with the same `options`, the keywords of `interp.run`.

    One model is in memory at a time. A run of the same specification in `out` that is done, can be read, and is of the
    same revision, prompts and unchanged weights stands for itself. Where all probes follow checkpoints, `revisions` are
    the checkpoints of one run of each model. `heard` is called with each outcome. Raises `UsageError` for what no model
    could be asked, where a launcher has started several processes, and with `resume` where no run of them was begun.
    """
    _refuse_misuse(models, revisions, options or {})
    given: dict[str, Any] = {**(options or {}), "out": out, "quiet": quiet}
    chosen = choose_probes(given.get("probes", _default("probes")), given.get("settings") or {})
    outcomes = []
    asks = list(_asks(models, revisions, given, chosen))
    if resume and not any(_is_begun(ask, chosen, Path(out)) for ask in asks):
        raise nothing_begun(Path(out))
    for ask in asks:
        outcomes.append(_outcome(ask, chosen, Path(out)))
        _free()
        if heard is not None:
            heard(outcomes[-1])
    return ManyRuns(tuple(outcomes), _comparison(outcomes, Path(out), quiet))


def _asks(
    models: Sequence[str], revisions: Sequence[str], given: Mapping[str, Any], chosen: Sequence[Chosen]
) -> Iterator[_Ask]:
    for model in dict.fromkeys(models):
        if revisions and all(each.probe.follows_checkpoints for each in chosen):
            yield _Ask(model, {**given, "checkpoints": tuple(revisions)})
        elif revisions:
            yield from (_Ask(model, {**given, "revision": revision}) for revision in dict.fromkeys(revisions))
        else:
            yield _Ask(model, given)


def _outcome(ask: _Ask, chosen: Sequence[Chosen], out: Path) -> Outcome:
    """One model, found or measured; of what goes wrong only words are kept, so that the model can be freed."""
    try:
        found = _found(ask, *_specified(ask, chosen), out)
        if found is not None and found.path is not None and not (found.path / "report.html").is_file():
            found.show()  # it was stopped between its record and its page
        return Outcome(ask.name, found or run(ask.model, **ask.options), is_new=found is None)
    except InterpError as error:
        return Outcome(ask.name, None, False, str(error))
    except Exception:  # of any kind: it is told in full, and the other models go on
        return Outcome(ask.name, None, False, traceback.format_exc())


def _is_begun(ask: _Ask, chosen: Sequence[Chosen], out: Path) -> bool:
    try:
        specified = _specified(ask, chosen)
    except InterpError:  # it is going to be told of this model
        return False
    return is_begun(out, specified[0].hash) or _found(ask, *specified, out) is not None


def _specified(ask: _Ask, chosen: Sequence[Chosen]) -> tuple[RunSpec, tuple[Pool, ...], Model]:
    """What this run is, with its prompts and its model without weights."""
    asked = inspect.signature(run).bind(ask.model, **ask.options)
    asked.apply_defaults()
    a = asked.arguments
    placed = {name: a[name] for name in ("revision", "dtype", "device", "device_map")}
    placed |= {name: a[name] for name in ("allow_quantised", "trust_remote_code")}
    drawn = sketch(ask.model, **placed)
    reading = Reading(a["n_pool"], a["seed"], a["text_column"], a["window"], a["bos"])
    spec, pools = specify(
        drawn.model, chosen, a["prompts"], reading, revision=a["revision"], dtype=a["dtype"],
        per_quintile=a["per_quintile"], attention_window=a["attention_window"], null=a["null"],
        edits=resolve_edits(a["edits"]), checkpoints=a["checkpoints"],
    )  # fmt: skip
    return spec, pools, drawn.model


def _found(ask: _Ask, spec: RunSpec, pools: Sequence[Pool], model: Model, out: Path) -> RunRecord | None:
    """The finished record of just this run."""
    record = finished_record(spec.hash, out)
    if record is None or record.model.get("revision") != model.info.revision or not _same_prompts(record, pools):
        return None
    return None if _changed_since(ask, datetime.fromisoformat(record.created)) else record


def _same_prompts(record: RunRecord, pools: Sequence[Pool]) -> bool:
    """A file of prompts may have changed under its name."""
    read = [record.prompts, *record.prompts.get("others", ())]
    return [prompts.get("hash") for prompts in read] == [pool.prompts.content_hash for pool in pools]


def _changed_since(ask: _Ask, created: datetime) -> bool:
    """Whether a file of the model was written after the record: a folder may hold other weights under its name."""
    files = locate(ask.model, ask.options.get("revision")).files
    if files.revision is not None:  # of the hub: a revision never changes
        return False
    times = [path.stat().st_mtime for name in files.names if (path := files.folder / name).is_file()]
    return max(times, default=0.0) > created.timestamp() + 1  # it has whole seconds


def _comparison(outcomes: Sequence[Outcome], out: Path, quiet: bool) -> RunRecord | None:
    paths = [outcome.record.path for outcome in outcomes if outcome.record and outcome.record.path]
    return compare(paths, out=out, quiet=quiet, reuse=True) if len(paths) > 1 else None


def _free() -> None:
    """Give the memory of the last model back before the next is loaded; modules are cycles, which wait for this."""
    gc.collect()
    import torch

    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _default(name: str) -> Any:
    return inspect.signature(run).parameters[name].default


def _refuse_misuse(models: Sequence[str], revisions: Sequence[str], options: Mapping[str, Any]) -> None:
    known = set(inspect.signature(run).parameters) - {"model", "out", "quiet", "resume"}
    strange = sorted(set(options) - known)
    if strange:
        raise UsageError(
            asked=f"several runs with {', '.join(strange)}",
            found="it is no keyword of interp.run, or is given beside the options",
            fix=f"Known: {', '.join(sorted(known))}.",
        )
    if not models:
        raise UsageError(asked="several runs", found="no model is named", fix="Name one or more.")
    if revisions and options.get("revision"):
        raise UsageError(
            asked=f"the revisions {', '.join(revisions)} and the revision {options['revision']}",
            found="both say which weights are read",
            fix="Keep one of them.",
        )
    if n_started() > 1:
        raise UsageError(
            asked=f"several models in {n_started()} processes",
            found="processes share the prompts of one run, and several runs take turns",
            fix="Launch a run for each model, then `interp compare`; or measure them all in one process.",
        )
