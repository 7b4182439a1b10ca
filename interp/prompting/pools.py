"""The prompt sets of a run: which probes use which set, tokenised once, and their description in the record."""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from interp.capture import Capture
from interp.errors import PromptError, UsageError
from interp.formatting import of_clusters
from interp.model import Model
from interp.options import RunOptions
from interp.probe import Chosen, Probe
from interp.prompt import PromptSet, Run
from interp.prompting.clusters import described, notes_of, with_clusters, with_targets
from interp.prompting.files import refuse_column, resolve_prompts
from interp.prompting.tokens import as_tokens
from interp.prompting.tunnel_sequences import COPIED, N_SEQUENCES, copied_prompts, sampled_prompts
from interp.statistics.entropy_draw import entropy_quintiles
from interp.statistics.units import clusters_of
from interp.table import LABEL

DEFAULT_PROMPTS = "mixed"

_FEW = 1 / 8
"""Largest share of the prompts that is cheaper to read again than to read all others for every probe too."""


@dataclass(frozen=True)
class PromptPool(Run):
    """One prompt set as the model reads it, and the probes that use it."""

    probes: tuple[Probe, ...] = ()

    def describe(self, draw: dict[str, Any] | None, found: Container[str]) -> dict[str, Any]:
        """The set as a record keeps it, with those of its probes whose findings were `found`."""
        return described_set(self.prompts, draw) | {
            "window": self.window, "n_truncated": self.n_truncated, "has_bos": self.has_bos,
            "notes": list(self.notes), "probes": [p.name for p in self.probes if p.name in found],
        }  # fmt: skip


def described_set(prompts: PromptSet, draw: dict[str, Any] | None) -> dict[str, Any]:
    """A prompt set as a record keeps it."""
    return {
        "name": prompts.name, "source": prompts.source, "unit": prompts.unit, "n": len(prompts),
        "hash": prompts.content_hash, "draw": draw, "seed": prompts.seed,
    } | ({} if prompts.clusters is None else {"clusters": described(prompts)})  # fmt: skip


def pools_for(
    model: Model, probes: Sequence[Probe], options: RunOptions, chosen: Chosen | None = None
) -> tuple[PromptPool, ...]:
    """The probes by prompt set, in the order of the first probe of each.

    Named prompts serve all probes. Without them a probe uses its `own_prompts`, and a wind tunnel its own sequences.
    Optional probes of the `chosen` whose prompts cannot be analysed are left out, if others are left.
    """
    chosen = chosen or Chosen(tuple(probes))
    for probe in probes:
        probe.refuse_fields(model.info.n_layers)
    is_free = options.prompts is None and model.task is None
    by_set = grouped(probes, is_free)
    pools: list[PromptPool] = []
    for name, all_of_set in by_set.items():
        with chosen.leaving_out(*all_of_set):  # if, for example, this tokenizer lacks the words of the set
            pool = prompts_for(model, replace(options, prompts=name) if is_free else options)
            if options.cluster is not None:
                pool = replace(pool, cluster=options.cluster)
            mine = chosen.served(all_of_set, partial(refuse_prompts, pool))
            needs = [need for probe in mine for need in probe.needs]
            read = as_tokens(model, pool, needs, options.window, options.bos)
            targets = [str(probe.parameters().get("target")) for probe in mine]
            pool = with_targets(with_clusters(pool, read.ids), targets)
            if mine := chosen.served(mine, partial(refuse_few, pool)):
                notes = (*read.notes, *notes_of(pool))
                pools.append(PromptPool(**vars(read) | {"prompts": pool, "notes": notes}, probes=mine))
    if not pools:
        raise chosen.refused[probes[0].name]
    return tuple(pools)


def refuse_prompts(prompts: PromptSet, probe: Probe) -> None:
    """Raise `PromptError` for prompts that a probe cannot analyse, or without the exact posterior that it needs."""
    if probe.needs_posterior and prompts.posterior is None:
        own = f"Leave out --prompts (the set {probe.own_prompts} is read then), or use" if probe.own_prompts else "Use"
        raise PromptError(
            asked=f"{probe.name} on the prompts {prompts.name!r}",
            found="the model is compared with the exact posterior of every prompt, and these have none",
            fix=f"{own} a wind tunnel.",
        )
    probe.refuse(prompts)


def refuse_few(prompts: PromptSet, probe: Probe) -> None:
    """Raise `PromptError` if a probe of activations needs more clusters (without clusters: prompts) than there are."""
    n = len(prompts)
    n_clusters, by = (n, "") if prompts.clusters is None else (prompts.clusters.n, prompts.clusters.by)
    unit, fix = prompts.unit, "Give more prompts (--n-pool)"
    if n_clusters < n:
        unit, fix = "cluster", "Give more templates or documents, or another --cluster (`none`: each prompt by itself)"
    if n_clusters < probe.least_clusters and any(need.described.source != "weights" for need in probe.needs):
        raise PromptError(
            asked=f"{probe.name} on {of_clusters(n, prompts.unit, n_clusters, by)}",
            found=f"it needs at least {probe.least_clusters} {unit}s",
            fix=f"{fix}; the statistics want two hundred {unit}s or more.",
        )


def grouped(probes: Sequence[Probe], is_free: bool) -> dict[str, list[Probe]]:
    """The probes by prompt set; all use one, `""`, unless they are free to choose."""
    by_set: dict[str, list[Probe]] = {}
    for probe in probes:
        by_set.setdefault((probe.own_prompts or DEFAULT_PROMPTS) if is_free else "", []).append(probe)
    return by_set


def prompts_for(model: Model, options: RunOptions) -> PromptSet:
    """The prompts of a run; raises `UsageError` for texts on a tunnel and for a tunnel's sequences on a text model."""
    prompts, n, seed = options.prompts, options.n_pool or N_SEQUENCES, options.seed
    if model.task is not None and prompts is None:
        refuse_column(model.name, options.text_column)
        return sampled_prompts(model.task, n, seed)
    if model.task is not None and isinstance(prompts, str) and prompts.startswith(COPIED):
        return copied_prompts(model.task, prompts, n, seed)
    if isinstance(prompts, str) and prompts.startswith("memory:"):
        raise UsageError(
            asked=f"the prompts {prompts!r}",
            found="they were given in Python and are not kept in the record",
            fix="Repeat the run in Python, or put the prompts in a file.",
        )
    chosen = resolve_prompts(replace(options, prompts=DEFAULT_PROMPTS if prompts is None else prompts), model.tokenizer)
    if model.task is not None and chosen.is_text:
        raise UsageError(
            asked=f"the prompts {chosen.name!r} on {model.name}",
            found="a wind tunnel has no text: its vocabulary is the symbols of its task",
            fix="Leave out --prompts: the tunnel draws its own sequences (--n-pool says how many).",
        )
    if model.task is None and chosen.unit == "sequence":
        raise UsageError(
            asked=f"the sequences {chosen.name!r} on {model.name}",
            found="these are a wind tunnel's symbols, which mean nothing to a language model",
            fix="Use a text set (`interp list prompts`) or your own file.",
        )
    return chosen


def other_prompts(model: Model, name: str, options: RunOptions) -> Run:
    """Another prompt set than that of a run, as the run would read it."""
    prompts = prompts_for(model, replace(options, prompts=name, chat=False, text_column="text"))
    return as_tokens(model, prompts, (), options.window, options.bos)


def most_drawn(prompts: PromptSet, per_quintile: int | None) -> int:
    """The largest number of prompts that `draw` marks."""
    return len(prompts) if per_quintile is None or not prompts.is_text else min(5 * per_quintile, len(prompts))


def read_apart(probes: Sequence[Probe], prompts: PromptSet, options: RunOptions) -> tuple[Probe, ...]:
    """The probes that read the drawn prompts alone, in a second pass, if these are few.

    With edits, which may depend on all prompts, everything is read in one pass.
    """
    is_few = most_drawn(prompts, options.per_quintile) <= _FEW * len(prompts)
    return tuple(probe for probe in probes if probe.on_drawn and is_few and not options.edits)


def draw(base: Capture, per_quintile: int | None) -> tuple[Capture, dict[str, Any] | None]:
    """Mark the drawn rows of a capture: prompts from every quintile of the model's next-token entropies."""
    if per_quintile is None or not base.prompts.is_text:
        return base, None
    entropy = base.rows["next_entropy_bits"]
    drawn = entropy_quintiles(entropy, per_quintile, np.random.default_rng(base.seed), clusters_of(base.rows))
    mask = np.zeros(len(entropy), dtype=bool)
    mask[drawn.index] = True
    rows = base.rows.with_column("drawn", mask, LABEL).with_column("stratum", drawn.stratum, LABEL)
    described = {"per_quintile": per_quintile, "n_drawn": len(drawn.index), "note": drawn.note}
    return replace(base, tables={**base.tables, "scored": rows}), described
