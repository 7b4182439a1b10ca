"""Means and moments over any number of prompts: read some at a time, reduced, and forgotten.

Memory is that of the reductions and of one lot of prompts, whatever comes: nothing is kept of a single prompt.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from interp.capture import ModelInfo
from interp.errors import PromptError, UsageError
from interp.hooks.pattern_sites import NULL_SITES
from interp.model import Model
from interp.need import Need, as_needs
from interp.prompt import Prompt, PromptSet
from interp.prompting.files import given_prompts
from interp.prompting.tokens import as_tokens
from interp.reading.batches import batches_of
from interp.reading.collector import Collector, merge_states
from interp.reading.forward import TOKENS_PER_BATCH, Share, packs_for
from interp.reading.readable import refuse_unreadable
from interp.reductions import Mean, Moments, RunningState
from interp.running.collect import PROMPTS_AT_ONCE
from interp.table import LABEL


@dataclass(frozen=True)
class Reduced:
    """What a stream of prompts came to: arrays by need, with the layers in front (of `layers` alone, if named).

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> need = interp.Need("v", interp.Mean(), "last")
    >>> reduced = interp.collect_stream(model, interp.sampled_prompts(model.task, 8), [need])
    >>> reduced.n_prompts
    8
    """

    model: ModelInfo
    arrays: Mapping[Need, Mapping[str, np.ndarray]]
    n_prompts: int
    n_tokens: int
    layers: tuple[int, ...] | None = None

    def reduced(self, need: Need) -> Mapping[str, np.ndarray]:
        """`count`, `mean`, and `variance` or `covariance`. An absent need is an error."""
        return self.arrays[need]


def collect_stream(
    model: Model,
    prompts: Iterable[str | Prompt],
    needs: Need | str | Sequence[Need | str],
    *,
    layers: Sequence[int] | None = None,
    window: int | None = None,
    tokens_per_batch: int = TOKENS_PER_BATCH,
) -> Reduced:
    """Reduce activations over any number of prompts, such as an endless generator, in constant memory.

    `collect_stream(model, texts, [Need("v", Moments(), "last")])` gives mean and covariance of the values of each
    layer.

    Args:
        model: The model.
        prompts: Any iterable of texts or prompts.
        needs: `interp.Need`s that are reduced by `Mean` or `Moments`.
        layers: As in `interp.collect`.
        window: As in `interp.collect`.
        tokens_per_batch: Tokens of one forward pass, at most.

    Returns:
        The reduced arrays by need, and how many prompts there were.

    Raises:
        UsageError: A need grows with the prompts.
        PromptError: The iterable is empty.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> need = interp.Need("v", interp.Moments(), "last")
        >>> reduced = interp.collect_stream(model, interp.sampled_prompts(model.task, 8), [need])
        >>> sorted(reduced.arrays[need])
        ['count', 'covariance', 'mean']
    """
    asked = tuple(dict.fromkeys(as_needs(needs)))
    _refuse_growing(asked)
    refuse_unreadable(model, asked)
    collector: Collector | None = None
    states: dict[tuple[Need, int], RunningState] = {}
    n_prompts = n_tokens = 0
    has_rows = hasattr(prompts, "columns")  # a table: its names would come
    for lot in _lots(given_prompts(model, prompts) if has_rows else prompts):
        columns = dict.fromkeys([*lot[0].columns, *lot[0].scored_columns], LABEL)
        pool = PromptSet("stream", lot, columns)
        ids = as_tokens(model, pool, asked, window).ids
        collector = Collector(model, pool, [len(x) for x in ids], asked, layers=layers, with_entropy=False)
        Share(model, batches_of(packs_for(model, ids, asked), tokens_per_batch, model), [collector]).run()
        merge_states(states, collector.states)
        collector.states = states
        n_prompts += len(pool)
        n_tokens += sum(len(x) for x in ids)
    if collector is None:
        raise PromptError(asked="a stream of prompts", found="it is empty", fix="Give it at least one prompt.")
    arrays = {need: collector.reduced(need) for need in asked}
    return Reduced(model.info, arrays, n_prompts, n_tokens, collector.only_layers)


def _refuse_growing(needs: Sequence[Need]) -> None:
    for need in needs:
        if not isinstance(need.reduction, Mean | Moments):
            raise UsageError(
                asked=f"{need.site} as {need.kind} of a stream",
                found="it grows with every prompt, and single prompts are not kept",
                fix=f"Reduce it, as in Need({need.site!r}, Mean()), or give `interp.collect` a list of prompts.",
            )
        if need.site in NULL_SITES:
            raise UsageError(
                asked=f"{need.site} of a stream",
                found="the first prompt has no other one whose keys could be used, so it would be missing in the mean",
                fix="Give `interp.collect` a list of prompts.",
            )


def _lots(prompts: Iterable[str | Prompt]) -> Iterator[list[Prompt]]:
    coming = iter(prompts)
    for first in coming:
        lot = [first, *islice(coming, PROMPTS_AT_ONCE - 1)]
        yield [Prompt(text=prompt) if isinstance(prompt, str) else prompt for prompt in lot]
