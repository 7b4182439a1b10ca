"""Prompts as token ids, with the tokenizer's beginning-of-text token and a window at the end of each text."""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Int
from transformers import PreTrainedTokenizerBase

from interp.errors import ModelError, PromptError
from interp.model import Model
from interp.need import PLACES, Need
from interp.prompt import PromptSet, Run
from interp.prompting.token_names import names_of, token_names
from interp.system.values import read as read_value

Ids = Int[np.ndarray, " _pos"]

_AT_ONCE = 1_000
"""Texts tokenized at once."""


def as_tokens(model: Model, pool: PromptSet, needs: Sequence[Need], window: int | None, bos: bool = True) -> Run:
    """The prompts as token ids, checked against the model.

    A beginning-of-text token is added where the tokenizer adds one, except without `bos` and for chats, whose template
    decides. A closing token is left off, because a text is read at its own last token. `window` keeps the last tokens
    of a text, after the beginning-of-text token, which counts; None is the window of the prompts, 0 keeps all.
    Raises `PromptError` for a text without a token, one longer than the model reads, an id outside its vocabulary,
    texts without a tokenizer, a window on token ids, and one that shortened texts in which a column names positions.
    """
    window = (pool.window if window is None else window) or None
    if not pool.is_text and window is not None:
        raise PromptError(
            asked=f"a window of {window} tokens on {pool.name!r}",
            found="its prompts are token ids, whose scored positions count from the front",
            fix="Leave out the window, or cut the ids and move the positions yourself.",
        )
    if pool.is_text:
        read = _from_texts(pool, model.tokenizer, window, bos)
    else:
        read = Run(pool, [np.array(prompt.token_ids, dtype=np.int64) for prompt in pool.prompts])
    _refuse_long(read, model.info.max_positions)
    _refuse_outside(read, model)
    columns = {need.at for need in needs} - PLACES
    if columns and read.n_truncated:
        raise PromptError(
            asked=f"the positions in the column {', '.join(sorted(columns))}",
            found=f"the window of {window} tokens cut {read.n_truncated} texts at their front",
            fix="Positions count from the front: read the texts whole with a window of 0.",
        )
    return read


def _from_texts(prompts: PromptSet, tokenizer: PreTrainedTokenizerBase | None, window: int | None, bos: bool) -> Run:
    if tokenizer is None:
        raise PromptError(
            asked=f"the texts of {prompts.name!r} as tokens",
            found="the model has no tokenizer",
            fix="Load it with `interp.load(..., tokenizer=...)`, or give prompts of token ids.",
        )
    texts = [p.text or "" for p in prompts]
    before, after = ([], []) if prompts.is_templated else _added_around(tokenizer, texts[0])
    before = before if bos else []
    if window is not None and window <= len(before):
        raise PromptError(
            asked=f"a window of {window} tokens",
            found=f"{len(before)} of them would be what the tokenizer puts in front of every text",
            fix=f"Take at least {len(before) + 1}.",
        )
    own, head = _encode(tokenizer, texts), np.array(before, dtype=np.int64)
    for i, ids in enumerate(own):
        if not len(ids):
            raise PromptError(
                asked=f"prompt {i + 1} of {prompts.name!r}",
                found=f"its text {texts[i][:40]!r} has no token in this vocabulary",
                fix="Leave it out, or give it a word.",
            )
    n_kept = None if window is None else window - len(before)
    dropped = np.array([0 if n_kept is None else max(0, len(ids) - n_kept) for ids in own])
    return Run(
        prompts,
        [np.concatenate([head, ids[cut:]]) for ids, cut in zip(own, dropped, strict=True)],
        n_truncated=int(np.count_nonzero(dropped)),
        has_bos=bool(before) or (prompts.is_templated and {ids[0] for ids in own} == {tokenizer.bos_token_id}),
        window=window,
        notes=tuple(_notes(tokenizer, texts, own, before, after)),
    )


def _encode(tokenizer: PreTrainedTokenizerBase, texts: list[str]) -> list[Ids]:
    """The ids of the texts alone, in parts, since the tokenizer's objects take kilobytes per text."""
    found = []
    for start in range(0, len(texts), _AT_ONCE):
        some = texts[start : start + _AT_ONCE]
        # verbose=False: a long text is our error to report, not a line on the user's terminal
        encoded = tokenizer(some, add_special_tokens=False, padding=False, truncation=False, verbose=False)
        found += [np.array(ids, dtype=np.int64) for ids in encoded["input_ids"]]
    return found


def _added_around(tokenizer: PreTrainedTokenizerBase, text: str) -> tuple[list[int], list[int]]:
    full = tokenizer(text, padding=False, truncation=False, verbose=False, return_special_tokens_mask=True)
    ids: list[int] = full["input_ids"]
    own = [i for i, added in enumerate(full["special_tokens_mask"]) if not added]
    start, stop = (own[0], own[-1] + 1) if own else (len(ids), len(ids))
    if ids[start:stop] != _encode(tokenizer, [text])[0].tolist():
        raise ModelError(
            asked=f"texts through {type(tokenizer).__name__}",
            found="it changes the tokens of a text where it adds its special tokens",
            fix="Give prompts of token ids.",
        )
    return ids[:start], ids[stop:]


def _notes(
    tokenizer: PreTrainedTokenizerBase, texts: list[str], own: list[Ids], before: list[int], after: list[int]
) -> list[str]:
    notes = []
    if after:
        closing = " ".join(str(t) for t in tokenizer.convert_ids_to_tokens(after))
        notes.append(f"the tokenizer's closing {closing} is left off: texts are read at their own last token")
    doubled = sum(ids[: len(before)].tolist() == before for ids in own) if before else 0
    if doubled:
        notes.append(f"{doubled} texts already begin with what the tokenizer puts in front, which is then repeated")
    unknown = {tokenizer.unk_token_id} - {None, tokenizer.bos_token_id, tokenizer.eos_token_id}
    if n := sum(not unknown.isdisjoint(ids.tolist()) for ids in own):
        notes.append(f"{n} texts hold characters that this vocabulary lacks: they are read as {tokenizer.unk_token}")
    if n := len(set(texts)) - len({ids.tobytes() for ids in own}):
        notes.append(f"{n} texts have the same tokens as another text: this tokenizer does not distinguish them")
    return notes


def _refuse_long(read: Run, max_positions: int | None) -> None:
    prompts, lengths = read.prompts, read.lengths
    if max_positions is None or lengths.max() <= max_positions:
        return
    too_long = np.flatnonzero(lengths > max_positions)
    first = int(too_long[0])
    shorten = f"take `--window {max_positions}` (the last tokens of each text)" if prompts.is_text else "cut its ids"
    raise PromptError(
        asked=f"prompt {first + 1} of {prompts.name!r}",
        found=f"it has {lengths[first]} tokens and the model reads at most {max_positions}"
        + (f"; {len(too_long)} prompts are too long" if len(too_long) > 1 else ""),
        fix=f"Shorten it, or {shorten}.",
    )


def _refuse_outside(read: Run, model: Model) -> None:
    vocab_size, fix = model.info.vocab_size, "Use the ids of this model's own tokenizer."
    outcomes = read.prompts.outcome_ids
    if outcomes is not None and (outcomes.min() < 0 or outcomes.max() >= vocab_size):
        found = f"they are {outcomes.min()} to {outcomes.max()}; the vocabulary's are 0 to {vocab_size - 1}"
        raise PromptError(asked=f"outcome_ids of {read.prompts.name!r}", found=found, fix=fix)
    for i, one in enumerate(read.ids):
        if one.min() < 0 or one.max() >= vocab_size:
            worst = one.min() if one.min() < 0 else one.max()
            found = f"it holds the token id {worst}; the vocabulary's are 0 to {vocab_size - 1}"
            if read.prompts.is_text:
                (name,) = words_of(model, np.array([worst]))
                found = f"its tokenizer has {name!r} as token {worst}, and the model embeds 0 to {vocab_size - 1}"
                fix = "Leave the token out, or call `resize_token_embeddings(len(tokenizer))` before training it."
            raise PromptError(asked=f"prompt {i + 1} of {read.prompts.name!r}", found=found, fix=fix)


def words_of(model: Model, ids: np.ndarray) -> tuple[str, ...]:
    """The names of tokens (`names_of`); for a tunnel, their numbers."""
    return tuple(str(i) for i in ids) if model.tokenizer is None else names_of(model.tokenizer, ids)


def one_token(model: Model, word: str | int) -> int:
    """The id of the token of this name, or the id itself; raises `PromptError` for anything else."""
    word = read_value("a token", str | int, word)
    if isinstance(word, str):
        if model.tokenizer is None:
            raise PromptError(
                asked=f"the token {word!r}", found=f"{model.name} has no tokenizer", fix="Give the id of the token."
            )
        names = token_names(model.tokenizer)
        if word not in names:
            raise _unnamed(model.tokenizer, word, names)
        return names[word]
    if not 0 <= word < model.info.vocab_size:
        raise PromptError(
            asked=f"the token id {word}",
            found=f"the vocabulary's are 0 to {model.info.vocab_size - 1}",
            fix="Give one of these.",
        )
    return word


def _unnamed(tokenizer: PreTrainedTokenizerBase, word: str, names: Mapping[str, int]) -> PromptError:
    near = next((name for name in (f" {word}", word.strip()) if name in names), None)
    parts = " ".join(map(repr, names_of(tokenizer, _encode(tokenizer, [word])[0])))
    return PromptError(
        asked=f"the token {word!r}",
        found=f"no token has this name; read as a text it is {parts or 'no token'}",
        fix=f"Name {near!r}, which is one." if near else "Name one token, with its space in front, or give an id.",
    )
