"""The study `comparison`: several runs on one page, number by number and layer by layer.

Runs that are repetitions of one thing (wind tunnels that differ in their seed alone, or runs that are named as one
group) are pooled: mean and t interval over them. It describes: where runs differ in more than one thing, it says so.
"""

import math
import shlex
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from interp.findings import ALPHA, Findings, Null, Scalar
from interp.formatting import short, with_unit
from interp.probe import Figure, Sentences
from interp.records.answers import numbers_of
from interp.statistics.exact_sign_flips import smallest_p
from interp.statistics.intervals import count_band
from interp.study import Study
from interp.system.progress import Report
from interp.table import LABEL, Table

from ..page import about
from .names import label_of
from .runs import TUNNEL, Compared, open_compared
from .tables import (
    MIN_MODELS,
    curves_table,
    differences_table,
    models_table,
    n_models,
    numbers_table,
    sets_table,
    settings_table,
)

JUDGED = ("moved", "within")
N_NAMED = 3
"""Numbers that the answer names."""


@dataclass(frozen=True)
class Comparison(Study):
    """`runs` are folders of records, `labels` what they are called (the models' names, or the folders').

    `groups` names for each run what it is a repetition of, `against` the group that its own is compared with; without
    them wind tunnels that differ in their seed alone are pooled, and everything is compared with the first.
    """

    runs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    against: tuple[str, ...] = ()

    name: ClassVar[str] = "comparison"
    question: ClassVar[str] = "Which numbers differ between these runs by more than their intervals?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            10, "Do headline numbers differ by more than chance?", ("n_moved",),
            "{value} of {n} tested differ, their 95 % intervals of the difference excluding 0; chance alone would give "
            "about {null}. {fact}",
            "{value} of {n} tested differ, their 95 % intervals of the difference excluding 0, as many as by chance "
            "({null}).",
        ),
    )  # fmt: skip

    def measure(self, work: Path, progress: Report) -> Findings:
        """Opens the records and compares them; there is nothing to keep while it is unfinished."""
        compared = open_compared(self.runs, self.labels, self.groups, self.against, progress)
        differences = differences_table(compared)
        tables = {
            "differences": differences,
            "prompt_sets": sets_table(compared),
            "models": models_table(compared),
            "numbers": numbers_table(compared),
            "curves": curves_table(compared),
            "settings": settings_table(compared),
            "runs": _runs(compared),
        }
        return Findings(
            probe=self.name,
            scalars={"n_moved": n_moved(differences)},
            tables={name: table for name, table in tables.items() if table.n_rows},
            notes=tuple(_notes(compared, differences)),
            headline=("n_moved",),
            facts={"n_moved": clearest(differences)},
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        from .figures import comparison_figures

        return comparison_figures(findings)

    @property
    def command(self) -> str:
        """`interp compare`, which does the same."""
        words = ["interp", "compare", *self.runs]
        for option, given in (("--label", self.labels), ("--group", self.groups), ("--against", self.against)):
            words += [word for each in given for word in (option, each)]
        return shlex.join(words)


def n_moved(differences: Table) -> Scalar:
    """How many headline differences leave out 0, beside how many 95 % intervals do by chance."""
    judged = differences.where(differences["is_headline"] & np.isin(differences["verdict"], JUDGED))
    n = judged.n_rows
    low, high = count_band(n, ALPHA) if n else (math.nan, math.nan)
    null = Null("by chance alone, were the numbers independent", ALPHA * n, (low, high))
    return Scalar.of(
        np.sum(judged["verdict"] == "moved"), "numbers", "a count of intervals",
        null if n else "no difference of headline numbers has an interval", n=n, n_unit="difference",
        meaning="headline numbers whose difference from the reference has an interval that excludes 0",
    )  # fmt: skip


def _runs(compared: Compared) -> Table:
    """What every run read, and whether its weights are rounded."""
    rows = (
        {"run": run.label, "read": about.briefly(run.record), "quantised": about.quantised(run.record)}
        for run in compared.runs
    )
    return Table.from_rows(rows, {"run": LABEL, "read": LABEL, "quantised": LABEL}, "Model and prompts of every run.")


def clearest(differences: Table) -> str:
    """`Clearest: slope, 0.2 in b and 0.7 in a; ...`: the largest differences for their intervals.

    Of numbers that answer a probe's question, else of all; those inside their own null only where no other differs.
    """
    headline = differences.where(differences["is_headline"])
    moved = np.flatnonzero(headline["verdict"] == "moved")
    if not len(moved):
        return ""
    outside = ~((headline["null_low"] <= headline["value"]) & (headline["value"] <= headline["null_high"]))
    answering = {probe: numbers_of(probe) for probe in dict.fromkeys(headline["probe"].tolist())}
    answers = [name in answering[probe] for probe, name in zip(headline["probe"], headline["name"], strict=True)]
    for preferred in (outside, np.array(answers)):
        moved = moved[preferred[moved]] if preferred[moved].any() else moved
    difference = headline["difference"][moved]
    near = np.where(difference > 0, headline["difference_low"][moved], headline["difference_high"][moved])
    with np.errstate(divide="ignore"):
        order = np.argsort(-np.abs(difference / (difference - near)), kind="stable")
    said: dict[str, str] = {}
    for i in moved[order].tolist():
        value, other = headline["value"][i], headline["value"][i] - headline["difference"][i]
        unit, group, against = (str(headline[column][i]) for column in ("unit", "group", "against"))
        name = label_of(headline, i)
        said.setdefault(name, f"{name}, {with_unit(short(value), unit)} in {group} and {short(other)} in {against}")
    return f"Clearest: {'; '.join(list(said.values())[:N_NAMED])}."


def _notes(compared: Compared, differences: Table) -> list[str]:
    notes = []
    if compared.is_pooled:
        counts = Counter(run.group for run in compared.runs)
        notes.append(
            f"Repetitions are pooled: {', '.join(f'{group} ({n})' for group, n in counts.items())}. Values are means "
            "over them with 95 % t intervals; differences have Welch's t interval. With two or three runs per group "
            "these are wide, so real differences can be missed."
        )
    else:
        notes.append(
            "The interval of a difference is computed from both intervals (symmetric ones: half-widths in quadrature) "
            "as if the runs were independent. On the same prompts it is usually too wide."
        )
    for group, runs in compared.over_sets.items():
        few = "two are too few for an interval over sets" if len(runs) == 2 else "with a t interval over sets"
        notes.append(f"{group} was measured on {len(runs)} sets of prompts (table prompt_sets): {few}.")
    notes.append(_over_models(n_models(compared.runs)))
    varies = [path.removeprefix("model.").removeprefix("spec.") for path in compared.what_varies()]
    are_sets = len(compared.over_sets) == len(compared.groups)
    things = [path for path in varies if path not in ("card.seed", "card.recipe.seed")]
    things = [path for path in things if not (are_sets and path.startswith(("prompts", "splits")))]
    if len(things) > 1:
        named = ", ".join(things[:12]) + (f" and {len(things) - 12} more" if len(things) > 12 else "")
        notes.append(
            f"These runs differ in several settings ({named}); see the table settings. A difference between two runs "
            "can be attributed to a setting only if no other setting differs between them."
        )
    sizes = {run.record.prompts.get("n") for run in compared.runs}
    if len(sizes) > 1:
        notes.append("The runs have different numbers of prompts: spectral shares and ratios are not comparable.")
    counted = dict.fromkeys(by for run in compared.runs if (by := (run.record.prompts.get("clusters") or {}).get("by")))
    if len(counted) > 1:
        notes.append(
            f"The runs resample different clusters ({'; '.join(counted)}). Their intervals and p may differ for this "
            "reason alone."
        )
    chance = _with_their_nulls(differences)
    if chance:
        notes.append(
            f"Differences whose null differs too (by at least half as much): {', '.join(chance)}. Sizes alone, such as "
            "the dimension of a head, can cause this: compare each value with its own null."
        )
    common = set.intersection(*(set(run.scalars) for run in compared.runs))
    short = [name for probe, name in compared.headline if probe != TUNNEL and (probe, name) not in common]
    if short:
        notes.append(f"Not every run has {', '.join(short)}.")
    n_judged = int(np.isin(differences["verdict"], JUDGED).sum())
    if n_judged:
        notes.append(
            f"{n_judged} differences have an interval, headlines and others; by chance alone about "
            f"{math.ceil(0.05 * n_judged)} of these intervals exclude 0."
        )
    return notes


def _over_models(n: int) -> str:
    if n < MIN_MODELS:
        counted = "Two models" if n == 2 else "One model"
        return (
            f"{counted}: no number has a p over models, because two are on the same side of the null half of the time "
            f"by chance. Compare {MIN_MODELS} or more, and six or more for a p of 0.05."
        )
    can = "can" if smallest_p(n) <= ALPHA else "cannot"
    return (
        f"The table models compares every number of {n} models with its null; the unit is the model. The smallest "
        f"possible p is {smallest_p(n):.2g}, so it {can} reach {ALPHA}. Models that share data or architecture are not "
        "independent."
    )


def _with_their_nulls(differences: Table) -> list[str]:
    """The headline differences that moved where the null went along."""
    moved = differences.where(differences["is_headline"] & (differences["verdict"] == "moved"))
    found = []
    for i in range(moved.n_rows):
        reference = differences.where(
            (differences["group"] == moved["against"][i])
            & (differences["probe"] == moved["probe"][i])
            & (differences["name"] == moved["name"][i])
        )
        along = (moved["null"][i] - reference["null"][0]) / moved["difference"][i]
        if along >= 0.5:
            found.append(f"{moved['name'][i]} ({moved['group'][i]})")
    return found
