"""The built-in prompts: unfinished texts in six domains, balanced in last words and predictability of the next token.

Every domain has as many prompts of each class of the last word (a determiner, a preposition, an auxiliary, a
conjunction, a comma, a content word) and, within each class, of three levels of predictability, so that neither
separates the domains.

A smaller pool prefers prompts with a common last word, because effects beyond the last token show among prompts that
share one. It is the word, not a tokenizer's token, so that all models read the same prompts.
"""

import json
import re
from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files

import numpy as np

from interp.prompt import Prompt, PromptSet
from interp.table import LABEL

DOMAINS = ("mathematics", "code", "philosophy", "general", "fiction", "prose")
WINDOW = 32
"""Tokens read at the end of each prompt; every prompt has at least as many."""

_ABOUT = {
    "mathematics": "verbal mathematics: definitions, arguments, sums, teaching",
    "code": "programs, comments, commit messages and talk about code",
    "philosophy": "philosophy: arguments, dialogues, thought experiments, its history",
    "general": "general knowledge: nature, history, geography, crafts, everyday facts",
    "fiction": "fiction: scenes, dialogue, tales",
    "prose": "encyclopaedic and news-like prose",
}


def mixed(n_pool: int | None = None, seed: int = 0) -> PromptSet:
    """All six domains, in equal parts."""
    return _as_set("mixed", _pool(DOMAINS), "all six domains in equal parts", n_pool, seed)


def same_last_token(n_pool: int | None = None, seed: int = 0) -> PromptSet:
    """Prompts of all domains that end in the token " the": differences there come from earlier tokens."""
    chosen = tuple(p for p in _pool(DOMAINS) if p.text is not None and p.text.endswith(" the"))
    return _as_set("same-last-token", chosen, 'all six domains, every prompt ending in " the"', n_pool, seed)


def _domain(domain: str, n_pool: int | None = None, seed: int = 0) -> PromptSet:
    return _as_set(domain, _pool((domain,)), _ABOUT[domain], n_pool, seed)


mathematics, code, philosophy, general, fiction, prose = (partial(_domain, domain) for domain in DOMAINS)


@cache
def _pool(domains: tuple[str, ...]) -> tuple[Prompt, ...]:
    found = []
    for domain in domains:
        content = (files(__spec__.parent) / "data" / f"{domain}.jsonl").read_text(encoding="utf-8")
        for line in content.strip().split("\n"):
            row = json.loads(line)
            columns = {"domain": domain, "last_class": row["last"], "predictability": row["predictability"]}
            found.append(Prompt(text=row["text"], columns=columns))
    return tuple(found)


def _as_set(name: str, prompts: tuple[Prompt, ...], about: str, n_pool: int | None, seed: int) -> PromptSet:
    whole = PromptSet(
        name=name,
        prompts=prompts,
        units=dict.fromkeys(("domain", "last_class", "predictability"), LABEL),
        source=f"{len(prompts)} prompts written for interp: {about}",
        window=WINDOW,
        cluster="none",
    )
    return whole.draw(n_pool, seed, ", balanced", lambda n: balanced(prompts, n, np.random.default_rng(seed)))


def balanced(prompts: Sequence[Prompt], n: int, rng: np.random.Generator) -> np.ndarray:
    """Indices, ascending, of `n` prompts that keep the shares of domains and last classes.

    Every cell (domain, last class) gets its share of `n` by largest remainder, and cycles through the levels of
    predictability. Within a level, prompts are drawn with probabilities proportional to the square of the number of
    prompts with their last word. With cells of equal size a smaller draw of the same seed is part of a larger one.
    """
    cells = _cells(prompts, rng)
    sizes = np.array([len(cell) for cell in cells])
    taken, remainder = np.divmod(n * sizes, sizes.sum())
    taken[np.argsort(-remainder, kind="stable")[: n - taken.sum()]] += 1
    return np.sort(np.concatenate([cell[:k] for cell, k in zip(cells, taken, strict=True)]))


def _cells(prompts: Sequence[Prompt], rng: np.random.Generator) -> list[np.ndarray]:
    """The indices of every (domain, last class), in the order of the draw.

    Cells follow the diagonals of the shuffled grid: the first few have all domains, classes and first levels equally
    often, give or take one.
    """
    domain, last_class, level = (
        np.array([str(p.columns[name]) for p in prompts]) for name in ("domain", "last_class", "predictability")
    )
    domains, classes, levels = (rng.permutation(np.unique(column)) for column in (domain, last_class, level))
    place = np.argmax(level[:, None] == levels, axis=1)
    # the largest of log weights with Gumbel noise is a draw with these weights (Yellott 1977)
    priority = rng.gumbel(size=len(prompts)) + 2 * np.log(_sharing(prompts))
    cells = []
    for diagonal in range(len(classes)):
        for row, name in enumerate(domains):
            cell = np.flatnonzero((domain == name) & (last_class == classes[(row + diagonal) % len(classes)]))
            first = (row - diagonal) % len(levels)
            cells.append(_cycled(cell[np.argsort(-priority[cell])], (place - first) % len(levels)))
    return cells


def _sharing(prompts: Sequence[Prompt]) -> np.ndarray:
    last = [re.findall(r"\w+|\S", p.text or "")[-1] for p in prompts]
    _, code, counts = np.unique(last, return_inverse=True, return_counts=True)
    return counts[code]


def _cycled(cell: np.ndarray, place: np.ndarray) -> np.ndarray:
    """The cell's prompts in rounds of place 0, 1, 2 ..."""
    mine = place[cell]
    rounds = np.array([np.count_nonzero(mine[:i] == mine[i]) for i in range(len(mine))], dtype=np.int64)
    return cell[np.lexsort((mine, rounds))]
