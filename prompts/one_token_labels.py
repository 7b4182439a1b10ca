"""Labels of one token each, and carriers of equal length, in a given tokenizer.

A label is predicted after a colon, so it must be a single token with its space in front, there and before the comma or
full stop of the examples. Meaningless words are tried first, so that labels are defined by the examples alone; then
short pieces of the vocabulary.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from interp.errors import PromptError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PSEUDO_WORDS = (
    "lum tal sul mur tur dun mor vel rel sem bal hal tor bos ver nim fen rud kor bem vex dit pim fid rus nec lex "
    "wug dax blick fep toma zup kip mib lorp vok dap rax tiv dob zor gorp mep zib sij kem"
)
"""Candidates for labels, in order; the first fourteen are one token for Pythia, Phi-2 and Mistral."""

CONTEXTS = ("stone", "quiet")
"""Words that a candidate is tested after; `refuse_merged` checks whole prompts."""

MIN_CARRIERS = 3
"""Two that vary, and one that masks the others."""

_MARKERS = "▁Ġ"
_PIECE = re.compile(r"[a-z][a-z0-9]{1,6}")


@dataclass(frozen=True)
class Label:
    """A word and the token that it is, with its space in front."""

    word: str
    token_id: int


def find_labels(tokenizer: "PreTrainedTokenizerBase", n: int) -> tuple[Label, ...]:
    """The first `n` candidates that are different single tokens; raises `PromptError` if there are fewer."""
    found: dict[int, Label] = {}
    for word in _candidates(tokenizer):
        token_id = single_token(tokenizer, word)
        if token_id is not None and token_id not in found:
            found[token_id] = Label(word, token_id)
        if len(found) == n:
            return tuple(found.values())
    raise PromptError(
        asked=f"{n} labels of one token each in the vocabulary of {type(tokenizer).__name__}",
        found=f"{len(found)} words that were tried are one token behind a colon",
        fix="Name words that are: labels=((first, second), ...), neutral=word.",
    )


def as_labels(tokenizer: "PreTrainedTokenizerBase", words: Iterable[str]) -> tuple[Label, ...]:
    """Given words as labels; raises `PromptError` for a word of several tokens, or two of the same."""
    labels = []
    for word in words:
        token_id = single_token(tokenizer, word)
        if token_id is None:
            pieces = tokenizer.convert_ids_to_tokens(encode(tokenizer, f"{CONTEXTS[0]}: {word}"))
            raise PromptError(
                asked=f"the label {word!r}",
                found=f"it is not one token with its space in front ({' '.join(map(str, pieces))})",
                fix="Choose another word, or leave the labels out: some are found for the tokenizer.",
            )
        labels.append(Label(word, token_id))
    if len({label.token_id for label in labels}) < len(labels):
        raise PromptError(
            asked=f"the labels {', '.join(label.word for label in labels)}",
            found="two of them are the same token",
            fix="Give labels that differ.",
        )
    return tuple(labels)


def single_token(tokenizer: "PreTrainedTokenizerBase", word: str) -> int | None:
    """The token of ` word` after a colon and before a comma or a full stop; None if it is not a single one."""
    found: set[int] = set()
    for context in CONTEXTS:
        before = encode(tokenizer, f"{context}:")
        with_label = encode(tokenizer, f"{context}: {word}")
        if len(with_label) != len(before) + 1 or with_label[:-1] != before:
            return None
        for after in (",", "."):
            longer = encode(tokenizer, f"{context}: {word}{after} {context}:")
            if longer[: len(with_label)] != with_label:
                return None
        found.add(with_label[-1])
    token_id = found.pop()
    return None if found or token_id == tokenizer.unk_token_id else token_id


def equally_long(tokenizer: "PreTrainedTokenizerBase", words: Sequence[str]) -> tuple[str, ...]:
    """The words of the commonest token length, at the front of a text and after a comma.

    The length of a prompt then depends on the number of examples alone. Single tokens are preferred if at least a dozen
    words are.
    """
    by_length: dict[tuple[int, int], list[str]] = {}
    for word in words:
        front = len(encode(tokenizer, f"{word}:"))
        behind = len(encode(tokenizer, f"stone, {word}:")) - len(encode(tokenizer, "stone,"))
        by_length.setdefault((front, behind), []).append(word)
    simple = [lengths for lengths, equal in by_length.items() if max(lengths) == 2 and len(equal) >= 12]
    chosen = simple[0] if simple else max(by_length, key=lambda lengths: len(by_length[lengths]), default=(0, 0))
    equal = tuple(dict.fromkeys(by_length.get(chosen, ())))
    if len(equal) < MIN_CARRIERS:
        raise PromptError(
            asked=f"the carriers {', '.join(words[:5])} ...",
            found=f"{len(equal)} of them are equally long for this tokenizer",
            fix=f"Give at least {MIN_CARRIERS} different words of the same number of tokens.",
        )
    return equal


def refuse_merged(
    tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str], labels: Sequence[Sequence[Label]]
) -> None:
    """Raise `PromptError` if a label after a finished text is not one more token."""
    alone = encode_all(tokenizer, texts)
    for i in range(2):
        continued = encode_all(tokenizer, [f"{text} {pair[i].word}" for text, pair in zip(texts, labels, strict=True)])
        for text, ids, longer, pair in zip(texts, alone, continued, labels, strict=True):
            if longer != [*ids, pair[i].token_id]:
                raise PromptError(
                    asked=f"the label {pair[i].word!r} behind {text[-40:]!r}",
                    found="it is not the one next token there",
                    fix="Choose other labels or carriers.",
                )


def encode(tokenizer: "PreTrainedTokenizerBase", text: str) -> list[int]:
    """The ids of one text alone, without special tokens."""
    return encode_all(tokenizer, [text])[0]


def encode_all(tokenizer: "PreTrainedTokenizerBase", texts: Sequence[str]) -> list[list[int]]:
    """The ids of every text alone, without special tokens."""
    return tokenizer(list(texts), add_special_tokens=False, padding=False, truncation=False, verbose=False)["input_ids"]


def _candidates(tokenizer: "PreTrainedTokenizerBase") -> Iterator[str]:
    yield from PSEUDO_WORDS.split()
    pieces = {piece.lstrip(_MARKERS) for piece in tokenizer.get_vocab()}
    yield from sorted((p for p in pieces if _PIECE.fullmatch(p)), key=lambda p: (abs(len(p) - 3), p))
