"""Signals at random moments of real commands: whatever comes, repeating the command ends with the very same bytes."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.interp.running.test_several_models import MODELS, contents

pytestmark = pytest.mark.stress

MAIN = """
import sys
from interp import cli
from interp.records import unfinished
unfinished.SECONDS, unfinished.SHARE = 0.0, float("inf")  # short runs keep what is done as long ones do
sys.argv = ["interp", *sys.argv[1:]]
cli.main()
"""
SMALL = ["--set", "manifold.n_permutations=30", "--set", "manifold.n_null=20"]
RUN = ["run", "-p", "causal", "--n-pool", "100", "--set", "causal.n_controls=20"]
MANY = ["run", "--model", ",".join(MODELS[:2]), "--n-pool", "25", *SMALL]
TRAINING = ["tunnel", "train", "bijection", "--set", "n_steps=600", "--set", "d_model=32", "--keep", "0,400"]
STUDY = ["study", "tunnel_training", "--set", "settings=n_steps=400,d_model=32"]
REPLICATION = ["replicate", "paper2", "--scale", "tiny"]

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
SAYS = {signal.SIGINT: 130, signal.SIGTERM: 143, signal.SIGKILL: -9}


def start(words: Sequence[str], out: Path) -> subprocess.Popen:
    command = [sys.executable, "-c", MAIN, *words, "--out", str(out), "--quiet"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # it may be ignored where the tests run
    )  # fmt: skip


def records(out: Path) -> dict[str, dict[str, object]]:
    """What every record says, byte for byte but for times; the drafts of those that were killed count for nothing.

    A run that was told to stop when its record was there is measured again by the same command, with the same bytes.
    """
    found: dict[str, dict[str, object]] = {}
    for path in sorted(out.glob("[!.]*/run.json")):
        record = json.loads(path.read_text())
        name, said = record["spec_hash"], contents(path.parent)
        if record["spec"].get("study") == "comparison":  # which runs it compares names their folders
            name, said = "comparison", {table: content for table, content in said.items() if table != "run.json"}
        assert found.setdefault(name, said) == said
    return found


def tunnels(out: Path) -> dict[str, bytes]:
    """Every file of every finished training, but for its times."""
    timed = {"tunnel.json", "curve.csv"}
    files = [path for path in out.rglob("*") if path.is_file() and path.name not in timed]
    return {path.relative_to(out).as_posix(): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    ("words", "left", "n_stops"),
    [(RUN, records, 4), (MANY, records, 3), (TRAINING, tunnels, 4), (STUDY, records, 3), (REPLICATION, records, 3)],
    ids=["run", "several models", "training", "study", "replication"],
)
def test_signals_at_random_moments_change_nothing(
    tmp_path, words: Sequence[str], left: Callable[[Path], dict], n_stops: int
):
    began = time.monotonic()
    with start(words, tmp_path / "alone") as process:
        said = process.communicate()
    assert process.returncode == 0, said
    duration = time.monotonic() - began
    rng, ends = random.Random(0), []
    for _ in range(n_stops + 3):
        if len(ends) == n_stops:
            break
        number = SIGNALS[len(ends) % 3]
        with start(words, tmp_path / "stopped") as process:
            time.sleep(rng.uniform(0.3, 1.0) * duration * 0.9)
            told = time.monotonic()
            process.send_signal(number)
            _, said = process.communicate()
        if process.returncode == 0 or (process.returncode == -number and number != signal.SIGKILL):
            if ends:
                break  # it was done before, and had at most the interpreter to clear away
            duration *= 0.6  # the machine has less to do than before, so that the first signal came too late
            shutil.rmtree(tmp_path / "stopped")
            continue
        ends.append(time.monotonic() - told)
        assert process.returncode == SAYS[number], said
        if number != signal.SIGKILL:
            assert said.splitlines()[-1].startswith("interp: stopped: "), said
            assert "Traceback" not in said
    with start(words, tmp_path / "stopped") as process:
        said = process.communicate()
    assert process.returncode == 0, said
    print(f"{words[0]}: {len(ends)} stops, from the signal to the end {max(ends, default=0):.2f} s at most")
    assert ends and max(ends) < 3.0, ends  # two seconds, on a machine that has other things to do
    one, other = left(tmp_path / "alone"), left(tmp_path / "stopped")
    assert one and one == other
