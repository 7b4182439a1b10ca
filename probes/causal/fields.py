"""The fields of the causal probe that are written as text, and what they may be."""

from collections.abc import Sequence

import numpy as np

from interp.errors import UsageError


def parse_doses(text: str) -> tuple[float, ...]:
    """Doses separated by commas, with 0 and 1, smallest first."""
    try:
        found = [float(part) for part in text.split(",")]
    except ValueError:
        found = [float("nan")]
    if not np.isfinite(found).all():
        raise UsageError(
            asked=f"causal.doses = {text!r}",
            found="not every dose is a finite number",
            fix="Separate numbers by commas: 1 is the whole edit, 0 none (both are always run).",
        )
    return tuple(sorted({*found, 0.0, 1.0}))


def parse_layers(text: str, site: str, count: int | None) -> tuple[tuple[int, ...], ...]:
    """The layers of every intervention, counted from 0; with `count` None only the words are checked."""
    return tuple(dict.fromkeys(_layer_set(text, part.strip(), site, count) for part in text.split(";")))


def _layer_set(text: str, part: str, site: str, count: int | None) -> tuple[int, ...]:
    if part in ("all", "middle"):
        n = count or 1
        return tuple(range(n)) if part == "all" else (n // 2,)
    try:
        asked = [int(word) for word in part.split(",")]
    except ValueError:
        asked = []
    what = "depths" if site == "resid" else "layers"
    if not asked or (count is not None and any(not -count <= layer < count for layer in asked)):
        raise UsageError(
            asked=f"causal.layers = {text!r}",
            found=f"{part!r} names no {what}" if not asked else f"the model has the {what} 0 to {(count or 1) - 1}",
            fix="Write middle, all, or numbers (−1 is the last): 8,12 edits two together, 8;12 one after the other.",
        )
    return tuple(sorted({layer % count if count else layer for layer in asked}))


def refuse_unknown(field: str, value: str, options: Sequence[str]) -> None:
    if value not in options:
        raise UsageError(
            asked=f"causal.{field} = {value!r}",
            found="this probe does not know it",
            fix=f"Choose among {', '.join(options)}.",
        )
