"""Sequences drawn where the network is: batches as tensors, made on the GPU by the task itself.

A task that can do so has a method `sample_on(generator, n, n_copies)`, which draws on the generator's device and
returns a `Drawn`. Any other task draws with numpy, and its batches are copied over.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float, Int

from interp.tunnel import Sequences

if TYPE_CHECKING:
    from .bijection import Bijection


@dataclass(frozen=True)
class Drawn:
    """A batch as the loss needs it; `posterior` over the slice only where it is to be distilled.

    `bayes_bits` is the mean entropy of the posterior over the batch, in bits.
    """

    tokens: Int[torch.Tensor, "sequence pos"]
    targets: Int[torch.Tensor, "sequence scored"]
    bayes_bits: Float[torch.Tensor, ""]
    posterior: Float[torch.Tensor, "sequence scored outcome"] | None = None


def copied(sequences: Sequences, device: torch.device, *, with_posterior: bool) -> Drawn:
    """A numpy batch on a device."""
    return Drawn(
        torch.from_numpy(sequences.tokens).to(device),
        torch.from_numpy(sequences.targets).to(device),
        torch.tensor(float(sequences.columns["bayes_entropy_bits"].mean()), device=device),
        torch.from_numpy(sequences.posterior).float().to(device) if with_posterior else None,
    )


def draw_bijection(task: "Bijection", generator: torch.Generator, n: int, n_copies: int) -> Drawn:
    """What `Bijection.sample_orbits` draws, by torch: uniform keys and bijections, values in cyclic relabellings."""
    device, n_copies = generator.device, min(n_copies, task.V)
    n_base = -(-n // n_copies)

    def permutations() -> Int[torch.Tensor, "sequence symbol"]:
        return torch.rand(n_base, task.V, generator=generator, device=device, dtype=torch.float64).argsort(dim=1)

    pool = permutations()[:, : task.key_pool]
    if task.replacement:
        picks = torch.randint(pool.shape[1], (n_base, task.L), generator=generator, device=device)
        keys = pool.gather(1, picks)
    else:
        keys = pool[:, : task.L]
    if task.layout == "paired":
        keys = torch.cat(
            [keys, keys.gather(1, torch.randint(task.L, (n_base, 1), generator=generator, device=device))], 1
        )
    values = permutations().gather(1, keys)
    shifts = torch.arange(n_copies, device=device) * task.V // n_copies
    values = ((values[:, None] + shifts[:, None]) % task.V).flatten(0, 1)[:n]
    keys = keys.repeat_interleave(n_copies, dim=0)[:n]
    return _encode(task, keys, values)


def _encode(
    task: "Bijection", keys: Int[torch.Tensor, "sequence asked"], values: Int[torch.Tensor, "sequence asked"]
) -> Drawn:
    first_value = task.vocab_size - task.V
    tokens = torch.empty(len(keys), task.n_positions, dtype=torch.int64, device=keys.device)
    tokens[:, 0::2] = keys
    tokens[:, 1::2] = values[:, :-1] + first_value
    is_earlier = torch.ones(keys.shape[1], keys.shape[1], dtype=torch.bool, device=keys.device).tril(-1)
    is_repeat = ((keys[:, :, None] == keys[:, None, :]) & is_earlier).any(dim=2)
    n_distinct = (~is_repeat).cumsum(dim=1) - (~is_repeat).long()
    bits = torch.where(is_repeat, 0.0, torch.log2((task.V - n_distinct).double()))
    return Drawn(tokens, values + first_value, bits.mean().float())
