"""One forward pass per prompt for all needs of all probes, reduced batch by batch."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import numpy as np
import torch
from accelerate.utils.memory import clear_device_cache
from jaxtyping import Int

from interp.capture import Capture
from interp.errors import InterpError
from interp.hooks.attention import Listener, listening
from interp.hooks.block_hooks import EnoughRead, at_head, block_hooks, ending
from interp.hooks.pattern_sites import NULL_SITES, OF_NEIGHBOURS
from interp.hooks.ropes import rope_scales
from interp.hooks.window import window_here
from interp.model import Model
from interp.need import Need
from interp.prompt import PromptSet
from interp.reading.batches import Batch, RowIndex, batches_of, make_batch, ran_out
from interp.reading.collector import Collector
from interp.reading.packs import Ids, Pack, each_alone, packed
from interp.reading.readable import refuse_unreadable
from interp.reading.weights import stacked_weights
from interp.records.unfinished import NOT_KEPT, Unfinished
from interp.system.processes import Ranks, here
from interp.system.progress import Report, no_report
from interp.system.rounding import BOUND, error_of_logits
from interp.system.signals import whole
from interp.system.threads import threads_worth, torch_on
from interp.table import ROW_UNITS, Table

TOKENS_PER_BATCH = 2048

_WORTH_SHARING = 0.1
"""Share of the tokens that trees have to save: they need a mask, and padding if their lengths differ."""

_PROVED_ON = 4
"""Prompts of a tree, about."""


def capture(
    model: Model,
    prompts: PromptSet,
    ids: Sequence[Int[np.ndarray, " _pos"]],
    needs: Iterable[Need],
    *,
    layers: Sequence[int] | None = None,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    progress: Report = no_report,
    unfinished: Unfinished = NOT_KEPT.run,
    name: str = "pass",
) -> Capture:
    """Run the prompts, given as token ids, through the model once and return the activations that `needs` name.

    A common beginning of prompts is computed once (`interp.reading.packs`), unless the numbers of a prompt depend on
    the others, or the model has a window (`interp.hooks.window`). With `layers` only these are read, and passes end
    after the last that any need reads: unless one reads the outputs, the rows have no `next_entropy_bits`. A batch that
    does not fit into memory is read in halves, with a `RuntimeWarning`. If several processes take part in a run
    (`interp.system`), each runs its share of the batches, and all return the whole. Batches that `unfinished` holds
    under this `name` are not run again. With edits use `interp.editing.conditions.capture_edited`.

    Raises `ModelError` if the model yields NaN, `UsageError` if it has no such site, `InterpError` if another thread is
    reading it.
    """
    needs = tuple(dict.fromkeys(needs))
    refuse_unreadable(model, needs)
    collector = Collector(model, prompts, [len(x) for x in ids], needs, layers=layers, with_entropy=layers is None)
    packs = packs_for(model, ids, needs, clusters=prompts.cluster_codes)
    share = Share(model, batches_of(packs, tokens_per_batch, model), [collector])
    asked = [[repr(need), collector.layers.get(need, [])] for need in needs]
    stage = unfinished.stage(name, model, prompts, ids, needs=asked, batches=_digest(share.batches))
    before = stage.load()
    if before is not None:
        collector.restore(before.arrays)
        share.n_done = before.n_done
    with stage.keeping(share.n, "batches", lambda: share.n_done, collector.saved) as keep:

        def passed() -> None:
            keep()
            progress(share.n_prompts_done, len(ids))

        share.run(passed=passed)
    return as_capture(collector, prompts, ids, needs)


def _digest(batches: Sequence[Batch]) -> str:
    """A digest of which prompts are in which batch."""
    laid = [np.array([len(batch.packs) for batch in batches])]
    laid += [x for batch in batches for pack in batch.packs for x in (pack.prompts, pack.parent)]
    return hashlib.sha256(np.concatenate(laid).astype(np.int64).tobytes()).hexdigest()


def packs_for(
    model: Model, ids: Ids, needs: Sequence[Need], *, proved: bool = True, clusters: np.ndarray | None = None
) -> list[Pack]:
    """The layout of the prompts in sequences; what they share is computed once if no need depends on other prompts.

    Prompts with a common beginning form one sequence; with `proved`, only if this model then predicts the same.
    """
    if window_here() or any(need.site in NULL_SITES for need in needs):
        return each_alone(ids, clusters)
    window = model.info.window
    may_share_prefixes = (
        model.family.has_attention
        and model.family.mixer is None
        and (window is None or max(map(len, ids)) <= window)
        and not any(need.site in OF_NEIGHBOURS for need in needs)
    )
    packs = packed(ids, prefixes=may_share_prefixes, scales=rope_scales(model.config, [len(x) for x in ids]))
    n_alone = sum(pack.n_alone for pack in packs)
    n_saved = n_alone - sum(map(len, packs))
    tree = max((each for each in packs if not each.is_plain), key=lambda each: each.longest, default=None)
    is_worth_it = n_saved >= _WORTH_SHARING * n_alone and (tree is None or not proved or _agrees(model, tree, ids))
    return packs if n_saved == 0 or is_worth_it else packed(ids, prefixes=False)


def _agrees(model: Model, tree: Pack, ids: Ids) -> bool:
    """Whether some prompts of a tree, with its longest, give the predictions that they give alone."""
    by_length = tree.prompts[np.argsort([-len(ids[prompt]) for prompt in tree.prompts], kind="stable")]
    chosen = np.sort(by_length[:: max(1, len(by_length) // _PROVED_ON)])
    return agrees(model, Batch([tree], model.input_device), chosen, ids)


def agrees(
    model: Model, together: Batch, chosen: Int[np.ndarray, " prompt"], ids: Ids,
    within: AbstractContextManager[None] | None = None,
) -> bool:  # fmt: skip
    """Whether some prompts of a batch, read inside `within`, give the predictions that they give alone."""
    ends = RowIndex(chosen, np.array([len(ids[prompt]) - 1 for prompt in chosen]))
    rows = together.rows(ends)
    with torch.inference_mode(), listening(model, Listener()):
        try:
            with within or nullcontext():
                logits = model.module(input_ids=together.ids, use_cache=False, **together.layout).logits
        except (TypeError, ValueError, RuntimeError):  # a family that does not take the layout
            return False
        shared = logits[rows.item, rows.position][np.argsort(rows.row)]
        singles = [make_batch(ids, chosen[[i]], model.input_device).ids for i in range(len(chosen))]
        alone = torch.cat([model.module(input_ids=single, use_cache=False).logits[:, -1] for single in singles])
    return error_of_logits(shared, alone) <= BOUND[model.info.dtype]


NO_EDITS: Mapping[str, np.ndarray] = {
    "rows": np.zeros((0, 0)), "variance_share": np.zeros(0), "edit": np.zeros(0, int), "layer": np.zeros(0, int)
}  # fmt: skip
"""What a need for sizes of edits holds without edits."""


class Share:
    """The batches that this process runs: all of them, or its part if several take part in a run.

    `begins` is called before each pass, `ends` and the `end` of collectors after each that succeeded.
    """

    def __init__(
        self, model: Model, batches: Sequence[Batch], collectors: Sequence[Collector], ranks: Ranks | None = None,
        begins: Sequence[Callable[[Batch], None]] = (), ends: Sequence[Callable[[], None]] = (),
    ) -> None:  # fmt: skip
        self.model, self.batches, self.collectors = model, batches, collectors
        self.ranks, self._begins, self._ends = ranks or here(), begins, ends
        self._mine = self.ranks.share(len(batches))
        self.n, self.n_done = len(self._mine), 0
        self._tokens_that_fit: float = np.inf

    @property
    def prompts(self) -> Int[np.ndarray, " item"]:
        """The prompts of its batches."""
        return np.concatenate([np.empty(0, dtype=np.int64), *(self.batches[n].prompts for n in self._mine)])

    @property
    def n_prompts_done(self) -> int:
        """The estimated number of prompts that all processes have done."""
        counts = [len(batch.prompts) for batch in self.batches]
        mine = [counts[n] for n in self._mine]
        return sum(mine[: self.n_done]) * sum(counts) // sum(mine)

    def run(self, depth: int = 0, passed: Callable[[], None] = lambda: None) -> None:
        """Run the batches that are not done, and join the states of all processes.

        `depth` as in `collecting`; `passed` is called after every batch.
        """
        left = self._mine[self.n_done :]
        with torch.inference_mode(), collecting(self.model, self.collectors, depth):
            if left and left.start and any(collector.needs_donor for collector in self.collectors):
                # The donor of the first prompt was read by another process, or by an earlier run: read it again.
                self._pass(self.batches[left.start - 1], [collector.donors.end for collector in self.collectors])
            for n in left:
                with whole():
                    self._pass(self.batches[n], [*(collector.end for collector in self.collectors), *self._ends])
                    self.n_done += 1
                passed()
        for collector in self.collectors:
            collector.join(self.ranks)

    def _pass(self, batch: Batch, ends: Sequence[Callable[[], None]]) -> None:
        """Run a batch, in halves if memory runs out, and later ones in parts of the size that fitted.

        `ends` are called after each part. Raises `InterpError` if a single prompt does not fit.
        """
        waiting = [batch]
        while waiting:
            part = waiting.pop(0)
            if len(part.ids) > 1 and part.ids.numel() > self._tokens_that_fit:
                waiting[:0] = part.halves()
                continue
            why = self._lack_of_memory(part)
            if why is not None:
                clear_device_cache(garbage_collection=True)
                self._make_smaller(part, why)
                waiting.insert(0, part)
                continue
            for end in ends:
                end()

    def _lack_of_memory(self, batch: Batch) -> str | None:
        """The message of an error for lack of memory; the error itself would keep the pass in memory."""
        try:
            for begin in self._begins:
                begin(batch)
            run_batch(self.model, batch, self.collectors)
        except (MemoryError, RuntimeError) as error:
            if not ran_out(error):
                raise
            return (str(error).splitlines() or [type(error).__name__])[0]
        return None

    def _make_smaller(self, batch: Batch, why: str) -> None:
        n, width = batch.ids.shape
        if n == 1:
            raise InterpError(
                asked=f"reading a prompt of {width} tokens with {self.model.name}",
                found=f"memory does not suffice for it alone ({why})",
                fix="Shorten the texts (--window), load the weights in bfloat16 (--dtype), or use a larger machine.",
            )
        self._tokens_that_fit = (n + 1) // 2 * width
        warnings.warn(
            f"out of memory in a batch of {n} prompts of up to {width} tokens ({why}); "
            f"continuing with batches of up to {self._tokens_that_fit} tokens",
            RuntimeWarning,
            stacklevel=2,
        )


@contextmanager
def collecting(model: Model, collectors: Sequence[Collector], depth: int) -> Iterator[None]:
    """Let collectors read every pass inside the block; logits are computed at their scored rows only.

    Passes end at the depth at which all collectors have read, but not before `depth`; outputs come after the last.
    """

    def scored_rows(entering: torch.Tensor) -> torch.Tensor:
        return torch.cat([collector.scored_rows(entering) for collector in collectors])

    def on_site(site: str, layer: int, tensor: torch.Tensor) -> None:
        for collector in collectors:
            collector.block(site, layer, tensor)

    sites = {site for collector in collectors for site in collector.block_sites}
    with (
        listening(model, *collectors),
        block_hooks(model, sites, on_site),
        at_head(model, scored_rows),
        ending(model, max([depth, *(collector.depth for collector in collectors)])),
    ):
        yield


def run_batch(model: Model, batch: Batch, collectors: Sequence[Collector]) -> None:
    """One forward pass: the batch once for every collector, along the first axis; collectors keep it at their `end`."""
    for n, collector in enumerate(collectors):
        collector.begin(batch, n * len(batch.ids))
    ids = batch.ids.repeat(len(collectors), 1)
    layout = {name: x.repeat(len(collectors), *[1] * (x.dim() - 1)) for name, x in batch.layout.items()}
    with threads_of_pass(model, ids):
        try:
            logits = model.module(input_ids=ids, use_cache=False, **layout).logits[0]
        except EnoughRead:
            logits = None
        for n, collector in enumerate(collectors):
            if logits is not None:
                collector.next_token(logits.chunk(len(collectors))[n])
            collector.finish()


def threads_of_pass(model: Model, ids: torch.Tensor) -> AbstractContextManager[None]:
    """As many threads as a pass of these tokens is worth, by the weights of a block; unchanged on a GPU."""
    if ids.device.type != "cpu":
        return nullcontext()
    block = model.family.layer_modules(model.module)[0]
    return torch_on(threads_worth(2 * ids.numel() * sum(weight.numel() for weight in block.parameters())))


def as_capture(
    collector: Collector, prompts: PromptSet, ids: Sequence[Int[np.ndarray, " _pos"]], needs: Sequence[Need]
) -> Capture:
    """The states of a collector as a `Capture` of a model without edits."""
    arrays: dict[Need, Mapping[str, np.ndarray]] = {
        need: collector.reduced(need) for need in needs if need.described.source not in ("weights", "edit")
    }
    for need in needs:
        if need.described.source == "edit":
            arrays[need] = NO_EDITS
        if need.described.source == "weights":
            arrays[need] = stacked_weights(collector.model, need, prompts, collector.only_layers)
    return Capture(
        layers=collector.only_layers,
        model=collector.model.info,
        prompts=prompts,
        tables={at: row_table(prompts, ids, index, at, collector.entropy(at)) for at, index in collector.index.items()},
        arrays=arrays,
        posterior=prompts.posterior,
        belief=prompts.belief,
        mechanism=collector.model.mechanism,
    )


def row_table(
    prompts: PromptSet, ids: Sequence[np.ndarray], index: RowIndex, at: str, entropy: np.ndarray | None
) -> Table:
    """One table row per captured (prompt, position) pair, with the columns of its prompt.

    `entropy` is that of the next token in bits, if known.
    """
    of = index.prompt
    columns: dict[str, np.ndarray] = {
        "prompt": of,
        "cluster": prompts.cluster_codes[of],
        "position": index.position,
        "length": np.array([len(x) for x in ids])[of],
        "token": np.array([ids[p][i] for p, i in zip(of, index.position, strict=True)], dtype=np.int64),
    }
    if entropy is not None:
        columns["next_entropy_bits"] = entropy
    if at == "before_last":
        before = [ids[p][i - 1] if i else -1 for p, i in zip(of, index.position, strict=True)]
        columns["token_before"] = np.array(before, dtype=np.int64)
    if at == "scored":
        columns |= {"drawn": np.ones(len(index), dtype=bool), "stratum": np.zeros(len(index), dtype=np.int64)}
    for name in (name for name in prompts[0].columns if name not in columns):
        columns[name] = np.array([p.columns[name] for p in prompts])[of]
    if at == "scored":
        for name in prompts[0].scored_columns:
            columns[name] = np.concatenate([np.asarray(p.scored_columns[name]) for p in prompts])
    return Table(columns, {name: prompts.units.get(name) or ROW_UNITS[name] for name in columns})
