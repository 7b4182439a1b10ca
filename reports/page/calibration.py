"""What the same probes give on two known models, shown beside every number: a user's model stands between them.

The first is the shipped wind tunnel, whose exact posterior is known; the second a language model. `calibration.json` is
made from a run on each:

    interp run --probe attention_entropy,components,manifold,orthogonality,qk_alignment,value_axis,belief,sula,heads,\
depth_use,causal --draw 0
    interp run --model smollm2-135m --probe everything
    python -m interp.reports.page.calibration RUN RUN

It holds every headline number with its interval, its null and, where the task fixes it, the truth; and what the runs
were.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from interp.findings import Scalar
from interp.formatting import last_part
from interp.records.record import RunRecord, open_run
from interp.records.versioned_json import plain_json, scalar_in

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


def distilled(record: RunRecord) -> dict[str, Any]:
    """A record as the data file keeps it."""
    numbers = {
        f"{probe}.{name}": plain_json(asdict(findings.scalars[name]))
        for probe, findings in record.findings.items()
        for name in findings.headline
    }
    return {
        "model": record.model["name"],
        "made": {
            "spec_hash": record.spec_hash,
            "version": record.environment["packages"]["interp"],
            "fingerprint": record.model["fingerprint"],
            "command": record.spec.get("command"),
            "created": record.created,
        },
        "numbers": numbers,
    }


@cache
def calibrations() -> tuple[Calibration, Calibration]:
    """The tunnel and the language model; the data file, read once."""
    tunnel, language_model = map(_calibration, json.loads(PATH.read_text(encoding="utf-8")))
    return tunnel, language_model


def _calibration(content: Mapping[str, Any]) -> Calibration:
    numbers = {name: scalar_in(kept) for name, kept in content["numbers"].items()}
    return Calibration(content["model"], content["made"], numbers)


def the_tunnel() -> Calibration:
    """The shipped wind tunnel, the one of the two whose truth is known."""
    return calibrations()[0]


def main(*folders: str) -> None:
    """Write the data file from the records in `folders`: the tunnel's, then the language model's."""
    text = json.dumps([distilled(open_run(f)) for f in folders], indent=1, ensure_ascii=False, allow_nan=False)
    PATH.write_text(text + "\n", encoding="utf-8")
    print(PATH)


if __name__ == "__main__":
    main(*sys.argv[1:])
