"""What a run will cost, told before it starts from the configuration of the model alone: `interp plan`.

Counted: passes, tokens, arithmetic, memory and disk. Measured: one batch, for less than a second. The weights are
neither read nor fetched.
"""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated

from interp.capture import ModelInfo
from interp.errors import ModelError
from interp.lens.files import lens_bytes
from interp.loading.placement import free_bytes
from interp.options import Option, RunOptions, by_keyword
from interp.reading.batches import at_most
from interp.running.checkpoints import checkpoints_of
from interp.running.choose_probes import choose_probes, readable_probes
from interp.running.memory import Memory, memory_of
from interp.running.meta_model import MetaModel, known_shape, meta_model
from interp.running.passes import Passes, passes_of
from interp.running.speed import pass_seconds, seconds_per_operation

SPREAD = 2**0.5
"""The range of a time: so many times shorter and longer than what was calculated, a factor of two in all."""

STARTING = 7.0
"""Seconds until PyTorch, transformers and what analyses import are there, and those of the page."""

LOADED_PER_SECOND = 800e6
"""Bytes of weights that are read, converted and named in a second of one core."""

CHECKED_TOKENS = 150
"""The self-check takes as long as so many tokens of a full batch: four passes, each of which reads all weights."""

PAGE_BYTES, FINDINGS_BYTES, HEAD_BYTES, VECTOR_BYTES = 2_100_000, 110_000, 1_100, 32
"""What a run writes, as measured: a page without probes, which is the drawing library; each probe, whatever the model,
for each of its heads, and for each feature of a layer."""


@dataclass(frozen=True)
class PassCost:
    """Passes of one kind: how many, over how many prompts and tokens each, through how many blocks, and how long.

    `analysis_seconds` is what the probes of a base reading then take on one core, by their own account.
    """

    what: str
    n: int
    n_prompts: int
    n_tokens: int
    n_blocks: int
    seconds: float | None
    analysis_seconds: float


@dataclass(frozen=True)
class Plan:
    """The cost of a run. `disk` is what it writes, `download` what is fetched first, at most; all sizes in bytes.

    >>> cost = interp.plan("tunnel:bijection-gpt-neox", probes="manifold", is_timed=False)
    >>> cost.n_passes, cost.fits
    (1, True)
    """

    model: ModelInfo
    probes: tuple[str, ...]
    steps: tuple[PassCost, ...]
    memory: Memory
    free: int
    disk: int
    download: int
    loading_seconds: float | None
    notes: tuple[str, ...] = ()

    @property
    def n_passes(self) -> int:
        return sum(step.n for step in self.steps)

    @property
    def n_tokens(self) -> int:
        """Tokens that pass through the model, padding and every condition counted."""
        return sum(step.n * step.n_tokens for step in self.steps)

    @property
    def seconds(self) -> tuple[float, float] | None:
        """The range in which the whole run will take its time; None where nothing was measured."""
        reading = self.reading_seconds
        if reading is None or self.loading_seconds is None:
            return None
        total = STARTING + self.loading_seconds + reading + sum(step.analysis_seconds for step in self.steps)
        return total / SPREAD, total * SPREAD

    @property
    def reading_seconds(self) -> float | None:
        """All passes through the model."""
        parts = [step.seconds for step in self.steps if step.seconds is not None]
        return sum(parts) if len(parts) == len(self.steps) else None

    @property
    def fits(self) -> bool:
        """Whether the peak is within the memory that is free where the model would be put."""
        return (self.memory.peak if self.memory.is_on_cpu else self.memory.on_device) <= self.free


@dataclass(frozen=True)
class PlanOptions(RunOptions):
    """The options of the run, and whether its time is told (`is_timed`)."""

    _: KW_ONLY
    is_timed: Annotated[bool, Option("--time", "Whether one batch is timed, for an estimate of the time.")] = True


@by_keyword(PlanOptions)
def plan(options: PlanOptions) -> Plan:
    """Estimate what `interp.run` with the same arguments will cost. No weights are read.

    Returns:
        Forward passes, tokens, memory, disk and time. If memory is short, `Plan.fits` is False. With `is_timed=False`
        nothing is timed, and no time is given.

    Raises:
        UsageError: A name, setting or combination does not fit.
        ModelError: The model's shape cannot be found.

    Examples:
        >>> cost = interp.plan("tunnel:bijection-gpt-neox", probes="manifold", n_pool=50, is_timed=False)
        >>> cost.n_tokens > 50
        True
    """
    asked = choose_probes(options.probes, options.settings or {})
    try:
        meta = meta_model(options)
    except ModelError as error:
        meta = known_shape(options, error)
    chosen = readable_probes(meta.model, asked)
    knows_course = bool(options.checkpoints) or meta.model.task is not None
    n_earlier = len(checkpoints_of(meta.model, chosen, options.checkpoints)) if knows_course else None
    optional = [each.probe.name for each in asked if not each.is_named]
    with at_most(options.batch_size):
        passes = passes_of(meta.model, chosen, options, n_earlier, optional)
        memory = memory_of(meta, passes, lens_bytes(options.lens))
    n_times = 1 + options.n_untrained if options.null == "untrained" else 1
    per_operation = seconds_per_operation(meta) if options.is_timed else None
    return Plan(
        model=meta.model.info,
        probes=tuple(probe.name for probe in chosen if any(probe in p.probes for p in passes)),
        steps=tuple(_cost(p, meta, per_operation, n_times) for p in passes),
        memory=memory,
        free=free_bytes(meta.placement),
        disk=_disk(meta.model.info, len(chosen)),
        download=meta.file_bytes * (not meta.is_here) + (0 if meta.model.task else (n_earlier or 0) * meta.file_bytes),
        loading_seconds=None if per_operation is None else _loading(meta, per_operation, 1 + (n_earlier or 0)),
        notes=tuple(dict.fromkeys(note for note in (meta.note, *(p.text.note for p in passes)) if note)),
    )


def _cost(p: Passes, meta: MetaModel, per_operation: float | None, n_times: int) -> PassCost:
    info, n, n_rows = meta.model.info, p.n * n_times, p.text.n_rows("scored")
    seconds = None if per_operation is None else n * pass_seconds(p, meta, per_operation)
    analysis = n_times * sum(probe.cost.analysis(info, n_rows) for probe in p.probes)
    return PassCost(p.what, n, p.n_prompts, p.n_tokens, max(0, info.n_layers - p.first_layer), seconds, float(analysis))


def _disk(info: ModelInfo, n_probes: int) -> int:
    of_layer = HEAD_BYTES * info.n_heads + VECTOR_BYTES * info.d_model
    return PAGE_BYTES + n_probes * (FINDINGS_BYTES + info.n_layers * of_layer)


def _loading(meta: MetaModel, per_operation: float, n_models: int) -> float:
    """Reading the weights, and the self-check, of the model and of its checkpoints."""
    checked = 2 * CHECKED_TOKENS * meta.model.info.n_parameters * per_operation
    return n_models * (meta.memory_bytes / LOADED_PER_SECOND + checked)
