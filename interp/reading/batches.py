"""Which rows are read, and in which batches the prompts pass through the model."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Int

from interp.errors import PromptError
from interp.need import Need
from interp.prompt import PromptSet
from interp.seam.pattern_sites import NULL_SITES

_MOST_PADDING = 0.05
"""Share of a batch's tokens."""

_WORTH_A_PASS = 1 / 8
"""Share of a full batch; a smaller one costs more in the weights that it reads than in padding."""


@dataclass(frozen=True)
class RowIndex:
    """The (prompt, position) pairs of one kind of need, ordered by prompt, then as the prompt lists them."""

    prompt: Int[np.ndarray, " row"]
    position: Int[np.ndarray, " row"]

    def __len__(self) -> int:
        return len(self.prompt)


@dataclass(frozen=True)
class BatchRows:
    """The rows of a `RowIndex` that fall into one batch.

    `item` and `position` pick them from a tensor `[batch, pos, ...]`; `padded` `[batch or 1, slot]` holds the positions
    per sequence, filled up where a sequence has fewer, in one row for all where they begin alike, and `slot` says where
    each row lies in it; `row` is the row's place in the index and `prompt` its prompt.
    """

    item: torch.Tensor
    position: torch.Tensor
    padded: torch.Tensor
    slot: torch.Tensor
    row: Int[np.ndarray, " row"]
    prompt: Int[np.ndarray, " row"]

    def to(self, device: torch.device) -> "BatchRows":
        """The same rows, to pick from tensors on another device."""
        if self.item.device == device:
            return self
        moved = {name: getattr(self, name).to(device) for name in ("item", "position", "padded", "slot")}
        return replace(self, **moved)


@dataclass(frozen=True)
class Batch:
    """Prompts of similar length, padded on the right with token 0, which a causal model never sees.

    `ids` are `[item, pos]`, and `item` says which of them each of the `prompts` is: twins (see `twins`) share one.
    """

    prompts: Int[np.ndarray, " prompt"]
    ids: torch.Tensor
    item: Int[np.ndarray, " prompt"]

    def rows(self, index: RowIndex) -> BatchRows:
        """The rows of `index` in this batch, prompt by prompt."""
        starts = np.searchsorted(index.prompt, self.prompts, side="left")
        stops = np.searchsorted(index.prompt, self.prompts, side="right")
        counts = stops - starts
        row = _ranges(starts, counts)
        slot = row - np.repeat(starts, counts)
        item, position = np.repeat(self.item, counts), index.position[row]
        most = int(np.argmax(counts))
        padded = np.zeros((1, max(1, counts[most])), dtype=np.int64)
        padded[0, : counts[most]] = index.position[starts[most] : stops[most]]
        if not np.array_equal(padded[0, slot], position):
            padded = np.zeros((len(self.ids), padded.shape[1]), dtype=np.int64)
            padded[item, slot] = position
        device = self.ids.device
        return BatchRows(
            item=torch.from_numpy(item).to(device),
            position=torch.from_numpy(position).to(device),
            padded=torch.from_numpy(padded).to(device),
            slot=torch.from_numpy(slot).to(device),
            row=row,
            prompt=index.prompt[row],
        )


def cut(lengths: Int[np.ndarray, " prompt"], tokens_per_batch: int) -> list[Int[np.ndarray, " item"]]:
    """The prompts of every batch, in the order in which they pass.

    The longest come first, each batch of at most `tokens_per_batch` tokens with its padding (or one prompt). A batch
    also ends before a shorter prompt that would make more than a twentieth of it padding, once it is worth a pass.
    """
    found = []
    order = np.argsort(-lengths, kind="stable")
    worth = _WORTH_A_PASS * tokens_per_batch
    start = n_real = 0
    for stop, prompt in enumerate(order):
        n, length = stop - start, lengths[prompt]
        with_it = (n + 1) * lengths[order[start]]
        is_wasteful = n_real >= worth and with_it - n_real - length > _MOST_PADDING * with_it
        if n and (with_it > tokens_per_batch or is_wasteful):
            found.append(order[start:stop])
            start, n_real = stop, 0
        n_real += length
    return [*found, order[start:]] if len(order) else []


def make_batch(
    ids: Sequence[Int[np.ndarray, " _pos"]], chosen: Int[np.ndarray, " item"], device: torch.device
) -> Batch:
    """The batch of these prompts, the longest of them first."""
    padded = np.zeros((len(chosen), len(ids[chosen[0]])), dtype=np.int64)
    for item, prompt in enumerate(chosen):
        padded[item, : len(ids[prompt])] = ids[prompt]
    return Batch(chosen, torch.from_numpy(padded).to(device), np.arange(len(chosen)))


class Batches:
    """The batches in which prompts pass, in their order: `passing` has the prompts of each, of twins only the first.

    `twin_of` says of every prompt which one passes for it (see `twins`); without it each passes itself.
    """

    def __init__(
        self,
        ids: Sequence[Int[np.ndarray, " _pos"]],
        tokens_per_batch: int,
        twin_of: Int[np.ndarray, " prompt"] | None = None,
    ) -> None:
        self.ids = ids
        twin_of = np.arange(len(ids)) if twin_of is None else twin_of
        self._by_twin = np.argsort(twin_of, kind="stable")
        self._twin_of = twin_of[self._by_twin]
        passing = np.unique(twin_of)
        lengths = np.array([len(ids[prompt]) for prompt in passing])
        self.passing = [passing[chosen] for chosen in cut(lengths, tokens_per_batch)]

    def __len__(self) -> int:
        return len(self.passing)

    def make(self, n: int, device: torch.device) -> Batch:
        """The batch of this number, whose `prompts` are all that its sequences stand for."""
        batch = make_batch(self.ids, self.passing[n], device)
        starts = np.searchsorted(self._twin_of, self.passing[n], side="left")
        counts = np.searchsorted(self._twin_of, self.passing[n], side="right") - starts
        return replace(batch, prompts=self._by_twin[_ranges(starts, counts)], item=np.repeat(batch.item, counts))

    @property
    def n_tokens(self) -> int:
        """The tokens that pass, padding included."""
        return sum(len(chosen) * len(self.ids[chosen[0]]) for chosen in self.passing)

    @property
    def digest(self) -> str:
        """Tells other batches of the same prompts apart."""
        ends = np.cumsum([len(chosen) for chosen in self.passing])
        return hashlib.sha256(np.concatenate([ends, *self.passing]).astype(np.int64).tobytes()).hexdigest()


def _ranges(starts: Int[np.ndarray, " range"], counts: Int[np.ndarray, " range"]) -> Int[np.ndarray, " value"]:
    """The whole numbers of every range, one range after the other."""
    return np.arange(counts.sum()) + np.repeat(starts - (counts.cumsum() - counts), counts)


def halves(batch: Batch, lengths: Int[np.ndarray, " prompt"]) -> tuple[Batch, Batch]:
    """The first and the second half of a batch of two sequences or more, each as wide as its own longest."""
    middle = (len(batch.ids) + 1) // 2
    n = int(np.searchsorted(batch.item, middle))
    width = int(lengths[batch.prompts[n:]].max())
    second = Batch(batch.prompts[n:], batch.ids[middle:, :width], batch.item[n:] - middle)
    return Batch(batch.prompts[:n], batch.ids[:middle], batch.item[:n]), second


def twins(
    ids: Sequence[Int[np.ndarray, " _pos"]], needs: Iterable[Need], indexes: Iterable[RowIndex]
) -> Int[np.ndarray, " prompt"] | None:
    """Of every prompt the first that has the same tokens and is read at the same positions in every index.

    None where no prompt may pass for another: the keys that a need lends to a prompt are those of the one before it.
    """
    if any(need.site in NULL_SITES for need in needs):
        return None
    keys = [[np.asarray(each, dtype=np.int64).tobytes()] for each in ids]
    for index in indexes:
        ends = np.searchsorted(index.prompt, np.arange(len(ids) + 1))
        for key, start, stop in zip(keys, ends, ends[1:], strict=False):
            key.append(index.position[start:stop].tobytes())
    first: dict[tuple[bytes, ...], int] = {}
    return np.array([first.setdefault(tuple(key), prompt) for prompt, key in enumerate(keys)], dtype=np.int64)


def places(needs: Iterable[Need]) -> list[str]:
    """Where a pass reads rows for these needs: at the scored ones in any case."""
    return list(dict.fromkeys(["scored", *(need.at for need in needs)]))


def row_index(prompts: PromptSet, lengths: Int[np.ndarray, " prompt"], at: str) -> RowIndex:
    """The rows that `at` (see `Need`: a place, or a column holding one position a prompt) names.

    Raises `PromptError` where the column is missing or a position lies outside its prompt.
    """
    if at == "tunnel" and not prompts.is_tunnel:
        return RowIndex(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    if at in ("all", "tunnel"):
        prompt = np.repeat(np.arange(len(lengths)), lengths)
        return RowIndex(prompt, np.concatenate([np.arange(n) for n in lengths]))
    if at == "followed":
        prompt = np.repeat(np.arange(len(lengths)), lengths - 1)
        return RowIndex(prompt, np.concatenate([np.arange(n - 1) for n in lengths]))
    if at == "before_last":
        prompt = np.flatnonzero(lengths > 1) if prompts.is_text else np.empty(0, dtype=np.int64)
        return RowIndex(prompt, lengths[prompt] - 2)
    if at == "last" or (at == "scored" and prompts.is_text):
        return RowIndex(np.arange(len(lengths)), lengths - 1)
    if at == "scored":
        listed = [p.scored or (len(p.token_ids or ()) - 1,) for p in prompts]
    else:
        listed = [(_position_in_column(p.columns, at),) for p in prompts]
    prompt = np.repeat(np.arange(len(listed)), [len(x) for x in listed])
    position = np.concatenate([np.asarray(x, dtype=np.int64) for x in listed])
    outside = np.flatnonzero((position < 0) | (position >= lengths[prompt]))
    if len(outside):
        p = int(prompt[outside[0]])
        raise PromptError(
            asked=f"position {position[outside[0]]} ({at}) of prompt {p + 1}",
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
