"""The command line as a user types it: results on standard output, refusals in one sentence, exit codes 0, 1 and 2."""

import resource
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from interp.cli.app import app
from tests.reports.everything import SETTINGS

FAST = [word for name, value in SETTINGS["manifold"].items() for word in ("--set", f"manifold.{name}={value}")]


def invoke(*words):
    return CliRunner().invoke(app, list(words))


def test_a_run_ends_with_the_path_of_its_page_and_report_draws_it_again(tmp_path):
    by_position = ["run", "tunnel:bijection-gpt-neox", "--probes", "manifold", "-o", str(tmp_path)]
    result = invoke(*by_position, "--n-pool", "40", *FAST)
    assert result.exit_code == 0, result.output
    last = result.stdout.strip().splitlines()[-1]
    assert last.endswith("report.html") and last.startswith(str(tmp_path))
    for given in (tmp_path, last):  # the folder that holds it, and its page
        assert invoke("report", str(given)).stdout.strip() == last
        assert "40" in invoke("power", str(given)).stdout
    assert invoke("view", last, "--no-browser").stdout.strip() == last
    assert "Does the direction of largest variance follow the model's next-token entropy?" in result.stdout
    page = Path(invoke("run", "-q", "--n-pool", "40", "--out", str(tmp_path), *FAST).stdout.strip())
    before = page.read_bytes()
    page.unlink()
    assert invoke("report", str(page.parent)).stdout.strip() == str(page)
    assert page.read_bytes() == before


def test_check_proves_the_shipped_model():
    result = invoke("check", "--oracle", "transformer-lens")
    assert result.exit_code == 0, result.output
    assert "FAILED" not in result.stdout and "transformer-lens" in result.stdout


def cpu_seconds(*words):
    """CPU time of a fresh interpreter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *words], capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def is_within(limit, *words):
    """Whether one of three fresh interpreters takes less."""
    return any(cpu_seconds(*words) < limit for _ in range(3))


def test_help_and_the_import_take_little_time():
    # Or, on a machine where all of Python is slow, not much more than another program in it: pip imports as much.
    called = "-m", "interp", "--help"
    assert is_within(0.5, *called) or is_within(1.5 * cpu_seconds("-m", "pip", "--version"), *called)
    assert is_within(cpu_seconds("-c", "pass") + 0.1, "-c", "import interp")
