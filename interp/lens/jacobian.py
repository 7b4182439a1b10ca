"""The Jacobian lens: the mean derivative of the final residual stream by the residual stream of each depth.

With V the valid positions of a prompt, and expectations over prompts and sources t in V,

    J_l = E[ Σ_{t' in V, t' ≥ t} ∂h_f[t'] / ∂h_l[t] ],        lens_l(h) = unembed(norm_f(J_l h))

(t' ≥ t + h with a horizon h.) A backward pass from a cotangent q at all targets gives qᵀJ at all depths. Cotangents are
rows of a random orthogonal matrix Q in d/k blocks of k rows: (d/k) Σ_blocks QᵀQ J is unbiased after any of them, and J
once every batch has met every block. So the fit can end at any time.

The standard error of the mean KL from the final prediction on held-out prompts is a jackknife over groups of clusters.

Source: Gurnee et al. (2026), "Verbalizable Representations Form a Global Workspace in Language Models".
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int

from interp.hooks.attention import Listener, listening
from interp.hooks.block_hooks import EnoughRead, block_hooks
from interp.lens.held import HeldOut
from interp.model import Model
from interp.prompting.tokens import Ids
from interp.reading.batches import Batch, batches_of
from interp.reading.forward import TOKENS_PER_BATCH
from interp.reading.packs import Pack
from interp.records.unfinished import NOT_KEPT, Name, Stage
from interp.statistics.jackknife import standard_error
from interp.system.progress import Report


def stream_of(model: Model, batch: Batch) -> list[torch.Tensor]:
    """The residual stream `[item, pos, d_model]` of a batch at all depths, as parts of one graph.

    Edits, windows and listeners of the caller act in it.
    """
    found: dict[int, torch.Tensor] = {}
    n_layers = model.info.n_layers

    def on_site(site: str, depth: int, x: torch.Tensor) -> None:
        found[depth] = x if x.requires_grad else x.requires_grad_()
        if depth == n_layers:
            raise EnoughRead

    with listening(model, Listener()), block_hooks(model, {"resid"}, on_site), suppress(EnoughRead):
        model.module(input_ids=batch.ids, use_cache=False, **batch.layout)
    return [found[depth] for depth in range(n_layers + 1)]


BLOCK = 32
"""Cotangents of a batch in one step."""

N_GROUPS = 8


@dataclass(frozen=True)
class Valid:
    """Which positions count, as sources and as targets: all but the `first` ones and the `last` ones of a prompt.

    Targets lie at least `horizon` positions behind their source.
    """

    first: int
    last: int
    horizon: int = 0

    def mask(self, batch: Batch) -> torch.Tensor:
        """`[item, pos]` of a batch of single prompts, 1 where a position counts."""
        position, length = np.arange(batch.ids.shape[1]), np.array([[len(pack)] for pack in batch.packs])
        return torch.from_numpy(self.counts(position, length)).to(batch.ids.device, torch.float32)

    def counts(self, position: np.ndarray, length: np.ndarray) -> np.ndarray:
        """Whether these positions count, of prompts of these lengths."""
        return (position >= self.first) & (position < length - self.last)


class JacobianSums:
    """Sums of J by group and depth `[group, depth, d_model, d_model]`, and the weight of each group in prompts."""

    def __init__(self, n_groups: int, n_layers: int, d_model: int) -> None:
        shape = (n_groups, n_layers, d_model, d_model)
        self.sums, self.weight = torch.zeros(shape, dtype=torch.float32), np.zeros(n_groups)
        self.seen: set[int] = set()

    def add(self, group: int, rows: torch.Tensor, cotangents: torch.Tensor, n_prompts: int) -> None:
        """Add qᵀJ `[depth, cotangent, d_model]`, the mean over `n_prompts`."""
        self.sums[group] += n_prompts * torch.einsum("kd,lke->lde", cotangents, rows)
        self.weight[group] += n_prompts * len(cotangents) / cotangents.shape[1]

    def mean(self, without: int | None = None) -> torch.Tensor:
        """J `[depth, d_model, d_model]` of all groups, or of all but one."""
        kept = [group for group in range(len(self.weight)) if group != without]
        return self.sums[kept].sum(dim=0) / self.weight[kept].sum()

    def error_bits(self, held: HeldOut) -> Float[np.ndarray, " depth"]:
        """Standard error of the mean KL on held-out prompts, by depth; NaN while some group is empty."""
        if len(self.weight) < 2 or not self.weight.all():
            return np.full(self.sums.shape[1], np.nan)
        left_out = (self.mean(group) for group in range(len(self.weight)))
        each = np.array([held.kl_bits(lambda x, depth, j=j: x.float() @ j[depth].to(x.device).mT) for j in left_out])
        return standard_error(each.mean(axis=2), len(each), 1)

    def saved(self) -> Iterator[tuple[Name, np.ndarray]]:
        """All of it, by name, for `restore`."""
        yield ("sums",), self.sums.numpy()
        yield ("weight",), self.weight
        yield ("seen",), np.array(sorted(self.seen), dtype=np.int64)

    def restore(self, stage: Stage) -> int:
        """Continue from the saved sums, if any, and return the number of rounds in them."""
        before = stage.load()
        if before is None:
            return 0
        self.sums = torch.from_numpy(np.array(before.arrays["sums",]))
        self.weight, self.seen = np.array(before.arrays["weight",]), set(before.arrays["seen",].tolist())
        return before.n_done


Step = tuple[int, Batch, int]
"""A group, a batch of its prompts, and the number of a block of cotangents."""


def steps_of(
    model: Model, ids: Sequence[Ids], groups: Int[np.ndarray, " prompt"], chosen: Int[np.ndarray, " item"],
    n_tokens: int, rng: np.random.Generator,
) -> list[list[Step]]:  # fmt: skip
    """All steps, in rounds of one for each group: every batch meets every block once, in random order."""
    n_blocks = -(-model.info.d_model // BLOCK)
    batches: list[list[Batch]] = []
    for group in np.unique(groups[chosen]):
        mine = rng.permutation(chosen[groups[chosen] == group])
        parts = batches_of([Pack.of([prompt], ids) for prompt in mine.tolist()], n_tokens, model)
        batches.append([parts[n] for n in rng.permutation(len(parts))])
    most = max(map(len, batches))
    return [
        [
            (group, mine[turn % len(mine)], (turn // len(mine) + turn % len(mine) + group) % n_blocks)
            for group, mine in enumerate(batches)
            if turn < len(mine) * n_blocks
        ]
        for turn in range(most * n_blocks)
    ]


def pulled_back(
    stream: list[torch.Tensor], mask: Float[torch.Tensor, "item pos"],
    cotangents: Float[torch.Tensor, "cotangent d_model"], repeat: int, horizon: int = 0,
) -> Float[torch.Tensor, "depth cotangent d_model"]:  # fmt: skip
    """qᵀJ of each cotangent q, the mean over items and their sources, with `repeat` cotangents in a backward pass.

    With a `horizon` each target needs a backward pass of its own.
    """
    n, d_model = len(mask), cotangents.shape[1]
    share, place = mask / mask.sum(dim=1, keepdim=True) / n, torch.arange(mask.shape[1], device=mask.device)
    pairs = [(mask, share)]
    if horizon:
        pairs = [(mask * (place == end), share * (place <= end - horizon)) for end in place]
    parts = cotangents.split(repeat)
    found = torch.zeros(len(stream) - 1, *cotangents.shape, dtype=cotangents.dtype, device=mask.device)
    for i, (targets, sources) in enumerate(pairs):
        for k, part in enumerate(parts):
            filled = torch.nn.functional.pad(part, (0, 0, 0, repeat - len(part)))
            at_targets = (targets[:, None, :, None] * filled[None, :, None, :]).flatten(0, 1)  # [item * repeat, pos, d]
            more = (i + 1, k + 1) != (len(pairs), len(parts))  # the graph is freed with the last
            grads = torch.autograd.grad(stream[-1], stream[:-1], at_targets.to(stream[-1]), retain_graph=more)
            rows = slice(k * repeat, k * repeat + len(part))
            for depth, g in enumerate(grads):
                by_source = torch.einsum("ip,irpd->rd", sources, g.view(n, repeat, -1, d_model).float())
                found[depth, rows] += by_source[: len(part)].to(found.device)
    return found.cpu()


def orthogonal(d: int, seed: int) -> torch.Tensor:
    """A random orthogonal matrix, by the QR decomposition of a Gaussian one."""
    q, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))
    return torch.from_numpy(q).float()


def fit_jacobian(
    model: Model, rounds: list[list[Step]], held: HeldOut, *, valid: Valid, seed: int,
    progress: Report, precision_bits: float = 0.0, seconds: float | None = None, stage: Stage = NOT_KEPT,
) -> tuple[JacobianSums, np.ndarray]:  # fmt: skip
    """Sums of J, and their error by depth.

    The fit ends when J is exact, at this precision (0: never), or after so many seconds and at least one round.
    """
    d_model = model.info.d_model
    blocks = orthogonal(d_model, seed).split(BLOCK)
    sums = JacobianSums(len(rounds[0]), model.info.n_layers, d_model)
    n_done, errors = sums.restore(stage), None
    until = np.inf if seconds is None else time.monotonic() + seconds

    def advance(group: int, batch: Batch, block: int) -> None:
        cotangents = blocks[block]
        repeat = max(1, min(BLOCK, TOKENS_PER_BATCH // batch.ids.numel()))
        stream, mask = stream_of(model, batch.repeated(repeat)), valid.mask(batch)
        rows = pulled_back(stream, mask, cotangents.to(mask.device), repeat, valid.horizon)
        sums.add(group, rows, cotangents, len(batch.prompts))
        sums.seen.update(batch.prompts.tolist())

    with stage.keeping(len(rounds), "rounds", lambda: n_done, sums.saved) as keep:
        while n_done < len(rounds) and (n_done == 0 or time.monotonic() <= until):
            for step in rounds[n_done]:
                advance(*step)
            n_done += 1
            keep()
            progress(n_done, len(rounds))
            errors = None
            if precision_bits > 0 and n_done & (n_done - 1) == 0:  # after 1, 2, 4, 8 ... rounds
                errors = sums.error_bits(held)
                if errors.max() <= precision_bits:
                    break
    return sums, sums.error_bits(held) if errors is None else errors
