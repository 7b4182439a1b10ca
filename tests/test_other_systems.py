"""Windows and macOS: what only some systems have is imported where it is used, so every module imports without it."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

SIBLINGS = ("probes", "prompts", "wind_tunnels", "reports")

MISSING = ("resource", "fcntl", "pwd", "grp", "termios", "tty", "pty", "syslog")
"""Modules that Python has on Unix alone."""

IMPORT_ALL = f"""
import sys
import numpy, pandas, scipy.stats, sklearn, torch, transformers, datasets, plotly.graph_objects, typer, rich, umap
from importlib.abc import MetaPathFinder

class Missing(MetaPathFinder):  # what our libraries need of them, they have imported or left out by now
    def find_spec(self, name, path=None, target=None):
        if name in {MISSING!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

for name in {MISSING!r}:
    sys.modules.pop(name, None)
sys.meta_path.insert(0, Missing())
import importlib
import interp
names = MODULES
for name in names:
    importlib.import_module(name)
print(len(names))
"""


def modules() -> list[str]:
    """Every module that is installed, by its name, but scripts: the compiler of programs needs Tracr."""
    folders = {"interp": "interp"} | {name: f"interp.{name}" for name in SIBLINGS}
    files = [(start, path.relative_to(ROOT / folder)) for folder, start in folders.items()
             for path in sorted((ROOT / folder).rglob("*.py"))]  # fmt: skip
    names = (".".join([start, *path.with_suffix("").parts]) for start, path in files)
    return [name.removesuffix(".__init__") for name in names if not name.endswith(("__main__", "programs.compiling"))]


def imported_without(extra: str, tmp_path: Path) -> subprocess.CompletedProcess[str]:
    code = IMPORT_ALL.replace("MODULES", repr(modules())) + extra
    return subprocess.run([sys.executable, "-W", "ignore", "-c", code], cwd=tmp_path, capture_output=True, text=True)


@pytest.mark.slow
def test_every_module_imports_where_unix_modules_are_missing(tmp_path):
    done = imported_without("", tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert int(done.stdout) == len(modules()) > 200


@pytest.mark.slow
def test_a_module_that_needs_one_is_found(tmp_path):
    done = imported_without("import resource", tmp_path)
    assert done.returncode == 1 and "No module named 'resource'" in done.stderr


@pytest.mark.slow
def test_a_run_works_where_unix_modules_are_missing(tmp_path):
    run = "interp.run(n_pool=20, out='runs', quiet=True, settings={'manifold': {'n_null': 20, 'n_permutations': 20}})"
    done = imported_without(run, tmp_path)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(list((tmp_path / "runs").glob("*/run.json"))) == 1
