"""What ships with interp and is shown beside the numbers of a run: two known models, and certificates.

`calibration.json` has every headline number of the probes on the shipped wind tunnel and on a language model;
`certificates.json` is made from the records in `examples/certificates`. `examples/README.md` says how. A run with other
code or parameters than a certificate says so.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from interp.findings import Scalar
from interp.formatting import last_part
from interp.records.record import RunRecord
from interp.records.versioned_json import plain_json, scalar_in

CALIBRATION = Path(__file__).parent.parent / "calibration.json"

TRUTHS: Mapping[str, tuple[float, str]] = {
    "components.posterior_kl": (0.0, "the ideal observer"),
    "sula.skill": (1.0, "Bayes"),
    "sula.kl_skill": (1.0, "Bayes"),
    "sula.outcome_mass": (1.0, "only outcomes can follow"),
    "depth_use.copies_gain": (0.0, "a copied observation adds no evidence"),
}
"""The values of exact predictions, by headline number of the task bijection, with words for them."""


@dataclass(frozen=True)
class Calibration:
    """One model's headline numbers by `probe.name`, and facts about the run."""

    model: str
    made: Mapping[str, Any]
    numbers: Mapping[str, Scalar]

    @property
    def name(self) -> str:
        """The model's name on the page: `smollm2-135m-instruct`."""
        return last_part(self.model)

    def is_of(self, record: RunRecord) -> bool:
        """Whether a record is of the same weights."""
        return record.model.get("fingerprint") == self.made["fingerprint"]


@cache
def calibrations() -> tuple[Calibration, Calibration]:
    """The tunnel and the language model."""
    tunnel, language_model = (
        Calibration(each["model"], each["made"], {name: scalar_in(kept) for name, kept in each["numbers"].items()})
        for each in json.loads(CALIBRATION.read_text(encoding="utf-8"))
    )
    return tunnel, language_model


def the_tunnel() -> Calibration:
    """The shipped wind tunnel."""
    return calibrations()[0]


CERTIFICATES = Path(__file__).parent.parent / "certificates.json"
SITE = "https://interp-authors.github.io/interp/certificates/"

_NOT_COMPARED = ("seed",)
"""Parameters that every simulation sets; those that simulations shrink are not compared either."""


@cache
def certificates() -> Mapping[str, Any]:
    """The contents of `certificates.json`, by probe."""
    return json.loads(CERTIFICATES.read_text(encoding="utf-8"))


def certificate_line(probe: str, record: RunRecord, known: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """A sentence on the certificate of a probe, and the address of its page; both empty if there is none."""
    found = (certificates() if known is None else known).get(probe)
    if found is None:
        return "", ""
    numbers = found["numbers"]
    worst = max((x for x in numbers if x["n_worst"]), key=lambda x: x["worst"], default=None)
    said = "Certificate: "
    if worst is None:
        said += "no headline number was tested in enough simulations without an effect"
    else:
        most = _range([worst["worst"]])
        said += f"without an effect, its headline numbers are significant in at most {most} of simulations "
        where = f"{worst['number'].replace('_', ' ')}, {worst['n_worst']} simulations “{worst['worst_world']}”"
        said += f"({where})" if worst["worst"] else f"({worst['n_worst']} of each kind)"
    power = [x["power_1"] for x in numbers if x["power_1"] is not None and math.isfinite(x["power_1"])]
    if power:
        said += f"; power {_range(power)} at the smallest planted effect ({found['effect']}, {found['n']})"
    poor = [f"{x['number'].replace('_', ' ')} is {x['word']}" for x in numbers if x["word"] in _SAID]
    said += "".join(f"; {words}" for words in poor) + "."
    return said + _differences(probe, record, found), f"{SITE}{probe}.html"


_SAID = ("liberal", "without power", "not tested")
"""Verdicts that the line repeats."""


def _differences(probe: str, record: RunRecord, found: Mapping[str, Any]) -> str:
    codes = record.environment.get("probe_code") or {}
    mine = plain_json(dict(record.parameters.get(probe, {})))
    left_out = (*_NOT_COMPARED, *found["tried_with"])
    names = [n for n in {**found["parameters"], **mine} if found["parameters"].get(n) != mine.get(n)]
    other = [name for name in names if name not in left_out]
    said = []
    if probe not in codes:
        said.append("the code of this run is not recorded")
    elif codes[probe] != found["code"]:
        said.append("its code differs from this run's")
    if other:
        said.append(f"it used other values of {', '.join(other)}")
    return f" Caution: {' and '.join(said)}." if said else ""


def _range(shares: Sequence[float]) -> str:
    """`0.5 to 4.5 %`, or one share if all are equal."""
    low, high = (f"{100 * x:.1f}".removesuffix(".0") for x in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"
