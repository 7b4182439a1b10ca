"""`interp run` without options: what it measures, how long it takes, and how it ends."""

import os
import subprocess
import sys

import pytest

from interp.cli.demo import YOUR_MODEL, demo
from interp.options import RunOptions
from interp.records.answers import answers
from interp.records.record import open_run
from interp.running.choose_probes import choose_probes


def test_the_demonstration_is_a_run_of_which_nothing_is_asked():
    assert demo(RunOptions(), ["out", "quiet"])
    for name in ("probes", "n_pool", "model", "seed", "checkpoints"):
        assert demo(RunOptions(), [name]) is None, name
    asked = demo(RunOptions(quiet=True), ["quiet"])
    assert [probe.name for probe in choose_probes(asked.probes, asked.settings).probes] == [
        "value_axis",
        "belief",
        "causal",
    ]
    assert asked.quiet


@pytest.mark.slow
def test_it_answers_within_25_seconds_of_one_core_and_ends_with_the_next_command(tmp_path):
    before = os.times()
    command = [sys.executable, "-m", "interp", "run", "--out", str(tmp_path)]
    printed = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", check=True).stdout.splitlines()
    after = os.times()
    assert sum(after[2:4]) - sum(before[2:4]) < 25  # of the processes that were waited for
    assert printed[-1] == YOUR_MODEL and printed[-2].endswith("report.html")
    record = open_run(next(tmp_path.glob("*/run.json")))
    read, held, used = answers(record)
    assert (read.verdict, held.verdict) == ("yes", "yes") and used.verdict != "unclear"
    assert {answer.headline.probe for answer in (read, held, used)} == set(record.findings)
