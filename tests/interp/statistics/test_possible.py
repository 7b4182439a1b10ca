"""Numbers that cannot be are found in scalars and in every column of a table, and are never written."""

from dataclasses import replace

import numpy as np
import pytest

from interp.errors import RecordError
from interp.findings import Findings, Null, Scalar
from interp.records.record import open_run
from interp.statistics.possible import impossible
from interp.table import Table, number_columns
from tests.interp.records.test_record import small_record

NAN = np.nan


def scalar(**changes) -> Findings:
    sound = Scalar(
        0.5, "bits", interval=(0.2, 0.8), interval_method="bootstrap", null=Null("shuffled", 0.1, (0.0, 0.3)), p=0.01
    )
    return Findings("probe", {"number": replace(sound, **changes)})


def table(value=(0.5, NAN), interval=((0.2, NAN), (0.8, NAN)), null=((0.1,) * 2, (0.0,) * 2, (0.3,) * 2), p=(0.01, NAN),
          **units) -> Findings:  # fmt: skip
    columns = number_columns("number", value, interval, null, p)
    return Findings(
        "probe", tables={"rows": Table({k: np.array(c) for k, c in columns.items()}, {"number": "1"} | units)}
    )


def alone(value: float) -> Scalar:
    return Scalar(value, "1", interval_reason="one value", null_reason="none")


SOUND = {
    "a correlation that rounding lifts above 1": Findings("p", {"a_correlation": alone(1 + 6e-7)}),
    "a difference of two cosines": Findings("p", {"qk_cosine": alone(1.07)}),
    "R² far below 0": Findings("probe", {"r2": alone(-7.0), "correlation": alone(-1.0)}),
    "p that its draws can give": scalar(null=Null("n", 0.1, (0.0, 0.3), 99)),
    "a scalar": scalar(),
    "p of 1": scalar(p=1.0),
    "at an end": scalar(value=0.8),
    "equal but for rounding": scalar(value=0.8 + 1e-13),
    "no interval": scalar(interval=None, interval_reason="one value"),
    "not a number": scalar(value=NAN),
    "a table": table(),
    "the mean of a skewed null outside its band": scalar(null=Null("n", -0.1, (0.0, 0.3))),
    "the same in a table": table(null=((0.1, 0.4), (0, 0), (0.3, 0.3))),
    "p of 0 to 1 in a table": table(p=(0.0, 1.0)),
}
FAULTS = {
    "p below 0": (scalar(p=-0.1), "number: p = -0.1"),
    "p of 0": (scalar(p=0.0), "number: p = 0.0"),
    "p above 1": (scalar(p=1.01), "number: p = 1.01"),
    "below its interval": (scalar(value=0.1), "number: 0.1 lies outside"),
    "above its interval": (scalar(value=0.9), "number: 0.9 lies outside"),
    "an interval upside down": (scalar(value=NAN, interval=(0.8, 0.2)), "number: nan lies outside"),
    "a band upside down": (scalar(null=Null("n", NAN, (0.3, 0.0))), "number: the band of the null"),
    "p below its draws": (scalar(null=Null("n", 0.1, (0.0, 0.3), 50)), "number: p = 0.01 is below what 50 draws"),
    "R² above 1": (Findings("p", {"a_r2": alone(1.1)}), "a_r2: 1.1 is out of its range"),
    "ρ below -1": (Findings("p", {"correlation": alone(-1.1)}), "correlation: -1.1 is out of its range"),
    "a correlation of a row": (
        Findings("p", tables={"rows": Table({"correlation": np.array([0.5, 1.5])}, {"correlation": "1"})}),
        "rows.correlation: 0.5 to 1.5 are out of its range",
    ),
    "p of a row": (table(p=(0.01, -0.1)), "rows.number_p: -0.1 to 0.01 are no probabilities"),
    "p above 1 in a row": (table(p=(1.5, NAN)), "rows.number_p: 1.5 to 1.5 are no probabilities"),
    "p in another unit": (table(number_p="bits"), "rows.number_p: the unit of a p is probability, not bits"),
    "a row below its interval": (table(value=(0.5, 0.1), interval=((0.2,) * 2, (0.8,) * 2)), "rows.number: a value"),
    "a row above its interval": (
        table(value=(0.9, NAN)),
        "rows.number: a value lies outside number_low to number_high",
    ),
    "a row's interval upside down": (table(value=(NAN,) * 2, interval=((0.8, 0), (0.2, 1))), "rows.number: a value"),
    "a row's band upside down": (table(null=((NAN,) * 2, (0.3, 0), (0, 0.3))), "rows.number_null: a value"),
}


@pytest.mark.parametrize(("findings", "said"), FAULTS.values(), ids=FAULTS)
def test_a_number_that_cannot_be_is_found_and_never_written(tmp_path, findings, said):
    (fault,) = impossible(findings)
    assert fault.startswith(said)
    record = replace(small_record(), findings={"probe": findings})
    with pytest.raises(RecordError, match="impossible numbers") as refusal:
        record.write(tmp_path / "run")
    assert fault in refusal.value.found
    assert not list(tmp_path.iterdir()), "nothing of it is left"


@pytest.mark.parametrize("findings", SOUND.values(), ids=SOUND)
def test_what_can_be_is_written(tmp_path, findings):
    replace(small_record(), findings={"probe": findings}).write(tmp_path / "run")
    assert repr(open_run(tmp_path / "run").findings["probe"].scalars) == repr(findings.scalars)
