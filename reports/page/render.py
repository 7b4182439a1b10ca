"""`report.html`: one self-contained page, a pure function of a run record.

It fetches nothing; plotly.js is part of it.
"""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from interp.formatting import DASH, cell, near_zero_as_zero, p_equals, p_value, printable, short, with_unit
from interp.plotting import NULL, PALETTE
from interp.records.answers import Answer, answers, settled, unclear
from interp.records.headlines import contradictions, tried
from interp.records.labels import label
from interp.records.record import RunRecord
from interp.records.token_strip import TokenStrip
from interp.system.whole_files import telling, writing

from ..plotly.theme import DARK, LIGHT, SCHEMES, template
from . import about
from .sections import Section, differences, headline, opening, sections, side_by_side
from .security import policy, script_json
from .shipped import the_tunnel
from .tabulate import N_ROWS

RULE = (
    "A number is significant, above or below its null, if its p is at most 0.05 (corrected over the headline numbers "
    "by Benjamini and Hochberg) or, without a p, if its 95 % interval (without one, its value) lies outside the null's "
    "95 % band. Its essential controls must be significant on the same side. A significant number need not be large, "
    "and its cause remains open."
)

N_OPEN = 2
"""Figures of a probe that are open at first."""

N_ANSWERS = 20
"""The most answers on the first screen, beside the leading one."""

GENERATOR = '<meta name="generator" content="interp">'
"""A mark of our pages: no other page is overwritten."""

HOME = Path(__file__).parent.parent
PLOTLY = HOME / "vendor" / "plotly-cartesian-4.1.1.min.js"


def render(record: RunRecord, target: Path | None = None) -> Path:
    """Write the page as a file, by default beside the record, whole or not at all; returns its path."""
    return write_page(target or record.page, html(record))


def write_page(target: Path, text: str) -> Path:
    """Write a page, whole or not at all; `RecordError` if that fails, or the file is not ours."""
    fix = "Mend that or choose another place; records stay whole, and `interp report` draws the page of one."

    def is_ours(there: Path) -> bool:
        return GENERATOR in there.read_text(encoding="utf-8", errors="replace")

    with telling(f"writing the page {target}", fix), writing(target, is_ours) as draft:
        draft.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return target


def html(record: RunRecord) -> str:
    """The page as text."""
    drawn, numbers = sections(record), headline(record)
    shown = [each.headline for each in numbers if each.headline]
    said = _said(record)
    first = opening(drawn, said["lead"])
    has_figures = first is not None or any(figure.plot for section in drawn for figure in section.figures)
    scripts = [*([PLOTLY] if has_figures else []), "static/page.js", *(["static/tokens.js"] if record.shown else [])]
    return page(
        "page.html",
        ["static/tokens.css"] if record.shown else [],
        scripts,
        {"palette": PALETTE, **{name: template(scheme) for name, scheme in SCHEMES.items()}},
        record=record,
        **said,
        title=_title(record, drawn, said["lead"]),
        strip_of={(each.probe, each.name): each.strip for each in numbers},
        headline=[(probe, list(of)) for probe, of in groupby(numbers, key=lambda each: each.probe)],
        tried=tried(record.findings),
        with_controls=any(h.controls for h in shown),
        with_p=any(h.p_together is not None for h in shown),
        usual_n=about.usual_n([each.scalar for each in numbers]),
        rule=RULE,
        tunnel=the_tunnel(),
        opening=first,
        sections=drawn,
        strips=[(strip, strip_json(strip)) for strip in record.shown],
        n_rows=N_ROWS,
        n_open=N_OPEN,
        is_one=len(drawn) == 1,
    )


def page(
    name: str, sheets: Sequence[str] = (), scripts: Sequence[str | Path] = (),
    looks: Mapping[str, Any] | None = None, **values: Any,
) -> str:  # fmt: skip
    """A template with our style sheet and its own, its scripts, and a policy that allows nothing else."""
    style, code = style_sheet() + "".join(map(static, sheets)), list(map(static, scripts))
    return templates_of_pages().get_template(name).render(
        about=about, policy=policy(code, [style]), style=style, scripts=code, looks=script_json(looks or {}), **values
    )  # fmt: skip


def first_screen(record: RunRecord) -> str:
    """The first screen of the page without its figure, for a notebook, in the notebook's colours."""
    said, strips = _said(record), {(each.probe, each.name): each.strip for each in headline(record)}
    shown, title = templates_of_pages().get_template("notebook.html"), _title(record, (), said["lead"])
    return shown.render(record=record, about=about, title=title, strip_of=strips, null=NULL, **said)


def _said(record: RunRecord) -> dict[str, Any]:
    """The values of the first screen: the leading answer, the others, open questions, and terms."""
    found = answers(record)
    lead, *others = settled(found) or (None,)
    compared = side_by_side(record.findings)
    differing = differences(record.findings)
    shown = [lead, *others[:N_ANSWERS]] if lead else []
    texts: dict[Any, list[str]] = {0: []}
    texts |= {i: [each.question, each.sentence, each.evidence, each.change] for i, each in enumerate(shown)}
    texts[0] += about.read_on(record)
    for pair, parts in differing.items():
        texts |= {(*pair, kind): [f"{each.name} {each.note}" for each in rows] for kind, rows in parts.items()}
    asked = [text for question, rows in compared[1] for text in (question, *(name for name, _ in rows))]
    texts["below"] = [unclear(found), *asked]
    texts |= {f"methods {i}": [each.methods] for i, each in enumerate(shown)}
    return {
        "lead": lead, "others": shown[1:], "unclear": unclear(found), "terms": explained(texts),
        "contradictions": contradictions(record.findings), "compared": compared,
        "differences": differing,
    }  # fmt: skip


def explained(parts: Mapping[Any, Iterable[str]]) -> dict[Any, dict[str, str]]:
    """For each part of a page, the terms of `terms.toml` that occur first there, with their meanings."""
    terms, found = tomllib.loads(static("page/terms.toml")), {}
    usual = {term: {"pattern": rf"(?<!\w){re.escape(term)}", "meaning": meaning} for term, meaning in terms.items()}
    left = {term: of if isinstance(of, dict) else usual[term] for term, of in terms.items()}
    for part, texts in parts.items():
        shown = "\n".join(texts)
        first = [term for term, of in left.items() if re.search(of["pattern"], shown, re.IGNORECASE)]
        found[part] = {term: left.pop(term)["meaning"] for term in first}
    return found


def _title(record: RunRecord, drawn: Sequence[Section], lead: Answer | None) -> str:
    """The question of the leading answer, by default that of the probe; for a study its title."""
    if about.is_study(record):
        return about.title(record)
    if lead is not None and lead.verdict != "number":
        return lead.question
    return drawn[0].question if len(drawn) == 1 and drawn[0].question else about.asked(record)


def tokens(strip: TokenStrip) -> str:
    """A strip of tokens for a notebook, with its style and script."""
    return templates_of_pages().get_template("notebook_tokens.html").render(
        strip=strip,
        strips=[],
        data=strip_json(strip),
        style=static("static/tokens.css"),
        script=static("static/tokens.js"),
    )  # fmt: skip


@cache
def templates_of_pages() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HOME / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=lambda value: printable(value) if type(value) is str else value,  # markup of ours stays as it is
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        short=short,
        cell=cell,
        with_unit=with_unit,
        near_zero_as_zero=near_zero_as_zero,
        p_equals=p_equals,
        p_value=p_value,
        visible=_visible,
    )
    environment.globals.update(dash=DASH, label=label)  # pyrefly: ignore[bad-argument-type]
    return environment


def strip_json(strip: TokenStrip) -> str:
    packed = strip.packed()
    return script_json(packed | {"model": printable(strip.model), "tokens": [printable(t) for t in strip.tokens]})


def _visible(token: str) -> str:
    """A token with newlines and outer spaces as signs."""
    token = token.replace("\n", "⏎").replace("\t", "⇥").replace("\r", "␍")
    bare = token.strip(" ")
    start = len(token) - len(token.lstrip(" "))
    return token.replace(" ", "·") if not bare else "·" * start + bare + "·" * (len(token) - start - len(bare))


def style_sheet() -> str:
    """The style sheet behind the two colour schemes; a chosen theme outranks the system's."""
    light, dark = f"{{ color-scheme: light; {LIGHT.css()} }}", f"{{ color-scheme: dark; {DARK.css()} }}"
    schemes = (
        f":root {light}\n"
        f"@media (prefers-color-scheme: dark) {{ :root:not([data-theme='light']) {dark} }}\n"
        f":root[data-theme='dark'] {dark}\n"
    )
    return schemes + static("static/page.css")


@cache
def static(path: str | Path) -> str:
    return (HOME / path).read_text(encoding="utf-8")
