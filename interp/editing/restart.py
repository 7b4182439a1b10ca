"""Passes that start in the middle: the layers before the first edit are the same for every edit of it.

The residual stream that enters a layer is kept from one unedited pass; later passes skip the layers before and are
fed with it. Skipped blocks hand their input through, so layers keep their numbers and nothing else of the model's own
pass is replaced.
"""

import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from interp.edit import Edit
from interp.editing.prompt_tensors import PromptTensors
from interp.hooks.attention import of_this_thread
from interp.hooks.block_hooks import block_hooks
from interp.model import Model
from interp.system.attributes import held

MEMORY = 2 << 30
"""Bytes of residual stream that are kept at most."""


def first_layer(edits: Collection[Edit], model: Model) -> int:
    """The first layer that edits act in; `n_layers` where only the end of the residual stream is edited."""
    return min((min(edit.layers(model.info)) for edit in edits), default=0)


class Residuals:
    """The residual stream of every prompt at a few depths.

    Where all depths asked for need more than `memory` bytes, only some are kept, spread evenly.
    """

    def __init__(
        self, model: Model, depths: Collection[int], lengths: Int[np.ndarray, " prompt"], memory: int = MEMORY
    ) -> None:
        self.model, self.lengths = model, lengths
        wanted = sorted(set(depths) - {0})
        size = len(lengths) * int(lengths.max()) * model.info.d_model * model.module.dtype.itemsize
        n_kept = min(len(wanted), memory // size)
        spread = np.linspace(0, len(wanted) - 1, n_kept).round().astype(int) if n_kept else ()
        self.kept = PromptTensors(lengths, [wanted[i] for i in spread])
        self._in_tuples = False

    def start_of(self, layer: int) -> int:
        """The deepest kept depth up to `layer`; 0 is a whole pass."""
        return max((depth for depth in self.kept.layers if depth <= layer), default=0)

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """Keep the stream of every announced pass inside the block."""

        def on_site(site: str, layer: int, x: torch.Tensor) -> None:
            self.kept.put(layer, x)

        def returned(module: torch.nn.Module, args: tuple[Any, ...], out: Any) -> None:
            self._in_tuples = isinstance(out, tuple)

        first = self.model.family.layer_modules(self.model.module)[0]
        with (
            block_hooks(self.model, {"resid"}, on_site, layers=self.kept.layers),
            first.register_forward_hook(of_this_thread(returned)),
        ):
            yield

    @contextmanager
    def restarting(self, start: int, skipped: Collection[int] = ()) -> Iterator[None]:
        """Let passes of announced batches, repeated any number of times, start at depth `start`.

        Where they do not start at the embedding, they also go past the layers that are `skipped`.
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
                stack.enter_context(_handing_through(blocks[layer], in_tuple=self._in_tuples))
            yield


def _handing_through(block: Any, *, in_tuple: bool) -> AbstractContextManager[None]:
    """A block that returns its input, in a tuple where the family does so, until the `with` is left."""
    usual: Callable[..., Any] = block.forward
    me = threading.get_ident()

    def forward(hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != me:
            return usual(hidden_states, *args, **kwargs)
        return (hidden_states,) if in_tuple else hidden_states

    return held(block, "forward", forward)
