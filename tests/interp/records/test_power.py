"""`interp power`: the smallest detectable effect is found as often as it says."""

import math

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.findings import Findings, Null, Scalar
from interp.records.power import detectable
from tests.interp.records.test_diff import record

N, N_WORLDS, N_FLIPS, N_PILOTS = 200, 1000, 2000, 100
GROWS = 0.015
"""Signs are put on values that hold the effect, so the null is √(1 + effect²) times wider in a world that has one."""
SHRINKS = 0.025
"""The error of a correlation is 1 − r² of what it is at 0: the effect asked for is a little too large."""


def scalar(value, interval, null):
    return Scalar(value, "1", interval=interval, interval_method="t", null=null)


def test_smallest_effect_is_the_edge_of_the_band_and_a_share_of_the_error():
    found = detectable(scalar(0.5, (0.5 - 1.96, 0.5 + 1.96), Null("n", 0.1, (0.1 - 1.96, 0.1 + 3.92))))
    assert found.sd == pytest.approx(1.0, abs=1e-4) and found.null_sd == pytest.approx(1.5, abs=1e-4)
    assert found.above == pytest.approx(3.92 + stats.norm.ppf(0.8), abs=1e-4)
    assert found.below == pytest.approx(1.96 + stats.norm.ppf(0.8), abs=1e-4)


def mean_with_sign_flips(x: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Of each column: the mean, its standard error, and the 95 % band of the means under random signs."""
    flips = rng.choice([-1.0, 1.0], size=(N_FLIPS, len(x))) @ x / len(x)
    return x.mean(0), x.std(0, ddof=1) / math.sqrt(len(x)), np.quantile(flips, [0.025, 0.975], axis=0)


@pytest.mark.parametrize("side", [1, -1])
def test_planted_mean_of_that_size_is_found_four_times_in_five(side):
    rng = np.random.default_rng(11)
    pilots = zip(*mean_with_sign_flips(rng.standard_normal((N, N_PILOTS)), rng)[:2],
                 mean_with_sign_flips(rng.standard_normal((N, N_PILOTS)), rng)[2].T, strict=True)  # fmt: skip
    found = [
        detectable(scalar(v, (v - 1.96 * e, v + 1.96 * e), Null("flips", 0.0, (float(low), float(high)))))
        for v, e, (low, high) in pilots
    ]
    effect = side * float(np.mean([each.above if side > 0 else each.below for each in found]))
    value, _, (low, high) = mean_with_sign_flips(effect + rng.standard_normal((N, N_WORLDS)), rng)
    share = np.mean(value > high if side > 0 else value < low)
    assert abs(share - 0.80) < 2.5 * math.sqrt(0.8 * 0.2 / N_WORLDS) + GROWS


def test_planted_correlation_of_that_size_is_found_four_times_in_five():
    rng = np.random.default_rng(5)
    half = 1.96 / math.sqrt(N - 3)
    band = math.tanh(half)
    found = detectable(scalar(0.0, (-band, band), Null("permuted", 0.0, (-band, band))))
    x = rng.standard_normal((N_WORLDS, N))
    y = found.above * x + math.sqrt(1 - found.above**2) * rng.standard_normal((N_WORLDS, N))
    r = np.array([np.corrcoef(a, b)[0, 1] for a, b in zip(x, y, strict=True)])
    assert abs(np.mean(r > band) - 0.80) < 2.5 * math.sqrt(0.8 * 0.2 / N_WORLDS) + SHRINKS


def test_no_effect_is_called_one_in_twenty():
    rng = np.random.default_rng(2)
    value, _, (low, high) = mean_with_sign_flips(rng.standard_normal((N, N_WORLDS)), rng)
    assert 0.03 < np.mean((value < low) | (value > high)) < 0.075


def test_numbers_without_null_or_interval_say_why():
    scalars = {
        "a": scalar(1.0, (0.8, 1.2), Null("n", 0.0, (-0.5, 0.5))),
        "b": Scalar(1.0, "1", interval_reason="weights only", null=Null("n", 0.0, (-0.5, 0.5))),
        "c": Scalar(1.0, "1", interval=(0.0, 2.0), interval_method="t", null_reason="a count"),
        "d": scalar(math.nan, (math.nan, math.nan), Null("n", 0.0, (-0.5, 0.5))),
    }
    whole = record(scalars, findings={"p": Findings("p", scalars, headline=("c",))})
    table = interp.power(whole)
    assert table["name"].tolist() == ["c", "a", "b", "d"]
    assert table["reason"].tolist() == [
        "no null: a count", "", "no interval: weights only", "its null or its interval is not finite",
    ]  # fmt: skip
    assert np.isfinite(table["smallest_above"]).tolist() == [False, True, False, False]


def test_command_line_measures_first_or_reads_a_run(tmp_path):
    words = ["power", "--probe", "attention_entropy", "--n-pool", "40", "--out", str(tmp_path)]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0 and "content_sharpening" in first.stdout, first.output
    run = first.stdout.strip().splitlines()[-1]
    again = CliRunner().invoke(app, ["power", run])
    assert again.exit_code == 0 and again.stdout == first.stdout
    assert "reduction_no_first" in CliRunner().invoke(app, ["power", run, "--every"]).stdout
