"""Mutation testing of the whole product: do the tests of a room notice when its code is changed?

    python tests/stress/mutants.py --n 100 --out mutants.jsonl
    python tests/stress/mutants.py --again mutants.jsonl --out again.jsonl    # those that survived, after a new test

A seeded sample of small changes (an operator, a comparison, a number, a default, a function's neighbour) is made to all
five folders, one at a time and never here: in a private copy of the tree. Each mutant runs against the quick tests of
its own room, those that import its module first, and then of others that import it. A mutant is killed when one fails
(or does not end) that passes without the change; it survives when all pass. `mutants.md` explains the
survivors.
"""

import argparse
import ast
import copy
import functools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("interp", "probes", "prompts", "reports", "wind_tunnels")
SECONDS = 1200
"""The quick tests of no room, and of those that import a module, need half of it on one core."""

OVERTIME = "time"

MOST_FILES = 4
"""Of the test files of other rooms that import a module, those named alike first."""

_OF_EVERY_PROBE = ("conformance", "refused_fields", "figures", "flags", "degenerate")
EVERY_PROBE = tuple(f"tests/probes/test_{name}.py" for name in _OF_EVERY_PROBE)
EVERY_NUMBER = ("tests/test_numbers_stay.py",)
"""Of every module that a run goes through, last."""

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult, ast.FloorDiv: ast.Mult,
}  # fmt: skip
_NEIGHBOURS = {
    "mean": "sum", "sum": "mean", "max": "min", "min": "max", "any": "all", "all": "any", "log": "log1p",
    "maximum": "minimum", "minimum": "maximum", "argmax": "argmin", "argmin": "argmax", "std": "var", "sqrt": "abs",
    "square": "abs", "abs": "square", "cumsum": "cumprod", "ones": "zeros", "zeros": "ones",
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One change: the module, the line it stood on when it was drawn, and what it says in words."""

    path: str
    line: int
    change: str


def mutants_of(path: Path, root: Path = ROOT) -> Iterator[Mutant]:
    """Every change this module can be given; annotations, docstrings and words are left alone."""
    for old, new in _changes(ast.parse(path.read_text(encoding="utf-8"))):
        yield Mutant(str(path.relative_to(root)), _line(old), _told(old, new))


def mutate(source: str, mutant: Mutant) -> str:
    """The module with that one change: of several that read alike, the one nearest to its line."""
    tree = ast.parse(source)
    alike = [(old, new) for old, new in _changes(tree) if _told(old, new) == mutant.change]
    if not alike:
        raise LookupError(f"{mutant.path} has changed: there is no {mutant.change} any more; draw anew")
    target, changed = min(alike, key=lambda pair: abs(_line(pair[0]) - mutant.line))

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return changed if node is target else super().generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))


def _changes(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.AST]]:
    left_alone = set(_not_run(tree))
    for node in ast.walk(tree):
        changed = None if node in left_alone else _changed(node)
        if changed is not None:
            yield node, changed


def _line(node: ast.AST) -> int:
    return getattr(node, "lineno", 0)


def _told(old: ast.AST, new: ast.AST) -> str:
    return f"{ast.unparse(old)} -> {ast.unparse(new)}"


def _not_run(tree: ast.Module) -> Iterator[ast.AST]:
    for node in ast.walk(tree):
        for name in ("annotation", "returns", "decorator_list"):
            for part in _listed(getattr(node, name, None)):
                yield from ast.walk(part)


def _listed(part: ast.AST | list[ast.AST] | None) -> list[ast.AST]:
    return part if isinstance(part, list) else [] if part is None else [part]


def _changed(node: ast.AST) -> ast.AST | None:
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[op]) if type(op) in _COMPARISONS:
            new.ops = [_COMPARISONS[type(op)]()]
        case ast.BinOp(op=op) if type(op) in _OPERATORS and not _is_text(new):
            new.op = _OPERATORS[type(op)]()
        case ast.BoolOp(op=op):
            new.op = ast.Or() if isinstance(op, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert()):
            return new.operand
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value) | float(value)):
            new.value = value + 1
        case ast.Attribute(attr=name) if name in _NEIGHBOURS:
            new.attr = _NEIGHBOURS[name]
        case ast.IfExp():
            return new.orelse
        case _:
            return None
    return new


def _is_text(node: ast.BinOp) -> bool:
    return any(isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
               for n in ast.walk(node))  # fmt: skip


def tests_of(path: str) -> tuple[str, ...]:
    """The test files of a module's room, those that import it first, then those of other rooms that import or name it.

    A module that lies flat in its package has no room, and one that no test imports those of a module that imports it.
    """
    found = _tests_beside(path) or next(filter(None, map(_tests_beside, _importers(path))), ())
    every_probe = EVERY_PROBE if path.startswith("probes/") and "simulations" not in path else ()
    return tuple(dict.fromkeys([*found, *every_probe, *(() if path.startswith("reports/") else EVERY_NUMBER)]))


def _tests_beside(path: str) -> tuple[str, ...]:
    room, is_flat = ROOT / "tests" / Path(path).parent, Path(path).parent.name in FOLDERS
    name, stem = _dotted(path), Path(path).stem
    mine = [f for f in _test_files() if f.parent == room and not is_flat]
    mine.sort(key=lambda f: (name not in _imports(f), stem.split("_")[0] not in f.stem, f))
    others = [f for f in _test_files() if f not in mine and (name in _imports(f) or f.stem == f"test_{stem}")]
    others.sort(key=lambda f: (f.parent != room, stem.split("_")[0] not in f.stem, f))
    return tuple(str(f.relative_to(ROOT)) for f in (*mine, *others[:MOST_FILES]))


def _importers(path: str) -> Iterator[str]:
    """The modules of its package that import one by its own name, however many levels up."""
    for file in sorted((ROOT / Path(path).parts[0]).rglob("*.py")):
        if any(module.rpartition(".")[2] == Path(path).stem for module in _imports(file)):
            yield str(file.relative_to(ROOT))


@functools.cache
def _test_files() -> tuple[Path, ...]:
    return tuple(sorted((ROOT / "tests").rglob("test_*.py")))


def _dotted(path: str) -> str:
    """How a test imports it: `interp.probes.manifold.probe`, a room's `__init__` by the room's name."""
    dotted = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return dotted if dotted.startswith("interp") else f"interp.{dotted}"


@functools.cache
def _imports(path: Path) -> frozenset[str]:
    imports = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, ast.ImportFrom)]
    whole = {n.module for n in imports if n.module}
    return frozenset(whole | {f"{n.module}.{name.name}" for n in imports for name in n.names})


def killer(tests: tuple[str, ...], tree: Path) -> str | None:
    """The first file whose quick tests fail in that tree, `OVERTIME` where they do not end; None where all pass."""
    if not tests:
        return None
    options = ["-q", "-x", "-p", "no:cacheprovider", "--assert=plain", "-m", "not slow and not stress"]
    environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "pytest", *options, *tests]
    try:
        done = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return OVERTIME
    if done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return None
    failed = re.search(r"^(?:FAILED|ERROR) (\S+?\.py)", done.stdout, re.MULTILINE)
    return failed[1] if failed else tests[0]


def private_copy(into: Path) -> Path:
    tree = into / "tree"
    ignored = shutil.ignore_patterns(".venv*", ".git", "runs", "dist", "__pycache__", ".pytest_cache", ".hypothesis")
    shutil.copytree(ROOT, tree, ignore=ignored)
    if (ROOT.parent / "shared").exists():  # the models that some tests read, see tests/conftest.py
        (into / "shared").symlink_to(ROOT.parent / "shared")
    return tree


def drawn(n: int, seed: int) -> list[Mutant]:
    """A seeded sample of all mutants; a smaller n gives the first of them."""
    everything = [m for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py")) for m in mutants_of(path)]
    n = min(n, len(everything))
    print(f"{n} of {len(everything)} mutants")
    return random.Random(seed).sample(everything, n)


def survivors(earlier: Path) -> list[Mutant]:
    tried = [json.loads(line) for line in earlier.read_text(encoding="utf-8").splitlines()]
    return [Mutant(**{f.name: m[f.name] for f in fields(Mutant)}) for m in tried if m["survived"]]


class Bench:
    """A private copy of the tree in which mutants are tried, one after the other."""

    def __init__(self, tree: Path) -> None:
        self.tree = tree
        self._sound = {OVERTIME: True}

    def killer(self, mutant: Mutant) -> str | None:
        """The test file that notices the change: it fails with it and passes without; None for a survivor."""
        tests = tests_of(mutant.path)
        while True:
            with self._changed(mutant):
                found = killer(tests, self.tree)
            if found is None or self._is_sound(found):
                return found
            tests = tuple(t for t in tests if t != found)

    def _is_sound(self, test: str) -> bool:
        if test not in self._sound:
            self._sound[test] = killer((test,), self.tree) is None
        return self._sound[test]

    @contextmanager
    def _changed(self, mutant: Mutant) -> Iterator[None]:
        module = self.tree / mutant.path
        source = module.read_text(encoding="utf-8")
        module.write_text(mutate(source, mutant), encoding="utf-8")
        try:
            yield
        finally:
            module.write_text(source, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--begin", type=int, default=0, help="leave out so many, tried in an earlier run of this seed")
    parser.add_argument("--again", type=Path, help="try those that survived in an earlier --out, instead of a sample")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    sample = survivors(asked.again) if asked.again else drawn(asked.n, asked.seed)[asked.begin :]
    killed = 0
    with tempfile.TemporaryDirectory() as folder, asked.out.open("a") as out:
        bench = Bench(private_copy(Path(folder)))
        for tried, mutant in enumerate(sample, start=1):
            by = bench.killer(mutant)
            killed += by is not None
            out.write(json.dumps({**vars(mutant), "survived": by is None, "by": by}) + "\n")
            out.flush()
            outcome = "SURVIVED" if by is None else f"killed by {by}:"
            print(f"{killed}/{tried} {outcome} {mutant.path}:{mutant.line} {mutant.change}", flush=True)


if __name__ == "__main__":
    main()
