"""A page taken apart with the standard library's parser, independently of the templates that made it."""

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""


@dataclass
class Page:
    """Every element in order with its attributes; `text` is what a reader sees, single-spaced."""

    elements: list[Element] = field(default_factory=list)
    text: str = ""

    def all(self, tag: str) -> list[Element]:
        return [e for e in self.elements if e.tag == tag]

    def with_id(self, name: str) -> Element:
        return next(e for e in self.elements if e.attributes.get("id") == name)


_BLOCKS = {"dd", "div", "dt", "h1", "h2", "h3", "li", "p", "td", "th", "tr"}


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.page = Page()
        self.inside: str | None = None

    def handle_starttag(self, tag, attrs):
        self.page.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        self.page.text += " " if tag in _BLOCKS else ""
        if tag in ("script", "style"):
            self.inside = tag

    def handle_endtag(self, tag):
        if tag == self.inside:
            self.inside = None

    def handle_data(self, data):
        if self.inside:
            self.page.elements[-1].text += data
        else:
            self.page.text += data


def parse(html: str) -> Page:
    """Take a page apart."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    parser.page.text = re.sub(r"\s+", " ", parser.page.text)
    return parser.page
