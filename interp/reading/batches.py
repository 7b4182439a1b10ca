"""Which rows and layers are read, and in which batches the prompts pass through the model."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Int

from interp.capture import ModelInfo
from interp.errors import PromptError
from interp.hooks.ropes import rope_scales
from interp.model import Model
from interp.need import Need
from interp.prompt import PromptSet
from interp.settings import MOST
from interp.statistics.resampling import n_before
from interp.system.plain_numbers import from_0
from interp.system.threads import during

Ids = Sequence[Int[np.ndarray, " _pos"]]

_MOST_PADDING = 0.05
"""Share of a batch's tokens."""

_WORTH_A_PASS = 1 / 8
"""Share of a full batch; a smaller one costs more in reading weights than in padding."""

_MOST: ContextVar[int | None] = ContextVar("sequences in a batch", default=None)


def at_most(n: int | None) -> AbstractContextManager[None]:
    """Limit batches that are cut inside the block to `n` sequences; None does not."""
    return during(_MOST, n)


def most_sequences() -> int:
    """The limit of `at_most` here."""
    return _MOST.get() or MOST


@dataclass(frozen=True)
class RowIndex:
    """(prompt, position) pairs, ordered by prompt, then as the prompt lists them."""

    prompt: Int[np.ndarray, " row"]
    position: Int[np.ndarray, " row"]

    def __len__(self) -> int:
        return len(self.prompt)


@dataclass(frozen=True)
class BatchRows:
    """The rows of a `RowIndex` that fall into one batch.

    `item` and `position` pick them from a tensor `[batch, pos, ...]`; `padded` `[batch or 1, slot]` holds the positions
    per sequence (one row for all if each has the first of them), filled up where a sequence has fewer, and `slot` the
    column of each row in it; `row` is the row's place in the index and `prompt` its prompt.
    """

    item: torch.Tensor
    position: torch.Tensor
    padded: torch.Tensor
    slot: torch.Tensor
    row: Int[np.ndarray, " row"]
    prompt: Int[np.ndarray, " row"]

    def to(self, device: torch.device) -> "BatchRows":
        """The same rows with indices on another device."""
        if self.item.device == device:
            return self
        moved = {name: getattr(self, name).to(device) for name in ("item", "position", "padded", "slot")}
        return replace(self, **moved)


@dataclass(frozen=True)
class Batch:
    """Prompts of similar length, the longest first, padded on the right with token 0.

    `tokens` are those of each of the `prompts` from its position in `starts` on, above 0 if keys and values of the
    tokens before are kept.
    """

    prompts: Int[np.ndarray, " item"]
    starts: Int[np.ndarray, " item"]
    tokens: Ids
    device: torch.device

    @cached_property
    def ids(self) -> torch.Tensor:
        """`[item, pos]`."""
        padded = np.zeros((len(self.tokens), len(self.tokens[0])), dtype=np.int64)
        for item, tokens in enumerate(self.tokens):
            padded[item, : len(tokens)] = tokens
        return torch.from_numpy(padded).to(self.device)

    @property
    def layout(self) -> dict[str, torch.Tensor]:
        """Arguments of the model beside the ids, if it reads ends of prompts.

        `position_ids` `[item, pos]` and `attention_mask` `[item, 1, pos, key_pos]`, in which the keys of the tokens
        before the ends come first.
        """
        if not self.starts.any():
            return {}
        n, n_before = self.ids.shape[1], int(self.starts.max())
        key, last = np.arange(n_before + n), np.array([len(tokens) for tokens in self.tokens]) - 1
        is_before = key < self.starts[:, None, None]
        is_own = (key >= n_before) & (key <= n_before + np.arange(n)[:, None])
        positions = self.starts[:, None] + np.minimum(np.arange(n), last[:, None])
        return {
            "position_ids": torch.from_numpy(positions).to(self.device),
            "attention_mask": torch.from_numpy(is_before | is_own)[:, None].to(self.device),
        }

    def rows(self, index: RowIndex) -> BatchRows:
        """The rows of `index` in this batch, prompt by prompt."""
        starts = np.searchsorted(index.prompt, self.prompts, side="left")
        counts = np.searchsorted(index.prompt, self.prompts, side="right") - starts
        row, item = _ranges(starts, counts), np.repeat(np.arange(len(counts)), counts)
        position, slot = index.position[row] - self.starts[item], _ranges(0 * counts, counts)
        padded = np.zeros((len(counts), max(1, counts.max())), dtype=np.int64)
        padded[item, slot] = position
        fullest = padded[[np.argmax(counts)]]
        padded = fullest if np.array_equal(fullest[0, slot], position) else padded
        position, slot, padded, item = (torch.from_numpy(x).to(self.device) for x in (position, slot, padded, item))
        return BatchRows(item=item, position=position, padded=padded, slot=slot, row=row, prompt=index.prompt[row])

    def followers(self, index: RowIndex) -> torch.Tensor:
        """The next token of the prompt after each of the rows of `index` in this batch."""
        further = self.rows(RowIndex(index.prompt, index.position + 1))
        return self.ids[further.item, further.position]

    def repeated(self, n: int) -> "Batch":
        """A batch of every prompt `n` times in a row: [a, a, b, b]."""
        return self._of(np.repeat(np.arange(len(self.prompts)), n))

    def halves(self) -> tuple["Batch", "Batch"]:
        """The first and the second half of a batch of two prompts or more."""
        first, second = np.array_split(np.arange(len(self.prompts)), 2)
        return self._of(first), self._of(second)

    def _of(self, items: Int[np.ndarray, " _item"]) -> "Batch":
        return Batch(self.prompts[items], self.starts[items], [self.tokens[i] for i in items.tolist()], self.device)


def cut(
    lengths: Int[np.ndarray, " prompt"], tokens_per_batch: int, scales: Int[np.ndarray, " prompt"] | None = None
) -> list[Int[np.ndarray, " item"]]:
    """The prompts of every batch, the longest first.

    A batch has at most `tokens_per_batch` tokens with its padding (or one prompt). It also ends before a shorter prompt
    that would make more than a twentieth of it padding, once it is worth a pass. Prompts of different `scales`
    (`interp.hooks.ropes`) never share one; with None all are equal.
    """
    found = []
    scales = np.zeros_like(lengths) if scales is None else scales
    order = np.lexsort((-lengths, -scales))
    worth, most = _WORTH_A_PASS * tokens_per_batch, most_sequences()
    start = n_real = 0
    for stop, prompt in enumerate(order):
        n, length = stop - start, lengths[prompt]
        with_it = (n + 1) * lengths[order[start]]
        is_wasteful = n_real >= worth and with_it - n_real - length > _MOST_PADDING * with_it
        is_apart = scales[prompt] != scales[order[start]]
        if n and (n == most or with_it > tokens_per_batch or is_wasteful or is_apart):
            found.append(order[start:stop])
            start, n_real = stop, 0
        n_real += length
    return [*found, order[start:]] if len(order) else []


def make_batch(
    ids: Ids, chosen: Int[np.ndarray, " item"], device: torch.device, starts: Int[np.ndarray, " prompt"] | None = None
) -> Batch:
    """The batch of these prompts, or of their ends from `starts` on."""
    begins = np.zeros(len(ids), dtype=np.int64) if starts is None else starts
    longest_first = sorted(chosen.tolist(), key=lambda prompt: begins[prompt] - len(ids[prompt]))
    mine = begins[longest_first]
    tokens = [ids[prompt][start:] for prompt, start in zip(longest_first, mine, strict=True)]
    return Batch(np.array(longest_first), mine, tokens, device)


def batches_of(
    ids: Ids, n_tokens: int, model: Model, *,
    chosen: Int[np.ndarray, " item"] | None = None, starts: Int[np.ndarray, " prompt"] | None = None,
) -> list[Batch]:  # fmt: skip
    """The batches in which a model reads the chosen prompts (by default all), or their ends from `starts` on."""
    chosen = np.arange(len(ids)) if chosen is None else chosen
    lengths = np.array([len(ids[prompt]) for prompt in chosen.tolist()])
    own = lengths if starts is None else lengths - starts[chosen]
    together = cut(own, n_tokens, rope_scales(model.config, lengths))
    return [make_batch(ids, chosen[mine], model.input_device, starts) for mine in together]


def neighbours_apart(clusters: Int[np.ndarray, " prompt"]) -> Int[np.ndarray, " prompt"]:
    """The prompts in an order in which the first of every cluster come before the second, so that neighbours differ."""
    return np.argsort(n_before(clusters), kind="stable")


def _ranges(starts: Int[np.ndarray, " range"], counts: Int[np.ndarray, " range"]) -> Int[np.ndarray, " value"]:
    """The concatenated ranges `start .. start + count - 1`."""
    return np.arange(counts.sum()) + np.repeat(starts - (counts.cumsum() - counts), counts)


def rows_of(prompts: PromptSet, lengths: Int[np.ndarray, " prompt"], needs: Iterable[Need]) -> dict[str, RowIndex]:
    """The rows that a pass reads for these needs, by positions; always the scored ones."""
    places = dict.fromkeys(["scored", *(need.at for need in needs)])
    return {at: row_index(prompts, lengths, at) for at in places}


def row_index(prompts: PromptSet, lengths: Int[np.ndarray, " prompt"], at: str | tuple[int, ...]) -> RowIndex:
    """The rows that `at` names: by word, by a column with one position per prompt (see `Need`), or by positions.

    Raises `PromptError` where the column is missing or a position lies outside its prompt.
    """
    last = lengths - 1
    spans = {
        "all": (0, lengths),
        "tunnel": (0, lengths * prompts.is_tunnel),
        "followed": (0, last),
        "before_last": (np.maximum(last - 1, 0), last if prompts.is_text else 0),
        "last": (last, lengths),
    }
    named = "last" if at == "scored" and prompts.is_text else at
    if isinstance(named, str) and named in spans:
        start, stop = spans[named]
        counts = np.maximum(stop - start, 0)
        return RowIndex(np.repeat(np.arange(len(lengths)), counts), _ranges(start + 0 * lengths, counts))
    if isinstance(at, tuple):
        listed = [at] * len(lengths)
    elif at == "scored":
        listed = [(len(p.token_ids or ()) - 1,) if p.scored is None else p.scored for p in prompts]
    else:
        listed = [(_position_in_column(p.columns, at),) for p in prompts]
    prompt = np.repeat(np.arange(len(listed)), [len(x) for x in listed])
    position = np.concatenate([np.asarray(x, dtype=np.int64) for x in listed])
    outside = np.flatnonzero((position < 0) | (position >= lengths[prompt]))
    if len(outside):
        p, named = int(prompt[outside[0]]), f" ({at})" if isinstance(at, str) else ""
        raise PromptError(
            asked=f"position {position[outside[0]]}{named} of prompt {p + 1}",
            found=f"the prompt has {lengths[p]} tokens",
            fix="Positions count tokens from 0.",
        )
    return RowIndex(prompt, position)


def _position_in_column(columns: Mapping[str, object], name: str) -> int:
    value = columns.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise PromptError(
            asked=f"the position named by the column {name!r}",
            found=f"the column holds {value!r}" if name in columns else f"there are the columns {sorted(columns)}",
            fix="Give every prompt a whole number in this column, counting tokens from 0.",
        )
    return value


def layers_of(need: Need, layers: Sequence[int] | None, info: ModelInfo) -> tuple[int, ...]:
    """The layers (depths, of the residual stream and the lens) at which a need is read, in the order given.

    None reads all; negative ones count from the end. A site without layers has the single layer 0. Raises `UsageError`
    for a layer that the model does not have, and for one that is named twice.
    """
    layers, site = layers if need.layers is None else need.layers, need.described
    count = {"layer": info.n_layers, "depth": info.n_layers + 1, "once": 1}[site.layers]
    if layers is None or site.layers == "once":
        return info.layers_with_attention if site.is_of_attention else tuple(range(count))
    asked = f"{need.site} at {site.layers} {', '.join(map(str, layers)) or 'none'}"
    found = from_0(asked, layers, count, f"{info.name} has the {site.layers}s")
    if site.is_of_attention:
        info.refuse_without_attention(asked, found)
    return found


def depth_of(need: Need, layers: Sequence[int], info: ModelInfo) -> int:
    """The depth of the residual stream at which all of a need is read; outputs come after the last."""
    is_of_outputs = need.described.source in ("output", "text", "lens")
    return info.n_layers + 1 if is_of_outputs else max(layers) + (need.site != "resid")


_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""Messages of PyTorch, on the CPU and on devices."""


def ran_out(error: BaseException) -> bool:
    """Whether an error says that memory ran out."""
    is_message = isinstance(error, RuntimeError) and any(words in str(error) for words in _OUT_OF_MEMORY)
    return is_message or isinstance(error, MemoryError | torch.OutOfMemoryError)
