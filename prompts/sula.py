"""In-context evidence about a latent label (SULA), its controls, and the exact posterior of every prompt.

    stone: lum, river: lum, paper: tal. window:

Examples show one of two labels after unrelated words, and the next token after the last word is read. Formulas are in
`interp.prompts.evidence`. The same problems are written in seven conditions:

    main          as above
    remap         another pair of labels
    shuffled      every label redrawn by a fair coin; the columns have the posterior if labels are trusted and, as in
                  all conditions, if they are known to be noise (1 bit)
    ablated       every carrier replaced by the same word of equal length; labels and posterior stay
    permuted      the examples in another order; the posterior stays
    padded        neutral examples among the others, so that all prompts are equally long and k = 0 has the same format
    fixed_last    the same last word in all prompts, so that all end in the same tokens

Words of labels and true labels are balanced in every cell. Rows with equal `problem` differ in their condition alone,
and are not independent.
Source: Paper III (arXiv 2512.23752), section 5.2, with the reservations of which readers each control is fit for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from interp.errors import PromptError, UnknownName
from interp.prompt import Prompt, PromptSet
from interp.table import Table

from .evidence import (
    EVIDENCE_UNITS,
    PROBLEM_UNITS,
    Problems,
    check_sizes,
    draw_problems,
    evidence_columns,
    posterior,
)
from .one_token_labels import Label, as_labels, equally_long, find_labels, refuse_merged
from .vocabulary import in_proportion

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

KS = (0, 1, 2, 4, 8)
CONDITIONS = ("main", "remap", "shuffled", "ablated", "permuted", "padded", "fixed_last")
RELIABILITY = 0.9

CARRIERS = {
    "neutral": "stone river paper window table garden street bottle basket mirror bridge button candle carpet ceiling "
    "chair clock cloud corner curtain desk door engine fence field floor glass hammer handle island jacket kettle "
    "kitchen ladder lamp leaf letter market metal needle ocean oven pencil pillow pocket road roof rope shelf shirt "
    "spoon square station tower tree tunnel valley wall wheel wood",
    "mood": "calm happy sad angry gentle bitter cheerful lonely proud nervous hopeful jealous grateful tired eager "
    "afraid brave bored curious kind cruel warm cold bright dark sweet sour honest selfish patient joyful gloomy "
    "lively anxious content ashamed friendly hostile relaxed tense",
}
"""Carrier words by name: neutral things, and moods of both kinds."""


@dataclass(frozen=True)
class Words:
    """The words of the problems: carriers of examples, last words, labels, the neutral label, and the mask."""

    carriers: np.ndarray
    queries: np.ndarray
    main: tuple[Label, Label]
    remap: tuple[Label, Label]
    neutral: Label
    mask: str


def sula(n_pool: int | None = None, seed: int = 0, *, tokenizer: "PreTrainedTokenizerBase") -> PromptSet:
    """50 problems for each of k = 0, 1, 2, 4 and 8 examples, in seven conditions: `n_pool` of 1,750 prompts."""
    return taken(sula_prompts(tokenizer, per_k=50, seed=seed), n_pool, seed)


def sula_250(n_pool: int | None = None, seed: int = 0, *, tokenizer: "PreTrainedTokenizerBase") -> PromptSet:
    """The same with 250 problems for each k: 8,750 prompts."""
    return taken(sula_prompts(tokenizer, per_k=250, seed=seed, name="sula-250"), n_pool, seed)


def taken(whole: PromptSet, n: int | None, seed: int) -> PromptSet:
    """`n` of the prompts: problems with k in proportion, all but the last one in all conditions."""
    problem = np.array([p.columns["problem"] for p in whole])
    first = np.unique(problem, return_index=True)[1]
    k = [str(whole[i].columns["k"]) for i in first.tolist()]

    def choose(n: int) -> np.ndarray:
        n_whole, n_left = divmod(n, len(whole) // len(first))
        kept, more = (in_proportion(k, m, np.random.default_rng(seed)) for m in (n_whole, min(n_whole + 1, len(k))))
        extra = np.flatnonzero(np.isin(problem, np.setdiff1d(more, kept)))[:n_left]
        return np.sort(np.concatenate([np.flatnonzero(np.isin(problem, kept)), extra]))

    return whole.draw(n, seed, ", whole problems, k in proportion", choose)


def sula_prompts(
    tokenizer: "PreTrainedTokenizerBase",
    *,
    per_k: int = 50,
    ks: Sequence[int] = KS,
    reliability: float = RELIABILITY,
    conditions: Sequence[str] = CONDITIONS,
    carriers: str | Sequence[str] = "neutral",
    labels: Sequence[tuple[str, str]] | None = None,
    neutral: str | None = None,
    seed: int = 0,
    name: str = "sula",
) -> PromptSet:
    """`per_k` problems for each number of examples in `ks`, in each of the `conditions`.

    `carriers` is a list of words or a name in `CARRIERS`, of which those of equal token length are used. `labels` are
    two pairs, the second for the condition `remap`, and `neutral` is the label of neutral examples; by default words of
    one token each are found. Raises `PromptError` if there are none.
    """
    check_sizes(name, ks, per_k, reliability)
    for condition in conditions:
        if condition not in CONDITIONS:
            raise UnknownName("condition", condition, CONDITIONS)
    rng = np.random.default_rng(seed)
    problems = draw_problems(ks, per_k, reliability, rng)
    words = _choose_words(tokenizer, problems, carriers, labels, neutral, rng)
    parts = [
        _written(condition, problems, words, reliability, np.random.default_rng([seed, CONDITIONS.index(condition)]))
        for condition in dict.fromkeys(conditions)
    ]
    texts = [text for written, _, _ in parts for text in written]
    pairs = [pair for _, _, labels in parts for pair in labels]
    refuse_merged(tokenizer, texts, pairs)
    columns = {key: np.concatenate([found[key] for _, found, _ in parts]) for key in parts[0][1]}
    table = Table(columns, {**PROBLEM_UNITS, **EVIDENCE_UNITS})
    named = " and ".join(f"{a.word}/{b.word}" for a, b in (words.main, words.remap))
    return PromptSet(
        name=name,
        prompts=[Prompt(text=text, columns=row) for text, row in zip(texts, table.rows(), strict=True)],
        units=table.units,
        source=f"{per_k} problems for each of k = {', '.join(map(str, ks))} in {len(parts)} conditions, labels {named} "
        f"(neutral {words.neutral.word}) right with probability {reliability:g}, carriers of one length such as "
        f"{words.queries[0]}; seed {seed}",
        seed=seed,
        cluster="problem",
        posterior=posterior(columns["log_odds_bits"]),
        outcome_ids=np.array([[label.token_id for label in pair] for pair in pairs]),
    )


def _choose_words(
    tokenizer: "PreTrainedTokenizerBase",
    problems: Problems,
    carriers: str | Sequence[str],
    labels: Sequence[tuple[str, str]] | None,
    neutral: str | None,
    rng: np.random.Generator,
) -> Words:
    if isinstance(carriers, str):
        if carriers not in CARRIERS:
            raise UnknownName("list of carriers", carriers, CARRIERS)
        carriers = CARRIERS[carriers].split()
    *usable, mask = equally_long(tokenizer, list(carriers))
    if labels is None:
        found = find_labels(tokenizer, 5)
        (fifth,) = as_labels(tokenizer, [neutral]) if neutral is not None else found[4:]
        first, second, third, fourth = [label for label in found if label.token_id != fifth.token_id][:4]
    else:
        given = [word for pair in labels for word in pair]
        if len(labels) != 2 or len(given) != 4 or neutral is None:
            raise PromptError(
                asked=f"the labels {labels!r}",
                found="two pairs and a neutral label are wanted",
                fix="For example labels=(('first', 'second'), ('third', 'fourth')), neutral='fifth'.",
            )
        first, second, third, fourth, fifth = as_labels(tokenizer, [*given, neutral])
    n, longest = problems.shown.shape
    drawn = rng.choice(np.array(usable), size=(n, longest + 1))
    return Words(drawn[:, :-1], drawn[:, -1], (first, second), (third, fourth), fifth, mask)


def _written(
    condition: str, problems: Problems, words: Words, reliability: float, rng: np.random.Generator
) -> tuple[list[str], dict[str, np.ndarray], list[tuple[Label, Label]]]:
    """Texts and columns of one condition, and the words of label 1 and label 2 in each."""
    carriers, queries, shown = words.carriers, words.queries, problems.shown
    pair = words.remap if condition == "remap" else words.main
    labels = [(pair[1], pair[0]) if is_swapped else pair for is_swapped in problems.swapped.tolist()]
    latent = np.array([pair[i].word for pair, i in zip(labels, problems.latent.tolist(), strict=True)])
    if condition == "shuffled":
        shown = np.where(shown >= 0, rng.integers(0, 2, shown.shape), -1)
        latent = np.full(len(problems), "none")
    elif condition == "ablated":
        carriers, queries = np.full_like(carriers, words.mask, dtype=object), np.full(len(queries), words.mask)
    elif condition == "fixed_last":
        queries = np.full(len(queries), queries[0])
    elif condition in ("permuted", "padded"):
        order = _orders(problems.k, shown.shape[1], condition == "padded", rng)
        shown = np.take_along_axis(shown, order, axis=1)
        if condition == "permuted":
            carriers = np.take_along_axis(carriers, order, axis=1)
    texts = [
        _text(carriers[i], queries[i], shown[i], labels[i], words.neutral if condition == "padded" else None)
        for i in range(len(problems))
    ]
    columns = {
        "condition": np.full(len(labels), condition),
        "problem": np.arange(len(labels)),
        "latent": latent,
        "label_1": np.array([pair[0].word for pair in labels]),
        "label_2": np.array([pair[1].word for pair in labels]),
        "carrier_last": queries,
    }
    return texts, columns | evidence_columns(shown, reliability), labels


def _orders(k: np.ndarray, longest: int, everywhere: bool, rng: np.random.Generator) -> np.ndarray:
    """An order of the examples of every problem: its own k alone, or `everywhere` among the empty places."""
    orders = np.tile(np.arange(longest), (len(k), 1))
    for i, n in enumerate(k.tolist()):
        if everywhere:  # the examples keep their order, the places between them are drawn
            places = np.sort(rng.permutation(longest)[:n])
            orders[i] = n if n < longest else 0
            orders[i, places] = np.arange(n)
        else:
            orders[i, :n] = rng.permutation(n)
    return orders


def _text(
    carriers: np.ndarray, query: str, shown: np.ndarray, labels: tuple[Label, Label], neutral: Label | None
) -> str:
    """The prompt; empty places have the neutral label, or are left out without one."""
    examples = [
        f"{carrier}: {(labels[label] if label >= 0 else neutral).word}"  # pyrefly: ignore[missing-attribute]
        for carrier, label in zip(carriers.tolist(), shown.tolist(), strict=True)
        if label >= 0 or neutral is not None
    ]
    return f"{', '.join(examples)}. {query}:" if examples else f"{query}:"
