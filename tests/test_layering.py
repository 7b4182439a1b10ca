"""Who may import whom, and what importing costs; each guard is shown to be able to fail."""

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SIBLINGS = ("probes", "prompts", "wind_tunnels", "reports")
NUMPY_ONLY = (
    "errors", "information", "table", "folds", "sites", "need", "prompt", "capture", "findings", "probe", "tunnel",
)  # fmt: skip
HEAVY = {"torch", "transformers", "pandas", "plotly", "scipy", "sklearn", "pydantic", "datasets", "umap"}


def imported_packages(source: str, *, everywhere: bool) -> set[str]:
    """Packages that a module's text imports; `everywhere` also inside functions, never under TYPE_CHECKING."""
    tree = ast.parse(source)
    found: set[str] = set()

    def visit(node: ast.AST, inside: bool) -> None:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        if isinstance(node, ast.Import) and (everywhere or not inside):
            found.update(alias.name.split(".")[0] for alias in node.names)
        if isinstance(node, ast.ImportFrom) and (everywhere or not inside):
            found.add((node.module or "").split(".")[0])
        deeper = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for child in ast.iter_child_nodes(node):
            visit(child, deeper)

    visit(tree, False)
    return found


def broken_directions(package: str, source: str) -> set[str]:
    """Packages of ours that a module of `package` must not import."""
    forbidden = set(SIBLINGS) - {package}
    return imported_packages(source, everywhere=True) & forbidden


@pytest.mark.parametrize("package", ["interp", *SIBLINGS])
def test_siblings_are_never_imported(package):
    for path in (ROOT / package).rglob("*.py"):
        assert broken_directions(package, path.read_text()) == set(), path


def test_the_direction_guard_can_fail():
    assert broken_directions("probes", "def f():\n    from wind_tunnels.bijection import Bijection") == {"wind_tunnels"}
    assert broken_directions("interp", "import probes.manifold") == {"probes"}


@pytest.mark.parametrize("module", NUMPY_ONLY)
def test_contracts_import_numpy_only(module):
    source = (ROOT / "interp" / f"{module}.py").read_text()
    assert imported_packages(source, everywhere=False) & HEAVY == set()


def test_the_contract_guard_can_fail():
    assert imported_packages("import torch", everywhere=False) & HEAVY == {"torch"}
    assert imported_packages("if TYPE_CHECKING:\n    import torch", everywhere=False) == set()


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint(' '.join(m for m in sys.modules if '.' not in m))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.split())


def test_importing_interp_loads_neither_numpy_nor_torch():
    assert loaded_after("import interp") & {"numpy", *HEAVY} == set()
    assert "numpy" in loaded_after("from interp import Table")


def test_the_command_line_starts_without_torch():
    loaded = loaded_after("import interp.cli")
    assert loaded & {"torch", "transformers", "pandas", "plotly", "numpy"} == set()


@pytest.mark.parametrize("package", SIBLINGS)
def test_probes_and_prompt_sets_are_imported_without_torch_and_plotly(package):
    if package == "wind_tunnels":
        statement = "import wind_tunnels.bijection"
    else:
        modules = [m.name for m in pkgutil.walk_packages([str(ROOT / package)], f"{package}.")]
        statement = "\n".join(f"import {name}" for name in modules)
    assert loaded_after(statement) & {"torch", "transformers", "plotly"} == set()


def test_every_public_name_is_callable_after_every_submodule_was_imported():
    import interp

    for module in pkgutil.walk_packages([str(ROOT / "interp")], "interp."):
        if module.name != "interp.__main__":
            importlib.import_module(module.name)
    for name in interp.__all__:
        assert callable(getattr(interp, name)), name
    assert set(interp.__all__) == set(interp._HOME)


def test_an_unknown_public_name_is_an_attribute_error():
    import interp

    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = interp.nothing
