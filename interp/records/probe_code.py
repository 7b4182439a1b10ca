"""A short hash of a probe's code: of its modules and of those that it imports.

Imports are followed within the package (of ours: `interp.probes` and `interp.statistics`). Comments, docstrings,
layout, texts of several words, imports, figures and `least_clusters` do not change the hash.
"""

import ast
import importlib.util
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from interp.probe import Probe
from interp.system.digest import digest_of

_OURS = ("interp.probes", "interp.statistics")
_WRITTEN_DIFFERENTLY = re.compile(r"['\"\\]")
"""Characters that versions of Python write differently when they unparse a syntax tree."""

_FIGURES = "figures"
"""The name of the method and of modules that draw."""


def code_hash(probe: Probe | type[Probe]) -> str:
    """The first 16 hexadecimal digits of a SHA-256 over the code that the probe's numbers depend on.

    For a class without a file (in a notebook) the hash of the class alone; empty if it cannot be read.
    """
    cls = probe if isinstance(probe, type) else type(probe)
    root = cls.__module__
    if _source_of(root) is None:
        try:
            return digest_of(_plain(ast.parse(textwrap.dedent(inspect.getsource(cls)))))
        except (OSError, TypeError):
            return ""
    packages = _OURS if _is_inside(root, _OURS) else (root.partition(".")[0], *_OURS)
    waiting, codes = [root], {}
    while waiting:
        name = waiting.pop()
        path = _source_of(name)
        if name not in codes and path is not None:
            codes[name], imported = _read(name, path.name, path.read_text(encoding="utf-8"))
            waiting += [each for each in imported if _is_inside(each, packages)]
    return digest_of(codes)


@cache
def _read(module: str, file: str, text: str) -> tuple[str, tuple[str, ...]]:
    tree = ast.parse(text)
    package = module if file == "__init__.py" else module.rpartition(".")[0]
    imported = tuple(_imported(tree, package))
    return _plain(tree), imported


def _is_inside(module: str, packages: tuple[str, ...]) -> bool:
    is_drawing = module.rpartition(".")[2] == _FIGURES
    return not is_drawing and any(module == p or module.startswith(f"{p}.") for p in packages)


def _source_of(module: str) -> Path | None:
    """The file of a module; None if there is no such module or source."""
    loaded = sys.modules.get(module)
    try:
        spec = importlib.util.find_spec(module) if loaded is None else loaded.__spec__
    except ModuleNotFoundError:
        return None
    origin = spec.origin if spec is not None else getattr(loaded, "__file__", None)
    return Path(origin) if origin and origin.endswith(".py") else None


def _imported(tree: ast.Module, package: str) -> Iterator[str]:
    for node in _without_figures(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, node.module] if node.module else above)
            yield module
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _without_figures(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.FunctionDef) and child.name == _FIGURES):
            yield child
            yield from _without_figures(child)


class _WithoutTexts(ast.NodeTransformer):
    """Every text of several words becomes an empty one."""

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        return ast.Constant("") if _has_words(node) else node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return ast.Constant("") if any(map(_has_words, node.values)) else self.generic_visit(node)


def _has_words(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value


def _plain(tree: ast.Module) -> str:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [part for part in node.body if not _is_left_out(part)]
    return _WRITTEN_DIFFERENTLY.sub("", ast.unparse(_WithoutTexts().visit(tree)))


def _is_left_out(part: ast.stmt) -> bool:
    if isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant):
        return isinstance(part.value.value, str)
    if isinstance(part, ast.Import | ast.ImportFrom):
        return True
    if isinstance(part, ast.AnnAssign):
        return ast.unparse(part.target) == "least_clusters"
    return isinstance(part, ast.FunctionDef) and part.name == _FIGURES
