"""`index.html`: one page over all records of a folder, linking theirs."""

from pathlib import Path
from shlex import quote

from interp.formatting import size
from interp.records.index import Listed

from .page.render import page, write_page
from .page.security import address

NAME = "index.html"


def render(listed: Listed) -> Path:
    """Write the index into the folder, whole or not at all; another program's page is not replaced."""
    return write_page(listed.folder / NAME, html(listed))


def html(listed: Listed) -> str:
    """The page as text."""
    own = {"listed": listed, "address": address, "size": size, "quote": quote}
    return page("index.html", ["static/index.css"], ["static/page.js"], **own)
