"""`interp.replicate`: measure the claims of the papers and test each by its rule."""

import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from interp.errors import RecordError, UnknownName, UsageError
from interp.ledger.claims import SCALES, Claim, ClaimPart, Claims, ClaimWords, Reference, Scale, load_claims
from interp.ledger.evidence import (
    Evidence,
    EvidenceBySource,
    controls_of,
    gather_evidence,
    is_named,
    is_same_model,
    models_of,
    number_of,
    trainings_of,
)
from interp.ledger.ledger import (
    ClaimOutcome,
    ClaimRow,
    JudgedPart,
    LedgerFile,
    MeasuredNumber,
    PaperFile,
    SourceFile,
    is_ledger,
    ledger_folder,
    read_ledger,
    write_ledger,
)
from interp.ledger.rules import Outcome, Rule, combine, judge, rule_in_words
from interp.loading.sources import refuse_wrong_models
from interp.records.headlines import corrected
from interp.records.unfinished import refuse_unwritable
from interp.registry import entries
from interp.system.environment import environment
from interp.system.processes import n_started

ALL = "all"
JOINT = "all models together"
TRAINED = "networks trained for it"
_NOT_TINY = "this claim is not part of the scale tiny, which asks one of each kind"
ENOUGH_TRAININGS = 3
"""Trained wind tunnels below which an outcome says how many there are."""
_NO_MODEL = "no language model was named (--model)"


@dataclass(frozen=True)
class Replication:
    """A ledger, and the path of its page."""

    ledger: LedgerFile
    page: Path


Gather = Callable[[Claims, Iterable[str], Sequence[str]], EvidenceBySource]
"""Evidence of the wanted sources of a paper, for these models."""

Numbers = Callable[[Reference, str], tuple[MeasuredNumber, str]]
"""The number that a claim reads of a model, and the reason if there is none."""


Part = tuple[Rule | None, JudgedPart]
"""The rule for a part of a claim, and the part with its numbers; its `why` names missing ones."""

Question = tuple[str, str, Sequence[Part]]
"""A claim for one model (or for all together): the model, the reason if it cannot be tested, and the parts."""


def replicate(
    paper: str,
    *,
    models: Sequence[str] = (),
    rows: Sequence[int] = (),
    scale: Scale = "default",
    out: str | Path = "runs",
    allow_quantised: bool = False,
    quiet: bool = False,
) -> Replication:
    """Measure and test the claims of a paper, and write a ledger.

    Args:
        paper: `paper1`, `paper2`, `paper3`, `newer` or `all`; or the folder of a ledger, which is tested again by the
            present rules, with its own models, claims and scale, measuring only what it lacks.
        models: Language models for the claims of the third paper.
        rows: Numbers of the claims to test; all by default. A selection gets its own folder, and its p is corrected
            over the selected claims.
        scale: `tiny` (one claim of each kind), `smoke` (minutes), `default` (that of the shipped models) or `paper`
            (the papers' sizes; needs a GPU).
        out: Folder for the ledger and its runs. What it holds already, with the same settings, is not measured again.
        allow_quantised: Whether models with quantised weights are measured.
        quiet: Whether to print no progress.

    Returns:
        The claims with their verdicts and evidence.

    Raises:
        UsageError: Paper, rows or models do not fit.

    Examples:
        >>> done = interp.replicate("paper3", models=["./my-model"], scale="smoke")  # doctest: +SKIP
    """
    if is_ledger(Path(paper)):
        if models or rows or scale != "default":
            raise UsageError(
                asked=f"the ledger {paper} with another model, claim or scale",
                found="judged again, a ledger keeps those that it was made with",
                fix="Leave --model, --row and --scale out, or name a paper.",
            )
        ledger, folder = read_ledger(paper), ledger_folder(Path(paper))
        rows = [int(word) for option, word in pairwise(shlex.split(ledger.command)) if option == "--row"]
        papers = [_chosen(load_claims(of.name), rows) for of in ledger.papers]
    else:
        papers = _papers(paper, rows)
        if scale not in SCALES:
            raise UnknownName("scale", scale, SCALES)
        _refuse_misuse(paper, papers, models)
        refuse_unwritable(Path(out))
        folder = Path(out) / "-".join(["ledger", paper, scale, *(["rows"] if rows else []), *map(str, rows)])
        _refuse_to_replace(folder, models)
        words = ["interp", "replicate", paper, "--scale", scale, *(w for model in models for w in ("--model", model)),
                 *(w for row in rows for w in ("--row", str(row)))]  # fmt: skip
        words += ["--allow-quantised"] if allow_quantised else []
        words += [] if str(out) == "runs" else ["--out", str(out)]
        ledger = LedgerFile(
            created=datetime.now(UTC).isoformat(timespec="seconds"), scale=scale, command=shlex.join(words),
            papers=[_unjudged(claims, models) for claims in papers], environment=environment(),
        )  # fmt: skip
    gather = partial(gather_evidence, scale=ledger.scale, out=Path(out), quiet=quiet, allow_quantised=allow_quantised)
    judged = [_paper(*each, ledger.scale, folder, gather) for each in zip(ledger.papers, papers, strict=True)]
    ledger = ledger.model_copy(update={"papers": judged})
    return Replication(ledger, write_ledger(ledger, folder))


def _unjudged(claims: Claims, models: Sequence[str]) -> PaperFile:
    about = {"name": claims.paper, "title": claims.title, "citation": claims.citation, "note": claims.note}
    return PaperFile(**about, models=list(models) if claims.of_models else [], sources=[], rows=[])


def _papers(paper: str, rows: Sequence[int]) -> list[Claims]:
    known = list(entries("claims"))
    if paper != ALL and paper not in known:
        raise UnknownName("paper", paper, [*known, ALL])
    papers = [load_claims(name) for name in (known if paper == ALL else [paper])]
    if not rows:
        return papers
    numbers = [claim.number for claims in papers for claim in claims.claim]
    missing = [row for row in rows if row not in numbers]
    if missing:
        raise UsageError(
            asked=f"claim {missing[0]} of {paper}",
            found=f"its claims are {', '.join(map(str, sorted(numbers)))}",
            fix="Name one of these, or leave --row out for all.",
        )
    return [chosen for claims in papers if (chosen := _chosen(claims, rows)).claim]


def _chosen(claims: Claims, rows: Collection[int]) -> Claims:
    """The claims with these numbers, by default all."""
    return claims.model_copy(update={"claim": [c for c in claims.claim if not rows or c.number in rows]})


def _refuse_misuse(paper: str, papers: Sequence[Claims], models: Sequence[str]) -> None:
    of_models = [claims for claims in papers if any(claims.is_of_models(claim) for claim in claims.claim)]
    if models and not any(claims.of_models for claims in papers):
        raise UsageError(
            asked=f"{paper} with --model {models[0]}",
            found="its claims are about wind tunnels, which are named in the file of claims",
            fix="Leave --model out; `interp replicate paper3` is about language models.",
        )
    if of_models and not models and paper != ALL:
        raise UsageError(
            asked=f"interp replicate {paper}",
            found="its claims are about language models, and none is named",
            fix="Name one or more: --model pythia-410m --model phi-2.",
        )
    refuse_wrong_models(models)
    twice = [m for i, m in enumerate(models) if any(is_same_model(m, other) for other in models[:i])]
    if twice:
        raise UsageError(asked=f"{paper} on {twice[0]}", found="it is named twice", fix="Name every model once.")
    if n_started() > 1:
        raise UsageError(
            asked=f"a ledger in {n_started()} processes",
            found="its runs follow one another, and processes share the prompts of one run",
            fix="Use one process.",
        )


def _refuse_to_replace(folder: Path, models: Sequence[str]) -> None:
    """Raise `UsageError` if the folder has a ledger of other models; a damaged one is replaced."""
    before: dict[str, None] = {}
    with suppress(RecordError):
        before = dict.fromkeys(model for paper in read_ledger(folder).papers for model in paper.models)

    def is_among(model: str) -> bool:
        return any(is_same_model(model, x) and model.partition("@")[2] == x.partition("@")[2] for x in models)

    if lost := [model for model in before if not is_among(model)]:
        raise UsageError(
            asked=f"a ledger of {', '.join(models) or 'no model'} in {folder}",
            found=f"there is one of {', '.join(lost)}, which it would replace",
            fix="Name all models together (what was measured is not measured again), or choose another --out.",
        )


def _paper(before: PaperFile, claims: Claims, scale: Scale, folder: Path, gather: Gather) -> PaperFile:
    """A paper tested by its latest rules (if new, also by the first), on its numbers and those that it lacks."""
    models, lacking = before.models, dict.fromkeys(())
    asked = {claim.number for claim in claims.claim if scale != "tiny" or claim.tiny}
    by_rules = [claims.later()] if before.rows else [claims.later(), claims.first()]

    def note_lacking(read: Reference, model: str) -> tuple[MeasuredNumber, str]:
        lacking[read.source] = None
        return MeasuredNumber(**read.place), "it was not measured"

    for each in by_rules:
        judged_rows(each, asked, models, _kept(before, note_lacking))
    found = gather(claims, lacking, models)
    later, *first = (judged_rows(each, asked, models, _kept(before, numbers_of(found))) for each in by_rules)
    known = {(source.name, source.model) for source in before.sources}
    added = [_source(model, each, folder) for (name, model), each in found.items() if (name, model) not in known]
    rows = with_earlier(claims, first[0] if first else as_first_judged(before.rows), later)
    return before.model_copy(update={"sources": [*before.sources, *added], "rows": rows})


def judged_rows(claims: Claims, asked: Collection[int], models: Sequence[str], numbers: Numbers) -> list[ClaimRow]:
    """All claims as rows; those `asked` are tested, with p corrected together (Benjamini and Hochberg)."""
    put = [(claim, _put(claims, claim, claim.number in asked, models, numbers)) for claim in claims.claim]
    parts = [part for _, questions in put for _, reason, mine in questions if not reason for part in mine]
    p_of = dict(zip(map(id, parts), corrected([_p(*part) for part in parts]), strict=True))
    return [
        ClaimRow(
            **{name: getattr(claim, name) for name in ClaimWords.model_fields},
            cells=[_cell(*question, p_of) for question in questions],
            revised=_revised(claim),
        )
        for claim, questions in put
    ]


def _revised(claim: Claim) -> str:
    if claim.revision is not None:
        return f"Judged by another rule since {claim.revision.since}: {claim.revision.why}"
    return f"On the list since {claim.since}." if claim.since else ""


def with_earlier(claims: Claims, first: Sequence[ClaimRow], later: Sequence[ClaimRow]) -> list[ClaimRow]:
    """The rows of a paper, each by its latest rule, with the outcome of its first rule beside."""
    before, now = ({row.number: row for row in rows} for rows in (first, later))
    rows = []
    for claim in claims.claim:
        old, row = before.get(claim.number), now.get(claim.number, before.get(claim.number))
        assert row is not None
        if claim.since is None and old is not None and old is not row:
            earlier = {cell.model: cell for cell in old.cells}
            cells = [cell.model_copy(update={"earlier": earlier.get(cell.model)}) for cell in row.cells]
            row = row.model_copy(update={"cells": cells})
        rows.append(row.model_copy(update={"is_small": claim.is_small}))
    return rows


def as_first_judged(rows: Sequence[ClaimRow]) -> list[ClaimRow]:
    """The rows of a ledger with the outcomes of the first rules."""
    return [row.model_copy(update={"cells": [cell.earlier or cell for cell in row.cells]}) for row in rows]


def _put(claims: Claims, claim: Claim, is_asked: bool, models: Sequence[str], numbers: Numbers) -> list[Question]:
    if not is_asked or (claim.reason and not claim.parts):
        return [("", claim.reason or _NOT_TINY, ())]
    if not claims.is_of_models(claim):
        return [_question(claim, claim.parts, TRAINED if models else "", numbers)]
    if not models:
        return [("", _NO_MODEL, ())]
    apart = [part for part in claim.parts if not part.models]
    together = [part for part in claim.parts if part.models]
    questions = []
    for model in models if apart else ():
        mine = [part for part in apart if not part.only or any(is_named(model, name) for name in part.only)]
        if mine:
            questions.append(_question(claim, mine, model, numbers))
        else:
            named = ", ".join(dict.fromkeys(name for part in apart for name in part.only))
            questions.append((model, f"the paper says it of {named} alone", ()))
    if together:
        # if all models of some comparison are given, other comparisons are shown without a verdict
        here = {part.label: {name: _named(name, models) for name in part.models} for part in together}
        whole = {label for label, named in here.items() if all(named.values())}
        parts = []
        for part in together:
            rule, named = part.rule if part.label in whole or not whole else None, here[part.label]
            missing = ", ".join(name for name, model in named.items() if model is None)
            lacking = f"needs {' and '.join(part.models)}; missing: {missing}" if missing else ""
            given = [numbers(part.read, model) for model in named.values() if model is not None and not missing]
            parts.append(_with_numbers(part, rule, given, lacking))
        questions.append((JOINT, "", parts))
    return questions


def _question(claim: Claim, parts: Sequence[ClaimPart], model: str, numbers: Numbers) -> Question:
    reason = claim.reason
    if claim.premise:
        number, lacking = numbers(claim.premise.read, model)
        scalar = number.scalar
        if scalar is None:
            reason = f"{claim.premise.otherwise} ({lacking})"
        elif judge(claim.premise.rule, [scalar], scalar.p, number.controls).outcome != "supported":
            reason = f"{claim.premise.otherwise} ({number.of}.{number.field} = {scalar.value:.3g})"
    asked = []
    for part in parts:
        rule = next((rule for name, rule in part.rules.items() if is_named(model, name)), part.rule)
        asked.append(_with_numbers(part, rule, [numbers(read, model) for read in part.reads]))
    return model, reason, asked


def _named(name: str, models: Sequence[str]) -> str | None:
    return next((model for model in models if is_named(model, name)), None)


def _with_numbers(
    part: ClaimPart, rule: Rule | None, given: Sequence[tuple[MeasuredNumber, str]], lacking: str = ""
) -> Part:
    reasons = dict.fromkeys(why for number, why in given if number.scalar is None)
    units = [number.scalar.unit for number, _ in given if number.scalar]
    return rule, JudgedPart(
        label=part.label, numbers=[number for number, _ in given], kind=rule.kind if rule else "",
        rule=rule_in_words(rule, units[0] if units else "") if rule else "", why=lacking or "; ".join(reasons),
    )  # fmt: skip


def numbers_of(found: EvidenceBySource) -> Numbers:
    """The numbers of runs and studies."""
    return lambda read, model: _number(read, found[read.source, model if (read.source, model) in found else ""])


def _kept(paper: PaperFile, otherwise: Numbers) -> Numbers:
    """The numbers of a ledger; those that it lacks come from `otherwise`."""
    known = {
        (cell.model, repr(number.place)): number
        for row in paper.rows
        for cell in row.cells
        for part in (*cell.parts, *(cell.earlier.parts if cell.earlier else ()))
        for number in part.numbers
        if number.scalar is not None
    }

    def numbers(read: Reference, model: str) -> tuple[MeasuredNumber, str]:
        number = known.get((model, repr(read.place)))
        return otherwise(read, model) if number is None else (number, "")

    return numbers


def _number(read: Reference, evidence: Evidence) -> tuple[MeasuredNumber, str]:
    scalar, record = number_of(read, evidence), evidence.record
    models = models_of(record) if record else []
    if record is None or isinstance(scalar, str):
        return MeasuredNumber(**read.place, models=models), str(scalar)
    trainings, controls = trainings_of(record, scalar), controls_of(read, evidence)
    return MeasuredNumber(**read.place, models=models, scalar=scalar, trainings=trainings, controls=controls), ""


def _p(rule: Rule | None, part: JudgedPart) -> float | None:
    """The p of a part that is tested against its null, which is corrected over the ledger."""
    scalar = part.numbers[0].scalar if part.numbers and not part.why else None
    if rule is None or not rule.asks_null or scalar is None or scalar.underpowered or scalar.p is None:
        return None
    return scalar.p if np.isfinite([scalar.p, scalar.value]).all() else None


def _cell(model: str, reason: str, asked: Sequence[Part], p_of: Mapping[int, float | None]) -> ClaimOutcome:
    if reason:
        parts = [part for _, part in asked]
        return ClaimOutcome(model=model, outcome="not measurable here", why=reason, parts=parts)
    parts = [_judged(*part, p_of[id(part)]) for part in asked]
    outcomes: list[Outcome] = [part.outcome for part in parts if part.outcome is not None]
    outcome = combine(outcomes)
    deciding = dict.fromkeys(part.why for part in parts if part.outcome == outcome)
    n_measured = sum(each != "not measurable here" for each in outcomes)
    of = f" ({n_measured} of {len(outcomes)} parts measured)" if 0 < n_measured < len(outcomes) else ""
    return ClaimOutcome(model=model, outcome=outcome, why="; ".join(deciding) + of, parts=parts)


def _judged(rule: Rule | None, part: JudgedPart, p: float | None) -> JudgedPart:
    if rule is None:
        return part
    if part.why:
        return part.model_copy(update={"outcome": "not measurable here"})
    scalars = [number.scalar for number in part.numbers if number.scalar is not None]
    found = judge(rule, scalars, p, part.numbers[0].controls)
    why = found.why + _of_trainings(rule, part.numbers)
    return part.model_copy(update={"p_corrected": p, "outcome": found.outcome, "why": why})


def _of_trainings(rule: Rule, numbers: Sequence[MeasuredNumber]) -> str:
    """The remark on an outcome for fewer than `ENOUGH_TRAININGS` wind tunnels; identities need none."""
    counts = [number.trainings for number in numbers if number.trainings is not None]
    if rule.kind == "identity" or not counts or min(counts) >= ENOUGH_TRAININGS:
        return ""
    return "; one training" if min(counts) == 1 else f"; {min(counts)} trainings"


def _source(model: str, evidence: Evidence, folder: Path) -> SourceFile:
    record = evidence.record
    where, command, spec_hash, models = "", "", "", []
    if record is not None:
        command, spec_hash, models = str(record.spec.get("command", "")), record.spec_hash, models_of(record)
    if record is not None and record.path is not None:
        is_beside = record.path.parent == folder.parent
        where = (Path("..", record.path.name) if is_beside else record.path).as_posix()
    return SourceFile(
        name=evidence.source.name, title=evidence.source.title, kind=evidence.source.kind, model=model, record=where,
        command=command, spec_hash=spec_hash, models=models, reason=evidence.reason, failed=evidence.failed,
    )  # fmt: skip
