"""What the attention hook does not see: block outputs, the residual stream and projections before rotary embedding.

Forward hooks from the family table, always removed again, which hear the passes of the thread that set them. Each calls
`heard(site, layer, tensor)` with the tensor of a whole batch: `[batch, pos, d_model]`, or `[batch, pos, head, d_head]`
for `q_pre` and `k_pre`.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from interp.family import Projection
from interp.hooks.attention import of_this_thread
from interp.model import Model

ROUTED = {"router_log_prob", "router_weight"}
Heard = Callable[[str, int, torch.Tensor], None]


@contextmanager
def block_hooks(model: Model, sites: Collection[str], heard: Heard) -> Iterator[None]:
    """Report the block sites asked for during every forward pass inside the block."""
    shape: list[torch.Size] = []

    def keep_shape(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        shape[:] = [hidden_states(args, kwargs).shape]

    with ExitStack() as stack:

        def add(handle: Any) -> None:
            stack.callback(handle.remove)

        blocks = model.family.layer_modules(model.module)
        add(blocks[0].register_forward_pre_hook(of_this_thread(keep_shape), with_kwargs=True))
        for layer, block in enumerate(blocks):
            if "resid" in sites:
                add(block.register_forward_pre_hook(of_this_thread(_input(heard, "resid", layer)), with_kwargs=True))
            for site, modules in model.family.summed_modules(block).items():
                if site in sites:
                    scale = model.family.summed_scale(model.config, site)
                    for module, hook in on_sum(modules, _output(heard, site, layer, shape, scale)):
                        add(module.register_forward_hook(of_this_thread(hook)))
            if ROUTED & set(sites):
                assert model.family.router is not None
                hook = _routed(heard, layer, shape, sites)
                add(attrgetter(model.family.router)(block).register_forward_hook(of_this_thread(hook)))
            for site in ("q_pre", "k_pre"):
                if site in sites and model.family.attends(block):
                    source, hook = _projection(model, block, site, layer, heard)
                    add(source.register_forward_hook(of_this_thread(hook)))
        if "resid" in sites:
            behind = model.family.head_modules(model.module)[0]
            through: list[bool] = []
            add(blocks[-1].register_forward_hook(of_this_thread(lambda *passed: through.append(True))))
            hook = of_this_thread(_behind_the_blocks(_input(heard, "resid", model.info.n_layers), through))
            add(behind.register_forward_pre_hook(hook, with_kwargs=True))
        yield


def _input(heard: Heard, site: str, layer: int) -> Callable[..., None]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        heard(site, layer, hidden_states(args, kwargs))

    return hook


def _behind_the_blocks(hook: Callable[..., None], through: list[bool]) -> Callable[..., None]:
    """The hook for one call after each pass `through` the blocks: NanoChat's final norm is also its first."""

    def once(*called: Any) -> None:
        if through:
            through.clear()
            hook(*called)

    return once


def hidden_states(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """What a block, an attention module or a norm is called with: its first argument, by place or by name."""
    return args[0] if args else kwargs["hidden_states"]


def first_of(out: Any) -> torch.Tensor:
    """What a module returns, or the first of several things."""
    return out[0] if isinstance(out, tuple) else out


def with_hidden_states(
    x: torch.Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The same arguments with `x` as the hidden states, as a forward pre-hook returns them."""
    return ((x, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": x})


def on_sum(
    modules: Sequence[torch.nn.Module], hook: Callable[..., Any]
) -> list[tuple[torch.nn.Module, Callable[..., Any]]]:
    """Modules whose outputs a block sums, in the order in which they run, each with its forward hook.

    Together they let `hook` see the sum, as if the last module returned it; what it returns takes the sum's place.
    """
    *early, last = modules
    kept: dict[tuple[int, int], torch.Tensor] = {}

    def keep(place: int, module: torch.nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> torch.Tensor:
        kept[threading.get_ident(), place] = out
        return torch.zeros_like(out)

    def act(module: torch.nn.Module, args: tuple[Any, ...], out: Any) -> Any:
        total = sum((kept.pop((threading.get_ident(), place)) for place in range(len(early))), out)
        replaced = hook(module, args, total)
        return total if replaced is None else replaced

    if not early:
        return [(last, hook)]
    return [*((module, partial(keep, place)) for place, module in enumerate(early)), (last, act)]


def _output(heard: Heard, site: str, layer: int, shape: list[torch.Size], scale: float) -> Callable[..., None]:
    """Some families flatten batch and position inside a block (OPT): `shape` is that of the stream."""

    def hook(module: torch.nn.Module, args: tuple[Any, ...], out: Any) -> None:
        added = first_of(out).view(shape[0])
        heard(site, layer, added if scale == 1.0 else added * scale)

    return hook


def _routed(heard: Heard, layer: int, shape: list[torch.Size], sites: Collection[str]) -> Callable[..., None]:
    """Routers see positions in one row; weights are those that the family uses, renormalised or not.

    They return logits, weights and indices of experts; that of `granitemoe` the other way round before transformers
    5.21.
    """

    def hook(module: torch.nn.Module, args: tuple[Any, ...], out: tuple[torch.Tensor, ...]) -> None:
        first, weights, last = out
        logits, chosen = (first, last) if first.is_floating_point() else (last, first)
        by_position = (*shape[0][:2], logits.shape[-1])
        if "router_log_prob" in sites:
            log_p = torch.log_softmax(logits.float(), dim=-1) / math.log(2)
            heard("router_log_prob", layer, log_p.view(by_position))
        if "router_weight" in sites:
            entered = torch.zeros_like(logits, dtype=weights.dtype).scatter(-1, chosen, weights)
            heard("router_weight", layer, entered.view(by_position))

    return hook


def _projection(
    model: Model, block: torch.nn.Module, site: str, layer: int, heard: Heard
) -> tuple[torch.nn.Module, Callable[..., None]]:
    """The module whose output holds the projection, and a hook that picks its heads.

    Where the family normalises queries or keys, they are normalised here, also if it does so behind rotary embedding.
    """
    family = model.family
    which: Projection = "q" if site == "q_pre" else "k"
    assert family.attention is not None and family.layout is not None
    layout, attention = family.layout, attrgetter(family.attention)(block)
    config = model.config
    shape = family.head_shape(config)
    norm = family.qk_norm
    normalising = None if norm is None else norm.module(attention, which)

    def from_linear(module: torch.nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> None:
        heads = family.clipped(layout.pick(out, which, shape), config)
        heard(site, layer, heads if norm is None or normalising is None else norm.normalised(normalising, heads))

    if norm is None or normalising is None or norm.behind_rotary:
        return attrgetter(layout.module_of(which))(attention), from_linear

    def from_norm(module: torch.nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> None:
        heard(site, layer, family.clipped(norm.to_heads(out, shape.d_head), config))

    return normalising, from_norm
