"""The page of continuations: prompts, and their continuations with and without edits."""

from pathlib import Path
from typing import TYPE_CHECKING

from .page.render import page, write_page

if TYPE_CHECKING:
    from interp.running.generate import Continuations


def render(found: "Continuations", target: Path) -> Path:
    """Write the page, whole or not at all; returns its path."""
    return write_page(target, page("continuations.html", found=found))
