"""The hash of a probe's code changes with what it computes, and with nothing else."""

import importlib
import sys

import pytest

from interp.probe import Probe
from interp.records.probe_code import code_hash
from interp.registry import entries, load_entry

PROBE = '''"""A probe."""
from interp.probe import Probe
from elsewhere_{n}.helper import twice

class Doubling(Probe):
    """It doubles."""

    def analyse(self, base):
        if base is None:
            raise ValueError(f"{{base}} is nothing to double")
        return twice(base)  # at once

    def figures(self, findings):
        from elsewhere_{n}.figures import draw
        return draw(findings)
'''
HELPER = 'def twice(x):\n    """Twice."""\n    return 2 * x\n'


@pytest.fixture
def hash_of(tmp_path, monkeypatch):
    """The hash of a package of three files, each changed as given."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def make(probe=lambda text: text, helper=lambda text: text, figures="def draw(x): ..."):
        n = "twin"  # the same name each time
        folder = tmp_path / f"elsewhere_{n}"
        folder.mkdir(exist_ok=True)
        (folder / "__init__.py").write_text("")
        (folder / "probe.py").write_text(probe(PROBE.format(n=n)))
        (folder / "helper.py").write_text(helper(HELPER))
        (folder / "figures.py").write_text(figures)
        for name in [name for name in sys.modules if name.startswith(f"elsewhere_{n}")]:
            del sys.modules[name]
        importlib.invalidate_caches()
        sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
        try:
            return code_hash(importlib.import_module(f"elsewhere_{n}.probe").Doubling)
        finally:
            sys.dont_write_bytecode = before

    yield make
    for name in [name for name in sys.modules if name.startswith("elsewhere_")]:
        del sys.modules[name]


def test_what_computes_belongs_to_the_code_and_layout_does_not(hash_of):
    plain = hash_of()
    assert hash_of() == plain and len(plain) == 16
    assert hash_of(helper=lambda text: text.replace("2 * x", "2 * (x + 1)")) != plain
    assert hash_of(helper=lambda text: text.replace("2 * x", "(2 * x) + 1")) != hash_of(
        helper=lambda text: text.replace("2 * x", "2 * (x + 1)")
    )
    assert hash_of(probe=lambda text: text.replace("twice(base)", "twice(twice(base))")) != plain
    assert hash_of(probe=lambda text: text.replace("is nothing to double", "cannot be twice {base!r}")) == plain
    assert hash_of(probe=lambda text: text.replace("base is None", "base == 'none'")) != plain
    assert hash_of(probe=lambda text: text.replace("# at once", "# soon").replace("It doubles", "Doubles it")) == plain
    assert hash_of(helper=lambda text: text.replace("2 * x", "(2  *  x)")) == plain
    assert hash_of(figures="def draw(x): return 7") == plain
    assert hash_of(probe=lambda text: "import math\n" + text) == plain
    assert hash_of(probe=lambda text: text + "\n    least_clusters: int = 4\n    least: int = 4\n") != plain
    assert hash_of(probe=lambda text: text + "\n    least_clusters: int = 4\n") == plain


def test_every_probe_has_a_hash_and_what_no_file_holds_has_none():
    hashes = {name: code_hash(load_entry("probe", name)) for name in entries("probe")}
    assert len(set(hashes.values())) == len(hashes) and all(len(found) == 16 for found in hashes.values())
    namespace = {"__name__": "typed_in", "Probe": Probe}
    exec("class Typed(Probe):\n    pass", namespace)
    assert code_hash(namespace["Typed"]) == ""
