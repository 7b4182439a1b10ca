"""Forward hooks for the residual stream, block outputs, routers and projections before rotary embedding.

Each calls `on_site(site, layer, tensor)` with the tensor of a whole batch: `[batch, pos, d_model]`, or `[batch, pos,
head, d_head]` for `q_pre` and `k_pre`. What it returns replaces the residual stream that enters a layer (`resid`), the
output of a block (`block`), or that of a part of one.
"""

import math
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from operator import attrgetter
from typing import Any

import torch

from interp.family import Projection
from interp.hooks.attention import Ours, in_own_thread, this_thread
from interp.model import Model
from interp.sites import ROUTED

SiteHook = Callable[[str, int, torch.Tensor], torch.Tensor | None]


@contextmanager
def block_hooks(
    model: Model, sites: Collection[str], on_site: SiteHook, *, layers: Collection[int] | None = None,
    ours: Ours | None = None, scaled: bool = True,
) -> Iterator[None]:  # fmt: skip
    """Report these `sites` during every forward pass inside the block.

    `layers` limits the layers (depths, for `resid`), `ours` the threads, by default to this one. Outputs of parts are
    `scaled` as they are added to the residual stream; unscaled ones can be replaced.
    """
    shape: dict[int, torch.Size] = {}
    """Shape of the residual stream, by thread: inside a block some families flatten batch and position."""
    ours = ours or this_thread()

    def keep_shape(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        shape[threading.get_ident()] = hidden_states(args, kwargs).shape

    with ExitStack() as stack:

        def before(module: Any, hook: Callable[..., Any]) -> None:
            stack.enter_context(module.register_forward_pre_hook(in_own_thread(ours, hook), with_kwargs=True))

        def after(module: Any, hook: Callable[..., Any]) -> None:
            stack.enter_context(module.register_forward_hook(in_own_thread(ours, hook)))

        blocks = model.family.layer_modules(model.module)
        before(blocks[0], keep_shape)
        for layer, block in enumerate(blocks):
            if layers is not None and layer not in layers:
                continue
            if "resid" in sites:
                before(block, _input(on_site, layer))
            for site, modules in ({"block": (block,)} | model.family.summed_modules(block)).items():
                if site in sites:
                    scale = model.family.summed_scale(model.config, site) if scaled else 1.0
                    for module, hook in on_sum(modules, _output(on_site, site, layer, shape, scale)):
                        after(module, hook)
            if ROUTED & set(sites):
                assert model.family.router is not None
                after(attrgetter(model.family.router)(block), _routed(on_site, layer, shape, sites))
            for site in ("q_pre", "k_pre"):
                if site in sites and model.family.attends(block):
                    after(*_projection(model, block, site, layer, on_site))
        end = model.info.n_layers
        if "resid" in sites and (layers is None or end in layers):
            through: set[int] = set()
            after(blocks[-1], lambda *passed: through.add(threading.get_ident()))
            before(model.family.behind_blocks(model.module), _behind_the_blocks(_input(on_site, end), through))
        yield


def _input(on_site: SiteHook, layer: int) -> Callable[..., Any]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        put = on_site("resid", layer, hidden_states(args, kwargs))
        if put is None:
            return None
        return ((put, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": put})

    return hook


def _behind_the_blocks(hook: Callable[..., Any], through: set[int]) -> Callable[..., Any]:
    """The hook, limited to one call after each pass `through` the blocks: NanoChat's final norm is also its first."""

    def once(*called: Any) -> Any:
        if threading.get_ident() not in through:
            return None
        through.discard(threading.get_ident())
        return hook(*called)

    return once


def hidden_states(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    """The first argument of a block, an attention module or a norm."""
    return args[0] if args else kwargs["hidden_states"]


def first_of(out: Any) -> torch.Tensor:
    """The output of a module, or the first of several."""
    return out[0] if isinstance(out, tuple) else out


def at_head(model: Model, pick: Callable[[torch.Tensor], torch.Tensor]) -> AbstractContextManager[object]:
    """Limit logits, in passes of this thread, to the rows that `pick` takes: `[1, row, vocab]`."""

    def hook(head: torch.nn.Module, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        return (pick(args[0])[None],)

    output: Any = model.module.get_output_embeddings()
    return output.register_forward_pre_hook(in_own_thread(this_thread(), hook))


def on_sum(
    modules: Sequence[torch.nn.Module], hook: Callable[..., Any]
) -> list[tuple[torch.nn.Module, Callable[..., Any]]]:
    """Each of the modules whose outputs a block sums, in order, with its forward hook.

    Together they let `hook` see, and replace, the sum, as if the last module returned it.
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


def _output(on_site: SiteHook, site: str, layer: int, shape: dict[int, torch.Size], scale: float) -> Callable[..., Any]:
    def hook(module: torch.nn.Module, args: tuple[Any, ...], out: Any) -> Any:
        x = first_of(out)
        added = x.view(shape[threading.get_ident()])
        put = on_site(site, layer, added if scale == 1.0 else added * scale)
        if put is None:
            return None
        return (put.view(x.shape), *out[1:]) if isinstance(out, tuple) else put.view(x.shape)

    return hook


def _routed(on_site: SiteHook, layer: int, shape: dict[int, torch.Size], sites: Collection[str]) -> Callable[..., None]:
    """The hook for a router, which gets positions in one row; weights are those that the family uses.

    Routers return logits, weights and indices of experts; `granitemoe` in reverse before transformers 5.21.
    """

    def hook(module: torch.nn.Module, args: tuple[Any, ...], out: tuple[torch.Tensor, ...]) -> None:
        first, weights, last = out
        logits, chosen = (first, last) if first.is_floating_point() else (last, first)
        by_position = (*shape[threading.get_ident()][:2], logits.shape[-1])
        if "router_log_prob" in sites:
            log_p = torch.log_softmax(logits.float(), dim=-1) / math.log(2)
            on_site("router_log_prob", layer, log_p.view(by_position))
        if "router_weight" in sites:
            entered = torch.zeros_like(logits, dtype=weights.dtype).scatter(-1, chosen, weights)
            on_site("router_weight", layer, entered.view(by_position))

    return hook


def _projection(
    model: Model, block: torch.nn.Module, site: str, layer: int, on_site: SiteHook
) -> tuple[torch.nn.Module, Callable[..., None]]:
    """The module whose output has the projection, and a hook that picks its heads, normalised if the family does so."""
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
        on_site(site, layer, heads if norm is None or normalising is None else norm.normalised(normalising, heads))

    if norm is None or normalising is None or norm.behind_rotary:
        return attrgetter(layout.module_of(which))(attention), from_linear

    def from_norm(module: torch.nn.Module, args: tuple[Any, ...], out: torch.Tensor) -> None:
        on_site(site, layer, family.clipped(norm.to_heads(out, shape.d_head), config))

    return normalising, from_norm


class EnoughRead(Exception):
    """Ends a pass after the last activation that is read."""


def ending(model: Model, depth: int) -> AbstractContextManager[object]:
    """Let passes in the block raise `EnoughRead` at this depth of the residual stream; not beyond the last layer."""
    if depth > model.info.n_layers:
        return nullcontext()

    def stop(site: str, layer: int, x: torch.Tensor) -> None:
        raise EnoughRead

    return block_hooks(model, {"resid"}, stop, layers={depth})
