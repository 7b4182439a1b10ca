"""Tables and notes in a terminal."""

from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from interp.formatting import printable

_WORD = 14
"""The longest word that a narrow terminal does not split."""


def show_table(
    title: str | None, columns: Iterable[str], rows: Iterable[Iterable[str | Text]], whole: slice = slice(1)
) -> None:
    """Print a table as wide as the terminal, or 180 characters wide into a file.

    A narrow terminal wraps cells, except in the columns kept `whole`, and never inside words up to `_WORD` characters.
    """
    names = [*map(printable, columns)]
    table = Table(title=title and printable(title), title_justify="left", box=None, header_style="bold", pad_edge=False)
    kept = range(len(names))[whole]
    cells = [[printable(x) if isinstance(x, str) else x for x in row] for row in rows]
    for i, name in enumerate(names):
        words = [word for text in (name, *(row[i] for row in cells)) for word in str(text).split()]
        longest = max(map(len, words), default=0)
        table.add_column(name, overflow="fold", no_wrap=i in kept, min_width=min(longest, _WORD))
    for row in cells:
        table.add_row(*row)
    _print(table)


def show_notes(notes: Iterable[str]) -> None:
    """Print remarks below a table, a line each; empty ones are left out."""
    for note in filter(None, notes):
        _print(Text(f"  {printable(note)}", style="dim"))


def show_answer(question: str, sentence: str, *details: str) -> None:
    """Print a question with its answer and details."""
    _print(Text(printable(question), style="bold"))
    _print(Text(f"  {printable(sentence)}"))
    show_notes(details)


def _print(what: Table | Text) -> None:
    terminal = Console(highlight=False, markup=False, emoji=False)
    console = terminal if terminal.is_terminal else Console(highlight=False, markup=False, emoji=False, width=180)
    console.print(what)
