"""The pages that are shipped: whole, below 4 MB (3 MB for the tunnels'), and drawn by the page as it is now."""

import re

import pytest
from interp.reports.page.render import static, style_sheet
from interp.reports.page.security import policy

from tests.paths import ROOT
from tests.reports.parsed import parse

PAGES = sorted((ROOT / "examples" / "pages").glob("*.html"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_shipped_page_is_small_and_drawn_with_the_style_and_script_of_today(page):
    is_of_texts = "smollm2" in page.stem or "gemma3" in page.stem  # 30 layers, 1,008 prompts; some show tokens
    assert page.stat().st_size < (4_000_000 if is_of_texts else 3_000_000)
    found = parse(page.read_text(encoding="utf-8"))
    said = next(e.attributes["content"] for e in found.all("meta") if "http-equiv" in e.attributes)
    sheets = [style_sheet(), style_sheet() + static("static/tokens.css")]
    of_today = [policy([static("static/page.js")], [sheet]) for sheet in sheets]
    styles = [next(part for part in each.split("; ") if part.startswith("style-src-elem")) for each in of_today]
    script = of_today[0].split("script-src ")[1].split(";")[0]
    assert any(style in said for style in styles) and script in said, "draw the examples' pages again"
    assert "cannot be drawn here" not in found.text and "draw these findings" not in found.text


def test_every_shipped_page_is_named_with_the_command_that_makes_it():
    table = (ROOT / "docs" / "gallery" / "index.md").read_text(encoding="utf-8")
    assert len(PAGES) >= 3 and all(
        re.search(rf"pages/{page.name}\) \| `interp (run|compare)`? ", table) for page in PAGES
    )
