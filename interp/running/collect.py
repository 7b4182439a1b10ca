"""Captures for notebooks: ask for tensors by name and get them with their rows, in one pass."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from interp.capture import Capture
from interp.editing.conditions import capture_edited
from interp.edits import Edit
from interp.model import Model
from interp.need import Need
from interp.prompt import Prompts
from interp.prompting.files import resolve_prompts
from interp.prompting.tokens import as_tokens
from interp.reading.forward import capture
from interp.running.donors import with_donors
from interp.table import LABEL


def collect(
    model: Model,
    prompts: Prompts,
    needs: Sequence[Need | str],
    *,
    layers: Sequence[int] | None = None,
    window: int | None = None,
    edits: Sequence[Edit] = (),
) -> Capture:
    """What `needs` name, on `prompts`, from one forward pass a prompt.

    `needs` are `Need`s, or names of sites for every row at the scored positions: `collect(model, texts, ["v"])`
    gives `capture[Need("v")]` of shape `[layer, row, kv_head, d_head]`. Rows are described by `capture.rows`.
    With `layers` (depths, for the residual stream; negative ones count from the end) only these are read, the first
    axis holds them in their order, and passes end behind the last of them: `collect(model, texts, ["v"], layers=[3])`
    costs four blocks, and the rows have no `next_entropy_bits`.
    Rows of a language model also have its `text` and, as `token_string`, the token at their position.
    `window` keeps the last tokens of each text; None is the set's own window, 0 reads texts whole. With `edits` it is
    the edited model that is read.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> capture = interp.collect(model, prompts, ["v", "pattern_entropy"], layers=[0, -1])
    >>> capture[interp.Need("v")].shape[0]
    2
    """
    pool = resolve_prompts(prompts, tokenizer=model.tokenizer)
    asked = [need if isinstance(need, Need) else Need(need) for need in needs]
    ids = as_tokens(model, pool, asked, window).ids
    if edits:
        return _with_words(
            capture_edited(model, pool, ids, asked, with_donors(edits, model.info), layers=layers), model
        )
    return _with_words(capture(model, pool, ids, asked, layers=layers), model)


def _with_words(found: Capture, model: Model) -> Capture:
    """The same with the text and the token of every row in words, where the prompts have no such columns."""
    if model.tokenizer is None or not found.prompts.is_text:
        return found
    tables = {}
    for at, rows in found.tables.items():
        texts = np.array([prompt.text for prompt in found.prompts], dtype=object)[rows["prompt"]]
        tokens = np.array(model.tokenizer.convert_ids_to_tokens(rows["token"].tolist()), dtype=object)
        for name, words in (("token_string", tokens), ("text", texts)):
            rows = rows if name in rows.columns else rows.with_column(name, words, LABEL)
        tables[at] = rows
    return replace(found, tables=tables)
