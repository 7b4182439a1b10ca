"""Mutation testing of the numpy-only modules: do their tests notice when the arithmetic is changed?

    python tests/stress/mutants.py --n 300 --out mutants.jsonl
    python tests/stress/mutants.py --again mutants.jsonl --out again.jsonl    # those that survived, after a new test

A seeded sample of small changes (an operator, a comparison, a number, an axis, a function's neighbour) is made to
`interp/statistics` and `probes/measures`, one at a time and never here: in a private copy of the tree. Each mutant runs
against the quick tests of its own module: the test files that import it, else those of the modules that do. A mutant
is killed when they fail (or run far longer than they need); it survives when they pass. Every set of test files must
pass unchanged first. Survivors are explained in `mutants.md`.
"""

import argparse
import ast
import copy
import importlib
import json
import os
import random
import resource
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("interp/statistics", "probes/measures")
CPU_SECONDS = 150
"""No quick test file of these modules needs more than 40 s of one core."""

LIBRARIES = ("torch", "transformers", "scipy.stats", "sklearn.linear_model", "pandas")
"""That the tests would import again and again."""

MOST_FILES = 3
"""Of the test files that import a module, those named alike first."""

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
    """One change: the module, which node of its tree (in walking order), and what it says in words."""

    path: str
    node: int
    line: int
    change: str


def mutants_of(path: Path, root: Path = ROOT) -> Iterator[Mutant]:
    """Every change this module can be given; annotations, docstrings and words are left alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    left_alone = set(_not_run(tree))
    for index, node in enumerate(ast.walk(tree)):
        if node in left_alone:
            continue
        changed = _changed(node)
        if changed is not None:
            change = f"{ast.unparse(node)} -> {ast.unparse(changed)}"
            yield Mutant(str(path.relative_to(root)), index, getattr(node, "lineno", 0), change)


def mutate(source: str, mutant: Mutant) -> str:
    """The module with that one change."""
    tree = ast.parse(source)
    target = next(node for index, node in enumerate(ast.walk(tree)) if index == mutant.node)
    changed = _changed(target)
    assert changed is not None

    class Replace(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return changed if node is target else super().generic_visit(node)

    return ast.unparse(ast.fix_missing_locations(Replace().visit(tree)))


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


def tests_of(path: str, root: Path = ROOT) -> tuple[str, ...]:
    """The test files that import a module; where none does, those of the modules that import it, and so on."""
    tests = sorted((root / "tests").rglob("test_*.py"))
    sources = sorted(p for folder in ("interp", "probes") for p in (root / folder).rglob("*.py"))
    wanted, seen = {_dotted(path)}, {_dotted(path)}
    while wanted:
        found = [str(t.relative_to(root)) for t in tests if _imports(t) & wanted]
        if found:
            stem = Path(path).stem.split("_")[0]
            return tuple(sorted(found, key=lambda name: (stem not in name, name))[:MOST_FILES])
        wanted = {_dotted(str(s.relative_to(root))) for s in sources if _imports(s) & wanted} - seen
        seen |= wanted
    return ()


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")


def _imports(path: Path) -> set[str]:
    return {
        n.module
        for n in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(n, ast.ImportFrom) and n.module
    }


def passes(tests: tuple[str, ...], tree: Path) -> bool:
    """Whether the quick tests pass in that tree, within the CPU time allowed.

    In a child of this process, which has the libraries in memory already but nothing of the tree.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = _run(tests, tree)
        finally:
            os._exit(code)
    return os.waitpid(child, 0)[1] == 0


def _run(tests: tuple[str, ...], tree: Path) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    os.chdir(tree)
    os.environ["PYTHONPATH"] = sys.path[0] = str(tree)
    return int(
        pytest.main(["-q", "-x", "-p", "no:cacheprovider", "--assert=plain", "-m", "not slow and not stress", *tests])
    )


def private_copy(into: Path) -> Path:
    tree = into / "tree"
    ignored = shutil.ignore_patterns(".venv*", ".git", "runs", "dist", "__pycache__", ".pytest_cache", ".hypothesis")
    shutil.copytree(ROOT, tree, ignore=ignored)
    if (ROOT.parent / "shared").exists():  # the models that some tests read, see tests/conftest.py
        (into / "shared").symlink_to(ROOT.parent / "shared")
    return tree


def drawn(n: int, seed: int) -> list[Mutant]:
    """A seeded sample of all mutants; a smaller n gives the first of them."""
    everything = [m for folder in FOLDERS for path in sorted((ROOT / folder).glob("*.py")) for m in mutants_of(path)]
    n = min(n, len(everything))
    print(f"{n} of {len(everything)} mutants")
    return random.Random(seed).sample(everything, n)


def survivors(earlier: Path) -> list[Mutant]:
    tried = [json.loads(line) for line in earlier.read_text(encoding="utf-8").splitlines()]
    return [Mutant(**{f.name: m[f.name] for f in fields(Mutant)}) for m in tried if m["survived"]]


def main() -> None:
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    sys.dont_write_bytecode = True
    for library in LIBRARIES:  # after the number of threads is set, and once for all children
        importlib.import_module(library)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--n", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--again", type=Path, help="try those that survived in an earlier --out, instead of a sample")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    sample = survivors(asked.again) if asked.again else drawn(asked.n, asked.seed)
    sound: dict[tuple[str, ...], bool] = {}
    killed = tried = 0
    with tempfile.TemporaryDirectory() as folder, asked.out.open("a") as out:
        tree = private_copy(Path(folder))
        for mutant in sample:
            tests = tests_of(mutant.path)
            if tests not in sound:
                sound[tests] = bool(tests) and passes(tests, tree)
            if not sound[tests]:
                print(f"NOT TESTED {mutant.path}: {tests} fail as they are, or there are none", flush=True)
                continue
            module = tree / mutant.path
            source = module.read_text()
            module.write_text(mutate(source, mutant))
            survived = passes(tests, tree)
            module.write_text(source)
            tried, killed = tried + 1, killed + (not survived)
            out.write(json.dumps({**vars(mutant), "survived": survived}) + "\n")
            out.flush()
            outcome = "SURVIVED" if survived else "killed"
            print(f"{killed}/{tried} {outcome} {mutant.path}:{mutant.line} {mutant.change}", flush=True)


if __name__ == "__main__":
    main()
