"""What the same probes give on the shipped wind tunnel, where the exact posterior is known: shown beside every number.

`calibration.json` is made from one run on the shipped tunnel:

    interp run --probe attention_entropy,components,manifold,orthogonality,qk_alignment,value_axis,belief,sula,heads,\
depth_use,causal --draw 0
    python -m interp.reports.page.calibration RUN

It holds every headline number with its interval, its null and, where the task fixes it, the truth; the courses over
depth that the figure "binding, elimination, refinement" draws; and what the run was.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from interp.findings import Scalar
from interp.records.record import RunRecord, open_run
from interp.records.versioned_json import plain_json, scalar_in
from interp.table import Table

PATH = Path(__file__).parent.parent / "calibration.json"

TRUTHS: Mapping[str, tuple[float, str]] = {
    "components.posterior_kl": (0.0, "the ideal observer's own prediction"),
    "sula.skill": (1.0, "Bayes"),
    "sula.kl_skill": (1.0, "Bayes"),
    "sula.outcome_mass": (1.0, "all that can follow is an outcome"),
    "depth_use.copies_gain": (0.0, "a copy of an observation is no new evidence"),
}
"""What a reader who answers with the exact posterior would give, by headline number of the task bijection."""


@dataclass(frozen=True)
class Calibrated:
    """A headline number on the shipped tunnel, and the truth there with what it is the truth of; NaN without one."""

    scalar: Scalar
    truth: float
    truth_words: str

    @property
    def has_truth(self) -> bool:
        return not np.isnan(self.truth)


@dataclass(frozen=True)
class Calibration:
    """The shipped tunnel's numbers by `probe.name`, its courses over depth, and what the run was."""

    model: str
    made: Mapping[str, Any]
    numbers: Mapping[str, Calibrated]
    courses: Table


def distilled(record: RunRecord) -> dict[str, Any]:
    """A record of the shipped tunnel as the data file keeps it."""
    from .story import COURSES_UNITS, courses

    table = courses(record)
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
        "courses": {name: _plain(table[name]) for name in COURSES_UNITS} if table else {},
    }


def _plain(column: np.ndarray) -> list[Any]:
    return [None if isinstance(x, float) and not np.isfinite(x) else x for x in column.tolist()]


@cache
def calibration(path: Path = PATH) -> Calibration:
    """The data file, read once."""
    from .story import COURSES_UNITS

    content = json.loads(path.read_text(encoding="utf-8"))
    numbers = {}
    for name, kept in content["numbers"].items():
        truth, words = TRUTHS.get(name, (np.nan, ""))
        numbers[name] = Calibrated(scalar_in(kept), truth, words)
    columns = {
        name: np.array([np.nan if x is None else x for x in values]) for name, values in content["courses"].items()
    }
    return Calibration(content["model"], content["made"], numbers, Table(columns, dict(COURSES_UNITS)))


def is_the_tunnel(record: RunRecord) -> bool:
    """Whether a record is of the very weights that calibrate."""
    return record.model.get("fingerprint") == calibration().made["fingerprint"]


def main(folder: str) -> None:
    """Write the data file from the record in `folder`."""
    text = json.dumps(distilled(open_run(folder)), indent=1, ensure_ascii=False, allow_nan=False)
    PATH.write_text(text + "\n", encoding="utf-8")
    print(PATH)


if __name__ == "__main__":
    main(sys.argv[1])
