"""One import name: a user's own `prompts.py`, `reports/` or `probes/` neither breaks us nor is broken by us.

Shown in a checkout, an editable install and a wheel; in a script, a notebook, by `python -m interp` and `interp`.
"""

import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.paths import ROOT

SCRIPT = """
import prompts, wind_tunnels, probes.mine, reports.mine, tests.mine
assert {prompts.MINE, wind_tunnels.MINE, probes.mine.MINE, reports.mine.MINE, tests.mine.MINE} == {"mine"}
import interp
from interp import Probe, Scalar, Table
from interp.probes import Manifold
from interp.prompts import mixed, sula_prompts
from interp.wind_tunnels import Bijection
assert len(mixed()) == 1008
assert {each.__module__.split(".")[0] for each in (Probe, Manifold, Bijection, sula_prompts)} == {"interp"}
small = Manifold(n_permutations=19, n_splits=2, n_null=20, n_bootstrap=20)
record = interp.run(probes=[small], n_pool=12, out=None, quiet=True)
assert record.findings["manifold"]["pc1_share"].value > 0
print("measured with", interp.__file__)
"""
NOTEBOOK = f"""
import nbformat
from nbclient import NotebookClient
book = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell({SCRIPT!r})])
done = NotebookClient(book, kernel_name="python3", timeout=300).execute()
print(done.cells[0].outputs[-1].text)
"""


def write_own_modules(folder: Path) -> None:
    """Modules, a package and folders without a package in them, named as ours are in a checkout."""
    for file in ("prompts.py", "wind_tunnels.py", "probes/mine.py", "reports/mine.py", "tests/mine.py"):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('MINE = "mine"\n')
    (folder / "interp").mkdir(exist_ok=True)  # a folder that a checkout was cloned into, say


def printed(command: list[str], folder: Path, **environment: str) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_a_checkout_on_the_path_finds_the_packages_beside_it(tmp_path):
    code = "import interp.probes.manifold as found; print(found.__file__)"
    said = printed([sys.executable, "-S", "-c", code], tmp_path, PYTHONPATH=f"{ROOT}:{sysconfig.get_path('purelib')}")
    assert said.strip() == str(ROOT / "probes" / "manifold" / "__init__.py")


@pytest.fixture(scope="module", params=["editable", "wheel"])
def installed(request, tmp_path_factory) -> tuple[Path, str]:
    """The Python of a fresh environment with `interp` alone in it, and where `interp` is; it borrows the libraries."""
    home = tmp_path_factory.mktemp(request.param)
    venv.create(home / "env", with_pip=False)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(home / "env")}))
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    how = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet"]
    what = ["--editable", str(ROOT)]
    if request.param == "wheel":
        subprocess.run([sys.executable, "-m", "pip", "wheel", *how, "-w", home, str(ROOT)], check=True)
        what = [str(next(home.glob("interp-*.whl")))]
    python = home / "env" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "pip", f"--python={python}", "install", *how, *what], check=True)
    write_own_modules(site)
    return python, str(ROOT if request.param == "editable" else site)


@pytest.mark.slow
@pytest.mark.parametrize("way", ["script", "notebook", "module", "command"])
def test_an_installed_package_gets_along_with_modules_of_a_users_own(installed, way, tmp_path):
    python, where = installed
    write_own_modules(tmp_path)
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "notebook.py").write_text(NOTEBOOK)
    asked = ["run", "--n-pool", "12", "--set", "n_null=20", "--quiet"]
    command = {
        "script": [python, "script.py"],
        "notebook": [python, "notebook.py"],
        "module": [python, "-m", "interp", *asked],
        "command": [python.parent / "interp", *asked],
    }[way]
    said = printed(list(map(str, command)), tmp_path)
    if way in ("script", "notebook"):
        assert f"measured with {where}" in said
    else:
        assert (tmp_path / said.split()[-1]).name == "report.html"


@pytest.mark.slow
def test_the_sdist_and_the_wheel_made_of_it_hold_every_file_and_pass_the_index_checks(tmp_path):
    building = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(building, check=True, capture_output=True)
    made = sorted(map(str, tmp_path.iterdir()))
    assert [Path(each).suffix for each in made] == [".whl", ".gz"]
    checking = subprocess.run(
        [sys.executable, "-m", "twine", "check", "--strict", *made], capture_output=True, text=True
    )
    assert checking.returncode == 0 and checking.stdout.count("PASSED") == 2, checking.stdout
    with zipfile.ZipFile(made[0]) as wheel:
        held = {name for name in wheel.namelist() if ".dist-info/" not in name}
        (metadata,) = (wheel.read(name).decode() for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    siblings = ("probes/", "prompts/", "wind_tunnels/", "reports/")
    wanted = {name for name in tracked if name.startswith("interp/")}
    wanted |= {f"interp/{name}" for name in tracked if name.startswith(siblings)}
    assert held == wanted
    assert "Project-URL: Repository, https://" in metadata and "Classifier: Typing :: Typed" in metadata


def test_a_checkout_without_git_has_a_version(tmp_path):
    """As a folder from an archive has: the fallback of `pyproject.toml`."""
    for name in ("pyproject.toml", "hatch_build.py", "README.md"):
        shutil.copy(ROOT / name, tmp_path)
    code = (
        "from hatchling.metadata.core import ProjectMetadata\nfrom hatchling.plugin.manager import PluginManager\n"
        "print(ProjectMetadata('.', PluginManager()).version)"
    )
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["version"]
    assert printed([sys.executable, "-c", code], tmp_path).strip() == settings["fallback-version"]
