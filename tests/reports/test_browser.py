"""The page in a real browser: it draws, sorts, saves, prints, fetches nothing and runs nothing of the data's."""

import shutil
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pandas
import pytest
from axe_playwright_python.sync_playwright import Axe
from interp.reports.page.render import render
from interp.reports.page.tabulate import N_ROWS

from interp.plotting import NULL
from interp.records.record import open_run
from tests.hub_server import serving
from tests.paths import ROOT
from tests.reports.everything import small_run
from tests.reports.pictures import N_LAYERS, N_POINTS, made_findings, made_record
from tests.reports.plotly.test_theme import contrast

pytestmark = pytest.mark.browser

FIGURES = ("map", "depth", "matrix", "panels")
ATTACK = "<img src=x onerror=\"window.hurt=1\"><script>window.hurt=1</script><a href='https://x.example'>link</a>"


@pytest.fixture(scope="module")
def address(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("page") / "run"


@pytest.fixture
def report(address) -> Path:
    """The page of a good record, rendered once for the module."""
    if not address.exists():
        render(made_record().write(address))
    return address / "report.html"


def test_every_figure_draws_without_a_request_or_an_error(look, report):
    seen = look(report).draw()
    assert seen.shapes("map") == 2 * N_POINTS
    assert seen.shapes("depth") == N_LAYERS + 3 and seen.shapes("matrix") == 1 and seen.shapes("panels") == 24
    assert seen.requests == [report.as_uri()]
    assert seen.overflow() <= 0


@pytest.fixture(scope="module")
def everything(tmp_path_factory) -> Path:
    """The page of a small run of every probe on the shipped tunnel."""
    return small_run(tmp_path_factory.mktemp("everything")).show()


HEIGHT_OF_WHAT_IS_DRAWN = """figures => figures.map(figure => {
    const inner = figure.querySelector(".cartesianlayer .plot, .cartesianlayer .subplot");
    return [figure.id, inner ? inner.getBoundingClientRect().height : 0];
})"""


SCALES_OF_BELIEF = """() => {
    const layout = document.querySelector("#belief-simplex .js-plotly-plot")._fullLayout;
    const axes = ["xaxis", "yaxis", "xaxis2", "yaxis2"].map(name => layout[name]);
    return [axes.map(axis => Math.abs(axis._m)), axes.map(axis => axis._length)];
}"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("width", "most"), [(400, 36_100), (1400, 17_900)])
def test_every_figure_of_every_probe_draws_at_every_width_in_both_themes(look, everything, width, most, scheme):
    """And the page is below three megabytes and read in minutes."""
    seen = look(everything, width, scheme)
    assert seen.page.evaluate("document.documentElement.scrollHeight") < most and everything.stat().st_size < 3_000_000
    heights = dict(seen.draw().page.locator("main figure").evaluate_all(HEIGHT_OF_WHAT_IS_DRAWN))
    assert len(heights) >= 45 and "value_axis-held_out" in heights
    assert {name: height for name, height in heights.items() if height < 60} == {}
    assert seen.page.locator(".notice.warning:visible").count() == 0 and seen.too_wide() == []
    assert seen.requests == [everything.as_uri()] and seen.overflow() <= 0
    assert seen.crowded() == []
    scales, lengths = seen.page.evaluate(SCALES_OF_BELIEF)  # a unit is as long upwards as sideways
    assert scales == pytest.approx([scales[0]] * 4, rel=1e-6) and min(lengths) > 50
    seen.open_all()
    assert seen.overflow() <= 0


def hovered(seen, figure, point):
    """What a figure says of a point under the mouse."""
    point.scroll_into_view_if_needed()
    box = point.bounding_box()
    seen.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    hover = seen.page.locator(f"#{figure} .hovertext").first
    hover.wait_for()
    return hover.text_content()


@pytest.mark.slow
def test_hovering_over_a_point_of_real_findings_says_where_it_is_from(look, everything):
    seen = look(everything).draw()
    for figure in ("value_axis-held_out", "belief-simplex", "sula-calibration"):
        points = seen.page.locator(f"#{figure} .points path")
        across = points.evaluate_all("p => p.map(x => x.getBoundingClientRect().x)")
        middle = int(np.argsort(across)[len(across) // 2])  # away from where a line ends
        assert "sequence " in hovered(seen, figure, points.nth(middle))


LABELS = "cells => cells.map(x => getComputedStyle(x, '::before').content.replaceAll(/[\" ]/g, ''))"


@pytest.mark.slow
def test_a_certificate_says_on_a_narrow_screen_what_its_numbers_are(look, tmp_path):
    shutil.copytree(ROOT / "examples/certificates/heads", tmp_path / "certificate")
    seen = look(open_run(tmp_path / "certificate").show(), 400)
    assert seen.overflow() <= 0 and seen.crowded() == []
    labels = seen.page.locator(".certified tbody tr").first.locator(".num").evaluate_all(LABELS)
    assert labels == ["significant", "worstkind", "intervalcovers", "withaneffect"]


@pytest.mark.slow
def test_a_colour_bar_goes_below_the_plot_where_there_is_no_room_beside_it(look, report):
    seen = look(report, 1400).draw()
    bar, plot = "#pictures-map .colorbar .cbfills", "#pictures-map .plotclip ~ rect, #pictures-map .nsewdrag"
    beside, area = seen.page.locator(bar).bounding_box(), seen.page.locator(plot).last.bounding_box()
    assert beside["x"] > area["x"] + area["width"]
    seen.page.set_viewport_size({"width": 400, "height": 900})
    seen.until("document.querySelector('#pictures-map .plot').dataset.narrow === 'true'")
    below, area = seen.page.locator(bar).bounding_box(), seen.page.locator(plot).last.bounding_box()
    assert below["y"] > area["y"] + area["height"] and seen.overflow() <= 0


INK = "getComputedStyle(document.querySelector('#pictures-depth .xtitle')).fill"
PAPER = "getComputedStyle(document.body).backgroundColor"
FIRST_POINTS = "(x => Array.from(x._inputArray || x))(document.querySelector('#pictures-map .plot').data[1].x)"


@pytest.mark.slow
def test_the_slider_moves_by_keyboard_and_what_was_moved_stays_where_the_theme_is_switched(look, report):
    """The toggle recolours page and figures and is remembered; untouched, they follow the system."""
    seen = look(report).draw()
    page, slider = seen.page, seen.page.get_by_role("slider", name="layer")
    before = page.evaluate(FIRST_POINTS)
    slider.focus()
    for _ in range(3):
        slider.press("ArrowLeft")
    expected = made_findings().tables["points"]
    expected = expected.where(expected["layer"] == 2)["pc1"]
    page.wait_for_timeout(300)
    moved = page.evaluate(FIRST_POINTS)
    assert before != moved and moved == pytest.approx(expected.tolist(), rel=1e-6)
    light = page.evaluate(f"[{INK}, {PAPER}]")
    page.get_by_role("button", name="Switch to dark colours").click()
    page.wait_for_timeout(500)
    dark = page.evaluate(f"[{INK}, {PAPER}]")
    assert light == ["rgb(27, 29, 32)", "rgb(253, 253, 251)"] and dark == ["rgb(233, 233, 229)", "rgb(21, 23, 26)"]
    assert page.evaluate(FIRST_POINTS) == moved and slider.get_attribute("aria-valuetext") == "2"
    page.reload()
    assert page.evaluate(PAPER) == dark[1]
    untouched = look(report).draw()
    untouched.page.emulate_media(color_scheme="dark")
    untouched.until(f"{INK} === '{dark[0]}'")


def opened(seen, name):
    table = seen.page.locator(f"#table-pictures-{name}")
    table.locator("summary").click()
    return table


def sort(seen, table, column, way):
    table.locator("button.sort").nth(column).click()
    table.locator(f"th:nth-child({column + 1})[aria-sort={way}]").wait_for()
    seen.page.wait_for_timeout(200)  # the rows are unpacked


@pytest.mark.slow
def test_tables_sort_both_ways_as_numbers_and_are_downloaded_whole(look, report, tmp_path):
    """Missing values are last, cells are written as the page first did, rows that were not shown take part."""
    seen = look(report)
    rows = "t => [...t.querySelectorAll('tbody tr')].map(r => [...r.cells].map(c => c.textContent + c.className))"
    for name in ("by_layer", "loose"):
        table = opened(seen, name)
        before = table.evaluate(rows)
        sort(seen, table, 0, "ascending")
        assert table.evaluate(rows) == before  # the first column is in order already
    table = seen.page.locator("#table-pictures-by_layer")
    shown = "t => [...t.querySelectorAll('tbody tr')].map(r => r.cells[5].textContent)"
    assert table.evaluate(shown) == ["0.4", "0.02", "4.12e−5", "–", "0.001", "0.001"]
    sort(seen, table, 5, "ascending")
    assert table.evaluate(shown) == ["4.12e−5", "0.001", "0.001", "0.02", "0.4", "–"]
    sort(seen, table, 5, "descending")
    assert table.evaluate(shown) == ["0.4", "0.02", "0.001", "0.001", "4.12e−5", "–"]
    table = opened(seen, "points")
    sort(seen, table, 0, "ascending")
    sort(seen, table, 0, "descending")
    assert table.locator("tbody tr").count() == N_ROWS
    assert table.locator("tbody tr").first.locator("td").first.text_content() == str(N_LAYERS - 1)
    with seen.page.expect_download() as caught:
        table.get_by_role("button", name="Download CSV").click()
    assert caught.value.suggested_filename == "pictures.points.csv"
    caught.value.save_as(tmp_path / "points.csv")
    expected = made_findings().tables["points"].to_frame()
    pandas.testing.assert_frame_equal(pandas.read_csv(tmp_path / "points.csv"), expected, check_dtype=False, rtol=1e-8)


def test_a_figure_leaves_as_svg_with_its_caption_and_as_csv_with_one_click(look, report, tmp_path):
    seen = look(report).draw()
    for figure, name in (("map", "pictures.points.csv"), ("matrix", "pictures-matrix.csv")):
        block = seen.page.locator(f"#pictures-{figure}")
        with seen.page.expect_download() as caught:
            block.get_by_role("button", name="CSV of").click()
        assert caught.value.suggested_filename == name
        caught.value.save_as(tmp_path / name)
        with seen.page.expect_download() as caught:
            block.get_by_role("button", name="SVG of").click()
        assert caught.value.suggested_filename == f"pictures-{figure}.svg"
        caught.value.save_as(tmp_path / f"{figure}.svg")
    table = made_findings().tables["points"]
    assert len(pandas.read_csv(tmp_path / "pictures.points.csv")) == table.n_rows > N_ROWS
    drawn = pandas.read_csv(tmp_path / "pictures-matrix.csv")  # no table: what is drawn
    expected = np.random.default_rng(1).random((8, 8))
    np.testing.assert_allclose(drawn["z"].to_numpy().reshape(8, 8), expected, rtol=1e-6)
    svg = ElementTree.parse(tmp_path / "map.svg").getroot()
    said = " ".join("".join(svg.itertext()).split())
    assert svg.tag.endswith("svg") and "Value manifold, layer by layer" in said
    caption = "Each point is a prompt; colour is the entropy of its next token."
    assert caption.replace(" ", "") in said.replace(" ", "")  # in lines
    marks = [e for e in svg.iter() if e.tag.endswith("path") and "point" in e.get("class", "")]
    assert len(marks) == 2 * N_POINTS


@pytest.mark.slow
def test_question_sentences_and_figure_are_on_the_first_screen(look, report):
    seen = look(report)
    for part in ("h1", ".asked", ".evidence", "#pictures-map .plot", "#pictures-map figcaption"):
        box = seen.page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= 900, part


@pytest.mark.slow
def test_axe_finds_an_image_without_words(look, report):
    """The test of every kind of page, in `tests/test_markup.py`, can fail."""
    seen = look(report)
    seen.page.locator("svg.strip[aria-label]").first.evaluate("s => s.removeAttribute('aria-label')")
    assert [rule["id"] for rule in Axe().run(seen.page).response["violations"]] == ["svg-img-alt"]


@pytest.mark.slow
def test_the_repeat_command_is_copied_to_the_letter(look, report):
    seen = look(report)
    seen.context.grant_permissions(["clipboard-read", "clipboard-write"])
    seen.page.locator("#repeat + .code .copy").click()
    seen.page.get_by_text("Copied.").wait_for()
    assert seen.page.evaluate("navigator.clipboard.readText()") == made_record().spec["command"]


@pytest.mark.slow
def test_a_hostile_prompt_is_text_in_a_sorted_table_and_in_the_hover(look, tmp_path):
    seen = look(render(made_record(made_findings(texts=(ATTACK,) * N_POINTS)).write(tmp_path / "run"))).draw()
    table = opened(seen, "points")
    sort(seen, table, 0, "ascending")
    assert table.locator("tbody tr").first.locator("td").last.text_content() == ATTACK
    hover = hovered(seen, "pictures-map", seen.page.locator("#pictures-map .points path").nth(2 * N_POINTS - 1))
    assert "".join(hover.split()) == "prompts" + "".join(ATTACK.split())
    assert seen.page.locator(".hovertext a").count() == 0 and seen.page.evaluate("window.hurt") is None
    assert seen.requests == [(tmp_path / "run" / "report.html").as_uri()]


SMUGGLED = """async (address) => {
    const script = document.createElement("script");
    script.textContent = "window.hurt = 1";
    document.body.append(script);
    document.body.insertAdjacentHTML("beforeend", `<img src="${address}/image">`);
    const fetched = await fetch(`${address}/data`, { mode: "no-cors" }).then(() => true, () => false);
    await new Promise((wait) => setTimeout(wait, 300));
    return [window.hurt ?? null, fetched];
}"""


@pytest.mark.slow
def test_the_policy_stops_what_should_not_run(look, report, tmp_path):
    """Even if something slipped into the page: no inline script runs and nothing reaches a server."""
    bare = tmp_path / "bare.html"  # the same page without its policy: the test can fail
    bare.write_text(report.read_text().replace("Content-Security-Policy", "x-none", 1))
    with serving({}) as server:
        seen = look(report)
        assert seen.page.evaluate(SMUGGLED, server.url) == [None, False]
        assert any("Content Security Policy" in trouble for trouble in seen.troubles) and server.asked == []
        seen.troubles.clear()
        seen = look(bare)
        assert seen.page.evaluate(SMUGGLED, server.url) == [1, True]
        assert sorted(server.asked) == ["GET /data", "GET /image"]
        seen.troubles.clear()  # neither is there


@pytest.mark.slow
def test_no_button_sends_a_figure_away(look, report):
    seen = look(report).draw()
    seen.page.locator("#pictures-depth .plot").hover()
    titles = seen.page.locator("#pictures-depth .modebar-btn").evaluate_all("b => b.map(x => x.dataset.title)")
    assert titles and not [t for t in titles if "hare" in t or "loud" in t]
    assert seen.page.evaluate("document.querySelector('#pictures-depth .plot')._context.plotlyServerURL") == ""
    assert seen.requests[0] == report.as_uri()
    assert not [url for url in seen.requests if url.startswith("http")]


@pytest.mark.slow
def test_the_whole_page_prints_on_white(look, report):
    seen = look(report, scheme="dark")
    assert seen.page.locator(".main-svg").count() < 3 * len(FIGURES)
    seen.page.evaluate("dispatchEvent(new Event('beforeprint'))")
    seen.page.emulate_media(media="print")
    assert all(seen.shapes(figure) for figure in FIGURES)
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(253, 253, 251)"
    assert not seen.page.get_by_role("button").first.is_visible()
    assert max(seen.page.locator(".plot .main-svg").evaluate_all("s => s.map(x => x.clientWidth)")) <= 660
    seen.page.evaluate("dispatchEvent(new Event('afterprint'))")
    seen.page.emulate_media(media="screen")
    assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 26)"


MARKS = """() => {
    const numbers = colour => colour.match(/[\\d.]+/g).map(Number);
    const hex = rgb => "#" + rgb.slice(0, 3).map(x => Math.round(x).toString(16).padStart(2, "0")).join("");
    const found = [];
    const paper = hex(numbers(getComputedStyle(document.body).backgroundColor));
    for (const mark of document.querySelectorAll(".js-line, .barlayer .point path, .legendlines path.js-line")) {
        const style = getComputedStyle(mark);
        const colour = mark.closest(".barlayer") ? style.fill : style.stroke;
        if (colour !== "none" && parseFloat(style.strokeWidth) !== 0) found.push([hex(numbers(colour)), paper, 3]);
    }
    for (const text of document.querySelectorAll(".plot text")) {
        if (text.closest(".heatmaplayer, .hm, .hoverlayer")) continue; // plotly picks black or white there
        found.push([hex(numbers(getComputedStyle(text).fill)), paper, 4.5]);
    }
    return found;
}"""


@pytest.mark.slow
def test_lines_bars_and_texts_carry_in_both_themes_and_follow_the_switch(look, everything):
    """WCAG 2.1 AA of graphics, 3 to 1, and of text, 4.5 to 1, as they are drawn, before and after the switch."""

    def marks():
        found = seen.page.evaluate(MARKS)
        return {(colour, least): contrast(colour, paper) / least for colour, paper, least in found}

    seen, drawn = look(everything).draw(), []
    for button in ("Switch to dark colours", "Switch to light colours"):
        drawn.append(marks())
        seen.page.get_by_role("button", name=button).click()
        seen.until(f"document.documentElement.dataset.theme === '{button.split()[2]}'")
        seen.page.wait_for_timeout(300)
    assert all(len(found) >= 5 and min(found.values()) >= 1 for found in drawn)
    assert marks() == drawn[0] and set(drawn[0]) & set(drawn[1]) <= {(NULL.lower(), 3)}  # the null's grey alone stays


ALONG_THE_TAB_KEY = """() => {
    const at = document.activeElement;
    const listing = at.closest("details.listing");
    const kind = at.closest("nav") ? "contents" : at.className || at.dataset.do || at.id;
    return [at.tagName, kind, listing ? listing.id : "", getComputedStyle(at).outlineStyle];
}"""


@pytest.mark.slow
def test_the_keyboard_alone_reaches_contents_tables_and_downloads_and_is_seen_everywhere(look, report):
    seen = look(report).draw()
    page, reached = seen.page, []
    for _ in range(200):
        page.keyboard.press("Tab")
        reached.append(page.evaluate(ALONG_THE_TAB_KEY))
        if reached[-1][0] == "SUMMARY" and reached[-1][2] == "table-pictures-by_layer":
            page.keyboard.press("Enter")  # what lies in it comes next
        if reached[-1][0] == "BODY":
            break
    kinds = {(tag, kind) for tag, kind, _, _ in reached}
    assert reached[0][1] == "skip" and {outline for tag, _, _, outline in reached if tag != "BODY"} == {"solid"}
    assert {("A", "skip"), ("BUTTON", "quiet"), ("A", "contents"), ("INPUT", ""), ("SUMMARY", "")} <= kinds
    inside = [(tag, kind) for tag, kind, listing, _ in reached if listing == "table-pictures-by_layer"]
    assert inside.count(("BUTTON", "sort")) == page.locator("#table-pictures-by_layer button.sort").count() > 5
    assert inside.count(("BUTTON", "quiet")) == 2  # copy and download

    table = page.locator("#table-pictures-by_layer")
    table.locator("button.sort").nth(5).focus()
    page.keyboard.press("Enter")
    assert table.locator("th").nth(5).get_attribute("aria-sort") == "ascending"
    with page.expect_download() as caught:
        table.get_by_role("button", name="Download CSV").focus()
        page.keyboard.press("Enter")
    assert caught.value.suggested_filename == "pictures.by_layer.csv"
    page.locator("nav a").last.focus()
    page.keyboard.press("Enter")
    assert page.evaluate("location.hash") == "#record"


@pytest.fixture(scope="module")
def training(tmp_path_factory) -> Path:
    """The page of a training's checkpoints."""
    import interp

    few = {"dynamics": {"n_permutations": 19, "n_bootstrap": 20}}
    record = interp.run(probes=["dynamics"], settings=few, checkpoints=["0", "64", "512"], n_pool=20,
                        out=tmp_path_factory.mktemp("training"), quiet=True)  # fmt: skip
    return record.show()


@pytest.mark.slow
def test_points_keep_their_words_while_the_training_is_moved_through(look, training):
    seen = look(training).draw()
    figure = "#dynamics-unfurling"
    where = f"[...document.querySelectorAll('{figure} .points path')].slice(0, 9).map(p => p.getAttribute('transform'))"
    end = seen.page.evaluate(where)
    seen.page.locator(f"{figure} input[type=range]").press("Home")
    seen.until(f"JSON.stringify({where}) !== {str(end)!r}.replaceAll(\"'\", '\"').replaceAll(', ', ',')")
    hover = hovered(seen, figure.removeprefix("#"), seen.page.locator(f"{figure} .points path").nth(3))
    assert "sequence " in hover and "bits" in hover
    assert seen.overflow() <= 0


@pytest.mark.slow
def test_the_page_reads_without_scripts(chromium, report):
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(report.as_uri())
    assert "0.471" in page.locator("#numbers").text_content()
    assert page.locator("noscript p").is_visible()
    page.locator("#table-pictures-points summary").click()
    assert page.locator("#table-pictures-points tbody tr").count() == N_ROWS
    context.close()
