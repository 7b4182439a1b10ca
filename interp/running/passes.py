"""The forward passes of a run: its prompt sets as tokens, and the conditions that its probes declare.

Without the tokenizer, tokens are estimated at four characters each. A set that is made for a tokenizer is then taken
as `ASSUMED_PROMPTS` prompts of `ASSUMED_TOKENS` tokens.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from interp.editing.restart import tail_starts
from interp.model import Model
from interp.need import PLACES, Need
from interp.options import RunOptions
from interp.probe import Planned, Probe
from interp.prompt import Prompt, PromptSet, Run
from interp.prompting.clusters import notes_of
from interp.prompting.files import needs_tokenizer, resolve_prompts
from interp.prompting.pools import grouped, most_drawn, other_prompts, pools_for, read_apart
from interp.reading.batches import RowIndex, batches_of, row_index
from interp.reading.collector import OF_THE_END
from interp.reading.forward import TOKENS_PER_BATCH, packs_for
from interp.reading.packs import each_alone
from interp.registry import entries, load_entry

MOST_READ = 10_000
"""Prompts of a set that a plan tokenizes; they stand for all of a larger set."""

ASSUMED_PROMPTS = 1008
ASSUMED_TOKENS = 128
_CHARACTERS_A_TOKEN = 4
_EXCHANGE = 4
"""Passes of an exchange of attention patterns with a checkpoint: the edited and the donor's, in both directions."""


@dataclass(frozen=True)
class TokenisedSet(Run):
    """A prompt set as tokens, or a sample that stands for `times` as many prompts; `note` says what is assumed."""

    note: str = ""
    times: float = 1.0

    @property
    def n(self) -> int:
        """The number of prompts that it stands for."""
        return round(self.times * len(self.ids))

    def rows(self, at: str) -> RowIndex:
        """The rows that a need at these positions keeps; one per prompt if there is no column of this name yet."""
        is_unknown = at not in PLACES and at not in self.prompts[0].columns
        return row_index(self.prompts, self.lengths, "last" if is_unknown else at)

    def n_rows(self, at: str) -> int:
        """The number of rows that a need at these positions keeps of all prompts."""
        return round(self.times * len(self.rows(at)))

    def drawn(self, per_quintile: int | None) -> "TokenisedSet":
        """As many prompts as the draw takes; which ones depends on the model."""
        n = most_drawn(self.prompts, per_quintile)
        if n == len(self.ids):
            return self
        return replace(self, prompts=self.prompts[:n], ids=self.ids[:n], times=1.0)

    def n_padded(self, model: Model, needs: Sequence[Need] | None = None) -> int:
        """The number of tokens that the model reads, with padding.

        With the `needs` of a reading, tokens that known prompts share count once.
        """
        is_known = needs is not None and not self.note
        packs = packs_for(model, self.ids, needs, proved=False) if is_known else each_alone(self.ids)
        return round(self.times * sum(batch.n_tokens for batch in batches_of(packs, TOKENS_PER_BATCH, model)))


@dataclass(frozen=True)
class Passes:
    """`n` passes over the same text, of `n_tokens` tokens each, from the block `first_layer` on.

    `is_edited`: passes of conditions, and the unedited one that they start from. `probes` are those of a base capture.
    """

    what: str
    text: TokenisedSet
    n: int
    n_prompts: int
    n_tokens: int
    needs: tuple[Need, ...]
    first_layer: int = 0
    probes: tuple[Probe, ...] = ()
    is_edited: bool = False
    n_before: int = 0
    """Tokens that are not read: their keys and values are kept from the unedited pass."""


def passes_of(
    model: Model, probes: Sequence[Probe], options: RunOptions, n_earlier: int = 0, optional: Collection[str] = ()
) -> list[Passes]:
    """The base reading of every prompt set, each followed by the conditions of its probes, and by checkpoints.

    `n_earlier` checkpoints come before the model; `optional` as in `pools_for`.
    """
    has_words, sampled = model.task is not None or model.tokenizer is not None, options
    n_all, prompts = options.n_pool or 0, options.prompts
    if prompts is not None and not (isinstance(prompts, str) and (prompts in entries("prompt") or ":" in prompts)):
        made = resolve_prompts(replace(options, chat=False), model.tokenizer)
        n_all, sampled = len(made), replace(options, prompts=made, text_column=RunOptions.text_column)
    if n_all > MOST_READ:
        sampled = replace(sampled, n_pool=MOST_READ)
    if has_words:
        read = [
            (pool.probes, TokenisedSet(pool.prompts, pool.ids, note=" ".join(notes_of(pool.prompts))))
            for pool in pools_for(model, probes, sampled, optional)
        ]
    else:
        sets = grouped(probes, sampled.prompts is None)
        read = [(tuple(of), _estimated(replace(sampled, prompts=name or sampled.prompts))) for name, of in sets.items()]

    def other(name: str) -> TokenisedSet:
        if not has_words:
            return _estimated(replace(options, prompts=name, text_column=RunOptions.text_column))
        return TokenisedSet(**vars(other_prompts(model, name, options)))

    found: list[Passes] = []
    for every, text in read:
        text = replace(text, times=n_all / MOST_READ) if len(text.ids) == MOST_READ < n_all else text
        mine = tuple(probe for probe in every if not probe.follows_checkpoints)
        apart = read_apart(mine, text.prompts, options)
        found.append(_base(model, tuple(probe for probe in mine if probe not in apart), text))
        if apart:
            found.append(_base(model, apart, text.drawn(options.per_quintile), "drawn of "))
        following = tuple(probe for probe in every if probe.follows_checkpoints)
        if following:
            n, what = n_earlier + 1, f"checkpoints of {', '.join(probe.name for probe in following)}"
            if any(probe.exchange_needs for probe in following):
                share = min(1.0, max(p.n_exchanged for p in following if p.exchange_needs) / text.n)
                n, what = n + math.ceil(_EXCHANGE * n_earlier * share), f"{what}, with exchanges"
            at_each = _base(model, following, text.drawn(options.per_quintile))
            found.append(replace(at_each, what=what, n=n))
        for probe in mine:
            asked = list(probe.planned(model.info, text.n, is_text=text.prompts.is_text))
            for on in dict.fromkeys(each.on for each in asked):
                of_these = [each for each in asked if each.on == on]
                found += _conditions(probe, of_these, model, text if on is None else other(on))
    return found


def _base(model: Model, probes: tuple[Probe, ...], text: TokenisedSet, which: str = "") -> Passes:
    what = f"{which}{text.prompts.name}: {', '.join(probe.name for probe in probes) or 'the draw'}"
    needs = tuple(dict.fromkeys(need for probe in probes for need in probe.needs))
    n_tokens = text.n_padded(model, needs)
    return Passes(what, text, 1, text.n, n_tokens, needs, probes=probes)


def _conditions(probe: Probe, asked: Sequence[Planned], model: Model, text: TokenisedSet) -> Iterator[Passes]:
    """The unedited pass of one set, and the passes of its conditions, which start from it."""
    where, on = f"conditions of {probe.name}", asked[0].on
    where += f" on {on}" if on else ""
    needs = tuple(dict.fromkeys(need for each in asked for need in each.needs))
    n_tokens = text.n_padded(model)
    n_most = max(min(each.n_prompts, text.n) for each in asked)
    unedited = round(n_tokens * n_most / text.n)
    yield Passes(f"{where}, unedited", text, 1, n_most, unedited, needs, is_edited=True)
    for each in asked:
        n = min(each.n_prompts, text.n)
        start = 0 if any(need.site in OF_THE_END for need in each.needs) else each.first_layer
        tokens = round(n_tokens * n / text.n)
        # the tokens before the ends of prompts that are read; 0 if passes are whole
        read = [text.rows(need.at) for need in each.needs if need.described.source != "edit"]
        starts = tail_starts([text.rows(each.at)], read, text.lengths)
        before = 0 if starts is None else round(tokens * float(starts.sum() / text.lengths.sum()))
        yield Passes(where, text, each.n, n, tokens - before, each.needs, start, is_edited=True, n_before=before)


def _estimated(options: RunOptions) -> TokenisedSet:
    """A prompt set with tokens estimated from the length of its texts."""
    prompts = options.prompts
    if isinstance(prompts, str) and prompts in entries("prompt") and needs_tokenizer(load_entry("prompt", prompts)):
        n = options.n_pool or ASSUMED_PROMPTS
        note = (
            f"{prompts} is made for a tokenizer, which is not at hand: taken as {n} prompts of {ASSUMED_TOKENS} tokens"
        )
        made = PromptSet(prompts, [Prompt(text="unknown")] * n)
        return TokenisedSet(made, [np.zeros(ASSUMED_TOKENS, dtype=np.int64)] * n, note=note)
    made = resolve_prompts(replace(options, chat=False))
    window = (made.window if options.window is None else options.window) or None
    counts = [-(-len(p.text or "") // _CHARACTERS_A_TOKEN) for p in made]
    lengths = [max(1, n if window is None else min(n, window)) for n in counts]
    note = f"the tokenizer is not at hand: tokens of {made.name} by the length of its texts"
    return TokenisedSet(made, [np.zeros(n, dtype=np.int64) for n in lengths], note=note)
