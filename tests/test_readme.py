"""Documents run: their Python as it stands, their commands through the real parser; their links lead somewhere."""

import re
import tomllib

import pytest

from tests.command_lines import command_lines, parsed
from tests.paths import ROOT

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("*/README.md"))]
README = (ROOT / "README.md").read_text()
LINES = [(path.relative_to(ROOT).as_posix(), line) for path in DOCUMENTS for line in command_lines(path.read_text())]
PYTHON = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.slow
def test_the_readmes_python_runs(capsys):
    blocks = PYTHON.findall(README)
    assert len(blocks) >= 3
    exec(compile("\n".join(blocks), "README.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "14 of 14 checks passed" in printed
    assert "(3, 240, 4, 16)" in printed


@pytest.mark.parametrize("package", [p.parent.name for p in DOCUMENTS[1:] if PYTHON.search(p.read_text())])
def test_the_python_of_a_packages_readme_runs(package):
    blocks = PYTHON.findall((ROOT / package / "README.md").read_text())
    exec(compile("\n".join(blocks), f"{package}/README.md", "exec"), {})


def test_packages_have_python_that_runs():
    assert PYTHON.search((ROOT / "interp" / "README.md").read_text())


@pytest.mark.parametrize("document, line", LINES)
def test_every_command_in_the_documents_can_be_parsed(document, line):
    assert parsed(line).command.name in line


def test_the_documents_commands_are_found():
    """Those with a folder in front, a comment behind and a launcher before them too."""
    found = {line for document, line in LINES if document == "README.md"}
    assert len(found) >= 15
    assert "interp compare RUN RUN ..." in found
    assert "interp run --model mistral-7b --probe all" in found
    assert {document for document, _ in LINES} >= {"README.md", "wind_tunnels/README.md", "prompts/README.md"}


@pytest.mark.parametrize(
    "document, link",
    [(path.relative_to(ROOT).as_posix(), link) for path in DOCUMENTS
     for link in sorted(set(re.findall(r"\]\(([\w/.-]+)\)", path.read_text())))],
)  # fmt: skip
def test_links_lead_somewhere(document, link):
    assert ((ROOT / document).parent / link).exists()


MADE_BY_A_RUN = {
    "runs/",
    "report.html",
    "run.json",
    "ledger.html",
    "ledger.json",
    "sweep.json",
    "config.json",
    "results.json",
}
A_FILE = re.compile(r"`([\w.-]*/[\w./-]*|[\w-]+\.(?:py|md|toml|json|ipynb|txt|html|css|js))`")
NAMED = [(path.relative_to(ROOT).as_posix(), name) for path in DOCUMENTS for name in A_FILE.findall(path.read_text())]


@pytest.mark.parametrize("document, name", sorted({(d, n) for d, n in NAMED if n not in MADE_BY_A_RUN}))
def test_every_file_that_a_document_names_exists(document, name):
    assert (ROOT / document).parent.joinpath(name).exists() or (ROOT / name).exists()


@pytest.mark.parametrize("package", ["interp", "probes", "prompts", "reports", "wind_tunnels", "benchmarks"])
def test_every_room_and_every_flat_file_of_a_package_is_in_its_readme(package):
    """A folder by its name and a slash, or, of a probe, by its name alone."""
    text = (ROOT / package / "README.md").read_text()
    modules = [
        path.relative_to(ROOT / package) for path in (ROOT / package).rglob("*.py") if not path.name.startswith("__")
    ]
    assert modules
    words = set(re.findall(r"[\w/]+", text))
    left_out = {m.parts[0] for m in modules if not {f"{m.parts[0]}/", m.parts[0].removesuffix(".py")} & words}
    assert left_out == set()


def test_the_readme_is_short_and_its_picture_small():
    assert len(README.splitlines()) < 250
    for picture in (ROOT / "examples" / "pictures").iterdir():
        assert picture.stat().st_size < 200_000


def test_every_registered_probe_is_in_the_readme():
    plugins = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    for probe in plugins["interp.probes"]:
        assert f"`{probe}`" in README, probe
        assert f"## `{probe}`" in (ROOT / "probes" / "README.md").read_text(), probe


def test_the_citation_names_this_version():
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
