"""`index.html`: one page over all records of a folder, linking theirs."""

from pathlib import Path
from shlex import quote

from interp.records.index import Listed

from .page.render import page, write_page
from .page.security import address

NAME = "index.html"

_UNITS = ("B", "kB", "MB", "GB", "TB")


def render(listed: Listed) -> Path:
    """Write the index into the folder, whole or not at all; a page of that name that is not ours is left alone."""
    return write_page(listed.folder / NAME, html(listed))


def html(listed: Listed) -> str:
    """The page as text."""
    own = {"listed": listed, "address": address, "size": size, "quote": quote}
    return page("index.html", ["static/index.css"], ["static/page.js"], **own)


def size(n_bytes: int) -> str:
    """A number of bytes in a unit that fits."""
    amount = float(n_bytes)
    for unit in _UNITS[:-1]:
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} {_UNITS[-1]}"
