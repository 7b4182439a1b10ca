"""The tables of the terminal: no number is split, and notes are shown on request."""

import re
from dataclasses import replace

import numpy as np
import pytest
from rich.console import Console

from interp.cli import terminal
from interp.cli.tables import print_differences, print_fields, print_models, print_record
from interp.findings import Findings, Null, Scalar
from interp.records.record import RunRecord
from interp.table import Table

NAME = "best_layer_entropy_correlation"


@pytest.fixture
def record():
    share = Scalar(
        -0.000218, "1", (-0.00116, 0.000137), "bootstrap", null=Null("noise", -0.00144, (-0.00865, 0.000809)), p=1e-6,
        n=1200, n_unit="sequence",
    )  # fmt: skip
    found = Findings("toy", {NAME: share, "other": share}, {}, notes=("a note",), headline=(NAME,))
    return RunRecord({}, "00", {}, {"toy": found}, {"name": "m"}, {"n": 3, "name": "mixed"}, environment={})


@pytest.mark.parametrize("width", [80, 120])
def test_no_number_is_split_where_the_terminal_is_narrow(record, width, monkeypatch, capsys):
    monkeypatch.setattr(terminal, "Console", lambda **_: Console(width=width, highlight=False, markup=False))
    print_record(record, verbose=True)
    printed = capsys.readouterr().out
    numbers = re.findall(r"-?[\d.]+\d", printed)
    assert {"-0.000218", "-0.00116", "0.000137", "-0.00144", "-0.00865", "0.000809"} <= {*numbers}
    assert NAME in printed and "verdict" in printed and "< 1e-6" in printed
    assert max(map(len, printed.splitlines())) <= width


def test_notes_and_numbers_are_printed_on_request(record, capsys):
    print_record(record)
    brief = capsys.readouterr().out
    print_record(record, verbose=True)
    whole = capsys.readouterr().out
    assert "  a note" not in brief.splitlines() and "2 numbers, controls" in brief and "-v" in brief
    assert "a note" in whole and "other" in whole and "1,200 sequences" in whole


def test_few_clusters_of_any_prompts_that_were_read_are_told_without_being_asked(record, capsys):
    other = {"name": "sula", "n": 8, "clusters": {"n": 8, "caution": ""}}
    for clusters, others in (
        ({"caution": "few"}, [other]),
        ({"caution": ""}, [other, {"name": "mine", "clusters": {"caution": "few"}}]),
    ):
        print_record(replace(record, prompts={"name": "mine", "n": 288, "clusters": clusters, "others": others}))
        assert capsys.readouterr().out.splitlines().count("  “mine”: few") == 1
    print_record(replace(record, prompts={"n": 288, "clusters": {"caution": ""}, "others": [other]}))
    assert "few" not in capsys.readouterr().out


def test_fields_and_sizes_are_explained(capsys):
    print_fields("probe", "manifold")
    printed = capsys.readouterr().out
    assert "`scaling`: columns centred" in printed and "centred, zscored" in printed
    assert re.search(r"^entropy_correlation +yes +1 +Rank correlation of the first principal", printed, re.MULTILINE)
    assert re.search(r"^axis_stability +1 +Mean", printed, re.MULTILINE), "a number that is no headline"
    assert "PREFIX" not in printed and "A run fills in the words in capitals." in printed
    print_models()
    rows = {line.split()[0]: line for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert " 405M " in rows["pythia-410m"] and re.search(r" 2\.7\dB ", rows["phi-2"])


def test_only_headline_numbers_that_have_a_reference_are_held_against_it(capsys):
    words = {"probe": ["toy"] * 3, "name": ["head", "reference", "further"], "group": ["b", "a", "b"],
             "against": ["a", "", "a"], "verdict": ["moved", "", "moved"], "found": ["Differ", "", ""],
             "note": ["one way only", "", ""]}  # fmt: skip
    numbers = {"value": [2.0] * 3, "difference": [0.5] * 3, "difference_low": [0.1] * 3, "difference_high": [0.9] * 3}
    columns = {name: np.array(column) for name, column in (words | numbers).items()}
    columns["is_headline"] = np.array([True, True, False])
    print_differences(
        Table(columns, dict.fromkeys(words, "label") | dict.fromkeys(numbers, "1") | {"is_headline": "1"})
    )
    said = capsys.readouterr().out
    assert "toy.head" in said and "toy.reference" not in said and "toy.further" not in said
    assert "0.5" in said and "0.1 to 0.9" in said and "Differ: one way only" in said
