"""The page of continuations: prompts, and their continuations with and without edits, side by side."""

from pathlib import Path
from typing import TYPE_CHECKING

from interp.system.whole_files import telling, writing

from .page.render import is_page, page

if TYPE_CHECKING:
    from interp.running.generate import Continuations


def render(found: "Continuations", target: Path) -> Path:
    """Write the page, whole or not at all; returns its path."""
    text = page("continuations.html", found=found)
    with telling(f"writing the page {target}", "Choose another place."), writing(target, is_page) as draft:
        draft.write_text(text, encoding="utf-8", errors="replace", newline="\n")
    return target
