"""Who may import whom, and what importing costs; each guard is shown to be able to fail.

A room is a folder of a package. Files in it are private to it unless its `__all__` names them; a room of `interp` that
has none is open. Imports between rooms go one way. A file that lies flat in a package is a room of its own.
"""

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from interp.registry import entries
from tests.paths import ROOT

SIBLINGS = ("probes", "prompts", "wind_tunnels", "reports")
PACKAGES = ("interp", *SIBLINGS)
LEVELS = {
    "interp": (
        "system", "statistics", "hooks", "records", "reading", "self_check", "editing", "loading", "prompting",
        "lens", "running", "certificates", "ledger", "cli",
    ),
    "probes": (
        "measures",
        "programs",
        " ".join(path.parent.name for name in ("probe", "study") for path in (ROOT / "probes").glob(f"*/{name}.py")),
        "simulations",
    ),
    "prompts": (),
    "wind_tunnels": ("tasks", "networks", "programs", "training", "evaluation", "plans", "studies", "cli"),
    "reports": ("claims", "plotly", "page", "certificate comparison ledger"),
}  # fmt: skip
"""The rooms of each package from the lowest to the highest: a room imports from lower ones alone, never from a peer."""
LEVEL = {
    package: {room: level for level, rooms in enumerate(levels) for room in rooms.split()}
    for package, levels in LEVELS.items()
}
LONGEST_FOLDER = 26
NUMPY_ONLY = (
    "errors", "information", "table", "reductions", "sites", "need", "prompt", "capture", "findings", "probe", "tunnel",
)  # fmt: skip
HEAVY = {"torch", "transformers", "pandas", "plotly", "scipy", "sklearn", "pydantic", "datasets"}


@dataclass(frozen=True)
class Import:
    """One name that a file imports from a module of ours, both written as `interp...`."""

    importer: str
    module: str
    name: str | None


def module_of(path: Path) -> str:
    """The name under which a file of the checkout is imported: siblings lie inside `interp`."""
    parts = path.with_suffix("").parts
    parts = parts if parts[0] == "interp" else ("interp", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(p.relative_to(ROOT)): p for package in PACKAGES for p in (ROOT / package).rglob("*.py")}


def imports_of(path: Path, source: str, known: Iterable[str] = MODULES, *, with_types: bool = False) -> list[Import]:
    """What a file imports from us, also inside functions; `with_types` also what it names for a type checker alone."""
    me, found = module_of(path), []
    package = me if path.name == "__init__.py" else me.rpartition(".")[0]

    def visit(node: ast.AST) -> None:
        if not with_types and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import):
            found.extend(Import(me, alias.name, None) for alias in node.names)
        if isinstance(node, ast.ImportFrom):
            above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
            module = ".".join([*above, node.module] if node.module else above)
            for alias in node.names:
                whole = f"{module}.{alias.name}"
                found.append(Import(me, whole, None) if whole in known else Import(me, module, alias.name))
        for child in ast.iter_child_nodes(node):
            visit(child)

    visit(ast.parse(source))
    return [each for each in found if each.module.split(".")[0] in ("interp", *SIBLINGS)]


@cache
def all_imports(*, with_types: bool = False) -> tuple[Import, ...]:
    """What all modules import from us."""
    files = [(path.relative_to(ROOT), path.read_text()) for path in MODULES.values()]
    return tuple(each for file in files for each in imports_of(*file, with_types=with_types))


def package_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[1] in SIBLINGS else parts[0]


def room_of(module: str) -> str | None:
    """The room a module lies in; none for one that lies flat in its package."""
    inside = module.split(".")[2 if package_of(module) in SIBLINGS else 1 :]
    return inside[0] if inside and inside[0] in LEVEL[package_of(module)] else None


def place_of(module: str) -> str:
    """The room a module lies in, or the module itself where it lies flat."""
    room = room_of(module)
    return f"{package_of(module)}/{room}" if room else module


def faults_of(imports: Iterable[Import], exported: Mapping[tuple[str, str], Iterable[str]]) -> list[str]:
    """Every import that no rule allows, in words."""
    found = []
    for each in imports:
        mine, theirs = package_of(each.importer), package_of(each.module)
        words = f"{each.importer} imports {each.module}" + (f".{each.name}" if each.name else "")
        if theirs != mine and (theirs != "interp" or each.module.split(".")[0] in SIBLINGS):
            found.append(f"{words}: siblings are reached through the registry")
            continue
        room, other = room_of(each.importer), room_of(each.module)
        if (room, mine) == (other, theirs):
            continue
        if (each.name or "").startswith("_"):
            found.append(f"{words}: a private name")
        if mine == theirs and room and other and LEVEL[mine][other] >= LEVEL[mine][room]:
            found.append(f"{words}: not downwards")
            continue
        file = each.module.rpartition(".")[2]
        if other and file != other and file not in exported[theirs, other]:
            found.append(f"{words}: {other} does not export it")
    return found


def exported_files() -> dict[tuple[str, str], tuple[str, ...]]:
    """What the `__init__` of each room names in `__all__`; every file of the rooms of `interp`, and of `measures`."""
    found = {}
    for package, rooms in LEVEL.items():
        for room in rooms:
            is_shared = package == "interp" or room == "measures"
            every = tuple(path.stem for path in (ROOT / package / room).glob("*.py")) if is_shared else ()
            tree = ast.parse((ROOT / package / room / "__init__.py").read_text())
            lists = [n.value for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"]
            found[package, room] = tuple(ast.literal_eval(lists[0])) if lists else every
    return found


def circle_in(imports: Iterable[Import]) -> list[str]:
    """Modules that import one another in a circle; none where there is no circle."""
    graph: dict[str, set[str]] = {}
    for each in imports:
        graph.setdefault(each.importer, set()).add(each.module)
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        return error.args[1]
    return []


def test_imports_go_one_way_without_circles():
    assert faults_of(all_imports(), exported_files()) == []
    assert len(all_imports()) > 1000
    assert circle_in(all_imports()) == []
    assert circle_in([Import("a", "b", None), Import("b", "c", "x"), Import("c", "a", None)])
    named_for_types = imports_of(Path("interp/need.py"), "if TYPE_CHECKING:\n    from interp.capture import Capture")
    assert named_for_types == []


def test_rooms_and_flat_files_depend_on_one_another_one_way_also_in_their_types():
    with_types = all_imports(with_types=True)
    assert len(with_types) > len(all_imports()) and faults_of(with_types, exported_files()) == []
    between = [Import(place_of(each.importer), place_of(each.module), None) for each in with_types]
    assert (
        circle_in(
            each for each in between if each.importer != each.module and "interp" not in (each.importer, each.module)
        )
        == []
    )


@pytest.mark.parametrize(
    "path, source, fault",
    [
        ("probes/causal/axis.py", "def f():\n    from interp.wind_tunnels import Bijection", "registry"),
        ("probes/causal/axis.py", "import wind_tunnels.tasks.bijection", "registry"),
        ("interp/findings.py", "import interp.probes.manifold.probe", "registry"),
        ("interp/hooks/window.py", "from interp.reading.forward import capture", "not downwards"),
        ("probes/belief/readout.py", "from ..causal.axis import fit_axis", "not downwards"),
        ("interp/running/run.py", "from interp.prompting.hub import read_hub", "does not export"),
        ("probes/causal/axis.py", "from interp.records.record import _number", "a private name"),
    ],
)
def test_the_guard_of_the_rooms_can_fail(path, source, fault):
    (said,) = faults_of(imports_of(Path(path), source), exported_files())
    assert fault in said


def test_every_folder_is_a_room_that_says_what_it_is_for():
    for package, rooms in LEVEL.items():
        inside = {p.parent.relative_to(ROOT / package).parts[0] for p in (ROOT / package).glob("*/__init__.py")}
        assert inside == set(rooms)
        for room in rooms:
            said = ast.get_docstring(ast.parse((ROOT / package / room / "__init__.py").read_text()))
            assert said and len(said.splitlines()[0]) > 20, (package, room)
    for (package, room), names in exported_files().items():
        for name in names:
            assert (ROOT / package / room / f"{name}.py").is_file(), (package, room, name)


def test_no_folder_holds_more_than_one_can_survey():
    folders = {path.parent for path in MODULES.values()}
    sizes = {folder.relative_to(ROOT): len([*folder.glob("*.py"), *folder.glob("*.pyi")]) for folder in folders}
    assert {folder: n for folder, n in sizes.items() if n > LONGEST_FOLDER} == {}


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_importing_interp_its_contracts_and_its_command_line_is_light():
    assert loaded_after("import interp") & {"numpy", *HEAVY} == set()
    assert loaded_after("\n".join(f"import interp.{module}" for module in NUMPY_ONLY)) & HEAVY == set()
    assert "numpy" in loaded_after("from interp import Table")
    loaded = loaded_after("import interp.cli")
    assert loaded & {"torch", "transformers", "pandas", "plotly", "numpy"} == set()


@pytest.mark.parametrize("package", SIBLINGS)
def test_probes_and_prompt_sets_are_imported_without_torch_and_plotly(package):
    if package == "wind_tunnels":
        statement = "from interp.wind_tunnels import Bijection"
    else:
        statement = "\n".join(f"import {name}" for name in MODULES if package_of(name) == package)
    assert loaded_after(statement) & {"torch", "transformers", "plotly"} == set()


@pytest.mark.parametrize("package", ["interp", "interp.probes", "interp.prompts", "interp.wind_tunnels"])
def test_every_public_name_is_there_after_every_submodule_was_imported(package):
    for name, path in MODULES.items():
        if path.name not in ("__main__.py", "compiling.py"):  # scripts; the second needs Tracr
            importlib.import_module(name)
    public = importlib.import_module(package)
    for name in public.__all__:
        assert not isinstance(getattr(public, name), type(importlib)), name
    if package == "interp":
        assert len(public.__all__) > 40 and all(callable(getattr(public, name)) for name in public.__all__)


@pytest.mark.parametrize("package, kinds", [("probes", ("probe", "study")), ("wind_tunnels", ("tunnel",))])
def test_every_registered_class_is_a_public_name_of_its_package(package, kinds):
    found = [entry for kind in kinds for entry in entries(kind).values()]
    registered = {entry.attr for entry in found if entry.module.startswith(f"interp.{package}.")}
    assert len(registered) > 10
    assert registered - {*importlib.import_module(f"interp.{package}").__all__} == set(), f"{package}/__init__.pyi"


def test_an_unknown_public_name_is_an_attribute_error():
    import interp

    with pytest.raises(AttributeError, match="nothing"):
        _ = interp.nothing
