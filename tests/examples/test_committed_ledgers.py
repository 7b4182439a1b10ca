"""The committed ledgers: their words are those of the claims, their outcomes follow from their numbers by the rules."""

import csv

import pytest

from interp.ledger.claims import load_claims
from interp.ledger.ledger import read_ledger
from interp.ledger.rules import SEVERAL, combine, judge, rule_in_words
from tests.paths import ROOT

HERE = ROOT / "examples" / "ledger"
PAPERS = ("paper1", "paper2", "paper3-smollm2-gemma", "newer")


def rows_of(paper):
    (found,) = read_ledger(HERE / paper).papers
    return {row.number: row for row in found.rows}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_row_says_what_its_claim_says(paper):
    rows, claims = rows_of(paper), load_claims(paper.partition("-")[0]).claim
    assert list(rows) == [claim.number for claim in claims]
    for claim in claims:
        row = rows[claim.number]
        assert (row.title, row.says, row.measure, row.here) == (claim.title, claim.says, claim.measure, claim.here)
        told = [part.label for cell in row.cells for part in cell.parts]  # about each model, then all of them together
        is_of_another = not told and row.cells[0].outcome == "not measurable here"
        asked = {part.label for part in claim.revised.parts}
        of_others = {part.label for part in claim.revised.parts if part.only}
        assert is_of_another or asked - of_others <= set(told) <= asked, claim.number
        assert (row.is_small, bool(row.revised)) == (claim.is_small, claim.is_later)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_outcome_follows_from_its_numbers(paper):
    claims = load_claims(paper.partition("-")[0])
    asked = [(claim, rows_of(paper)[claim.number].cells[0]) for claim in [c.revised for c in claims.claim]]
    asked += [(claim, rows_of(paper)[claim.number].cells[0].earlier) for claim in claims.claim if claim.revision]
    for claim, cell in asked:
        parts = {part.label: part for part in claim.parts}
        for judged in cell.parts:
            part = parts[judged.label]
            scalars = [number.scalar for number in judged.numbers if number.scalar]
            asked_of = judged.numbers if part.rule and part.rule.kind in SEVERAL else judged.numbers[:1]
            if judged.outcome is None or not asked_of or not all(number.scalar for number in asked_of):
                is_unasked = claim.premise or part.models  # a comparison of other models is shown
                assert part.rule is None or is_unasked or judged.outcome == "not measurable here", claim.number
                continue
            assert part.rule is not None and judged.rule == rule_in_words(part.rule, scalars[0].unit)
            controls = judged.numbers[0].controls
            assert judged.outcome == judge(part.rule, scalars, judged.p_corrected, controls).outcome, claim.number
        outcomes = [judged.outcome for judged in cell.parts if judged.outcome]
        assert cell.outcome == (combine(outcomes) if outcomes else "not measurable here"), claim.number


def test_every_supported_and_every_contradicted_is_checked_by_hand():
    with (ROOT / "docs" / "_data" / "checked_by_hand.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    checked = {(int(row["row"]), row["outcome"]) for row in rows}
    assert len(checked) == len(rows) and all(len(row["check"]) > 20 for row in rows)
    judged = {(row.number, cell.outcome) for paper in PAPERS for row in rows_of(paper).values() for cell in row.cells}
    assert checked == {(n, outcome) for n, outcome in judged if outcome in ("supported", "contradicted")}
