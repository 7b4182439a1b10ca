"""What only reads names and records starts without torch and transformers: an import of either is refused here."""

import os
import shutil
import subprocess
import sys

import pytest

from tests.paths import ROOT

REFUSING = """
import sys
from importlib.abc import MetaPathFinder

class Refusing(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"{name} is refused here", name=name)

sys.meta_path.insert(0, Refusing())
from interp.cli.app import main
sys.argv = ["interp", *sys.argv[1:]]
main()
"""


def call(words, folder, **environment):
    called = [sys.executable, "-W", "ignore", "-c", REFUSING, *words]
    known = {**os.environ, **environment}
    return subprocess.run(called, capture_output=True, text=True, encoding="utf-8", cwd=folder, env=known, timeout=120)


@pytest.mark.parametrize(
    "line",
    [
        "--help", "--version", "run --help", "tunnel sweep --help", "programs --help", "list models", "list families",
        "list probes", "list probes manifold", "list studies", "list studies certificate", "list prompts",
        "list tunnels", "report run", "diff run run", "index .",
    ],
)  # fmt: skip
def test_a_command_that_reads_no_model_imports_neither(line, tmp_path):
    shutil.copytree(ROOT / "tests/records/run-1", tmp_path / "run")
    done = call(line.split(), tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize(("line", "offered"), [("interp run --probe manif", "manifold"), ("interp lis", "list")])
def test_completion_imports_neither(line, offered, tmp_path):
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    done = call([], tmp_path, _INTERP_COMPLETE="complete_bash", **words)
    assert offered in done.stdout.split(), done.stderr


def test_the_guard_can_fail(tmp_path):
    done = call(["check", "--model", "tunnel:bijection-gpt-neox"], tmp_path)
    assert done.returncode == 1 and "torch is refused here" in done.stderr
