"""`interp.replicate`: the claims of the papers, each measured again and judged by the rule that stands beside it."""

import shlex
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import numpy as np

from interp.errors import UnknownName, UsageError
from interp.findings import Scalar
from interp.ledger.claims import SCALES, Claim, ClaimPart, Claims, Reference, Scale, load_claims
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
    ledger_folder,
    read_ledger,
    write_ledger,
)
from interp.ledger.rules import Judgement, Outcome, Rule, combine, judge, rule_in_words
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
"""Trainings that a verdict on wind tunnels rests on; with fewer it says so."""
_NO_MODEL = "no language model was named (--model)"


@dataclass(frozen=True)
class Replication:
    """A ledger, and the path of its page."""

    ledger: LedgerFile
    page: Path


Gather = Callable[[Claims, Iterable[str], Sequence[str]], EvidenceBySource]
"""Evidence of the wanted sources of a paper, for these models."""

Numbers = Callable[[Reference, str], tuple[MeasuredNumber, str]]
"""What a claim reads of a model, as the ledger keeps it, and the reason why where there is no number."""


@dataclass(frozen=True)
class _Asked:
    """A part of a claim with the numbers it was given, or the reason why one of them is missing; judged later."""

    part: ClaimPart
    rule: Rule | None
    numbers: tuple[MeasuredNumber, ...]
    reason: str

    @property
    def scalars(self) -> list[Scalar]:
        return [number.scalar for number in self.numbers if number.scalar is not None]

    @property
    def p(self) -> float | None:
        """The p that is corrected over the ledger: of a part that is judged against its null."""
        if self.rule is None or not self.rule.asks_null or self.reason or self.scalars[0].underpowered:
            return None
        p = self.scalars[0].p
        return None if p is None or not np.isfinite(p) or not np.isfinite(self.scalars[0].value) else p


@dataclass(frozen=True)
class _Question:
    """A claim put to one model (or to all together): its parts, and why it cannot be asked, if so."""

    model: str
    parts: tuple[_Asked, ...]
    reason: str


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
    """Measure and judge the claims of a paper, and write a ledger.

    Args:
        paper: `paper1`, `paper2`, `paper3`, `newer` or `all`; or the folder of a ledger, which is judged again
            without measuring.
        models: Language models for the claims of the third paper.
        rows: Numbers of the claims to judge; all by default. Some of them have a folder of their own, and p is
            corrected over these.
        scale: `tiny` (one claim of each kind), `smoke` (minutes), `default` (what the shipped models are judged at) or
            `paper` (the papers' sizes; needs a GPU).
        out: Folder for the ledger and its runs. What it holds already, with the same settings, is not measured again.
        allow_quantised: Measure models of quantised weights, rounded as they are.
        quiet: Whether to print no progress.

    Returns:
        The claims with their verdicts and evidence.

    Raises:
        UsageError: Paper, rows or models do not fit.

    Examples:
        >>> done = interp.replicate("paper3", models=["./my-model"], scale="smoke")  # doctest: +SKIP
    """
    papers = _papers(paper, rows)
    if scale not in SCALES:
        raise UnknownName("scale", scale, SCALES)
    _refuse_misuse(paper, papers, models)
    refuse_unwritable(Path(out))
    folder = Path(out) / "-".join(["ledger", paper, scale, *(["rows"] if rows else []), *map(str, rows)])
    gather = partial(gather_evidence, scale=scale, out=Path(out), quiet=quiet, allow_quantised=allow_quantised)
    judged = [_paper(claims, models if claims.of_models else (), scale, folder, gather) for claims in papers]
    words = ["interp", "replicate", paper, "--scale", scale, *(w for model in models for w in ("--model", model)),
             *(w for row in rows for w in ("--row", str(row)))]  # fmt: skip
    words += ["--allow-quantised"] if allow_quantised else []
    words += [] if str(out) == "runs" else ["--out", str(out)]
    ledger = LedgerFile(
        created=datetime.now(UTC).isoformat(timespec="seconds"), scale=scale, command=shlex.join(words), papers=judged,
        environment=environment(),
    )  # fmt: skip
    return Replication(ledger, write_ledger(ledger, folder))


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
    chosen = [(claims, [claim for claim in claims.claim if claim.number in rows]) for claims in papers]
    return [claims.model_copy(update={"claim": asked}) for claims, asked in chosen if asked]


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
    twice = [m for i, m in enumerate(models) if any(is_same_model(m, other) for other in models[:i])]
    if twice:
        raise UsageError(asked=f"{paper} on {twice[0]}", found="it is named twice", fix="Name every model once.")
    if n_started() > 1:
        raise UsageError(
            asked=f"a ledger in {n_started()} processes",
            found="its runs follow one another, and processes share the prompts of one run",
            fix="Use one process.",
        )


def _paper(claims: Claims, models: Sequence[str], scale: Scale, folder: Path, gather: Gather) -> PaperFile:
    asked = {claim.number for claim in claims.claim if scale != "tiny" or claim.tiny}
    wanted = {read.source for claim in claims.claim if claim.number in asked for read in claim.reads()}
    found = gather(claims, wanted, models)
    first, later = (judged_rows(part, asked, models, numbers_of(found)) for part in (claims.first(), claims.later()))
    return PaperFile(
        name=claims.paper, title=claims.title, citation=claims.citation, note=claims.note, models=list(models),
        sources=[_source(model, each, folder) for (_, model), each in found.items()],
        rows=with_earlier(claims, first, later),
    )  # fmt: skip


def judge_again(
    ledger: str | Path, *, out: str | Path = "runs", allow_quantised: bool = False, quiet: bool = False
) -> Replication:
    """Judge a ledger by the rules of today, in its own folder; only what it lacks is measured, under `out`.

    Rows whose rule has not changed stay as they are. Raises `RecordError` where the folder holds no ledger.
    """
    before, folder = read_ledger(ledger), ledger_folder(Path(ledger))
    gather = partial(gather_evidence, scale=before.scale, out=Path(out), quiet=quiet, allow_quantised=allow_quantised)
    papers = [_again(paper, before.scale, folder, gather) for paper in before.papers]
    after = before.model_copy(update={"papers": papers})
    return Replication(after, write_ledger(after, folder))


def _again(paper: PaperFile, scale: Scale, folder: Path, gather: Gather) -> PaperFile:
    claims = load_claims(paper.name)
    lacking: dict[str, None] = {}

    def note_lacking(read: Reference, model: str) -> tuple[MeasuredNumber, str]:
        lacking[read.source] = None
        return MeasuredNumber(**read.place), "it was not measured"

    asked = {claim.number for claim in claims.claim if scale != "tiny" or claim.tiny}
    judged_rows(claims.later(), asked, paper.models, _kept(paper, note_lacking))
    found = gather(claims, lacking, paper.models)
    later = judged_rows(claims.later(), asked, paper.models, _kept(paper, numbers_of(found)))
    known = {(source.name, source.model) for source in paper.sources}
    added = [_source(model, each, folder) for (name, model), each in found.items() if (name, model) not in known]
    rows = with_earlier(claims, as_first_judged(paper.rows), later)
    return paper.model_copy(update={"sources": [*paper.sources, *added], "rows": rows})


def judged_rows(claims: Claims, asked: Collection[int], models: Sequence[str], numbers: Numbers) -> list[ClaimRow]:
    """All claims of a paper as rows, those whose number is `asked` judged by the numbers that were measured."""
    put = {claim.number: _put(claims, claim, claim.number in asked, models, numbers) for claim in claims.claim}
    corrected = _corrected(put.values())
    return [
        ClaimRow(
            number=claim.number, title=claim.title, says=claim.says, paper=claim.paper, measure=claim.measure,
            here=claim.here, cells=[_cell(question, corrected) for question in put[claim.number]],
            is_beyond=claim.is_beyond, is_small=claim.is_small, revised=_revised(claim),
        )
        for claim in claims.claim
    ]  # fmt: skip


def _revised(claim: Claim) -> str:
    if claim.revision is not None:
        return f"Judged by another rule since {claim.revision.since}: {claim.revision.why}"
    return f"On the list since {claim.since}." if claim.since else ""


def with_earlier(claims: Claims, first: Sequence[ClaimRow], later: Sequence[ClaimRow]) -> list[ClaimRow]:
    """The rows of a paper, each by its latest rule, with what the first rule made of it beside."""
    before, now = ({row.number: row for row in rows} for rows in (first, later))
    rows = []
    for claim in claims.claim:
        old, row = before.get(claim.number), now.get(claim.number, before.get(claim.number))
        assert row is not None
        if old is not None and old is not row:
            earlier = {cell.model: cell for cell in old.cells}
            cells = [cell.model_copy(update={"earlier": earlier.get(cell.model)}) for cell in row.cells]
            row = row.model_copy(update={"cells": cells})
        rows.append(row.model_copy(update={"is_small": claim.is_small}))
    return rows


def as_first_judged(rows: Sequence[ClaimRow]) -> list[ClaimRow]:
    """The rows of a ledger as the rules judged them that were fixed for it."""
    return [row.model_copy(update={"cells": [cell.earlier or cell for cell in row.cells]}) for row in rows]


def _put(claims: Claims, claim: Claim, is_asked: bool, models: Sequence[str], numbers: Numbers) -> list[_Question]:
    if not is_asked or (claim.reason and not claim.parts):
        return [_Question("", (), claim.reason or _NOT_TINY)]
    if not claims.is_of_models(claim):
        return [_question(claim, claim.parts, TRAINED if models else "", numbers)]
    if not models:
        return [_Question("", (), _NO_MODEL)]
    apart = [part for part in claim.parts if not part.models]
    together = [part for part in claim.parts if part.models]
    questions = []
    for model in models if apart else ():
        mine = [part for part in apart if not part.only or any(is_named(model, name) for name in part.only)]
        if mine:
            questions.append(_question(claim, mine, model, numbers))
        else:
            named = ", ".join(dict.fromkeys(name for part in apart for name in part.only))
            questions.append(_Question(model, (), f"the paper says it of {named} alone"))
    if together:
        # where the models of some comparison are all here, the others are shown without a verdict
        is_whole = {part.label: all(_named(name, models) for name in part.models) for part in together}
        parts = [_joined(part, models, numbers) for part in together]
        kept = [p if is_whole[p.part.label] or not any(is_whole.values()) else replace(p, rule=None) for p in parts]
        questions.append(_Question(JOINT, tuple(kept), ""))
    return questions


def _question(claim: Claim, parts: Sequence[ClaimPart], model: str, numbers: Numbers) -> _Question:
    reason = claim.reason
    if claim.premise:
        number, lacking = numbers(claim.premise.read, model)
        scalar = number.scalar
        if scalar is None:
            reason = f"{claim.premise.otherwise} ({lacking})"
        elif judge(claim.premise.rule, [scalar], scalar.p, number.controls).outcome != "supported":
            reason = f"{claim.premise.otherwise} ({number.of}.{number.field} = {scalar.value:.3g})"
    return _Question(model, tuple(_asked(part, model, numbers) for part in parts), reason)


def _asked(part: ClaimPart, model: str, numbers: Numbers) -> _Asked:
    own = next((rule for name, rule in part.rules.items() if is_named(model, name)), part.rule)
    return _with_numbers(part, own, [numbers(read, model) for read in part.reads])


def _joined(part: ClaimPart, models: Sequence[str], numbers: Numbers) -> _Asked:
    named = {name: _named(name, models) for name in part.models}
    missing = [name for name, model in named.items() if model is None]
    if missing:
        return _Asked(part, part.rule, (), f"needs {' and '.join(part.models)}; missing: {', '.join(missing)}")
    return _with_numbers(part, part.rule, [numbers(part.read, model) for model in named.values() if model is not None])


def _named(name: str, models: Sequence[str]) -> str | None:
    return next((model for model in models if is_named(model, name)), None)


def _with_numbers(part: ClaimPart, rule: Rule | None, given: Sequence[tuple[MeasuredNumber, str]]) -> _Asked:
    reasons = dict.fromkeys(part.absent or lacking for number, lacking in given if number.scalar is None)
    return _Asked(part, rule, tuple(number for number, _ in given), "; ".join(reasons))


def numbers_of(found: EvidenceBySource) -> Numbers:
    """The numbers of runs and studies."""
    return lambda read, model: _number(read, found[read.source, model if (read.source, model) in found else ""])


def _kept(paper: PaperFile, otherwise: Numbers) -> Numbers:
    """The numbers that a ledger keeps; those that it lacks from where else they are."""
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


def _corrected(put: Iterable[list[_Question]]) -> dict[int, float]:
    """Benjamini and Hochberg's correction over all parts of a paper that are judged by a p, by their identity."""
    parts = [part for questions in put for question in questions if not question.reason for part in question.parts]
    tested = [(id(part), part.p) for part in parts if part.p is not None]
    adjusted = corrected([p for _, p in tested])
    return {i: p for (i, _), p in zip(tested, adjusted, strict=True) if p is not None}


def _cell(question: _Question, corrected: dict[int, float]) -> ClaimOutcome:
    parts = [_judged(part, corrected.get(id(part)), is_moot=bool(question.reason)) for part in question.parts]
    if question.reason:
        return ClaimOutcome(model=question.model, outcome="not measurable here", why=question.reason, parts=parts)
    outcomes: list[Outcome] = [part.outcome for part in parts if part.outcome is not None]
    outcome = combine(outcomes)
    deciding = dict.fromkeys(part.why for part in parts if part.outcome == outcome)
    n_measured = sum(each != "not measurable here" for each in outcomes)
    of = f" ({n_measured} of {len(outcomes)} parts measured)" if 0 < n_measured < len(outcomes) else ""
    return ClaimOutcome(model=question.model, outcome=outcome, why="; ".join(deciding) + of, parts=parts)


def _judged(asked: _Asked, p: float | None, *, is_moot: bool) -> JudgedPart:
    rule = asked.rule
    units = [number.scalar.unit for number in asked.numbers if number.scalar]
    judgement: Judgement | None = None
    if rule is not None and not is_moot:
        if asked.reason:
            judgement = Judgement("not measurable here", asked.reason)
        else:
            judgement = judge(rule, asked.scalars, p, asked.numbers[0].controls)
            judgement = replace(judgement, why=judgement.why + _of_trainings(rule, asked.numbers))
    return JudgedPart(
        label=asked.part.label, numbers=list(asked.numbers), kind=rule.kind if rule else "",
        rule=rule_in_words(rule, units[0] if units else "") if rule else "", p_corrected=p,
        outcome=judgement.outcome if judgement else None, why=judgement.why if judgement else asked.reason,
    )  # fmt: skip


def _of_trainings(rule: Rule, numbers: Sequence[MeasuredNumber]) -> str:
    """What a verdict on wind tunnels says where it rests on fewer than `ENOUGH_TRAININGS`; identities hold in each."""
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
