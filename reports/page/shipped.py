"""What ships with the tool and is shown beside the numbers of a run: two known models, and the certificate of a probe.

`calibration.json` holds every headline number of the same probes on two known models, with its interval and its null,
and what the runs were: a user's model stands between them. The first is the shipped wind tunnel, whose exact posterior
is known; the second a language model. `certificates.json` is made from the records under `examples/certificates`. A run
of other code, or with other parameters, is told so: the certificate is then of another probe than the one that was run,
if only a little. How both are made is told in `examples/README.md`.
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
        for each in json.loads(CALIBRATION.read_text(encoding="utf-8"))
    )
    return tunnel, language_model


def the_tunnel() -> Calibration:
    """The shipped wind tunnel, the one of the two whose truth is known."""
    return calibrations()[0]


CERTIFICATES = Path(__file__).parent.parent / "certificates.json"
SITE = "https://interp-authors.github.io/interp/certificates/"

_NOT_COMPARED = ("seed",)
"""Parameters that every simulation sets anew; those that simulations shrink are not compared either."""


@cache
def certificates() -> Mapping[str, Any]:
    """What is known of every certified probe; the data file, read once."""
    return json.loads(CERTIFICATES.read_text(encoding="utf-8"))


def certificate_line(probe: str, record: RunRecord, known: Mapping[str, Any] | None = None) -> tuple[str, str]:
    """A sentence on the certificate of a probe, and the address of its page; both empty where there is none."""
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
    """`0.5 to 4.5 %`, or one share where all are alike."""
    low, high = (f"{100 * x:.1f}".removesuffix(".0") for x in (min(shares), max(shares)))
    return f"{low} %" if low == high else f"{low} to {high} %"
