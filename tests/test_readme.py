"""Documents run: their Python as it stands, their commands through the real parser; their links lead somewhere."""

import re
import textwrap
import tomllib
from pathlib import Path

import pytest

import hatch_build
from tests.command_lines import command_lines, parsed
from tests.paths import ROOT

PAGES = sorted((ROOT / "docs").rglob("*.md"))
DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("*/README.md")), *PAGES]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = [(path.relative_to(ROOT).as_posix(), line) for path in DOCUMENTS for line in command_lines(path.read_text())]
PYTHON = re.compile(r"^ *```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
WITH_PYTHON = [path.relative_to(ROOT).as_posix() for path in DOCUMENTS if PYTHON.search(path.read_text())]


@pytest.mark.slow
@pytest.mark.parametrize("document", WITH_PYTHON)
def test_the_python_of_a_document_runs(document, tmp_path, monkeypatch, capsys):
    """All blocks of a document one after the other, as a reader would; a block marked `py` is another library's."""
    monkeypatch.chdir(tmp_path)
    blocks = [textwrap.dedent(block) for block in PYTHON.findall((ROOT / document).read_text())]
    exec(compile("\n".join(blocks), document, "exec"), {"__name__": "document"})
    if document == "docs/start/first-run.md":
        printed = capsys.readouterr().out
        assert "15 of 15 checks passed" in printed and "(3, 240, 4, 16)" in printed


def test_documents_have_python_commands_and_links():
    assert {"README.md", "docs/coming-from.md", "docs/start/first-run.md"} <= set(WITH_PYTHON) and len(WITH_PYTHON) >= 8
    # Those with a folder in front, a comment behind and a launcher before them too.
    found = {line for _, line in LINES}
    assert len(found) >= 50
    assert "interp compare RUN RUN ..." in found
    assert "interp run --model mistral-7b --probe all" in found
    assert {document for document, _ in LINES} >= {"README.md", "docs/how-to/compare.md", "docs/reference/prompts.md"}
    assert links_beside("[a](b/c.md#i) ![j](k.png) [d](https://e) [f](#g)") == {"b/c.md", "k.png"}
    links = '<a href="./f/report.html#g"> <a href="#h"> <a href="https://i"> <script>href="j"</script>'
    assert links_beside(f"<!doctype html> {links}") == {"./f/report.html"}
    assert len(LINKED) > 20


@pytest.mark.parametrize("document, line", LINES)
def test_every_command_in_the_documents_can_be_parsed(document, line):
    assert parsed(line).command.name in line


LINKED = [
    path.relative_to(ROOT).as_posix()
    for path in [*DOCUMENTS, *sorted((ROOT / "examples").rglob("*.html"))]
    if path not in PAGES  # mkdocs holds the links of pages to their targets
]


def links_beside(text: str) -> set[str]:
    """The files beside it that a document links to, or a page that a run has made; its scripts left out."""
    if not text.startswith("<!"):
        return set(re.findall(r"\]\(([\w/.-]+)(?:#[\w-]+)?\)", text))
    shown = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    return set(re.findall(r"\bhref=\"(?!\w+:)([^\"#]+)", shown))


@pytest.mark.parametrize("document", LINKED)
def test_links_lead_somewhere(document):
    file = ROOT / document
    links = links_beside(file.read_text(encoding="utf-8"))
    assert [link for link in sorted(links) if not (file.parent / link).exists()] == []


MADE_BY_A_RUN = {
    "capture.json",
    "program.json",
    "runs/",
    "report.html",
    "run.json",
    "ledger.html",
    "ledger.json",
    "sweep.json",
    "config.json",
    "results.json",
    "index.html",
    "runs/index.html",
    "cfg.json",
    "tokens.json",
}
A_FILE = re.compile(r"`([\w.-]*/[\w./-]*|[\w-]+\.(?:py|md|toml|json|ipynb|txt|html|css|js))`")
NAMED = [(path.relative_to(ROOT).as_posix(), name) for path in DOCUMENTS for name in A_FILE.findall(path.read_text())]


@pytest.mark.parametrize("document, name", sorted({(d, n) for d, n in NAMED if n not in MADE_BY_A_RUN}))
def test_every_file_that_a_document_names_exists(document, name):
    assert (ROOT / document).parent.joinpath(name).exists() or (ROOT / name).exists()


@pytest.mark.parametrize("package", ["interp", "probes", "prompts", "reports", "wind_tunnels", "benchmarks"])
def test_every_room_and_every_flat_file_of_a_package_is_in_its_readme(package):
    """A folder by its name and a slash; the folders of probes are not named one by one."""
    text = (ROOT / package / "README.md").read_text()
    modules = [
        path.relative_to(ROOT / package) for path in (ROOT / package).rglob("*.py") if not path.name.startswith("__")
    ]
    assert modules
    words = set(re.findall(r"[\w/]+", text))
    left_out = {m.parts[0] for m in modules if not {f"{m.parts[0]}/", m.parts[0].removesuffix(".py")} & words}
    probes = {path.parent.name for path in (ROOT / "probes").glob("*/probe.py")}
    assert left_out - (probes if package == "probes" else set()) == set()


def test_the_readme_is_short_and_its_picture_small():
    assert len(README.splitlines()) <= 130 and len(hatch_build.released(README).split()) <= 900
    for picture in (ROOT / "examples" / "pictures").iterdir():
        assert picture.stat().st_size < 200_000


PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
URLS = PROJECT["project"]["urls"]
RAW = URLS["Repository"].replace("github.com", "raw.githubusercontent.com") + "/main/"
PUBLISHED_LATER = re.compile(r"<!-- after release:.*?-->|^# after release: .*?$", re.DOTALL | re.MULTILINE)
"""What is marked as of the release."""

MENTIONING = [*DOCUMENTS, ROOT / "CITATION.cff", *sorted((ROOT / "examples").rglob("README.md")),
              *sorted((ROOT / "examples").glob("*.ipynb"))]  # fmt: skip


@pytest.mark.parametrize("file", MENTIONING, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_before_the_release_nothing_leads_to_places_that_are_not_public(file):
    """The index, the repository and the site: what needs them is marked as of the release."""
    text = PUBLISHED_LATER.sub("", file.read_text(encoding="utf-8"))
    assert [place for place in (*URLS.values(), RAW, "pip install interp") if place in text] == []


def test_no_output_of_a_notebook_names_a_folder_of_the_machine_that_made_it():
    for notebook in (ROOT / "examples").glob("*.ipynb"):
        lines = [line for line in notebook.read_text(encoding="utf-8").splitlines() if "bdata" not in line]
        assert [line for line in lines if re.search(r"site-packages|['\"]/\w+/", line)] == [], notebook


def leads_to(link: str) -> list[Path]:
    """The files of this repository that a link of the published README stands for; none for a link to elsewhere."""
    page = link.split("#")[0].removeprefix(URLS["Documentation"]).strip("/")
    for start in (RAW, URLS["Repository"] + "/blob/main/"):
        if link.startswith(start):
            return [ROOT / link.removeprefix(start)]
    return [ROOT / "docs" / f"{page}.md", ROOT / "docs" / page / "index.md"]


def test_links_of_the_index_are_absolute_and_lead_to_what_exists():
    shown = hatch_build.absolute(hatch_build.released(README), URLS)
    links = re.findall(r"\]\(([^)]+)\)", shown)
    ours = [link for link in links if "arxiv.org" not in link]
    assert len(ours) >= 20 and all(link.startswith((RAW, URLS["Repository"], URLS["Documentation"])) for link in ours)
    assert [link for link in ours if not any(path.exists() for path in leads_to(link))] == []
    text = "[a](docs/b/index.md#c) [d](docs/e.md) ![f](g/h.png) [i](J.md) [k](https://l) [m](#n)"
    documentation, repository = URLS["Documentation"], URLS["Repository"]
    assert hatch_build.absolute(text, URLS) == (
        f"[a]({documentation}b/#c) [d]({documentation}e/) ![f]({RAW}g/h.png) [i]({repository}/blob/main/J.md) "
        "[k](https://l) [m](#n)"
    )


@pytest.mark.parametrize("name", hatch_build.CHANGED_BY_RELEASE)
def test_the_switch_turns_a_checkout_into_a_release(name):
    before = (ROOT / name).read_text(encoding="utf-8")
    after = hatch_build.released(before)
    assert after != before and hatch_build.released(after) == after
    assert "release:" not in after and "before release" not in after and "pip install ." not in after
    assert URLS["Documentation"] in after or "pip install interp" in after


def test_every_registered_probe_is_in_the_readme_and_has_a_page():
    for probe in PROJECT["project"]["entry-points"]["interp.probes"]:
        assert f"`{probe}`" in README, probe
        assert (ROOT / "docs" / "reference" / "probes" / f"{probe}.md").exists(), probe


def test_the_citation_names_the_version_that_comes_next_and_the_repository():
    version = PROJECT["tool"]["hatch"]["version"]["fallback-version"].removesuffix(".dev0")
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {version}\n" in citation
    assert f"\n## {version}" in (ROOT / "CHANGELOG.md").read_text()
    assert f'repository-code: "{URLS["Repository"]}"' in citation and f'url: "{URLS["Documentation"]}"' in citation
