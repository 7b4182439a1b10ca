"""The schema of a file of claims (TOML): a paper, sources of evidence, and claims with rules.

A source is a run of probes or a study, with settings for every scale; claims share sources, and each is done once.
Files are found through the entry points `interp.claims` (`paper1 = "interp.reports.claims:PAPER1"`, a path).
"""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, field_validator, model_validator

from interp.errors import UsageError
from interp.ledger.rules import Rule
from interp.records.versioned_json import Strict
from interp.registry import load_entry
from interp.system.foreign_files import read_toml, readable

Scale = Literal["tiny", "smoke", "default", "paper"]
SCALES: tuple[Scale, ...] = get_args(Scale)

_NAMED = re.compile(r"\{(\w+)\}(?:/(\S+))?")


class PaperValue(Strict):
    """A number (or words) of the paper, with its model and place in the paper."""

    value: float | str
    unit: str = ""
    model: str = ""
    where: str = ""


class Place(Strict):
    """The place of a number: a scalar of a probe or study, or a cell of one of its tables.

    Of a table, `where` picks the row by the values of other columns (a negative number of a column of numbers counts
    from its largest: layer −1 is the last) and `field` names the column; interval, null and p are the columns of that
    name with `_low`, `_high`, `_null`, `_null_low`, `_null_high`, `_p` behind it (or `p`).
    """

    source: str
    of: str
    field: str
    table: str = ""
    where: dict[str, str | int | float] = Field(default={})

    @property
    def place(self) -> dict[str, Any]:
        """The fields of the place alone."""
        return {name: getattr(self, name) for name in Place.model_fields}


class Reference(Place):
    """A number that a claim reads; of a cell with its unit."""

    unit: str = ""


class ClaimPart(Strict):
    """One number of a claim with its rule, or several numbers that a rule compares; without a rule it is only shown.

    `beside` are further numbers of the same model, `models` those models whose numbers are compared, in this order;
    `only` limits the part to these models, and `rules` has other rules for some models.
    """

    label: str
    read: Reference
    rule: Rule | None = None
    rules: dict[str, Rule] = Field(default={})
    beside: list[Reference] = Field(default=[])
    models: list[str] = Field(default=[])
    only: list[str] = Field(default=[])

    @property
    def reads(self) -> tuple[Reference, ...]:
        return (self.read, *self.beside)


class Premise(Strict):
    """What has to hold before a claim can be tested; `otherwise` is the reason if it does not."""

    read: Reference
    rule: Rule
    otherwise: str


class Revision(Strict):
    """A later rule of a claim: `judges` names the parts that still decide, beside the further parts.

    A `premise` replaces the claim's own. The outcome by the first rule is shown beside the new one, with `why` the rule
    changed.
    """

    since: date
    why: str
    judges: list[str] = Field(default=[])
    parts: list[ClaimPart] = Field(default=[], alias="part")
    premise: Premise | None = None


class ClaimWords(Strict):
    """The text of a claim, in its file and in a ledger. `here` says how our models differ from the paper's.

    Claims beyond the list of fifty are counted separately. `is_small` marks a claim whose outcome holds only at the
    size of our models.
    """

    number: int
    title: str
    says: str
    paper: list[PaperValue] = Field(default=[])
    measure: str = ""
    here: str = ""
    is_beyond: bool = Field(default_factory=lambda known: known.get("number", 0) > 50)
    is_small: bool = False


class Claim(ClaimWords):
    """One row of the ledger; `tiny` tests it at that scale too.

    `since` is the date of a claim that was added after the first ledger. A claim that cannot be measured has a
    `reason`, and may have parts without a rule.
    """

    parts: list[ClaimPart] = Field(default=[], alias="part")
    premise: Premise | None = None
    reason: str = ""
    tiny: bool = False
    since: date | None = None
    revision: Revision | None = None

    @property
    def is_later(self) -> bool:
        """Whether the claim or its present rule is newer than the first ledger."""
        return self.since is not None or self.revision is not None

    @property
    def revised(self) -> "Claim":
        """The claim by its latest rule."""
        if self.revision is None:
            return self
        deciding = self.revision.judges
        old = [p if p.label in deciding else p.model_copy(update={"rule": None, "rules": {}}) for p in self.parts]
        parts = {"parts": [*old, *self.revision.parts], "premise": self.revision.premise or self.premise}
        return self.model_copy(update=parts)

    def reads(self) -> Iterator[Reference]:
        """Every number that is read for it."""
        for premise in (self.premise, self.revision.premise if self.revision else None):
            if premise:
                yield premise.read
        for part in (*self.parts, *(self.revision.parts if self.revision else ())):
            yield from part.reads

    @model_validator(mode="after")
    def _is_answered(self) -> "Claim":
        if not self.parts and not self.reason:
            raise ValueError(f"claim {self.number} has neither a part nor a reason why it cannot be measured")
        return self


class ScaleChange(Strict):
    """The changes of a source at a scale; `probes` replace the source's own."""

    settings: dict[str, Any] = Field(default={})
    options: dict[str, Any] = Field(default={})
    probes: list[str] = Field(default=[])


class EvidenceSource(Strict):
    """Where evidence comes from: a run of `probes` on a model, or a study.

    `model` of a run may name another source's work, `{primitives}/hmm-lstm-seed1`; by default it is each model of the
    call. `only` limits it to these models. `settings` are those of the probes, `{probe: {field: value}}`, or of the
    study, whose texts may name other work too; `options` are further keywords of `interp.run`. `scales` has the changes
    at each scale; `default` and `paper` are always done, others if named. `absent` is the reason for a missing number.
    """

    name: str
    title: str
    model: str = ""
    only: list[str] = Field(default=[])
    probes: list[str] = Field(default=[])
    study: str = ""
    settings: dict[str, Any] = Field(default={})
    options: dict[str, Any] = Field(default={})
    scales: dict[Scale, ScaleChange] = Field(default={}, validate_default=True)
    absent: str = ""

    @field_validator("scales")
    @classmethod
    def _with_usual(cls, scales: dict[Scale, ScaleChange]) -> dict[Scale, ScaleChange]:
        return {"default": ScaleChange(), "paper": ScaleChange(), **scales}

    @model_validator(mode="after")
    def _is_whole(self) -> "EvidenceSource":
        if bool(self.probes) == bool(self.study) or (self.study and (self.model or self.options)):
            raise ValueError(f"{self.name!r} has to name probes, or a study without model and options")
        return self

    @property
    def kind(self) -> Literal["run", "study"]:
        return "study" if self.study else "run"

    @property
    def of_each_model(self) -> bool:
        """Whether it is done for each model of the call."""
        return self.kind == "run" and not self.model


def builds_on(source: EvidenceSource) -> dict[str, str]:
    """The sources whose work this one names, in the model or in a study's settings: a pattern of networks for each."""
    texts = [source.model, *(v for v in source.settings.values() if isinstance(v, str))]
    return {name: pattern or "*" for text in texts for name, pattern in _NAMED.findall(text)}


class Claims(Strict):
    """A paper's claims and their sources."""

    format: Literal[1]
    paper: str
    title: str
    citation: str
    of_models: bool = False
    note: str = ""
    source: list[EvidenceSource] = Field(default=[])
    claim: list[Claim]

    @model_validator(mode="after")
    def _fits(self) -> "Claims":
        names = [source.name for source in self.source]
        numbers = [str(claim.number) for claim in self.claim]
        for what, listed in (("source", names), ("claim", numbers)):
            twice = [x for x in listed if listed.count(x) > 1]
            if twice:
                raise ValueError(f"there are two of the {what} {twice[0]}")
        for claim in self.claim:
            for read in claim.reads():
                if read.source not in names:
                    raise ValueError(f"claim {claim.number} names the source {read.source!r}, which is not there")
        return self

    def first(self) -> "Claims":
        """The claims of the first ledger, with their first rules."""
        return self.model_copy(update={"claim": [claim for claim in self.claim if claim.since is None]})

    def later(self) -> "Claims":
        """The claims that are newer or have a newer rule, with their latest rules."""
        return self.model_copy(update={"claim": [claim.revised for claim in self.claim if claim.is_later]})

    def sources(self) -> dict[str, EvidenceSource]:
        return {source.name: source for source in self.source}

    def is_of_models(self, claim: Claim) -> bool:
        """Whether a claim is about the models of the call; one that reads only studies is about their networks."""
        of_each = {source.name for source in self.source if source.of_each_model}
        return self.of_models and (not claim.parts or any(read.source in of_each for read in claim.reads()))


def load_claims(paper: str) -> Claims:
    """The claims of a paper by its registered name."""
    return read_claims(Path(load_entry("claims", paper)))


def read_claims(path: Path) -> Claims:
    """The claims of a file; `UsageError` if it is not TOML or does not fit."""
    asked, fix = f"the claims in {path.name}", "Mend the file; `interp/ledger/claims.py` says what it may hold."
    with readable(asked, fix, error=UsageError):
        return Claims.model_validate(read_toml(path))
