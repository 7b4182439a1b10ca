"""Whatever a stranger's files say is text: in pages, notebooks, figures, exports and terminals.

Every text of a file is replaced, once by `HURT` and once by as many semicolons. What is made of the two has to be
the same tree of elements, as html5lib reads it, which follows the standard that browsers follow. Where there is a
Chromium it opens the pages too.
"""

import ast
import base64
import csv
import hashlib
import io
import json
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import html5lib
import numpy as np
import pandas
import pytest
from axe_playwright_python.sync_playwright import Axe
from interp.reports.page.about import bibtex
from interp.reports.page.render import PLOTLY, static
from pydantic import BaseModel, ValidationError

import interp
from interp.cli.app import main
from interp.errors import InterpError
from interp.formatting import printable
from interp.ledger.ledger import LEDGER_NAME, LedgerFile, show_ledger
from interp.records import token_strip
from interp.records.record import RunRecord, open_run
from interp.records.run_file import RunFile
from interp.registry import load_entry
from interp.running.generate import Continuation, Continuations
from interp.running.patching import PatchingMap
from interp.running.spec import RunSpec
from interp.table import LABEL, Table
from tests.hostile_files import RECORDS
from tests.interp.certificates.test_certificate_study import HERE
from tests.quick import quick
from tests.reports.everything import SETTINGS
from tests.reports.parsed import parse

HURT = (
    '</script><script>window.hurt=1</script><!--<script><img src=x onerror="window.hurt=2"><b>\'&amp;</title></style>'
    "<a href='javascript:window.hurt=3'>l</a><svg onload=window.hurt=4>]]>{{7*7}}\u2028\x1b]0;hurt\x07\x9b2J"
)
NAME = "<img src=x onerror=window.hurt=5>&\"'"
"""What may be the name of a file, too."""


def tame(text: str) -> str:
    """As many semicolons: sorted between digits and letters, as `<` is."""
    return ";" * len(text)


def _texts(value: object, at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Every text below a value with its holder and its key, under the kind of place that it stands at.

    Left out are names of files, those of numbers that a headline or a control is, and parameters, of which a probe
    refuses what does not fit.
    """
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        here = (*at, key) if isinstance(key, str) else at
        is_name = key == "path" or here[-1:] == ("headline",) or (key == "scalar" and "controls" in at)
        if isinstance(part, str) and not is_name and "parameters" not in at:
            yield (*here[:1], *here[-1:]), value, key
        yield from _texts(part, here)


def spoil_texts(file: Path, kind: type[BaseModel], mark: str) -> int:
    """Put `mark` for every text of a JSON file that may be any text; how many kinds of place there are."""
    n, content = 0, json.loads(file.read_text(encoding="utf-8"))
    places: dict[tuple[str, ...], list[tuple[Any, Any, str]]] = {}
    for at, holder, key in _texts(content):
        places.setdefault(at, []).append((holder, key, holder[key]))
    for found in places.values():
        for holder, key, _ in found:
            holder[key] = mark
        try:
            kind.model_validate(content)
        except ValidationError:  # it names a field, or is one of a few words
            for holder, key, text in found:
                holder[key] = text
        else:
            n += 1
    for name in {"model", "prompts", "environment", "timings"} & set(content):
        content[name][mark] = 1.0 if name == "timings" else mark
    file.write_text(json.dumps(content), encoding="utf-8")
    return n


def spoil_record(folder: Path, mark: str) -> None:
    """The record with every text of it, and every label of its tables, replaced."""
    for file in folder.glob("tables/*.parquet"):
        frame = pandas.read_parquet(file)
        labels = [c for c in frame.columns if not pandas.api.types.is_numeric_dtype(frame[c])]
        frame.assign(**dict.fromkeys(labels, mark)).to_parquet(file, index=False)
    assert spoil_texts(folder / "run.json", RunFile, mark) > 20
    if (folder / "tokens.json").exists():
        assert spoil_texts(folder / "tokens.json", token_strip._File, mark) >= 2


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A run of two probes with a strip of tokens, and a certificate."""
    folder = tmp_path_factory.mktemp("markup")
    settings = {name: SETTINGS[name] for name in ("orthogonality", "manifold")}
    run = interp.run(
        probes=[*settings], settings=settings, n_pool=40, show_tokens=(0,), out=folder, quiet=True, report=False
    )
    shutil.move(run.path, folder / "first")
    shutil.move(interp.certify(HERE, scale="smoke", out=folder).path, folder / "certificate")
    return folder


@pytest.fixture(scope="module")
def both(made, tmp_path_factory) -> tuple[Path, Path]:
    """Two folders with two runs, a certificate and a ledger: each text is `HURT` in one, semicolons in the other."""
    return tuple(spoil(made, tmp_path_factory.mktemp("spoilt"), mark) for mark in (HURT, tame(HURT)))


def spoil(made: Path, to: Path, mark: str) -> Path:
    name = NAME if mark == HURT else tame(NAME)
    for run in ("first", "certificate"):
        shutil.copytree(made / run, to / run)
        spoil_record(to / run, mark)
    shutil.copytree(to / "first", to / name)
    other = json.loads((to / name / "run.json").read_text(encoding="utf-8"))
    other["environment"]["python"] = f"{mark}2"
    (to / name / "run.json").write_text(json.dumps(other), encoding="utf-8")
    (to / "ledger").mkdir()
    file = to / "ledger" / LEDGER_NAME
    file.write_bytes((RECORDS / "ledger-1.json").read_bytes())
    assert spoil_texts(file, LedgerFile, mark) > 20
    return to


def _page_of_second(folder: Path) -> Path:
    (name,) = (path.name for path in folder.iterdir() if path.name in (NAME, tame(NAME)))
    return open_run(folder / name).show()


def _comparison(folder: Path) -> Path:
    runs = [path for path in sorted(folder.iterdir()) if path.name in ("first", NAME, tame(NAME))]
    mark = HURT if NAME in {run.name for run in runs} else tame(HURT)
    return interp.compare(runs, labels=[mark, f"{mark}2"], out=folder / "compared", quiet=True).path / "report.html"


def _index(folder: Path) -> Path:
    for run in (folder / "first", folder / "certificate"):
        open_run(run).show()
    (folder / f"{'<svg onload=hurt()>' if (folder / NAME).exists() else tame('<svg onload=hurt()>')}").mkdir()
    return interp.index_runs(folder)


def _continuations(folder: Path) -> Path:
    return _written(HURT if (folder / NAME).exists() else tame(HURT)).write(folder / "words.html")


def _written(mark: str) -> Continuations:
    each = Continuation(mark, (1, 2), (1, 3), mark + "a", mark + mark, mark)
    return Continuations(mark, (mark,), mark, (each, replace(each, shared="", text="", prompt="p")))


PAGES = {
    "record": _page_of_second,
    "certificate": lambda folder: open_run(folder / "certificate").show(), "comparison": _comparison, "index": _index,
    "ledger": lambda folder: show_ledger(folder / "ledger"), "continuations": _continuations,
}  # fmt: skip


@pytest.fixture(scope="module")
def pages(both) -> dict[str, tuple[Path, Path]]:
    """Every kind of page, of the files that hurt and of the others."""
    return {kind: tuple(make(folder) for folder in both) for kind, make in PAGES.items()}


@cache
def parsed(page: str | Path):
    """A page, or a text, as a browser reads it; without plotly's script, which is ours and long."""
    text = page.read_text(encoding="utf-8") if isinstance(page, Path) else page
    return html5lib.parse(text.replace(static(PLOTLY), ""), namespaceHTMLElements=False)


def tree(page: str | Path) -> list[tuple[int, object, tuple[str, ...]]]:
    """Every element with its depth and the names of its attributes, comments too."""

    def walk(element, depth):
        yield depth, element.tag if isinstance(element.tag, str) else "comment", tuple(sorted(element.attrib))
        for child in element:
            yield from walk(child, depth + 1)

    return [*walk(parsed(page), 0)]


def elements(page: str | Path, tag: str):
    return parsed(page).iter(tag)


@pytest.mark.parametrize("kind", PAGES)
def test_a_page_holds_nothing_that_was_not_ours_and_links_to_files_beside_it_or_our_site(pages, kind):
    hurt, plain = pages[kind]
    assert "window.hurt=" in "".join(parsed(hurt).itertext()) and tree(hurt) == tree(plain)
    text = hurt.read_text(encoding="utf-8")
    assert obeyed(text) == [] and r"\x1b]0;hurt\x07" in text
    for link in (link for page in (hurt, plain) for link in elements(page, "a")):
        parts = urlsplit(link.get("href"))
        assert (parts.scheme, parts.netloc) in {("", ""), ("https", "interp-authors.github.io")}, link.attrib


def sha(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


@pytest.mark.parametrize("kind", PAGES)
def test_the_policy_of_a_page_admits_its_own_scripts_and_styles_and_nothing_has_a_source(pages, kind):
    page = parse(pages[kind][1].read_text(encoding="utf-8"))
    (meta,) = (e for e in page.all("meta") if e.attributes.get("http-equiv") == "Content-Security-Policy")
    directives = dict(part.split(" ", 1) for part in meta.attributes["content"].split("; "))
    run = {sha(e.text) for e in page.all("script") if "type" not in e.attributes}
    assert directives["default-src"] == "'none'" and set(directives["script-src"].split()) == run
    assert set(directives["style-src-elem"].split()) == {sha(page.all("style")[0].text), sha("")}
    assert "http" not in meta.attributes["content"]
    # A policy governs what follows it: before it there must be nothing that it could have stopped.
    assert [e.tag for e in page.elements[:4]] == ["html", "head", "meta", "meta"] and page.elements[3] is meta
    assert not [e for e in page.elements if {"src", "action", "data", "style"} & e.attributes.keys()]
    assert not page.all("link") and not page.all("iframe")


def obeyed(text: str) -> list[str]:
    """Control characters of a text, also as JSON escapes them; plotly's script is not read."""
    bare = text.replace(static(PLOTLY), "")
    return [c for c in sorted(set(bare)) if printable(c) != c] + re.findall(r"(?<!\\)\\u00[01789][0-9a-f]", bare)


def tags(value: object) -> list[str]:
    """All markup in the texts of a figure, as plotly would read it."""
    if isinstance(value, str):
        return re.findall(r"<[^>]*>", value)
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tag for part in parts for tag in tags(part)]


@pytest.mark.parametrize(("kind", "n_figures"), [("record", 5), ("comparison", 3)])
def test_the_figures_of_a_page_hold_no_markup_that_was_not_ours(pages, kind, n_figures):
    found = []
    for page in pages[kind]:
        plots = [e for e in elements(page, "div") if e.get("class") == "plot"]
        texts = [e.find("script").text for e in plots]
        assert len(texts) >= n_figures and not any("<" in text for text in texts)
        found.append([sorted(set(tags(json.loads(text)))) for text in texts])
    assert found[0] == found[1]


@pytest.mark.browser
@pytest.mark.parametrize("width, scheme", quick([(390, "dark")], [(390, "dark"), (1400, "light")]))
@pytest.mark.parametrize("kind", quick(["record", "index", "ledger"], PAGES))
def test_a_page_fits_a_phone_runs_and_fetches_nothing_and_axe_finds_no_violation(look, pages, kind, width, scheme):
    seen = look(pages[kind][0], width, scheme).draw()
    seen.open_all()
    assert seen.too_wide() == [] and (seen.overflow() <= 0 or width > 390)
    found = Axe().run(seen.page).response["violations"]
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in found] == []
    assert seen.page.evaluate("window.hurt") is None
    assert not [url for url in seen.requests if not url.startswith((pages[kind][0].as_uri(), "data:", "blob:"))]


def _views(record: RunRecord, mark: str) -> dict[str, str]:
    """What a notebook shows of a record, of its parts, and of what else has texts."""
    findings = record.findings["manifold"]
    table = Table({mark: np.array([mark])}, {mark: LABEL}, mark)
    model = interp.load("tunnel:bijection-gpt-neox", check=False)
    capture = interp.collect(model, interp.sampled_prompts(model.task, 2), ["next_log_prob"])
    named = replace(
        capture, model=replace(capture.model, name=mark), prompts=replace(capture.prompts, name=mark, unit=mark),
        provenance={"tool": mark},
    )  # fmt: skip
    shown = (record, findings, table, named, _written(mark), *record.shown, *findings.tables.values())
    return {f"{i} {type(x).__name__}": x._repr_html_() for i, x in enumerate(shown)}


def test_notebooks_latex_and_csv_hold_nothing_that_was_not_ours(both, tmp_path):
    hurt, plain = (
        _views(open_run(folder / "first"), mark) for folder, mark in zip(both, (HURT, tame(HURT)), strict=True)
    )
    assert {name.split()[1] for name in hurt} >= {
        "RunRecord", "Findings", "Table", "Capture", "Continuations", "TokenStrip",
    }  # fmt: skip
    for name, view in hurt.items():
        assert "hurt" in view and tree(view) == tree(plain[name]) and obeyed(view) == [], name
    cell = r"\input{/etc/passwd} $x$ % # _ ^ ~ & \\ \write18{rm}" + "\x1b\x07\u202e"
    findings = open_run(both[0] / "first").findings["manifold"]
    odd = replace(findings.scalars[findings.headline[0]], unit=cell)
    lines = replace(findings, scalars=findings.scalars | {findings.headline[0]: odd}).to_latex().split("\n")
    (line,) = [line for line in lines if "passwd" in line]
    cells = re.split(r"(?<!\\)&", line.removesuffix(r"\\"))
    plain = findings.to_latex().split("\n")
    assert obeyed(line) == [] and "x1b" in line
    assert len(lines) == len(plain) and len(cells) == plain[2].count("&") + 1
    assert not re.search(r"[\\{}$%#_^~&]", _OF_LATEX.sub("", "".join(cells)))
    record = open_run(both[0] / "first")
    files = load_entry("report", "export")(record, tmp_path, (), ("csv",))
    texts = [row for file in files for row in csv.DictReader(io.StringIO(file.read_text(encoding="utf-8"), newline=""))]
    assert sum(value == printable(HURT) for row in texts for value in row.values()) > 20


@pytest.mark.slow
def test_a_figure_of_a_notebook_holds_no_markup_that_was_not_ours(both):
    """Plotly draws a small HTML in every text, links included."""
    found = []
    for folder, mark in zip(both, (HURT, tame(HURT)), strict=True):
        record, drawn = open_run(folder / "first"), []
        for name, findings in record.findings.items():
            drawn += [findings.plot(figure.name) for figure in load_entry("probe", name)().figures(findings)]
        few = np.ones((1, 1))
        map_ = PatchingMap(mark, "resid", (0,), (0,), (mark,), (mark,), mark, mark, 1.0, 0.0, few, few[None], few[None])
        drawn.append(map_.plot())
        found.append([sorted(set(tags(json.loads(plot.to_json())))) for plot in drawn])
    assert found[0] == found[1] and len(found[0]) > 5


_OF_LATEX = re.compile(
    r"\\(?:textbackslash|textasciitilde|textasciicircum|textbraceleft|textbraceright)(?:\{\}| )(?:\\space)?|\\[&%$#_{}]"
)


@pytest.mark.parametrize("mark", [HURT, "}, url = {x", r"\}\input{x}", "a\n}\n@book{b,"])
def test_a_citation_is_one_entry_whatever_the_record_says(made, mark):
    record = open_run(made / "first")
    spoilt = replace(
        record, model=record.model | {"name": mark, "fingerprint": mark}, created=mark, spec_hash=mark,
        environment={"packages": {"interp": mark}},
    )  # fmt: skip
    depth, fields = 0, []
    assert obeyed(bibtex(spoilt)) == []
    for line in bibtex(spoilt).splitlines():
        fields += re.findall(r"^  (\w+) *= ", line) if depth == 1 else []
        depth += line.count("{") - line.count("}")
        assert depth >= 0
    assert depth == 0 and fields == ["title", "author", "version", "year", "note"]


def test_the_python_that_repeats_a_run_is_one_call_whatever_the_record_says():
    asked = {"manifold": {"target": HURT}}
    for model in (
        HURT,
        f"memory:{HURT}",
        "memory:x\nimport os\nos.abort()",
        "memory:x\r\x0cos.abort()\u2028os.abort()",
    ):
        python = RunSpec(model, ["manifold"], asked, prompts=model).python
        imported, called = ast.parse(python).body
        assert ast.unparse(imported) == "import interp" and called.value.func.attr == "run"
        assert all(isinstance(x.value, ast.Constant | ast.Name | ast.Dict | ast.List) for x in called.value.keywords)


MODULE = "from pathlib import Path\nPath('ran').touch()\nclass Odd:\n    question = 'q'\n    figures = lambda *_: ()\n"


@pytest.mark.parametrize("where", ["findings", "spec"])
def test_a_record_names_no_code_that_is_run(made, tmp_path, monkeypatch, where):
    """A module beside it, or one of Python's own, is not imported because a record names it as its probe."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd_module.py").write_text(MODULE)
    shutil.copytree(made / "first", tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    content = json.loads(file.read_text())
    found = content["findings"]["orthogonality"]
    for name in ("odd_module:Odd", "os:abort"):
        content["findings"] = {name if where == "findings" else "orthogonality": found}
        content["spec"]["probes"] = {name: {}}
        file.write_text(json.dumps(content))
        record = open_run(tmp_path / "run")
        assert record.show().exists() and not (tmp_path / "ran").exists()
        with pytest.raises(InterpError, match="there is no probe of this name"):
            interp.run(**vars(replace(RunSpec.of(record), quiet=True)))
    assert "odd_module" not in sys.modules


@pytest.mark.parametrize("task", ["odd_module:Odd", "os:abort", "subprocess:Popen"])
def test_the_card_of_a_tunnel_names_no_code_that_is_run(tmp_path, monkeypatch, task):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "odd_module.py").write_text(MODULE)
    (tmp_path / "config.json").write_text("{}")
    card = json.loads((RECORDS / "tunnel-4.json").read_text())
    mixture = {"task": "mixture", "parameters": {"components": [{"task": task}, {"task": task}]}}
    for changed in ({"task": task, "parameters": {}}, mixture):
        (tmp_path / "tunnel.json").write_text(json.dumps(card | changed))
        with pytest.raises(InterpError, match="there is no tunnel of this name"):
            interp.load(str(tmp_path))
    assert not (tmp_path / "ran").exists() and "odd_module" not in sys.modules


def said(monkeypatch, *words: str) -> str:
    """What a command prints on both streams, as they would reach a terminal."""
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    monkeypatch.setattr(sys, "stdout", streams[0])
    monkeypatch.setattr(sys, "stderr", streams[1])
    monkeypatch.setattr(sys, "argv", ["interp", *words])
    try:
        main()
    except SystemExit:
        pass
    finally:
        monkeypatch.undo()
    return "".join(stream.buffer.getvalue().decode() for stream in streams)


COMMANDS = {
    "report": ["report", "first"], "report of a ledger": ["report", "ledger"], "index": ["view", ".", "--no-browser"],
    "diff": ["diff", "first", NAME], "power": ["power", "first", "--every"], "missing": ["report", f"no{HURT[-9:]}"],
    "compare": ["compare", "first", NAME, "--out", "c", "-v"], "again": ["run", "--from", "first"],
    "run": ["run", "--model", HURT[-9:], "--prompts", HURT[-9:]], "plan": ["plan", "--model", "model"],
    "export": ["export", "first", "--figures", "", "--out", f"out{HURT[-9:]}"], "list": ["list", "probes", HURT[-9:]],
}  # fmt: skip


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_terminal_obeys_nothing_that_a_file_says(both, monkeypatch, kind):
    monkeypatch.chdir(both[0])
    (both[0] / "model").mkdir(exist_ok=True)
    config = {"model_type": HURT, "architectures": [HURT], "num_hidden_layers": 2}
    (both[0] / "model" / "config.json").write_text(json.dumps(config))
    text = said(monkeypatch, *COMMANDS[kind])
    assert text and not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u202e]", text)
    assert kind in ("report", "index", "report of a ledger", "export", "compare") or r"\x1b" in text or r"\x07" in text


def test_what_a_library_prints_is_shown_too(monkeypatch):
    def hurting(*_, **__):
        print(HURT)
        print(HURT, file=sys.stderr)
        sys.stderr.write("\x1b[32mgreen\x1b[0m\r")

    monkeypatch.setattr("interp.cli.app.app", hurting)
    text = said(monkeypatch, "report")
    assert text.count(r"\u2028\x1b]0;hurt\x07\x9b2J") == 2 and text.endswith("\x1b[32mgreen\x1b[0m\r")


def test_only_what_would_be_obeyed_is_written_out():
    assert printable("é\t漢\n👩‍🔬 \u202eabc\x1b[2J") == "é\t漢\n👩‍🔬 \\u202eabc\\x1b[2J"
