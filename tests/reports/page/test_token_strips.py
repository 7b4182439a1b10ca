"""Prompts token by token on the page and in a notebook: tokens are text, and the strip works by keyboard."""

import base64
from dataclasses import replace

import numpy as np
import pytest
from interp.reports.page.render import html, render, tokens

from interp.records.token_strip import TokenStrip
from tests.quick import quick
from tests.reports.pictures import made_record

ATTACK = ("</script><script>window.hurt=1</script>", "<img src=x onerror=window.hurt=1>", " a", "\n", "b")


def made_strip(words: tuple[str, ...] = ATTACK) -> TokenStrip:
    """Two layers of three heads: head h of layer l attends to the token before as much as its number says."""
    n = len(words)
    weights = np.tile(np.eye(n), (2, 3, 1, 1))
    for layer in range(2):
        for head in range(3):
            share = (3 * layer + head) / 5
            for pos in range(1, n):
                weights[layer, head, pos, pos - 1], weights[layer, head, pos, pos] = share, 1 - share
    logs = np.log2(np.where(weights > 0, weights, 1.0))
    belief = np.full(n, np.nan)
    belief[-1] = 1.5
    return TokenStrip("made", words, -(weights * logs).sum(-1), weights[..., 0], np.arange(n) / 4, belief, weights)


@pytest.fixture
def page(tmp_path):
    record = replace(made_record(), shown=(made_strip(), made_strip(("x", "y"))))
    return render(record.write(tmp_path / "run"))


def test_the_page_is_the_same_after_the_record_was_read_back(page):
    from interp import open_run

    assert html(open_run(page.parent)) == page.read_text(encoding="utf-8")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", quick(["light"], ["light", "dark"]))
@pytest.mark.parametrize("width", quick([400], [400, 1400]))
def test_a_strip_shows_where_the_chosen_token_attends(look, page, width, scheme):
    seen = look(page, width, scheme)
    strip = seen.page.locator(".tokens").first
    buttons = strip.locator("button.token")
    assert buttons.count() == len(ATTACK) and buttons.first.inner_text() == ATTACK[0]
    strip.locator("input[type=range]").nth(0).fill("1")
    strip.locator("input[type=range]").nth(1).fill("1")
    buttons.nth(3).focus()
    seen.page.keyboard.press("ArrowLeft")
    assert buttons.nth(2).get_attribute("aria-pressed") is not None
    buttons.nth(3).click()
    seen.page.keyboard.press("ArrowRight")
    assert buttons.nth(4).get_attribute("aria-pressed") == "true"
    weight = "b => b.map(x => Number(x.style.getPropertyValue('--weight')))"
    np.testing.assert_allclose(buttons.evaluate_all(weight), made_strip().weights[1, 1, 4], atol=0.5 / 255)
    assert "layer 1, head 1" in strip.locator(".token-said").inner_text()
    strip.locator("select").select_option("belief")
    assert "not known" in (buttons.first.get_attribute("aria-label") or "")
    assert "1.50 bits" in (buttons.nth(4).get_attribute("aria-label") or "")
    assert seen.page.evaluate("window.hurt") is None and seen.overflow() <= 0


@pytest.mark.browser
def test_a_map_of_every_head_is_there_to_choose_from_and_the_chosen_one_is_large(look, page):
    seen = look(page, 1400, "light")
    strip = seen.page.locator(".tokens").first
    heads = strip.locator(".token-grid button")
    assert [head.get_attribute("aria-label") for head in heads.all()] == [
        f"layer {layer}, head {head}" for head in range(3) for layer in range(2)
    ]
    heads.nth(3).click()
    said = strip.locator(".token-said")
    assert "layer 1, head 1" in said.inner_text() and heads.nth(3).get_attribute("aria-pressed") == "true"
    assert [strip.locator("input[type=range]").nth(i).input_value() for i in (0, 1)] == ["1", "1"]
    seen.page.keyboard.press("ArrowDown")
    seen.page.keyboard.press("ArrowLeft")
    assert "layer 0, head 2" in said.inner_text()
    large = strip.locator(".token-map canvas")
    alpha = large.evaluate(
        "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 3)"
    )
    drawn, n = np.array(alpha).reshape(len(ATTACK), -1), len(ATTACK)
    expected = 30 + 225 * np.sqrt(np.rint(made_strip().weights[0, 2] * 255) / 255)
    np.testing.assert_allclose(drawn[np.tril_indices(n)], expected[np.tril_indices(n)], atol=1)
    assert (drawn[np.triu_indices(n, 1)] == 14).all()
    box = strip.locator(".token-map").bounding_box()
    seen.page.mouse.click(box["x"] + 5, box["y"] + box["height"] * 1.5 / n)
    assert strip.locator("button.token").nth(1).get_attribute("aria-pressed") == "true"


@pytest.mark.browser
def test_a_notebooks_strip_works_by_itself_and_twice_on_a_page(look, tmp_path):
    made = tokens(made_strip())
    (tmp_path / "nb.html").write_text(f"<!doctype html><html lang=en><title>n</title>{made}{made}</html>")
    seen = look(tmp_path / "nb.html")
    assert seen.page.locator("button.token").count() == 2 * len(ATTACK)
    assert seen.page.evaluate("window.hurt") is None


def test_packed_weights_are_a_byte_each_and_tokens_are_text():
    n = len(ATTACK)
    assert len(base64.b64decode(made_strip().packed()["weights"])) == 2 * 3 * n * (n + 1) // 2
    record = replace(made_record(), shown=(made_strip(),))
    for text in (html(record), tokens(made_strip())):
        assert "<img src=x" not in text and "<script>window" not in text
        assert "&lt;img src=x" in text and "\\u003cimg src=x" in text
    assert "token-row" not in html(made_record())
