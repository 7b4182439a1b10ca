"""The fields of a probe or study as its source writes them: the shell cannot wait for an import on every TAB."""

import ast
from functools import cache
from importlib.util import find_spec, resolve_name
from pathlib import Path

from interp.registry import Kind, entries


def source_fields(kind: Kind, name: str) -> dict[str, tuple[str, ...]]:
    """Every field with the words it takes: those of a `Literal`, true and false, none, else its default.

    Nothing is known of a class that its module only passes on, or whose module has no source.
    """
    module, _, cls = entries(kind)[name].value.partition(":")
    body = next((n.body for n in _statements(module) if isinstance(n, ast.ClassDef) and n.name == cls), [])
    lines = [n for n in body if isinstance(n, ast.AnnAssign) and "ClassVar" not in ast.unparse(n.annotation)]
    return {ast.unparse(line.target): _words(module, line.annotation) or _default(line.value) for line in lines}


@cache
def _statements(module: str) -> tuple[ast.stmt, ...]:
    spec = find_spec(module)
    if spec is None or spec.origin is None or not spec.origin.endswith(".py"):
        return ()
    return tuple(ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body)


def _words(module: str, annotation: ast.expr) -> tuple[str, ...]:
    """The words that an annotation admits; none where it admits any number or text."""
    match annotation:
        case ast.Name(id="bool"):
            return ("true", "false")
        case ast.Constant(value=None):
            return ("none",)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=ast.Tuple(elts=options)):
            return tuple(str(ast.literal_eval(option)) for option in options)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=option):
            return (str(ast.literal_eval(option)),)
        case ast.Subscript(value=ast.Name(id="tuple"), slice=ast.Tuple(elts=[inner, *_])):
            return _words(module, inner)
        case ast.BinOp(left=left, right=right):
            return (*_words(module, left), *_words(module, right))
        case ast.Name(id=alias):
            return _words_of_alias(module, alias)
    return ()


def _words_of_alias(module: str, alias: str) -> tuple[str, ...]:
    """The words of a type that has a name of its own, here or in the module it is imported from."""
    for statement in _statements(module):
        match statement:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if name == alias:
                return _words(module, value)
            case ast.ImportFrom(module=str(source), names=names, level=level) if alias in (
                n.name for n in names if not n.asname
            ):
                package = module.rpartition(".")[0]
                return _words_of_alias(resolve_name("." * level + source, package), alias)
    return ()


def _default(value: ast.expr | None) -> tuple[str, ...]:
    """A default that can stand on the command line as it is: a number or a text."""
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float | str):
        return (str(value.value),)
    return ()
