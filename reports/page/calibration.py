"""What the same probes give on two known models, shown beside every number: a user's model stands between them.

The first is the shipped wind tunnel, whose exact posterior is known; the second a language model. `calibration.json`
holds every headline number of a run on each with its interval and its null, and what the runs were. How it is made is
told in `examples/README.md`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from interp.findings import Scalar
from interp.formatting import last_part
from interp.records.record import RunRecord
from interp.records.versioned_json import scalar_in

PATH = Path(__file__).parent.parent / "calibration.json"

TRUTHS: Mapping[str, tuple[float, str]] = {
    "components.posterior_kl": (0.0, "the ideal observer"),
    "sula.skill": (1.0, "Bayes"),
    "sula.kl_skill": (1.0, "Bayes"),
    "sula.outcome_mass": (1.0, "only outcomes can follow"),
    "depth_use.copies_gain": (0.0, "a copied observation adds no evidence"),
}
"""What a reader who answers with the exact posterior would give, by headline number of the task bijection."""


@dataclass(frozen=True)
class Calibration:
    """One model's headline numbers by `probe.name`, and what the run was."""

    model: str
    made: Mapping[str, Any]
    numbers: Mapping[str, Scalar]

    @property
    def name(self) -> str:
        """How the page names the model: `tunnel:bijection-gpt-neox`, `smollm2-135m-instruct`."""
        return last_part(self.model)

    def is_of(self, record: RunRecord) -> bool:
        """Whether a record is of the very weights."""
        return record.model.get("fingerprint") == self.made["fingerprint"]


@cache
def calibrations() -> tuple[Calibration, Calibration]:
    """The tunnel and the language model; the data file, read once."""
    tunnel, language_model = (
        Calibration(each["model"], each["made"], {name: scalar_in(kept) for name, kept in each["numbers"].items()})
        for each in json.loads(PATH.read_text(encoding="utf-8"))
    )
    return tunnel, language_model


def the_tunnel() -> Calibration:
    """The shipped wind tunnel, the one of the two whose truth is known."""
    return calibrations()[0]
