"""`index.html`: one page over all records of a folder, linking theirs."""

from pathlib import Path
from shlex import quote

from interp.records.index import Listed

from .page import about
from .page.render import static, style_sheet, templates_of_pages, write_page
from .page.security import address, policy, script_json

NAME = "index.html"

_UNITS = ("B", "kB", "MB", "GB", "TB")


def render(listed: Listed) -> Path:
    """Write the index into the folder, whole or not at all; a page of that name that is not ours is left alone."""
    return write_page(listed.folder / NAME, html(listed))


def html(listed: Listed) -> str:
    """The page as text."""
    style, script = style_sheet() + static("static/index.css"), static("static/page.js")
    return templates_of_pages().get_template("index.html").render(
        listed=listed,
        about=about,
        address=address,
        size=size,
        quote=quote,
        policy=policy([script], [style]),
        style=style,
        script=script,
        looks=script_json({}),
    )  # fmt: skip


def size(n_bytes: int) -> str:
    """A number of bytes in a unit that fits."""
    amount = float(n_bytes)
    for unit in _UNITS[:-1]:
        if amount < 999.5:
            return f"{amount:.3g} {unit}"
        amount /= 1000
    return f"{amount:.3g} {_UNITS[-1]}"
