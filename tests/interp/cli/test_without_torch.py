"""What only reads names and records starts without torch and transformers: an import of either is refused here."""

import shutil

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
LINES = (
    "--help", "--version", "run --help", "tunnel sweep --help", "programs --help", "list models", "list families",
    "list probes", "list probes manifold", "list studies", "list studies certificate", "list prompts",
    "list tunnels", "report run", "diff run run", "view . --no-browser",
)  # fmt: skip


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    folder = tmp_path_factory.mktemp("light")
    shutil.copytree(ROOT / "tests/records/run-1", folder / "run")
    return dict(zip(LINES, in_one_process([(line.split(), {}) for line in LINES], folder, REFUSING), strict=True))


@pytest.mark.parametrize("line", LINES)
def test_a_command_that_reads_no_model_imports_neither(said, line):
    assert said[line].code == 0, said[line].err
    assert said[line].out.strip()


def test_the_guard_can_fail(tmp_path):
    (done,) = in_one_process([(["check", "--model", "tunnel:bijection-gpt-neox"], {})], tmp_path, REFUSING)
    assert done.code == 1 and "torch is refused here" in done.err
