"""The study `comparison`: several runs on one page, number by number and layer by layer.

Repetitions (wind tunnels that differ only in their seed, or runs of one group) are pooled: mean and t interval.
"""

import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np

from interp.findings import Findings, Null, Scalar
from interp.probe import Figure, Sentences
from interp.study import Study
from interp.system.progress import Report
from interp.table import LABEL, Table

from ..page.sections import COUNTED, KEY, REFERENCE
from .lead import Found, comparable, findings_of, goes_with_null, in_words
from .runs import Compared, open_compared
from .tables import tables


@dataclass(frozen=True)
class Comparison(Study):
    """`runs` are folders of records, `labels` their names (by default those of the models, or folders).

    `groups` has for each run its group of repetitions, `against` the group to compare with. By default wind tunnels
    that differ only in their seed are pooled, and all groups are compared with the first.
    """

    runs: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    against: tuple[str, ...] = ()

    name: ClassVar[str] = "comparison"
    question: ClassVar[str] = "Which numbers differ between these runs by more than their intervals?"
    sentences: ClassVar[tuple[Sentences, ...]] = (
        Sentences(
            10, "Do any of their numbers differ by more than chance?", ("n_moved",),
            "{fact}",
            "{fact}",
            limit="Corrected for their number: if two runs did not differ, 95 % of such pages would find nothing. "
            "Anything in which the runs differ, such as the size of a model or the prompts, may be the cause.",
        ),
    )  # fmt: skip

    def measure(self, work: Path, progress: Report) -> Findings:
        """Open and compare the records; nothing is kept in `work`."""
        compared = open_compared(self.runs, self.labels, self.groups, self.against, progress)
        found = tables(compared)
        groups = comparable(compared, found)
        shown = findings_of(compared, found, groups)
        for i, column in enumerate(("found", "note")):
            said = np.array([each[i] for each in shown], dtype=str)
            found["differences"] = found["differences"].with_column(column, said, LABEL)
        moved = n_moved(shown)
        return Findings(
            probe=self.name,
            scalars={"n_moved": moved},
            tables={name: table for name, table in found.items() if table.n_rows},
            notes=tuple(_notes(compared, found["differences"], groups)),
            headline=("n_moved",),
            facts={"n_moved": in_words(found, groups, shown)},
        )

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        from .figures import comparison_figures

        return comparison_figures(findings)

    @property
    def command(self) -> str:
        """The same by `interp compare`."""
        words = ["interp", "compare", *self.runs]
        for option, given in (("--label", self.labels), ("--group", self.groups), ("--against", self.against)):
            words += [word for each in given for word in (option, each)]
        return shlex.join(words)


def n_moved(found: Found) -> Scalar:
    n = sum(bool(kind) for kind, _ in found)
    null = Null("what two runs that do not differ give in 95 % of comparisons", 0.0, (0.0, 0.0))
    n_clear = sum(kind in COUNTED for kind, _ in found)
    return Scalar.of(
        float(n_clear), "measurement that differs" if n_clear == 1 else "measurements that differ", "a count",
        null if n else "no headline number can be tested: each is underpowered, of one fitted axis, of another "
        "target or without interval",
        n=n, n_unit="compared measurement",
        meaning="measurements that differ from the reference (on the same prompts, if there is one) after correction "
        "for the number of differences; one that is measured in several ways counts if all of them find it",
    )  # fmt: skip


def _notes(compared: Compared, differences: Table, groups: Sequence[str]) -> list[str]:
    apart = [group for group, against in compared.against.items() if against and group not in groups]
    notes = [f"Not compared in the answer, as they read other prompts: {', '.join(apart)}."] * bool(apart)
    counts = Counter(run.group for run in compared.runs)
    if len(counts) < len(compared.runs):
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
    varies = [path.removeprefix("model.").removeprefix("spec.") for path in compared.what_varies()]
    things = [path for path in varies if path not in ("card.seed", "card.recipe.seed")]
    if len(things) > 1:
        named = ", ".join(things[:12]) + (f" and {len(things) - 12} more" if len(things) > 12 else "")
        notes.append(
            f"These runs differ in several settings ({named}); see the table settings. A difference between two runs "
            "can be attributed to a setting only if no other setting differs between them."
        )
    if len({run.record.prompts.get("n") for run in compared.runs}) > 1:
        notes.append("The runs have different numbers of prompts: spectral shares and ratios are not comparable.")
    counted = dict.fromkeys(by for run in compared.runs if (by := (run.record.prompts.get("clusters") or {}).get("by")))
    if len(counted) > 1:
        notes.append(
            f"The runs resample different clusters ({'; '.join(counted)}). Their intervals and p may differ for this "
            "reason alone."
        )
    if chance := _with_their_nulls(differences):
        notes.append(
            f"Differences whose null differs too (by at least half as much): {', '.join(chance)}. Sizes alone, such as "
            "the dimension of a head, can cause this: compare each value with its own null."
        )
    return notes


def _with_their_nulls(differences: Table) -> list[str]:
    """The headline differences that moved together with their null."""
    rows = {KEY(row): row for row in differences.rows()}
    return [
        f"{row['name']} ({row['group']})" for row in rows.values()
        if row["is_headline"] and row["verdict"] == "moved"
        and goes_with_null(row, rows[REFERENCE(row)])
    ]  # fmt: skip
