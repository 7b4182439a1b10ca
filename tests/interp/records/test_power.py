"""`interp power`: the smallest detectable effect by its formula, and what has none."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.findings import Findings, Null, Scalar
from interp.records.power import detectable
from tests.interp.records.test_diff import record


def scalar(value, interval, null, p=0.5):
    return Scalar(value, "1", interval=interval, interval_method="t", null=null, p=p)


def test_smallest_effect_is_the_edge_of_the_band_and_a_share_of_the_error():
    found = detectable(scalar(0.5, (0.5 - 1.96, 0.5 + 1.96), Null("n", 0.1, (0.1 - 1.96, 0.1 + 3.92))))
    assert found == pytest.approx((3.92 + stats.norm.ppf(0.8), 1.96 + stats.norm.ppf(0.8)), abs=1e-4)


@pytest.mark.parametrize(("p", "band"), [(None, (0.0, 0.0)), (None, (-0.3, 0.2)), (0.5, (-0.3, 0.3))])
def test_an_effect_of_that_size_is_significant_in_80_of_100_measurements(p, band):
    rng, error, null = np.random.default_rng(0), 0.1, Null("n", 0.0, band)
    above, below = detectable(scalar(0.0, (-1.96 * error, 1.96 * error), null, p))

    def share(effect: float) -> float:
        values = rng.normal(effect, error, 4000)
        drawn = [(v, 2 * stats.norm.sf(abs(v) / 0.3 * 1.96) if p else None) for v in values]
        measured = [scalar(v, (v - 1.96 * error, v + 1.96 * error), null, its_p) for v, its_p in drawn]
        return float(np.mean([one.stands_out for one in measured]))

    assert share(above) == pytest.approx(0.8, abs=0.02) and share(-below) == pytest.approx(0.8, abs=0.02)


def test_numbers_without_null_or_interval_say_why():
    few = replace(scalar(1.0, (0.8, 1.2), Null("n", 0.0, (-0.5, 0.5))), underpowered=True, n_clusters=8, enough=20)
    scalars = {
        "a": scalar(1.0, (0.8, 1.2), Null("n", 0.0, (-0.5, 0.5))),
        "b": Scalar(1.0, "1", interval_reason="weights only", null=Null("n", 0.0, (-0.5, 0.5))),
        "c": Scalar(1.0, "1", interval=(0.0, 2.0), interval_method="t", null_reason="a count"),
        "d": scalar(0.0, (0.0, 0.0), Null("n", 0.0, (0.0, 0.0))),
        "e": few,
    }
    whole = record(scalars, findings={"p": Findings("p", scalars, headline=("c",))})
    table = interp.power(whole)
    assert table["name"].tolist() == ["c", "a", "b", "d", "e"]
    assert table["reason"].tolist() == [
        "no null: a count", "", "no interval: weights only",
        "its null or its interval is not finite, or both are a single value",
        "underpowered: 20 clusters would do: no effect is significant at this n, however large",
    ]  # fmt: skip
    assert np.isfinite(table["smallest_above"]).tolist() == [False, True, False, False, True]


def test_a_side_that_is_not_asked_about_has_no_smallest_effect():
    null = Null("n", 0.0, (-0.5, 0.5))
    tested, by_interval = (scalar(1.0, (0.8, 1.2), null, p=p) for p in (0.5, None))
    found = {
        "value_axis": {"r2": tested, "pc1_correlation": by_interval},
        "manifold": {"words_correlation": tested, "participation_ratio": tested},
        "attention_entropy": {"content_sharpening": tested},
        "nobodys": {"r2": tested},
    }
    table = interp.power(record({}, findings={probe: Findings(probe, of) for probe, of in found.items()}))
    sides = np.isfinite([table["smallest_above"], table["smallest_below"]]).T.tolist()
    assert sides == [[True, False], [True, True], [True, False], [False, True], [True, True], [True, True]]
    said = table["reason"].tolist()
    assert (
        "whether it lies above" in said[0]
        and "whether it lies below" in said[3]
        and said[1] == said[4] == said[5] == ""
    )


def test_the_command_line_prints_headlines_or_every_number_of_a_run(tmp_path):
    words = ["run", "--probe", "attention_entropy", "--n-pool", "40", "--out", str(tmp_path), "--quiet"]
    run = str(Path(CliRunner().invoke(app, words).stdout.strip()).parent)
    headlines = CliRunner().invoke(app, ["power", run]).stdout
    assert "content_sharpening" in headlines and "reduction_no_first" not in headlines
    assert "reduction_no_first" in CliRunner().invoke(app, ["power", run, "--every"]).stdout
