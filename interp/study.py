"""The contract of a study: a question about several models, trained or compared, rather than one run of one model.

A study is a frozen dataclass, found by name through the entry points `interp.studies`; it has a record and a page.
"""

import json
import shlex
from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from interp.findings import Findings
from interp.probe import Question
from interp.settings import write_value
from interp.system.digest import digest_of
from interp.system.progress import Report


@dataclass(frozen=True)
class Study(Question):
    """A question with models of its own."""

    @abstractmethod
    def measure(self, work: Path, progress: Report) -> Findings:
        """The findings. Unfinished work may be kept in the folder `work`, from where a repeated call continues."""

    @property
    def spec(self) -> dict[str, Any]:
        """The recorded specification."""
        return json.loads(json.dumps({"study": self.name, "parameters": self.parameters()}))

    @property
    def hash(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the specification."""
        return digest_of(self.spec)

    @property
    def command(self) -> str:
        """The command that repeats this study."""
        words = ["interp", "study", self.name]
        defaults = type(self)().parameters()
        for name, value in self.parameters().items():
            if value != defaults[name]:
                words += ["--set", f"{name}={write_value(value)}"]
        return shlex.join(words)
