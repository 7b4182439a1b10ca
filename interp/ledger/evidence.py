"""Evidence for claims: run the sources of a file of claims, or find their records, and read numbers from them.

A source is not repeated with the same specification. One that fails is recorded with its error; what needs it is not
measurable. Networks that a source reads are compared with the record of the source that trained them.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from interp.errors import InterpError
from interp.findings import Findings, Interval, Null, Scalar
from interp.ledger.claims import Claims, EvidenceSource, Reference, Scale, builds_on
from interp.loading.aliases import ALIASES
from interp.records.record import RunRecord
from interp.records.unfinished import PARTIAL
from interp.running.spec import make_study
from interp.system.progress import announce, stage
from interp.table import Table


@dataclass(frozen=True)
class Evidence:
    """The record of a source, or the reason why there is none; `failed` if it should have worked."""

    source: EvidenceSource
    record: RunRecord | None
    reason: str = ""
    work: Path | None = None
    failed: bool = False


EvidenceBySource = Mapping[tuple[str, str], Evidence]
"""Evidence by source and model; the model is empty where the source has one of its own."""


def is_same_model(one: str, other: str) -> bool:
    """Whether two names mean one model: an alias and its hub id do; revisions are ignored."""
    return _canonical(one) == _canonical(other)


def is_named(model: str, name: str) -> bool:
    """Whether a claim's model name means this model, or folder or GGUF file of that name."""
    return Path(_canonical(model)).name.removesuffix(".gguf") == Path(_canonical(name)).name


def gather_evidence(
    claims: Claims, wanted: Iterable[str], models: Sequence[str], scale: Scale, out: Path, quiet: bool,
    allow_quantised: bool = False,
) -> dict[tuple[str, str], Evidence]:  # fmt: skip
    """Run the wanted sources, and those that they build on, in the order of the file."""
    allowed = {"allow_quantised": allow_quantised}
    known = {n: each.model_copy(update={"options": each.options | allowed}) for n, each in claims.sources().items()}
    needed = set(wanted)
    for name in reversed(known):  # what a source builds on stands before it
        if name in needed:
            needed |= builds_on(known[name]).keys()
    asked = [
        (source, model)
        for source in known.values()
        if source.name in needed
        for model in (models if source.of_each_model else ("",))
    ]
    read = [(name, pattern) for source, _ in asked for name, pattern in builds_on(source).items()]
    found: dict[tuple[str, str], Evidence] = {}
    for i, (source, model) in enumerate(asked):
        where = f"{claims.paper}, {i + 1} of {len(asked)}"
        announce(f"{where}: {source.title}" + (f" ({model})" if model else ""), quiet)
        with stage(where):
            found[source.name, model] = evidence = _carried_out(source, model, scale, found, out, quiet)
            amiss = [_networks_amiss(evidence, pattern) for name, pattern in read if name == source.name]
            if any(missing for missing, _ in amiss) and not any(other for _, other in amiss):
                found[source.name, model] = _carried_out(source, model, scale, found, out, quiet, reuse=False)
    return found


def number_of(read: Reference, evidence: Evidence) -> Scalar | str:
    """The number that `read` names, or the reason why there is none."""
    if evidence.record is None:
        return evidence.reason
    findings = evidence.record.findings.get(read.of)
    if findings is None:
        return f"{read.of} reads what this model does not have"
    if read.table:
        return _cell(read, findings, str(evidence.record.prompts.get("unit", "prompt")))
    if read.field not in findings.scalars:
        return evidence.source.absent or f"{read.of} gives no {read.field} here"
    return findings.scalars[read.field]


def controls_of(read: Reference, evidence: Evidence) -> list[tuple[str, Scalar]]:
    """The essential controls of the number that `read` names; cells of a table have none."""
    findings = evidence.record.findings.get(read.of) if evidence.record else None
    return [] if findings is None or read.table else findings.essential_controls(read.field)


def trainings_of(record: RunRecord, scalar: Scalar) -> int | None:
    """The number of trained wind tunnels behind a number: of a study its seeds, else 1; None for other models."""
    if record.model and "card" not in record.model:
        return None
    return scalar.n if scalar.n_unit == "seed" and scalar.n is not None else 1


def models_of(record: RunRecord) -> list[tuple[str, str]]:
    """The models of a record with their fingerprints; a study lists its own in a table `models`."""
    if record.model:
        return [(str(record.model.get("name", "")), str(record.model.get("fingerprint", "")))]
    listed = [f.tables["models"] for f in record.findings.values() if "models" in f.tables]
    return [
        (str(model), str(fingerprint))
        for table in listed
        for model, fingerprint in zip(table["model"], table["fingerprint"], strict=True)
    ]


def _networks(evidence: Evidence, pattern: str) -> list[tuple[str, str]]:
    listed = models_of(evidence.record) if evidence.record else []
    return [(name, fingerprint) for name, fingerprint in listed if fnmatch(name, pattern)]


def _networks_amiss(evidence: Evidence, pattern: str) -> tuple[Sequence[str], Sequence[str]]:
    """Networks that a record names and are missing (all, if it names none), and those with other fingerprints."""
    if evidence.record is None or evidence.work is None:
        return (), ()
    known = dict(_networks(evidence, pattern))
    there = {folder.name: folder for folder in evidence.work.glob(pattern)}
    missing = sorted(known.keys() - there.keys()) if known else [pattern]
    other = sorted(name for name, folder in there.items() if known and known.get(name) != _fingerprint(folder))
    return missing, other


def _carried_out(
    source: EvidenceSource, model: str, scale: Scale, found: Mapping[tuple[str, str], Evidence], out: Path, quiet: bool,
    reuse: bool = True,
) -> Evidence:  # fmt: skip
    if source.only and not any(is_named(model, name) for name in source.only):
        return Evidence(source, None, f"this is asked of {', '.join(source.only)} alone")
    if scale not in source.scales:
        return Evidence(source, None, source.absent or f"{source.title} is not done at the scale {scale}")
    changes = source.scales[scale]
    networks: list[str] = []
    for name, pattern in builds_on(source).items():
        base = found[name, ""]
        if base.record is None:
            return Evidence(source, None, base.reason, failed=base.failed)
        if unlike := [name for names in _networks_amiss(base, pattern) for name in names]:
            what = f"{', '.join(unlike)} in {base.work} is not what the record of {name} names"
            return Evidence(source, None, f"{what}: move it away, and it is trained again", failed=True)
        networks += [fingerprint for _, fingerprint in _networks(base, pattern)]
    works = {name: found[name, ""].work for name in builds_on(source)}
    settings, more = source.settings, changes.settings
    from interp.running.several_models import run_many
    from interp.running.study import run_study

    if source.kind == "run":
        probes = changes.probes or source.probes
        of_these = {p: {**settings.get(p, {}), **more.get(p, {})} for p in [*settings, *more] if p in probes}
        asked = {"probes": probes, "settings": of_these, **source.options, **changes.options}
        model = source.model.format(**works) or model
        (outcome,) = run_many([model], options=asked, out=out, quiet=quiet).outcomes
        return Evidence(source, outcome.record, _reason(outcome.failure), failed=outcome.record is None)

    def is_of_these(record: RunRecord) -> bool:
        """Whether a record is of these networks (if there are none, of those that the study trains)."""
        return not networks or sorted(networks) == sorted(fingerprint for _, fingerprint in models_of(record))

    given = {
        name: value.format(**works) if isinstance(value, str) else tuple(value) if isinstance(value, list) else value
        for name, value in {**settings, **more}.items()
    }
    try:
        study = make_study(source.study, given)
        record = run_study(study, out=out, reuse=reuse, is_same=is_of_these, quiet=quiet)
    except InterpError as error:
        return Evidence(source, None, _reason(str(error)), failed=True)
    return Evidence(source, record, work=out / PARTIAL / study.hash)


def _reason(failure: str) -> str:
    """An error in one line; of a traceback the last line, after printing it to standard error."""
    if failure.startswith("Traceback"):
        print(failure, file=sys.stderr)
        return f"it failed unexpectedly ({failure.strip().splitlines()[-1]})"
    return ". ".join(line.strip().rstrip(".") for line in failure.splitlines())


def _canonical(name: str) -> str:
    plain = name.partition("@")[0]
    return (ALIASES[plain].hub_id if plain in ALIASES else plain).rstrip("/").lower()


def _cell(read: Reference, findings: Findings, unit: str) -> Scalar | str:
    if read.table not in findings.tables:
        return f"{read.of} gives no table {read.table} here"
    table = findings.tables[read.table]
    missing = [name for name in (read.field, *read.where) if name not in table]
    if missing:
        return f"the table {read.table} of {read.of} has no column {missing[0]}"
    keep = np.ones(table.n_rows, dtype=bool)
    for name, value in read.where.items():
        if isinstance(value, int | float) and value < 0:
            value = table[name].max() + 1 + value
        keep &= table[name] == value
    if keep.sum() != 1:
        words = ", ".join(f"{name} {value}" for name, value in read.where.items())
        return f"the table {read.table} of {read.of} has {keep.sum()} rows with {words}"
    row = table.where(keep)
    low, high = (_number(row, f"{read.field}_{end}") for end in ("low", "high"))
    null = [_number(row, f"{read.field}_null{end}") for end in ("", "_low", "_high")]
    p = _number(row, f"{read.field}_p" if f"{read.field}_p" in row else "p")
    n = _number(row, "n")
    same = findings.scalars.get(read.field)
    return Scalar.of(
        _number(row, read.field),
        read.unit or table.units[read.field],
        Interval.of((low, high), "as in the table", "the table gives no interval"),
        "the table gives no null" if np.isnan(null).any() else Null("as in the table", null[0], (null[1], null[2])),
        p=p,
        n=None if np.isnan(n) else int(n),
        n_unit=unit,
        underpowered=same is not None and same.underpowered and bool(np.isfinite(same.value)),
        meaning=table.caption,
    )


def _number(row: Table, name: str) -> float:
    return float(row[name][0]) if name in row else np.nan


def _fingerprint(folder: Path) -> str | None:
    from interp.loading.load import load

    try:
        return load(str(folder), check=False).fingerprint
    except InterpError:
        return None
