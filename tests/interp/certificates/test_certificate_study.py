"""A certificate from the command to its record and page, of a shipped probe and of one that nobody registered."""

import json
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar

import numpy as np
import pytest

import interp
from interp.certificates.simulations import Trials, trials_of
from interp.certificates.study import Certificate
from interp.certificates.text_simulations import TEXTS, draw, effects
from interp.errors import InterpError, UnknownName, UsageError
from interp.findings import Findings, Interval, Null, Scalar
from interp.need import Need
from interp.probe import Probe
from interp.registry import entries, load_entry


@dataclass(frozen=True)
class FirstCoordinates(Probe):
    """How the length of the last values follows the entropy. With `is_sloppy` its p is ten times too small."""

    n_permutations: int = 199
    is_sloppy: bool = False
    seed: int = 0

    name: ClassVar[str] = "first_coordinates"
    question: ClassVar[str] = "Do lengths of values follow the entropy?"

    @property
    def needs(self):
        return (Need("v"),)

    def analyse(self, base, under):
        rows, entropy = base[Need("v")][-1], base.rows["next_entropy_bits"]
        x = np.abs(rows).reshape(len(rows), -1).sum(axis=1)
        rng = np.random.default_rng(self.seed)
        exchanged = rng.permuted(np.tile(entropy, (self.n_permutations, 1)), axis=1)
        r, *null = np.corrcoef(x, np.vstack([entropy, exchanged]))[0, 1:]
        p = (1 + np.sum(np.abs(null) >= abs(r))) / (1 + self.n_permutations)
        low, high = np.quantile(null, [0.025, 0.975])
        scalar = Scalar.of(
            r, "1", Interval(r - 0.01, r + 0.01, "far too narrow"), Null("permuted", 0.0, (float(low), float(high))),
            p=min(1.0, p / 10) if self.is_sloppy else p,
        )  # fmt: skip
        count = Scalar.of(len(rows), "rows", "a count", "a count")
        return Findings(self.name, {"follows": scalar, "n": count}, headline=("follows", "n"))


HERE = f"{__name__}:FirstCoordinates"


def row_of(record, number="follows"):
    table = record.findings["certificate"].tables["headlines"]
    return table.to_frame().set_index("number").loc[number]


def test_a_probe_that_nobody_registered_is_certified_by_where_it_lies(tmp_path):
    record = interp.certify(HERE, scale="smoke", out=tmp_path)
    certified = record.spec["certified"]
    assert certified["name"] == "first_coordinates" and certified["class"] == HERE and len(certified["code"]) == 16
    assert certified["parameters"] == FirstCoordinates().parameters() and certified["tried_with"] == {
        "n_permutations": [99]
    }
    row = row_of(record)
    assert row["n_judged"] == row["n_null"] == 5 * len(TEXTS)
    assert row["power_3"] > 0.5 and row["n_planted"] == len(TEXTS)
    assert row["n_worst"] == 0, "of one kind there are too few simulations for a rate of its own"
    assert row["word"] in ("holds", "liberal") and row["called"] < 0.3
    assert row_of(record, "n")["word"] == "no p" and "no null" in row_of(record, "n")["why"]
    page = (record.path / "report.html").read_text()
    assert "<script" not in page and certified["code"] in page and "Certificate of first coordinates" in page
    assert interp.open_run(record.path).findings["certificate"]["follows"].value == row["called"]
    assert not (tmp_path / ".partial").exists(), "nothing is unfinished"


def test_the_page_of_a_certificate_without_any_p_counts_no_simulations(tmp_path, monkeypatch):
    whole = FirstCoordinates.analyse

    def without_p(self, *given):
        found = whole(self, *given)
        return replace(found, scalars={name: replace(s, p=None) for name, s in found.scalars.items()})

    monkeypatch.setattr(FirstCoordinates, "analyse", without_p)
    record = interp.certify(HERE, scale="smoke", out=tmp_path)
    assert row_of(record)["word"] == "no p" and row_of(record)["n_null"] == 0
    page = record.page.read_text()
    assert "none of its numbers is tested in simulations" in page
    assert "0 simulations" not in page and "By kind of simulation" not in page


def test_what_is_certified_is_what_the_settings_say_and_a_small_p_is_liberal():
    plain, other = Certificate(HERE), Certificate(HERE, ("is_sloppy=true",))
    assert plain.hash != other.hash and other.certified == FirstCoordinates(is_sloppy=True)
    assert other.command == f"interp certify {HERE} --set is_sloppy=true"
    assert Certificate(HERE, scale="smoke", seed=3).command.endswith("--scale smoke --seed 3")
    assert Certificate(HERE, seed=1).hash != plain.hash
    sloppy = interp.certify(FirstCoordinates(is_sloppy=True), scale="smoke", out=None)
    assert row_of(sloppy)["word"] == "liberal" and row_of(sloppy)["called"] > 0.2
    assert sloppy.spec["parameters"]["settings"] == ["is_sloppy=true"]


@pytest.mark.parametrize("probe, settings, error, words", [
    ("manifodl", {}, UnknownName, "manifold"), ("no_such_module:Probe", {}, InterpError, "no_such_module"),
    (f"{__name__}:NoSuchClass", {}, InterpError, "NoSuchClass"),
    (HERE, {"n_permutations": "many"}, UsageError, "does not fit"),
    (f"{__name__}:Editing", {}, UsageError, r"changes the model.*\n.*interp\.simulations"),
])  # fmt: skip
def test_what_cannot_be_certified_is_refused(probe, settings, error, words):
    with pytest.raises(error, match=words):
        interp.certify(probe, scale="smoke", settings=settings, out=None)


class Editing(FirstCoordinates):
    name: ClassVar[str] = "editing"

    def conditions(self, base):
        return ()


def test_every_shipped_probe_has_simulations_whose_numbers_it_finds():
    assert set(entries("simulations")) == set(entries("probe"))
    for name in entries("simulations"):
        trials = trials_of(name)
        assert isinstance(trials, Trials) and {kind.probe for kind in trials.simulations} == {name}
        assert len(trials.simulations) > 1
        assert len({kind.name for kind in trials.simulations}) == len(trials.simulations)
        planted = [bool(set(kind.null) - set(kind.unplanted)) for kind in trials.simulations]
        counts = [len(kind.effects) for kind in trials.simulations]
        assert all(n == 3 or (n == 0 and not p) for n, p in zip(counts, planted, strict=True)) and any(planted), name
        assert all(kind.n and kind.null for kind in trials.simulations), name
        for kind in trials.simulations:
            assert set(kind.small) <= set(load_entry("probe", name)().parameters()), (name, kind.name)


def test_a_text_holds_what_its_words_say():
    rng = np.random.default_rng(0)
    drawn = draw(TEXTS["token tells 30 % of the entropy, and its spread"], 0.25, 4000, rng, 3, 0.0)
    entropy, token = drawn.columns["next_entropy_bits"], drawn.columns["token"]
    told = np.var([entropy[token == t].mean() for t in token]) / entropy.var()
    assert 0.15 < told < 0.5
    planted = draw(TEXTS["as assumed"], 0.5, 4000, np.random.default_rng(1), 3, 2.0)
    r2 = np.corrcoef(planted.own, planted.columns["next_entropy_bits"])[0, 1] ** 2
    assert effects(0.5)[1] == "R² = 0.50" and r2 == pytest.approx(0.5, abs=0.04)
    null = draw(TEXTS["as assumed"], 0.5, 4000, np.random.default_rng(1), 3, 0.0)
    assert abs(np.corrcoef(null.own, null.columns["next_entropy_bits"])[0, 1]) < 0.05
    fifths = draw(TEXTS["drawn from each fifth of the entropies"], 0.5, 200, np.random.default_rng(1), 3, 0.0)
    of_fifth = [fifths.entropy[fifths.columns["stratum"] == k] for k in range(5)]
    assert [len(each) for each in of_fifth] == [40] * 5 and len(fifths.points) == len(fifths.previous) == 200
    assert all(below.max() <= above.min() for below, above in pairwise(of_fifth))


def test_the_command_prints_a_word_for_each_number_and_the_page(tmp_path, capsys, monkeypatch):
    from interp.cli.app import app

    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine_alone.py").write_text(f"from {__name__} import FirstCoordinates as Mine\n")
    app(
        ["certify", "mine_alone:Mine", "--scale", "smoke", "--out", "kept", "--set", "n_permutations=39"],
        standalone_mode=False,
    )
    said = capsys.readouterr().out
    page = tmp_path / said.strip().splitlines()[-1]
    assert "follows" in said and "no p" in said and "n: it has no null: a count." in said and page.is_file()
    content = json.loads((page.parent / "run.json").read_text())
    assert content["spec"]["certified"]["parameters"]["n_permutations"] == 39
    assert content["spec"]["certified"]["tried_with"] == {}, "what the user set is not shrunk"
