"""Two short sequences and the passes over them, which all checks share.

A pass over a few tokens costs what reading the weights costs, whatever its number of rows. So the pass with hooks has
edited copies of the first sequence as further rows. The other passes: the plain model (twice) and eager attention.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from interp.hooks.attention import Listener, attention_function, listening
from interp.hooks.block_hooks import block_hooks, first_of, hidden_states
from interp.hooks.pattern import AttentionCall
from interp.model import Model
from interp.system.rounding import BOUND, error_of_logits

LENGTHS = (6, 4)
"""Lengths of the two sequences; the second is right-padded in a batch."""

CheckResult = tuple[float, float, str]
"""The largest error of a check, its bound, and a description of the error."""

ValueEdit = tuple[int, float]
"""A layer whose values are multiplied by 1 - dose, and the dose."""


def _rotation(module: torch.nn.Module, args: tuple[Any, ...], keywords: Mapping[str, Any], n: int) -> torch.Tensor:
    """The cosines and sines of position 1 in a pass of `n` tokens, from a rotary module with these arguments."""

    def put(given: Any) -> Any:
        is_positions = isinstance(given, torch.Tensor) and not given.is_floating_point()
        return given.new_tensor([1, n - 1]).expand(*given.shape[:-1], 2) if is_positions else given

    turned = module(*map(put, args), **{name: put(given) for name, given in keywords.items()})
    pair = turned if isinstance(turned, tuple) else (turned.real, turned.imag)  # Llama 4 gives complex numbers
    return torch.stack(pair)[..., 0, :]


@dataclass
class HookedPass(Listener):
    """One forward pass with all hooks, and what they saw of the first `n` rows, the two sequences.

    `inputs` and `outputs` are those of every attention module, `blocks` the number and output of every block,
    `rotations` the calls of rotary modules as functions of the number of tokens, `edited` the logits of the first
    sequence under each edit.
    """

    n: int
    calls: list[AttentionCall] = field(default_factory=list)
    z: list[torch.Tensor] = field(default_factory=list)
    sites: dict[tuple[str, int], torch.Tensor] = field(default_factory=dict)
    inputs: list[torch.Tensor] = field(default_factory=list)
    outputs: list[torch.Tensor] = field(default_factory=list)
    blocks: list[tuple[int, torch.Tensor]] = field(default_factory=list)
    rotations: list[Callable[[int], torch.Tensor]] = field(default_factory=list)
    logits: torch.Tensor = field(default_factory=lambda: torch.empty(0))
    edited: Mapping[ValueEdit, torch.Tensor] = field(default_factory=dict)

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        self.calls.append(call.of(slice(self.n)))
        self.z.append(z[: self.n])
        return z

    def block(self, site: str, layer: int, x: torch.Tensor) -> None:
        self.sites[site, layer] = x[: self.n].clone()  # Falcon adds what attention gives to this very tensor

    @contextmanager
    def ends(self, model: Model) -> Iterator[None]:
        """Add hooks that keep inputs of attention and outputs of its projection, of blocks, and of ropes."""

        def before(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self.inputs.append(hidden_states(args, kwargs)[: self.n])

        def after(module: torch.nn.Module, args: tuple[Any, ...], out: Any) -> None:
            self.outputs.append(out[: self.n])

        def rotated(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], out: Any) -> None:
            self.rotations.append(partial(_rotation, module, args, kwargs))

        with ExitStack() as stack:
            for part in model.module.modules():
                if any(name.endswith("inv_freq") for name, _ in part.named_buffers(recurse=False)):
                    stack.callback(part.register_forward_hook(rotated, with_kwargs=True).remove)
            for attention in model.family.attention_modules(model.module):
                stack.callback(attention.register_forward_pre_hook(before, with_kwargs=True).remove)
                projection = attention.get_submodule(model.family.out or "")
                stack.callback(projection.register_forward_hook(after).remove)
            for layer, block in enumerate(model.family.layer_modules(model.module)):

                def returned(module: torch.nn.Module, args: tuple[Any, ...], out: Any, layer: int = layer) -> None:
                    self.blocks.append((layer, first_of(out)[: self.n]))

                stack.callback(block.register_forward_hook(returned).remove)
            yield


@dataclass
class _EditRows(Listener):
    """Applies each edit to one row of the batch, the first to row `start`."""

    start: int
    edits: tuple[ValueEdit, ...]

    def before(self, call: AttentionCall) -> None:
        mine = [(self.start + i, dose) for i, (layer, dose) in enumerate(self.edits) if layer == call.layer]
        if mine:
            call.v = call.v.clone()
            for row, dose in mine:
                call.v[row] *= 1.0 - dose


@dataclass
class Observations:
    """One model, two sequences, and the passes over them; each runs once, at its first use."""

    model: Model

    @cached_property
    def ids(self) -> torch.Tensor:
        longest = min(LENGTHS[0], self.model.info.max_positions or LENGTHS[0])
        ids = np.random.default_rng(0).integers(0, self.model.info.vocab_size, size=(len(LENGTHS), longest))
        return torch.from_numpy(ids).to(self.model.input_device)

    @property
    def bound(self) -> float:
        return BOUND[self.model.info.dtype]

    @property
    def short(self) -> int:
        """The length of the second sequence, without padding."""
        return min(LENGTHS[1], self.ids.shape[1])

    @property
    def edits(self) -> tuple[ValueEdit, ...]:
        """Values of the first, middle and last layer removed; none of a model without attention."""
        having = self.model.info.layers_with_attention
        layers = {having[0], having[len(having) // 2], having[-1]} if having else ()
        return tuple((layer, 1.0) for layer in sorted(layers))

    @property
    def nothing(self) -> ValueEdit:
        """The edit of dose 0, of the middle layer."""
        having = self.model.info.layers_with_attention
        return having[len(having) // 2], 0.0

    def logits(self, ids: torch.Tensor) -> torch.Tensor:
        return self.model.module(input_ids=ids, use_cache=False).logits.float()

    def of_logits(self, ours: torch.Tensor, theirs: torch.Tensor) -> CheckResult:
        """Compare the logits of two passes that differ by rounding alone."""
        error = error_of_logits(ours, theirs)
        is_plain = error <= self.bound or not self.model.family.has_attention
        return error, self.bound if is_plain else self._rounded_bound, "relative error of the logits"

    @cached_property
    def _rounded_bound(self) -> float:
        """Twice the difference of transformers' own kernels, for models that amplify rounding; 1 to 4 bounds."""
        with attention_function(self.model, self.model.family.kernel):
            own = error_of_logits(self.logits(self.ids), self.eager)
        return min(max(self.bound, 2 * own), 4 * self.bound)

    def alone(self) -> torch.Tensor:
        """Logits of the second sequence alone; a new pass each time."""
        return self.logits(self.ids[1:, : self.short])

    @cached_property
    def plain(self) -> torch.Tensor:
        """`alone`, before any hook."""
        return self.alone()

    @cached_property
    def captured(self) -> HookedPass:
        """The pass with hooks; its last rows are edited copies of the first sequence."""
        _ = self.plain
        n, has_attention = len(self.ids), self.model.family.has_attention
        edits = (self.nothing, *self.edits) if has_attention else ()
        found = HookedPass(n)
        names = {"resid", "attn_out", "mixer_out", "mlp_out"} | ({"q_pre", "k_pre"} if has_attention else set())
        with (
            listening(self.model, _EditRows(n, edits), found),
            block_hooks(self.model, names, found.block),
            found.ends(self.model),
        ):
            logits = self.logits(torch.cat([self.ids, self.ids[:1].repeat(len(edits), 1)]))
        found.logits, found.edited = logits[:n], dict(zip(edits, logits[n:], strict=True))
        return found

    def edited_alone(self, edit: ValueEdit) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits of the first sequence under an edit and without, from two passes of one shape."""
        with listening(self.model, _EditRows(0, (edit,))):
            edited = self.logits(self.ids[:1])
        with listening(self.model, Listener()):
            return edited[0], self.logits(self.ids[:1])[0]

    @cached_property
    def eager(self) -> torch.Tensor:
        """Logits with transformers' eager attention."""
        with attention_function(self.model, "eager"):
            return self.logits(self.ids)
