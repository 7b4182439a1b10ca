"""Captures for notebooks: ask for tensors by name and get them with their rows, in one pass.

Means and moments of any number of prompts are read some at a time, reduced and forgotten, in the memory of one lot.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.edit import Edit
from interp.editing.conditions import capture_edited
from interp.editing.edit_files import resolve_edits
from interp.edits import Edits
from interp.errors import PromptError, RecordError, UsageError
from interp.hooks.pattern_sites import NULL_SITES
from interp.model import Model
from interp.need import Need, as_needs, chosen_layers
from interp.prompt import Prompt, Prompts, PromptSet
from interp.prompting.clusters import with_clusters
from interp.prompting.files import given_prompts
from interp.prompting.token_names import names_of
from interp.prompting.tokens import as_tokens
from interp.reading.batches import batches_of, rows_of
from interp.reading.collector import Collector, merge_states
from interp.reading.forward import TOKENS_PER_BATCH, Share, capture, packs_for
from interp.reading.readable import refuse_unreadable
from interp.reading.weights import stacked_weights
from interp.records.capture_files import open_capture
from interp.records.unfinished import refuse_unwritable
from interp.reductions import Mean, Moments, PromptMean, Rows, RunningState
from interp.running.donors import with_donors
from interp.system.array_files import ArrayFile, read_array
from interp.system.plain_numbers import path
from interp.system.whole_files import ELSEWHERE, TAKEN, hidden_folder
from interp.table import LABEL, Table

PROMPTS_AT_ONCE = 1024
"""Prompts that are sorted by length and cut into batches together, where a capture is streamed."""

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
    layers = None if layers is None else chosen_layers("a capture of some layers", layers)
    ids = as_tokens(model, pool, asked, window).ids
    pool = with_clusters(pool, ids)
    checks = [asdict(check) for check in model.checks]
    read = {"tool": "interp", "selfcheck": checks, "edits": [edit.to_json() for edit in edits]}
    if to is not None:
        to = path(to)
        _refuse_to_stream(asked, edits, layers)
        if to.exists():
            raise RecordError(asked=f"streaming a capture to {to}", found=TAKEN, fix=ELSEWHERE)
        beside = to.absolute().parent
        refuse_unwritable(beside)
        with hidden_folder(beside) as parts:
            found = replace(_streamed(model, pool, ids, asked, parts), provenance=read)
            return open_capture(with_words(found, model.tokenizer).save(to))
    found = capture_edited(model, pool, ids, asked, with_donors(edits, model.info), layers=layers)
    return with_words(replace(found, provenance=read), model.tokenizer)


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
            fix="Leave out `to` and call `save` on the capture; means of streams are `interp.collect_stream`'s.",
        )


def _streamed(model: Model, pool: PromptSet, ids: Sequence[np.ndarray], needs: Sequence[Need], folder: Path) -> Capture:
    index = rows_of(pool, np.array([len(x) for x in ids]), needs)
    files: dict[Need, ArrayFile] = {}
    weights = {need: stacked_weights(model, need, pool) for need in needs if need.described.source == "weights"}
    passing = [need for need in needs if need not in weights]
    tables: dict[str, list[Table]] = {at: [] for at in index}
    for start in range(0, len(pool), PROMPTS_AT_ONCE):
        lot = range(start, min(start + PROMPTS_AT_ONCE, len(pool)))
        part = capture(model, pool.take(lot), [ids[i] for i in lot], passing)
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
    """The same with the text and the token of every row in words, where the prompts have no such columns."""
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


@dataclass(frozen=True)
class Reduced:
    """What a stream of prompts came to: arrays by need, with the layers in front (of `layers` alone, if named).

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> need = interp.Need("v", interp.Mean(), "last")
    >>> reduced = interp.collect_stream(model, interp.sampled_prompts(model.task, 8), [need])
    >>> reduced.n_prompts
    8
    """

    model: ModelInfo
    arrays: Mapping[Need, Mapping[str, np.ndarray]]
    n_prompts: int
    n_tokens: int
    layers: tuple[int, ...] | None = None

    def reduced(self, need: Need) -> Mapping[str, np.ndarray]:
        """`count`, `mean`, and `variance` or `covariance`. An absent need is an error."""
        return self.arrays[need]


def collect_stream(
    model: Model,
    prompts: Iterable[str | Prompt],
    needs: Need | str | Sequence[Need | str],
    *,
    layers: Sequence[int] | None = None,
    window: int | None = None,
    tokens_per_batch: int = TOKENS_PER_BATCH,
) -> Reduced:
    """Reduce activations over any number of prompts, such as an endless generator, in constant memory.

    `collect_stream(model, texts, [Need("v", Moments(), "last")])` gives mean and covariance of the values of each
    layer.

    Args:
        model: The model.
        prompts: Any iterable of texts or prompts.
        needs: `interp.Need`s that are reduced by `Mean` or `Moments`.
        layers: As in `interp.collect`.
        window: As in `interp.collect`.
        tokens_per_batch: Tokens of one forward pass, at most.

    Returns:
        The reduced arrays by need, and how many prompts there were.

    Raises:
        UsageError: A need grows with the prompts.
        PromptError: The iterable is empty.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> need = interp.Need("v", interp.Moments(), "last")
        >>> reduced = interp.collect_stream(model, interp.sampled_prompts(model.task, 8), [need])
        >>> sorted(reduced.arrays[need])
        ['count', 'covariance', 'mean']
    """
    asked = tuple(dict.fromkeys(as_needs(needs)))
    _refuse_growing(asked)
    refuse_unreadable(model, asked)
    collector: Collector | None = None
    states: dict[tuple[Need, int], RunningState] = {}
    n_prompts = n_tokens = 0
    has_rows = hasattr(prompts, "columns")  # a table: its names would come
    for lot in _lots(given_prompts(model, prompts) if has_rows else prompts):
        columns = dict.fromkeys([*lot[0].columns, *lot[0].scored_columns], LABEL)
        pool = PromptSet("stream", lot, columns)
        ids = as_tokens(model, pool, asked, window).ids
        collector = Collector(model, pool, [len(x) for x in ids], asked, layers=layers, with_entropy=False)
        Share(model, batches_of(packs_for(model, ids, asked), tokens_per_batch, model), [collector]).run()
        merge_states(states, collector.states)
        collector.states = states
        n_prompts += len(pool)
        n_tokens += sum(len(x) for x in ids)
    if collector is None:
        raise PromptError(asked="a stream of prompts", found="it is empty", fix="Give it at least one prompt.")
    arrays = {need: collector.reduced(need) for need in asked}
    return Reduced(model.info, arrays, n_prompts, n_tokens, collector.only_layers)


def _refuse_growing(needs: Sequence[Need]) -> None:
    for need in needs:
        if not isinstance(need.reduction, Mean | Moments):
            raise UsageError(
                asked=f"{need.site} as {need.kind} of a stream",
                found="it grows with every prompt, and single prompts are not kept",
                fix=f"Reduce it, as in Need({need.site!r}, Mean()), or give `interp.collect` a list of prompts.",
            )
        if need.site in NULL_SITES:
            raise UsageError(
                asked=f"{need.site} of a stream",
                found="the first prompt has no other one whose keys could be used, so it would be missing in the mean",
                fix="Give `interp.collect` a list of prompts.",
            )


def _lots(prompts: Iterable[str | Prompt]) -> Iterator[list[Prompt]]:
    coming = iter(prompts)
    for first in coming:
        lot = [first, *islice(coming, PROMPTS_AT_ONCE - 1)]
        yield [Prompt(text=prompt) if isinstance(prompt, str) else prompt for prompt in lot]
