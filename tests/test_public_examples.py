"""Every public name has a docstring with an example, and the examples run."""

import ast
import doctest
import shutil

import numpy as np
import pytest
import torch

import interp
from tests.paths import ROOT
from tests.quick import quick

NAMES = [
    name.name
    for statement in ast.parse((ROOT / "interp" / "__init__.pyi").read_text(encoding="utf-8")).body
    if isinstance(statement, ast.ImportFrom)
    for name in statement.names
]
WITHOUT = {"Readout"}
"""Names of a type, which have no docstring of their own."""

LONG = {"FittedLens", "PatchingMap"}
"""Names whose examples fit a lens or make a map, as those of functions do."""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A folder with two records, as `interp.run` leaves them."""
    folder = tmp_path_factory.mktemp("examples")
    record = interp.run(probes="orthogonality", n_pool=20, out=folder / "runs", report=False, quiet=True)
    shutil.copytree(record.path, folder / "runs" / "second")
    record.path.rename(folder / "runs" / "first")
    return folder


@pytest.fixture(scope="module")
def loaded():
    """`interp.load` that reads a model once, however many examples load it."""
    known = {}

    def load(name, **options):
        if name not in known:
            known[name] = interp.loading.load.load(name, **options)
        return known[name]

    return load


SHOWN = [name for name in NAMES if name not in WITHOUT]


@pytest.mark.parametrize("name", quick([name for name in SHOWN if name not in LONG], SHOWN))
def test_the_example_of_a_public_name_runs(name, runs, loaded, monkeypatch):
    monkeypatch.chdir(runs)
    known = {"interp": interp, "np": np, "torch": torch}
    if name != "load":
        monkeypatch.setattr(interp, "load", loaded)
    finder = doctest.DocTestFinder(recurse=False)
    (test,) = finder.find(getattr(interp, name), name, globs=known)
    assert test.examples, f"the docstring of interp.{name} has no example"
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)
