"""Unique names of tokens: each by the text that it adds, if no other token of the vocabulary adds the same."""

from collections import Counter
from weakref import WeakKeyDictionary

import numpy as np
from transformers import PreTrainedTokenizerBase

_KNOWN: WeakKeyDictionary[PreTrainedTokenizerBase, dict[str, int]] = WeakKeyDictionary()
_BROKEN = "\ufffd"


def names_of(tokenizer: PreTrainedTokenizerBase, ids: np.ndarray) -> tuple[str, ...]:
    """The names of tokens; `#ID` for those that a model embeds although its vocabulary lacks them."""
    wanted = set(ids.tolist())
    found = {token_id: name for name, token_id in token_names(tokenizer).items() if token_id in wanted}
    return tuple(found.get(i, f"#{i}") for i in ids.tolist())


def token_names(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    """The ids of all tokens by name.

    A name is the text that the token adds inside a text, so that `▁is` of SentencePiece is " is" and not "is". A token
    that adds no whole character, or the same as a token spelt like that text (the byte `<0x41>` and the letter "A"),
    has its name in the vocabulary, with its number if that name is taken.
    """
    names = _KNOWN.get(tokenizer)
    if names is None or len(names) != len(tokenizer):
        names = _KNOWN[tokenizer] = _named(tokenizer)
    return names


def _named(tokenizer: PreTrainedTokenizerBase) -> dict[str, int]:
    known = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    own = [f"#{i}" if name is None else str(name) for i, name in enumerate(known)]
    texts = _added(tokenizer)
    n = Counter(texts)
    is_text = [
        bool(text) and _BROKEN not in text and (n[text] == 1 or name.replace("▁", " ") == text)
        for text, name in zip(texts, own, strict=True)
    ]
    names: dict[str, int] = {}
    for i in sorted(range(len(own)), key=lambda i: not is_text[i]):
        name = texts[i] if is_text[i] else own[i]
        names[f"{name} #{i}" if name in names else name] = i
    return names


def _added(tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The text that each token adds when repeated; a replacement character if it is not a whole one alone."""
    ids = range(len(tokenizer))
    once = _decoded(tokenizer, [[i] for i in ids])
    twice = _decoded(tokenizer, [[i, i] for i in ids])
    added = [two[len(one) :] if _BROKEN not in one else _BROKEN for one, two in zip(once, twice, strict=True)]
    # some decoders put a space between any two tokens
    return [text[1:] for text in added] if all(text.startswith(" ") for text in added) else added


def _decoded(tokenizer: PreTrainedTokenizerBase, ids: list[list[int]]) -> list[str]:
    inner = getattr(tokenizer, "backend_tokenizer", None)  # ten times as fast, with nothing cleaned up
    if inner is not None:
        return inner.decode_batch(ids, skip_special_tokens=False)
    return [str(tokenizer.decode(one, clean_up_tokenization_spaces=False)) for one in ids]
