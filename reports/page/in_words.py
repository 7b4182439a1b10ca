"""The headline in words: which numbers stand out from their null and which do not, by the rule printed beside them."""

import re
from collections import Counter
from collections.abc import Sequence

from interp.findings import Scalar
from interp.records.headlines import VERDICTS, Headline
from interp.words import near_zero_as_zero, p_equals, short

N_LEADING = 5
"""Sentences above the fold."""

_SHORTEST = 5  # words of a clause that can stand alone


def summary(judged: Sequence[Headline]) -> str:
    """How many headline numbers stand out, and out of how much; empty where none can be judged."""
    n_out = sum(h.stands_out for h in judged)
    n_judged = sum(h.standing != "unjudged" for h in judged)
    if not n_judged:
        return ""
    left_out = len(judged) - n_judged
    more = f" {left_out} more {'is' if left_out == 1 else 'are'} not judged (no null, or underpowered)."
    of = f"{n_judged} headline numbers" if n_judged != 1 else "1 headline number"
    return f"Of {of} with a null, {n_out} {'stands' if n_out == 1 else 'stand'} out from it.{more if left_out else ''}"


def leading(judged: Sequence[Headline]) -> list[int]:
    """Which headline numbers are said first: those that stand out, the first of every probe before its second."""
    like = [(h.probe, h.stands_out) for h in judged]
    order = [(not h.stands_out, h.standing == "unjudged", like[:i].count(like[i]), i) for i, h in enumerate(judged)]
    return sorted(i for *_, i in sorted(order)[:N_LEADING])


def evidence(h: Headline) -> str:
    """`95 % interval 0.32 to 0.33; above its null, 0.14 (0.13 to 0.15), p = 0.004`, then what controls object to."""
    s = h.scalar
    interval = f"95 % interval {s.interval_text}" if s.interval else "no interval"
    alone = h.without_controls
    if s.null is None or alone == "unjudged":
        reason = "underpowered" if s.underpowered else s.null_reason or "no number"
        return f"{interval}; {VERDICTS['unjudged']}: {reason}"
    p = "" if h.p_together is None else f", {p_equals(h.p_together, h.scalar.is_p_least)}"
    verdict = "no different from its null" if alone == "within" else VERDICTS[alone]
    objected = "".join(f"; {objection}" for objection in h.objections)
    return f"{interval}; {verdict}, {_null(s)}{p}{objected}"


def usual_n(scalars: Sequence[Scalar]) -> str:
    """The count that half of the numbers were measured on, in words; empty where there is none."""
    text, n = Counter(s.n_text for s in scalars).most_common(1)[0] if scalars else ("", 0)
    return text if 2 * n >= len(scalars) else ""


def _null(s: Scalar) -> str:
    assert s.null is not None
    value, low, high = (near_zero_as_zero(x) for x in (s.null.value, *s.null.band))
    return short(value) if low == high == value else s.null_text


def clause(name: str, s: Scalar) -> str:
    """The first clause of a meaning that can stand alone; the name in words where there is no meaning."""
    meaning = s.meaning or name.replace("_", " ")
    ends = [m.start() for m in re.finditer(r"[:;] |\.(?: |$)| \(", meaning)]
    end = next((e for e in ends if len(meaning[:e].split()) >= _SHORTEST), len(meaning.rstrip(".")))
    return meaning[:1].upper() + meaning[1:end] if re.match(r"[a-z]+[ ,]", meaning) else meaning[:end]
