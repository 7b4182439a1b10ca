"""The names of data sets that `datasets` loads: `hf:PATH:CONFIG:SPLIT:COLUMN`."""

from dataclasses import dataclass

from interp.errors import PromptError

HUB = "hf:"

FORM = f"The form is {HUB}PATH:CONFIG:SPLIT:COLUMN; parts at the end can go, others be empty ({HUB}folder::train:text)."


@dataclass(frozen=True)
class HubName:
    """The parts of `hf:PATH:CONFIG:SPLIT:COLUMN`; an empty part is None, and then there should be one choice only."""

    path: str
    config: str | None = None
    split: str | None = None
    column: str | None = None

    @classmethod
    def parse(cls, name: str) -> "HubName":
        """The parts of a name that starts with `hf:`; `PromptError` for more than four, or without a path."""
        path, *others = name.removeprefix(HUB).split(":")
        if not path or len(others) > 3:
            found = f"it has {len(others) + 1} parts" if path else "it names no data set"
            raise PromptError(asked=f"the prompts {name!r}", found=found, fix=FORM)
        return cls(path, *(part or None for part in others))

    def __str__(self) -> str:
        return HUB + ":".join(part or "" for part in (self.path, self.config, self.split, self.column)).rstrip(":")

    def refused(self, found: str, fix: str) -> PromptError:
        """An error about this data set; a fix that speaks of the parts of the name shows them."""
        return PromptError(asked=f"the prompts {self}", found=found, fix=f"{fix} {FORM}" if " part" in fix else fix)
