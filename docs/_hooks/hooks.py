"""What `mkdocs` makes beside the pages that lie in `docs/`: pages from the code, figures, notebooks, `llms.txt`."""

import re
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from importlib.resources import files as resources
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.plugins import CombinedEvent, event_priority
from mkdocs.structure.files import File, Files
from mkdocs.structure.nav import Navigation
from mkdocs.structure.pages import Page

sys.path.insert(0, str(Path(__file__).parent))

import gallery
import ledger_page
import measured
import nulls
import reference
import two_models

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PROBES = PROJECT["entry-points"]["interp.probes"]
IS_RELEASED = "<!-- before release -->" not in (ROOT / "README.md").read_text()
"""Before the release nothing links to the repository, which is not public yet: see `make released`."""

GENERATED: dict[str, Callable[[], str]] = {
    "reference/api.md": reference.api,
    "reference/cli.md": reference.command_line,
    "reference/sites.md": reference.sites,
    "reference/record.md": reference.record,
    "reference/families.md": reference.families,
    **{f"gallery/{probe}.md": partial(gallery.page, probe) for probe in PROBES},
}
"""Whole pages, by what makes them."""

MARKS: dict[str, Callable[[str], str]] = {
    "fields": reference.fields_of,
    "figure": gallery.one_figure,
    "null": nulls.picture,
    "two models": two_models.drawn,
    "claims": ledger_page.claims,
    "claims drawn": ledger_page.picture,
    "probes": reference.probes,
    "table": measured.data,
    "rates": measured.rates,
    "tunnels": lambda _: measured.tunnels(),
    "by position": lambda _: measured.by_position(),
    "costs": lambda _: measured.costs(),
    "primitives": lambda _: measured.primitives(),
    "checked": measured.checked,
    "outcomes": lambda _: measured.outcomes(),
    "aliases": reference.aliases,
}
"""What a line `[[mark]]` or `[[mark: word]]` of a page stands for."""

COPIED = {
    "assets/plotly.js": next((ROOT / "reports" / "vendor").glob("plotly-*.js")),
    "assets/mathjax.js": Path(str(resources("mathjax"))) / "static" / "mathjax" / "es5" / "tex-svg.js",
    "assets/page.png": ROOT / "examples" / "pictures" / "page.png",
    **{f"gallery/{book.name}": book for book in (ROOT / "examples").glob("*.ipynb")},
    **{f"gallery/pages/{page.name}": page for page in (ROOT / "examples" / "pages").glob("*.html")},
    **{
        f"gallery/pages/{name}.html": ROOT / "examples" / "ledger" / name / "ledger.html"
        for name in ("paper1", "paper2", "paper3-smollm2-gemma", "newer")
    },
    **{
        f"certificates/{page.parent.name}.html": page for page in (ROOT / "examples").glob("certificates/*/report.html")
    },
    "contributing.md": ROOT / "CONTRIBUTING.md",
    "changelog.md": ROOT / "CHANGELOG.md",
}
"""Files that lie elsewhere in the repository and are read where they lie."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    urls = PROJECT["urls"]
    config.nav = _with_probes(config.nav)
    config.site_url = urls["Documentation"]
    if IS_RELEASED:
        config.repo_url, config.repo_name = urls["Repository"], PROJECT["name"]
    else:  # it is opened from files
        config.use_directory_urls = False
        config.extra["polyfills"] = ["assets/search-from-files.js"]
    return config


def _with_probes(nav: Any) -> Any:
    """The navigation with the page of each probe for a `*` in a name."""
    if isinstance(nav, dict):
        return {title: _with_probes(part) for title, part in nav.items()}
    if isinstance(nav, list):
        return [page for part in nav for page in (_pages(part) if isinstance(part, str) else [_with_probes(part)])]
    return nav


def _pages(name: str) -> list[str]:
    return [name.replace("*", probe) for probe in PROBES] if "*" in name else [name]


@event_priority(100)  # before the plug-in that renders notebooks looks for them
def _add_files(files: Files, config: MkDocsConfig) -> Files:
    for path, make in GENERATED.items():
        files.append(File.generated(config, path, content=make()))
    for path, source in COPIED.items():
        files.append(File.generated(config, path, abs_src_path=str(source)))
    return files


@event_priority(-100)  # after it: the files that it puts in place of ours do not know where they lie
def _place_notebooks(files: Files, config: MkDocsConfig) -> Files:
    for path, source in COPIED.items():
        if source.suffix == ".ipynb":
            files.src_uris[path].abs_src_path = str(source)
    return files


on_files = CombinedEvent(_add_files, _place_notebooks)


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Marks are filled in; links to files of the repository work once it is public."""
    filled = re.sub(r"^\[\[([\w ]+?)(?:: ([\w/.-]+))?\]\]$", _fill, markdown, flags=re.MULTILINE)
    in_repository = rf"[\1]({config.repo_url}/blob/main/\2)" if IS_RELEASED else r"\1"
    return re.sub(r"\[([^\]]+)\]\(https:repository/([^)]+)\)", in_repository, filled)


def _fill(mark: re.Match[str]) -> str:
    return MARKS[mark[1]](mark[2] or "")


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Scripts come with the pages that need them, and from this site."""
    up = "../" * page.url.count("/")
    if 'class="arithmatex"' in html:
        html += f'<script src="{up}assets/mathjax-settings.js"></script><script src="{up}assets/mathjax.js"></script>'
    if 'class="plotly-figure"' in html:
        html += f'<script src="{up}assets/plotly.js"></script><script src="{up}assets/figures.js"></script>'
    return html


_PAGES: list[tuple[str, str, str]] = []


def on_nav(nav: Navigation, config: MkDocsConfig, files: Files) -> Navigation:
    _PAGES.clear()
    return nav


@event_priority(-100)
def on_page_context(context: dict[str, Any], page: Page, config: MkDocsConfig, nav: Navigation) -> dict[str, Any]:
    first = re.search(r"^[A-Z`][^\n]*(?:\n[^\n#|]+)*", page.markdown or "", flags=re.MULTILINE)
    words = " ".join(first[0].split()) if first and not page.file.src_path.endswith(".ipynb") else ""
    sentence = re.split(r"(?<=[.?!]) ", re.sub(r"\[([^\]]+)\]\([^)]*\)", r"\1", words))[0]
    _PAGES.append((str(page.title), config.site_url + page.url, sentence))
    return context


@event_priority(-100)  # after the search has written its index
def on_post_build(config: MkDocsConfig) -> None:
    """`llms.txt`: what the project is, and every page with its first sentence. The index of the search as a script."""
    index = Path(config.site_dir) / "search" / "search_index.json"
    index.with_suffix(".js").write_text(f"var __index = {index.read_text(encoding='utf-8')}", encoding="utf-8")
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", "", "## Pages", ""]
    lines += [f"- [{title}]({url})" + (f": {sentence}" if sentence else "") for title, url, sentence in _PAGES]
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
