"""Passes that start at the first edited layer or token, because everything before is the same for all edits.

The residual stream that enters a layer is kept from one unedited pass; later passes start with it, and blocks before
return their input. For passes over ends of prompts, keys and values of the tokens before are kept from the unedited
pass, and precede those of the ends.
"""

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from interp.edit import Edit
from interp.editing.prompt_tensors import PromptTensors
from interp.hooks.attention import Listener, in_own_thread, this_thread
from interp.hooks.block_hooks import block_hooks
from interp.hooks.pattern import AttentionCall
from interp.hooks.state import held
from interp.model import Model
from interp.reading.batches import RowIndex
from interp.reading.packs import Ids, Pack

MEMORY = 2 << 30
"""Largest number of bytes of residual stream that are kept, and of keys and values."""

_WORTH = 1 / 2
"""Largest share of the tokens in tails."""

_TOKENS_BEFORE = 16
"""Tokens before a tail that cost as much memory and time as one in it."""


def first_layer(edits: Collection[Edit], model: Model) -> int:
    """The first edited layer; `n_layers` if only the end of the residual stream is edited."""
    return min((min(edit.layers(model.info)) for edit in edits), default=0)


class Residuals:
    """The residual stream of every prompt at some depths, or at evenly spread ones that fit into `MEMORY` bytes."""

    def __init__(self, model: Model, depths: Collection[int], lengths: Int[np.ndarray, " prompt"]) -> None:
        self.model, self.lengths = model, lengths
        wanted = sorted(set(depths) - {0})
        size = len(lengths) * int(lengths.max()) * model.info.d_model * model.module.dtype.itemsize
        n_kept = min(len(wanted), MEMORY // size)
        spread = np.linspace(0, len(wanted) - 1, n_kept).round().astype(int) if n_kept else ()
        self.kept = PromptTensors(lengths, [wanted[i] for i in spread])
        self._n_returned = 0

    def start_of(self, layer: int) -> int:
        """The deepest kept depth up to `layer`; 0 for a whole pass."""
        return max((depth for depth in self.kept.layers if depth <= layer), default=0)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the residual stream of every pass inside the block."""

        def on_site(site: str, layer: int, x: torch.Tensor) -> None:
            self.kept.put(layer, x)

        def returned(module: torch.nn.Module, args: tuple[Any, ...], out: Any) -> None:
            self._n_returned = len(out) if isinstance(out, tuple) else 0

        first = self.model.family.layer_modules(self.model.module)[0]
        with (
            block_hooks(self.model, {"resid"}, on_site, layers=self.kept.layers),
            first.register_forward_hook(in_own_thread(this_thread(), returned)),
        ):
            yield

    @contextmanager
    def restarting(self, start: int, skipped: Collection[int] = ()) -> Iterator[None]:
        """Let passes of the current batch, repeated any number of times, start at depth `start`.

        If that is not the embedding, they also skip the layers in `skipped`.
        """
        if start == 0:
            yield
            return

        def fed(site: str, layer: int, entering: torch.Tensor) -> torch.Tensor:
            kept = self.kept.of_batch(start, entering.shape[1]).to(entering.device)
            return kept.repeat(len(entering) // len(kept), 1, 1)

        blocks = self.model.family.layer_modules(self.model.module)
        with block_hooks(self.model, {"resid"}, fed, layers={start}), ExitStack() as stack:
            for layer in {*range(start), *skipped}:
                stack.enter_context(_returning_input(blocks[layer], self._n_returned))
            yield


def _returning_input(block: Any, n_returned: int) -> AbstractContextManager[None]:
    """Let a block return its input, in a tuple of the family's size if it has one, inside the `with`."""
    usual: Callable[..., Any] = block.forward
    me = threading.get_ident()

    def forward(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != me:
            return usual(hidden_states, *args, **kwargs)
        return (hidden_states, *[None] * (n_returned - 1)) if n_returned else hidden_states

    return held(block, "forward", forward)


def tail_starts(
    edited: Sequence[RowIndex], read: Sequence[RowIndex], lengths: Int[np.ndarray, " prompt"]
) -> Int[np.ndarray, " prompt"] | None:
    """The first edited position of every prompt; None if earlier ones are read, or little would be saved."""
    starts = lengths - 1
    for index in edited:
        np.minimum.at(starts, index.prompt, index.position)
    is_early = any((index.position < starts[index.prompt]).any() for index in read)
    return None if is_early or (lengths - starts).sum() > _WORTH * lengths.sum() else starts


def tails(ids: Ids, prompts: Int[np.ndarray, " chosen"], starts: Int[np.ndarray, " prompt"]) -> list[Pack]:
    """The ends of these prompts from their starts, the longest first."""
    found = [Pack.tail(prompt, ids, int(starts[prompt])) for prompt in prompts.tolist()]
    return sorted(found, key=len, reverse=True)


def tokens_of_tails(n_tokens: int, starts: Int[np.ndarray, " prompt"], lengths: Int[np.ndarray, " prompt"]) -> int:
    """How many tokens of tails fit into a pass of `n_tokens` of whole prompts."""
    own = int((lengths - starts).sum())
    return max(1, n_tokens * own // (own + int(starts.sum()) // _TOKENS_BEFORE))


class Prefixes(PromptTensors):
    """Keys and values of all prompts in some layers, for passes over tails."""

    @staticmethod
    def fits(model: Model, first: int, lengths: Int[np.ndarray, " prompt"]) -> bool:
        """Whether tails suffice for this model, and the keys and values that they need fit into `MEMORY`."""
        info, window = model.info, model.info.window
        size = len(lengths) * int(lengths.max()) * 2 * info.n_kv_heads * info.d_head * model.module.dtype.itemsize
        is_whole = info.attention_layers is None and model.family.mixer is None
        sees_all = window is None or lengths.max() <= window
        return bool(info.n_heads and is_whole and sees_all and size * (info.n_layers - first) <= MEMORY)

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        if call.layer in self.layers:
            self.put(call.layer, torch.cat([call.k, call.v], dim=1).transpose(1, 2).flatten(2))
        return z


class BeforeTails(Listener):
    """Lets tails of the current batch, repeated any number of times, attend to the tokens before them."""

    def __init__(self, prefixes: Prefixes) -> None:
        self.prefixes = prefixes

    def before(self, call: AttentionCall) -> None:
        before = self.prefixes.before_batch(call.layer).to(call.k.device).unflatten(2, (2 * call.k.shape[1], -1))
        before = before.transpose(1, 2).repeat(len(call.k) // len(before), 1, 1, 1)  # [item, head, pos, d_head]
        keys, values = before.chunk(2, dim=1)
        call.k, call.v = torch.cat([keys, call.k], dim=2), torch.cat([values, call.v], dim=2)
