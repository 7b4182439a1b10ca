"""The contract of a study: a question that takes models of its own, trained or compared, and not one run of one model.

A study is a frozen dataclass in a package of its own, found by name through the entry points `interp.studies`. It
leaves a record and a page like a run's.
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
    """One question with its own models."""

    @abstractmethod
    def measure(self, work: Path, progress: Report) -> Findings:
        """The findings. Unfinished work may be kept in the folder `work`, where a repeated call finds it again."""

    @property
    def spec(self) -> dict[str, Any]:
        """What was asked, as it is recorded."""
        return json.loads(json.dumps({"study": self.name, "parameters": self.parameters()}))

    @property
    def hash(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of what was asked."""
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
