"""What only reads names and records starts without torch and transformers: an import of either is refused here."""

import shutil
from importlib.metadata import version

import pytest

from tests.one_process import in_one_process
from tests.paths import ROOT

REFUSING = """
import sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"{name} is refused here", name=name)

sys.meta_path.insert(0, Refusing())
"""
LINES = {
    "--help": "Usage: interp", "--version": f"interp {version('interp')}", "run --help": "--probe",
    "tunnel sweep --help": "sweep", "programs --help": "programs", "list models": "pythia-410m",
    "list families": "residual branches", "list probes": "manifold", "list probes manifold": "scaling",
    "list studies": "certificate", "list studies certificate": "probe", "list prompts": "mixed",
    "list tunnels": "tunnel:bijection-gpt-neox", "report run": "report.html", "diff run run": "0 of",
    "view . --no-browser": "index.html",
}  # fmt: skip
"""Commands, and a word of what they say."""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("light")
    shutil.copytree(ROOT / "tests/records/run-1", folder / "run")
    return dict(zip(LINES, in_one_process([(line.split(), {}) for line in LINES], folder, REFUSING), strict=True))


@pytest.mark.parametrize("line", LINES)
def test_a_command_that_reads_no_model_imports_neither(said, line):
    assert said[line].code == 0, said[line].err
    assert LINES[line] in said[line].out


def test_the_guard_can_fail(tmp_path):
    (done,) = in_one_process([(["check", "--model", "tunnel:bijection-gpt-neox"], {})], tmp_path, REFUSING)
    assert done.code == 1 and "torch is refused here" in done.err
