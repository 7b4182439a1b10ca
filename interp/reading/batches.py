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
from interp.reading.packs import Ids, Pack
from interp.settings import MOST
from interp.system.plain_numbers import from_0
from interp.system.threads import during

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
    """Sequences of similar length, the longest first, padded on the right with token 0."""

    packs: Sequence[Pack]
    device: torch.device

    @cached_property
    def prompts(self) -> Int[np.ndarray, " prompt"]:
        """The prompts of all sequences."""
        return np.concatenate([pack.prompts for pack in self.packs])

    @cached_property
    def starts(self) -> Int[np.ndarray, " prompt"]:
        """The position of the first token of every prompt that the model reads."""
        return np.repeat([pack.start for pack in self.packs], [len(pack.prompts) for pack in self.packs])

    @cached_property
    def ids(self) -> torch.Tensor:
        """`[item, pos]`."""
        return self._padded([pack.ids for pack in self.packs])

    @property
    def n_tokens(self) -> int:
        """The number of tokens, with padding."""
        return len(self.packs) * len(self.packs[0])

    @property
    def layout(self) -> dict[str, torch.Tensor]:
        """Arguments of the model beside the ids, if sequences hold several prompts or ends of prompts.

        `position_ids` `[item, pos]` and `attention_mask` `[item, 1, pos, key_pos]`, in which the keys of the tokens
        before an end come first.
        """
        if all(pack.is_plain and not pack.start for pack in self.packs):
            return {}
        n, n_before = len(self.packs[0]), int(self.starts.max())
        seen = np.tile(np.eye(n, n_before + n, n_before, dtype=bool), (len(self.packs), 1, 1))
        for item, pack in enumerate(self.packs):
            seen[item, :, : pack.start] = True
            seen[item, : len(pack), n_before : n_before + len(pack)] = pack.visible
        positions = self._padded([pack.position for pack in self.packs])
        return {"position_ids": positions, "attention_mask": torch.from_numpy(seen)[:, None].to(self.device)}

    def _padded(self, of_packs: Sequence[Int[np.ndarray, " _token"]]) -> torch.Tensor:
        padded = np.zeros((len(of_packs), len(of_packs[0])), dtype=np.int64)
        for item, values in enumerate(of_packs):
            padded[item, : len(values)] = values
        return torch.from_numpy(padded).to(self.device)

    @cached_property
    def _places(self) -> tuple[Int[np.ndarray, " prompt"], Int[np.ndarray, " place"]]:
        """Where the tokens of each prompt begin, and the places in its sequence of all of them."""
        places = [each for pack in self.packs for each in pack.places]
        n_tokens = np.array([len(each) for each in places])
        return n_tokens.cumsum() - n_tokens, np.concatenate(places)

    def rows(self, index: RowIndex) -> BatchRows:
        """The rows of `index` in this batch, prompt by prompt."""
        starts = np.searchsorted(index.prompt, self.prompts, side="left")
        counts = np.searchsorted(index.prompt, self.prompts, side="right") - starts
        row = _ranges(starts, counts)
        begins, places = self._places
        at = np.repeat(begins, counts) + index.position[row]
        item_of_prompt = np.repeat(np.arange(len(self.packs)), [len(pack.prompts) for pack in self.packs])
        item, width = np.repeat(item_of_prompt, counts), len(self.packs[0])
        once, of_row = np.unique(item * width + places[at], return_inverse=True)
        once_item, once_position = np.divmod(once, width)
        n_slots = np.bincount(once_item, minlength=len(self.packs))
        slot = np.arange(len(once)) - np.repeat(n_slots.cumsum() - n_slots, n_slots)
        padded = np.zeros((len(self.packs), max(1, n_slots.max())), dtype=np.int64)
        padded[once_item, slot] = once_position
        fullest = padded[[np.argmax(n_slots)]]
        padded = fullest if np.array_equal(fullest[0, slot], once_position) else padded
        position, slot, padded, item = (
            torch.from_numpy(x).to(self.device) for x in (places[at], slot[of_row], padded, item)
        )
        return BatchRows(item=item, position=position, padded=padded, slot=slot, row=row, prompt=index.prompt[row])

    def followers(self, index: RowIndex) -> torch.Tensor:
        """The next token of the prompt after each of the rows of `index` in this batch."""
        further = self.rows(RowIndex(index.prompt, index.position + 1))
        return self.ids[further.item, further.position]

    def repeated(self, n: int) -> "Batch":
        """A batch of every sequence `n` times in a row: [a, a, b, b]."""
        return Batch([pack for pack in self.packs for _ in range(n)], self.device)

    def halves(self) -> tuple["Batch", "Batch"]:
        """The first and the second half of a batch of two sequences or more."""
        middle = (len(self.packs) + 1) // 2
        return Batch(self.packs[:middle], self.device), Batch(self.packs[middle:], self.device)


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


def make_batch(ids: Ids, chosen: Int[np.ndarray, " item"], device: torch.device) -> Batch:
    """The batch of these prompts, each by itself."""
    longest_first = sorted(chosen.tolist(), key=lambda prompt: -len(ids[prompt]))
    return Batch([Pack.of([prompt], ids) for prompt in longest_first], device)


def batches_of(packs: Sequence[Pack], n_tokens: int, model: Model) -> list[Batch]:
    """The batches in which a model reads packs of prompts."""
    scales = rope_scales(model.config, [pack.longest for pack in packs])
    device = model.input_device
    chosen = cut(np.array([len(pack) for pack in packs]), n_tokens, scales)
    return [Batch([packs[i] for i in mine], device) for mine in chosen]


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
