"""Captures for notebooks: tensors by name, with their rows, in one pass."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from interp.capture import Capture
from interp.edit import Edit
from interp.editing.conditions import capture_edited
from interp.editing.edit_files import resolve_edits
from interp.editing.editor import edits_applied
from interp.edits import Edits
from interp.errors import RecordError, UsageError
from interp.hooks.pattern_sites import NULL_SITES
from interp.loading.load import with_donors
from interp.model import Model
from interp.need import Need, as_needs
from interp.prompt import Prompts, PromptSet
from interp.prompting.clusters import with_clusters
from interp.prompting.files import given_prompts
from interp.prompting.token_names import names_of
from interp.prompting.tokens import as_tokens
from interp.reading.batches import rows_of
from interp.reading.forward import capture
from interp.reading.weights import stacked_weights
from interp.records.capture_files import open_capture
from interp.records.unfinished import refuse_unwritable
from interp.reductions import PromptMean, Rows
from interp.system.array_files import ArrayFile, read_array
from interp.system.plain_numbers import path
from interp.system.values import read
from interp.system.whole_files import ELSEWHERE, TAKEN, hidden_folder
from interp.table import LABEL, Table

PROMPTS_AT_ONCE = 1024
"""Prompts that a streamed capture sorts by length and cuts into batches together."""

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def collect(
    model: Model,
    prompts: Prompts,
    needs: Need | str | Sequence[Need | str] = (),
    *,
    layers: int | Iterable[int] | None = None,
    window: int | None = None,
    edits: Edits = (),
    to: str | Path | None = None,
) -> Capture:
    """Collect activations on prompts, with one forward pass per prompt.

    Args:
        model: The model.
        prompts: One text, several texts, a table, token ids, conversations, a file or a prompt set.
        needs: Names of sites (every row at the scored positions: the last token of a text), or `interp.Need`s for other
            positions and reductions. If left out, the error lists all sites.
        layers: Layers to read (depths for the residual stream); negative ones count from the end. The first axis of
            each array holds them in this order. Passes stop after the last of them, so `layers=[3]` computes four
            blocks, and rows have no `next_entropy_bits`.
        window: How many tokens of each text are kept, from its end. None uses the prompt set's own window, 0 keeps all.
        edits: Edits that act while the model is read.
        to: Folder that the capture is streamed to, in the format of `Capture.save`, so memory holds few prompts at a
            time.

    Returns:
        The capture: `capture["v"]` is an array `[layer, row, kv_head, d_head]`, and `capture.rows` describes the rows.
        For language models these have their `text` and the token at their position (`token_string`).

    Raises:
        UsageError: A site or layer does not exist, or the model lacks it.
        PromptError: There are no prompts, or they do not fit the model.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> prompts = interp.sampled_prompts(model.task, 8)
        >>> capture = interp.collect(model, prompts, ["v", "pattern_entropy"], layers=[0, -1])
        >>> capture[interp.Need("v")].shape[0]
        2
    """
    pool = given_prompts(model, prompts)
    asked, edits = as_needs(needs), resolve_edits(edits)
    chosen = read("layers of a capture", tuple[int, ...] | None, layers, from_words=False)
    ids = as_tokens(model, pool, asked, window).ids
    pool = with_clusters(pool, ids)
    checks = [asdict(check) for check in model.checks]
    acting = [edit.to_json() for edit in (*edits_applied(model), *edits)]
    provenance = {"tool": "interp", "selfcheck": checks, "edits": acting}
    if to is not None:
        to = path(to)
        _refuse_to_stream(asked, edits, chosen)
        if to.exists():
            raise RecordError(asked=f"streaming a capture to {to}", found=TAKEN, fix=ELSEWHERE)
        beside = to.absolute().parent
        refuse_unwritable(beside)
        with hidden_folder(beside) as parts:
            found = replace(_streamed(model, pool, ids, asked, parts), provenance=provenance)
            return open_capture(with_words(found, model.tokenizer).save(to))
    found = capture_edited(model, pool, ids, asked, with_donors(edits, model.info), layers=chosen)
    return with_words(replace(found, provenance=provenance), model.tokenizer)


def _refuse_to_stream(needs: Sequence[Need], edits: Sequence[Edit], layers: Sequence[int] | None) -> None:
    whole = [
        need for need in needs
        if not isinstance(need.reduction, Rows | PromptMean) or need.site in NULL_SITES or "key" in need.described.axes
    ]  # fmt: skip
    if whole or edits or layers is not None:
        what = f"{whole[0].site} ({whole[0].kind})" if whole else "edits" if edits else "layers"
        raise UsageError(
            asked=f"a capture with {what}, streamed to a folder",
            found="only rows and means of each prompt, of the model as it is and of all its layers, can be",
            fix="Leave out `to` and call `save` on the capture.",
        )


def _streamed(model: Model, pool: PromptSet, ids: Sequence[np.ndarray], needs: Sequence[Need], folder: Path) -> Capture:
    index = rows_of(pool, np.array([len(x) for x in ids]), needs)
    files: dict[Need, ArrayFile] = {}
    weights = {need: stacked_weights(model, need, pool) for need in needs if need.described.source == "weights"}
    passing = [need for need in needs if need not in weights]
    tables: dict[str, list[Table]] = {at: [] for at in index}
    for start in range(0, len(pool), PROMPTS_AT_ONCE):
        lot = range(start, min(start + PROMPTS_AT_ONCE, len(pool)))
        part = capture(model, pool[lot], [ids[i] for i in lot], passing)
        for need in passing:
            rows = part[need]
            is_mean = isinstance(need.reduction, PromptMean)
            axis = need.axes().index("prompt" if is_mean else "row")
            if need not in files:
                n = len(pool) if is_mean else len(index[need.at])
                shape = (*rows.shape[:axis], n, *rows.shape[axis + 1 :])
                files[need] = ArrayFile(folder / f"{len(files)}.safetensors", shape, rows.dtype)
            first = start if is_mean else int(np.searchsorted(index[need.at].prompt, start))
            for i, layer in enumerate(rows) if axis else [(None, rows)]:
                files[need].put((first,) if i is None else (i, first), layer)
        for at, table in part.tables.items():
            tables[at].append(table.with_column("prompt", table["prompt"] + start, table.units["prompt"]))
    return Capture(
        model.info,
        pool,
        {at: Table.stacked([t.columns for t in found], found[0].units) for at, found in tables.items()},
        {need: weights.get(need) or {"rows": read_array(files[need].path)} for need in needs},
        posterior=pool.posterior,
        belief=pool.belief,
    )


def with_words(found: Capture, tokenizer: "PreTrainedTokenizerBase | None") -> Capture:
    """The capture with columns of the text and the token string of every row, unless the prompts have such columns."""
    if not found.prompts.is_text:
        return found
    tables = {}
    for at, rows in found.tables.items():
        words = {"text": np.array([prompt.text for prompt in found.prompts], dtype=object)[rows["prompt"]]}
        if tokenizer is not None:
            words = {"token_string": np.array(names_of(tokenizer, rows["token"]), dtype=object)} | words
        for name, column in words.items():
            rows = rows if name in rows.columns else rows.with_column(name, column, LABEL)
        tables[at] = rows
    return replace(found, tables=tables)
