"""Prompts to look at token by token: entropies and attention of every position, layer and head."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int

from interp.edit import Edit
from interp.editing.conditions import capture_edited
from interp.editing.editor import name_with_edits
from interp.edits import Edits
from interp.errors import PromptError, UsageError
from interp.information import entropy_bits
from interp.loading.load import with_donors
from interp.model import Model
from interp.need import Need
from interp.prompt import Prompt, Prompts, PromptSet
from interp.prompting.files import given_prompts
from interp.prompting.tokens import as_tokens, words_of
from interp.records.token_strip import TokenStrip

MOST_WEIGHTS = 1 << 20
"""Attention weights that one strip holds: each is a byte of the page, and a page has to stay small."""

_NEEDS = tuple(Need(site, at="all") for site in ("pattern_entropy", "sink_mass", "pattern_row"))


def show_tokens(
    model: Model, prompts: Prompts, prompt: int = 0, *, window: int | None = None, edits: Edits = ()
) -> TokenStrip:
    """Show one prompt token by token, in a notebook.

    Tokens are coloured by attention entropy (layer and head by slider), by sink mass, by the entropy of the next token
    or, where it is known, of the exact belief. Choose a token to see where it attends.

    Args:
        model: The model.
        prompts: A text, or whatever `interp.collect` takes.
        prompt: Which of the prompts, from 0.
        window: How many tokens are kept, from the end.
        edits: Edits that act while the model is read.

    Returns:
        The token strip, which notebooks display; the arrays behind it are its fields.

    Raises:
        UsageError: There is no prompt of this number.
        PromptError: The prompt has too many tokens to show, or does not fit the model.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> interp.show_tokens(model, interp.sampled_prompts(model.task, 3), prompt=2)
        TokenStrip('tunnel:bijection-gpt-neox': ... tokens, ... layers, ... heads)
    """
    pool = given_prompts(model, prompts)
    refuse_unknown_prompt(pool, [prompt])
    pool = pool[[prompt]]
    ids = as_tokens(model, pool, (), window).ids
    return token_strip(model, pool, ids[0], edits=with_donors(edits, model.info))


def refuse_unknown_prompt(pool: PromptSet, chosen: Sequence[int]) -> None:
    """Raise `UsageError` for the number of a prompt that is not there."""
    unknown = [i for i in chosen if not 0 <= i < len(pool)]
    if unknown:
        raise UsageError(
            asked=f"prompt {unknown[0]} of {pool.name!r}, token by token",
            found=f"its prompts are numbered 0 to {len(pool) - 1}",
            fix="Name one of these.",
        )


def token_strip(model: Model, pool: PromptSet, ids: Int[np.ndarray, " pos"], edits: Sequence[Edit]) -> TokenStrip:
    """The strip of the only prompt of `pool`, which the model reads as `ids`."""
    n, info = len(ids), model.info
    n_rows = info.n_layers * info.n_heads
    if n_rows * n * (n + 1) // 2 > MOST_WEIGHTS:
        most = int((np.sqrt(1 + 8 * MOST_WEIGHTS / n_rows) - 1) / 2)
        raise PromptError(
            asked=f"a prompt of {n} tokens, token by token",
            found=f"{info.n_layers} layers of {info.n_heads} heads would put {n_rows * n * (n + 1) // 2:,} attention "
            "weights on the page",
            fix=f"Give a prompt of at most {most} tokens; a window of {most} reads the last of a text.",
        )
    belief = np.full(n, np.nan)
    if pool.posterior is not None:
        scored = pool[0].scored
        belief[[n - 1] if scored is None else list(scored)] = entropy_bits(pool.posterior)
    whole = PromptSet(pool.name, [Prompt(token_ids=tuple(ids.tolist()), scored=tuple(range(n)))])
    read = capture_edited(model, whole, [ids], _NEEDS, edits)
    bits, sink, row = (np.moveaxis(read[need], 1, 2) for need in _NEEDS)  # [layer, head, pos, ...]
    return TokenStrip(
        model=name_with_edits(model, edits),
        tokens=words_of(model, ids),
        entropy=bits.astype(float),
        sink=sink.astype(float),
        next_entropy=read.rows["next_entropy_bits"],
        belief=belief,
        weights=np.exp2(np.nan_to_num(row[..., :n].astype(float), nan=-np.inf)),
    )
