"""A page taken apart with the standard library's parser, independently of the templates that made it."""

import re
from dataclasses import dataclass
from html.parser import HTMLParser

_BLOCKS = {"dd", "div", "dt", "h1", "h2", "h3", "li", "p", "td", "th", "tr"}


@dataclass
class Element:
    tag: str
    attributes: dict[str, str]
    text: str = ""
    """Of a script or style, which no reader sees."""


class Page(HTMLParser):
    """Every element of a page in order with its attributes; `text` is what a reader sees, single-spaced."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[Element] = []
        self.text, self.inside = "", ""
        self.feed(html)
        self.close()
        self.text = re.sub(r"\s+", " ", self.text)

    def all(self, tag: str) -> list[Element]:
        return [e for e in self.elements if e.tag == tag]

    def with_id(self, name: str) -> Element:
        return next(e for e in self.elements if e.attributes.get("id") == name)

    def handle_starttag(self, tag, attrs):
        self.elements.append(Element(tag, {name: value or "" for name, value in attrs}))
        self.text += " " if tag in _BLOCKS else ""
        if tag in ("script", "style"):
            self.inside = tag

    def handle_endtag(self, tag):
        self.inside = "" if tag == self.inside else self.inside

    def handle_data(self, data):
        if self.inside:
            self.elements[-1].text += data
        else:
            self.text += data


parse = Page
