"""Continuations of prompts by a model without and with edits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from transformers import DynamicCache

from interp.editing.edited_rows import edited_rows
from interp.editing.editor import applied, refuse_applied, refuse_unknown_prompts
from interp.edits import Edits, PatternsOf
from interp.errors import UsageError
from interp.formatting import html_table, text_table
from interp.hooks.attention import claimed
from interp.hooks.own_attention import cache_name
from interp.hooks.ropes import resetting_ropes, rope_scales
from interp.loading.load import with_donors
from interp.model import Model
from interp.prompt import Prompts, PromptSet
from interp.prompting.files import given_prompts
from interp.prompting.tokens import as_tokens
from interp.reading.collector import refuse_infinite
from interp.reading.forward import threads_of_pass
from interp.running.means import with_means
from interp.settings import MOST, refuse_number
from interp.system.float64 import double
from interp.system.plain_numbers import path as plain_path

if TYPE_CHECKING:
    import pandas

HEAD = ("prompt", "as it is", "edited")
_END_OF_PROMPT = 40
"""Characters of a prompt that a terminal shows."""


@dataclass(frozen=True)
class Continuation:
    """One prompt's continuation by the model as it is and by the edited model: ids and text of the new tokens.

    `shared` is the text that both begin with. Without edits both are the same.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> (one,) = interp.generate(model, interp.sampled_prompts(model.task, 1), n_tokens=3)
    >>> one.ids == one.edited_ids
    True
    """

    prompt: str
    ids: tuple[int, ...]
    edited_ids: tuple[int, ...]
    text: str
    edited_text: str
    shared: str

    @property
    def n_shared(self) -> int:
        """How many tokens both begin with."""
        pairs = zip(self.ids, self.edited_ids, strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(self.ids), len(self.edited_ids)))


@dataclass(frozen=True, repr=False)
class Continuations(Sequence[Continuation]):
    """The continuations of all prompts, shown side by side in a terminal or notebook; `write` makes a page.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> words = interp.generate(model, interp.sampled_prompts(model.task, 2), n_tokens=3)
    >>> page = words.write("words.html")
    """

    model: str
    edits: tuple[str, ...]
    how: str
    each: tuple[Continuation, ...]

    def __len__(self) -> int:
        return len(self.each)

    def __getitem__(self, i: int) -> Continuation:  # pyrefly: ignore[bad-override]
        return self.each[i]

    @property
    def title(self) -> str:
        """The model, how tokens were chosen, and the edits."""
        return f"{self.model}, {self.how}; edited: {', '.join(self.edits) or 'nothing'}"

    def to_frame(self) -> "pandas.DataFrame":
        """One row per prompt."""
        import pandas

        columns = ("prompt", "text", "edited_text", "n_shared", "ids", "edited_ids")
        return pandas.DataFrame([{name: getattr(c, name) for name in columns} for c in self.each])

    def rows(self) -> list[tuple[str, str, str]]:
        """The prompt, the continuation and the edited one, each on one line."""
        return [(_line(c.prompt, _END_OF_PROMPT), _line(c.text), _line(c.edited_text)) for c in self.each]

    def __repr__(self) -> str:
        return text_table(self.title, HEAD, self.rows(), "")

    def _repr_html_(self) -> str:
        return html_table(self.title, HEAD, self.rows(), "")

    def write(self, path: str | Path) -> Path:
        """Write an HTML page, which loads nothing from elsewhere; returns its path."""
        from interp.registry import load_entry

        return load_entry("report", "continuations")(self, plain_path(path))


def generate(
    model: Model,
    prompts: Prompts,
    edits: Edits = (),
    *,
    n_tokens: int = 20,
    temperature: float = 0.0,
    seed: int = 0,
    window: int | None = None,
    cache: bool = True,
) -> Continuations:
    """Continue prompts with the model as it is, and edited.

    Args:
        model: The model.
        prompts: Prompts as `interp.collect` takes them.
        edits: Edits of the second continuation. Those at `all` positions also act on new tokens; those at `last`,
            `scored`, a column or counted positions act on the prompt only. Ablation by the mean uses the edited
            positions of these prompts.
        n_tokens: How many tokens are added; fewer if the model ends the text.
        temperature: 0 takes the most likely token; otherwise tokens are sampled, with the same random numbers for both
            continuations.
        seed: Seed of the samples.
        window: How many tokens of each prompt are kept, from its end.
        cache: Whether keys and values of earlier tokens are kept (faster, same texts). `PatternsOf` turns it off.

    Returns:
        Both continuations of every prompt.

    Raises:
        UsageError: An edit cannot act here, or prompt and new tokens exceed the positions that the model reads.
        PromptError: There are no prompts, or they do not fit the model.
        ModelError: Logits are not finite.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> words = interp.generate(
        ...     model, interp.sampled_prompts(model.task, 2), [interp.AblateHeads(layer=0, heads=1)], n_tokens=3
        ... )
        >>> len(words), len(words.each[0].ids)
        (2, 3)
    """
    refuse_number(f"n_tokens = {n_tokens}", n_tokens, 1, MOST)
    refuse_number(f"temperature = {temperature:g}", temperature, 0, MOST)
    refuse_applied(model, "continuations")
    pool = given_prompts(model, prompts, seed)
    ids = as_tokens(model, pool, (), window).ids
    lengths = np.array([len(x) for x in ids])
    longest, allowed = int(lengths.max()) + n_tokens, model.info.max_positions
    if allowed is not None and longest > allowed:
        raise UsageError(
            asked=f"{n_tokens} tokens after a prompt of {lengths.max()}",
            found=f"{model.name} reads {allowed} positions",
            fix="Ask for fewer tokens, or give window=N.",
        )
    changes = with_donors(edits, model.info)
    if changes:
        changes = with_means(model, pool, changes, window=window)
        refuse_unknown_prompts([replace(edit, at="all") for edit in changes], model)
    rows = [edited_rows(edit, pool, lengths) if edit.at != "all" else None for edit in changes]
    whole = not cache or not model.family.has_attention or any(isinstance(edit, PatternsOf) for edit in changes)
    settings, each = getattr(model.module, "generation_config", None), []
    ends = [getattr(of, "eos_token_id", None) for of in (settings, model.tokenizer)]
    end = {token for one in ends if one is not None for token in (one if isinstance(one, list) else [one])}
    for i, start in enumerate(ids):
        mine = []
        for edit, index in zip(changes, rows, strict=True):
            if index is None:
                mine.append(edit)
            elif positions := tuple(index.position[index.prompt == i].tolist()):
                mine.append(replace(edit, at=positions))
        draws = np.random.default_rng([seed, i]).random(n_tokens)
        plain = _continued(model, start, draws, temperature, end, whole=whole)
        edited = plain
        if mine:
            with applied(model, *mine):
                edited = _continued(model, start, draws, temperature, end, whole=whole)
        each.append(_in_words(model, pool, i, start, plain, edited))
    how = "most likely tokens" if temperature == 0 else f"drawn at temperature {temperature:g}, seed {seed}"
    return Continuations(model.name, tuple(map(str, changes)), how, tuple(each))


def _chosen(logits: Float[torch.Tensor, " vocab"], temperature: float, draw: float) -> int:
    """The most likely token, or the one that the random number `draw` (0 to 1) selects at this temperature."""
    if temperature == 0:
        return int(logits.argmax())
    p = torch.softmax(double(logits) / temperature, dim=-1).cumsum(dim=-1)
    return min(int(torch.searchsorted(p, draw * float(p[-1]), right=True)), len(p) - 1)


def _continued(
    model: Model, start: Int[np.ndarray, " _pos"], draws: Float[np.ndarray, " n"], temperature: float,
    end: set[int], *, whole: bool,
) -> tuple[int, ...]:  # fmt: skip
    """The new tokens of one text, one per random number; with `whole` nothing is cached.

    The cache also starts again where a rope changes its frequencies with the length. It is made without the
    configuration, by whose `sliding_window` it would drop keys even if no layer uses that field.
    """
    made: list[int] = []
    kept: Any = None
    lengths = len(start) + np.arange(len(draws))
    changes_rope = np.diff(rope_scales(model.config, lengths), prepend=0) != 0
    cache, has_positions = cache_name(model.module), "position_ids" in signature(model.module.forward).parameters
    ids = torch.from_numpy(np.asarray(start, dtype=np.int64))[None].to(model.input_device)
    with claimed(model), torch.inference_mode(), threads_of_pass(model, ids), resetting_ropes(model):
        for draw, is_changed in zip(draws, changes_rope, strict=True):
            if whole:
                out = model.module(input_ids=ids, use_cache=False)
            else:
                new, at = ids, {}
                if kept is not None and not is_changed:
                    new = ids[:, -1:]
                    if has_positions:  # Bamba counts from 0 after a cache
                        at = {"position_ids": ids.new_tensor([[ids.shape[1] - 1]])}
                else:
                    kept = DynamicCache() if model.family.mixer is None else None
                out = model.module(input_ids=new, **{cache: kept}, **at, use_cache=True)
                kept = getattr(out, cache)
            logits = out.logits[0, -1].float().cpu()
            refuse_infinite(model, torch.logsumexp(logits, dim=-1))
            token = _chosen(logits, temperature, float(draw))
            made.append(token)
            if token in end:
                break
            ids = torch.cat([ids, ids.new_tensor([[token]])], dim=1)
    return tuple(made)


def _in_words(
    model: Model, pool: PromptSet, i: int, start: np.ndarray, plain: tuple[int, ...], edited: tuple[int, ...]
) -> Continuation:
    tokenizer, ids = model.tokenizer, start.tolist()

    def words(new: Sequence[int]) -> str:
        if tokenizer is None:
            return " ".join(map(str, new))
        before, whole = (str(tokenizer.decode(all_ids, skip_special_tokens=True)) for all_ids in (ids, [*ids, *new]))
        return whole[len(before) :]

    text = pool[i].text
    found = Continuation(" ".join(map(str, ids)) if text is None else text, plain, edited, "", "", "")
    return replace(found, text=words(plain), edited_text=words(edited), shared=words(plain[: found.n_shared]))


def _line(text: str, end: int | None = None) -> str:
    flat = text.replace("\n", "⏎")
    return flat if end is None or len(flat) <= end else "…" + flat[1 - end :]
