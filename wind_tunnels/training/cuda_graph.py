"""Training on a GPU: bfloat16, and a whole step (forward, backward, clipping, optimisers) captured as one graph.

At these sizes a step is hundreds of launches of a few microseconds each, and launching is what takes the time; a graph
launches once. A graph reads fixed memory, so every batch is written into the same tensors, and the learning rates are
tensors too. The first steps are ordinary ones, on the stream that is captured afterwards; they count like the others.

Without `use_graphs` every step is an ordinary one, on any device: that is how the arithmetic is tested where there is
no GPU.
"""

import time
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from torch.nn import functional as F

from interp.information import BITS_PER_NAT
from interp.tunnel import Sequences

from ..networks.networks import logits_at
from ..tasks.on_device import Drawn, copied
from .optimisers import set_rates
from .recipe import Recipe
from .stream import Stream, seed_of_step, training_generator

if TYPE_CHECKING:
    from .progress import Progress

N_WARM_UP = 3
"""Ordinary steps before a graph is captured, in which libraries set themselves up."""


class Step:
    """One update of a network from a batch of fixed shape: eager at first, then a graph that is replayed."""

    def __init__(self, progress: "Progress", sequences: Sequences, recipe: Recipe, *, use_graphs: bool) -> None:
        self.progress, self.recipe, self.use_graphs = progress, recipe, use_graphs
        device = next(progress.model.parameters()).device
        self.scored = torch.from_numpy(sequences.scored).to(device)
        self.slice_ids = torch.from_numpy(sequences.slice_ids).to(device)
        self.inputs = copied(sequences, device, with_posterior=recipe.target == "distil")
        self.loss = torch.zeros((), device=device)
        self.graph: torch.cuda.CUDAGraph | None = None
        self.n_done = 0

    def __call__(self, drawn: Drawn) -> Float[torch.Tensor, ""]:
        """Take the step; the loss in nats."""
        self.inputs.tokens.copy_(drawn.tokens)
        self.inputs.targets.copy_(drawn.targets)
        if self.inputs.posterior is not None and drawn.posterior is not None:
            self.inputs.posterior.copy_(drawn.posterior)
        if self.graph is not None:
            self.graph.replay()
        elif self.use_graphs and self.n_done >= N_WARM_UP:
            self._capture()
        elif self.use_graphs:
            self._on_side_stream()
        else:
            self._compute()
        self.n_done += 1
        return self.loss

    def _compute(self) -> None:
        """Forward, backward, clip, step: what a graph holds. Gradients are left for the next one to write over."""
        model, device = self.progress.model, self.scored.device
        for optimiser in self.progress.optimisers:
            optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, dtype=torch.bfloat16, cache_enabled=False):
            logits = logits_at(model, self.inputs.tokens, self.scored)
        loss = self._loss(logits.float())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), self.recipe.clip)
        for optimiser in self.progress.optimisers:
            optimiser.step()
        self.loss.copy_(loss.detach())

    def _loss(self, logits: Float[torch.Tensor, "sequence scored vocab"]) -> Float[torch.Tensor, ""]:
        if self.inputs.posterior is None:
            return F.cross_entropy(logits.flatten(0, 1), self.inputs.targets.flatten())
        log_q = F.log_softmax(logits, dim=-1)[..., self.slice_ids]
        return -(self.inputs.posterior * log_q).sum(dim=-1).mean()

    def _on_side_stream(self) -> None:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self._compute()
        torch.cuda.current_stream().wait_stream(side)

    def _capture(self) -> None:
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._compute()
        self.graph.replay()  # capturing does not compute


class DeviceUpdate:
    """`training.update` on the device of the network, with batches made there where the task can.

    The generator is seeded anew for every step, from the recipe's seed and the step: a resumed training draws what an
    uninterrupted one would, and there is no state to keep.
    """

    def __init__(self, progress: "Progress", *, use_graphs: bool) -> None:
        self.use_graphs = use_graphs
        self.steps: dict[tuple[int, ...], Step] = {}
        self.generator = torch.Generator(next(progress.model.parameters()).device)

    def __call__(self, progress: "Progress", stream: Stream, recipe: Recipe) -> None:
        from .progress import advance

        began = time.perf_counter()
        drawn = self._draw(progress, stream, recipe)
        shape = tuple(drawn.tokens.shape)
        if shape not in self.steps:
            alike = stream.stages[progress.stage].sample(training_generator(recipe), recipe.batch)
            self.steps[shape] = Step(progress, alike, recipe, use_graphs=self.use_graphs)
        set_rates(progress.optimisers, recipe.rate(progress.step))
        loss = self.steps[shape](drawn)
        excess = loss.item() * BITS_PER_NAT - drawn.bayes_bits.item()
        advance(progress, excess, len(stream.stages), recipe, time.perf_counter() - began)

    def _draw(self, progress: "Progress", stream: Stream, recipe: Recipe) -> Drawn:
        task = stream.stages[progress.stage]
        if recipe.target == "labels" and hasattr(task, "sample_on"):
            self.generator.manual_seed(seed_of_step(recipe, progress.step))
            return task.sample_on(self.generator, recipe.batch, recipe.n_copies)
        sequences = stream.batch(progress.rng, progress.stage)
        return copied(sequences, self.generator.device, with_posterior=recipe.target == "distil")
