"""The contract of a probe: a frozen dataclass with parameters as fields, declared needs, and a pure analysis.

A probe never sees the model: the runner captures all needs in one pass and gives every probe the same `Capture`.
"""

import sys
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.errors import Answering, UsageError
from interp.findings import Findings
from interp.need import Need
from interp.prompt import PromptSet
from interp.statistics.quantities import Quantities
from interp.system.calls import AnsweringType

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from interp.edit import Edit
    from interp.edits import AblateHeads

FITTED_LABELS = 200
"""About how many true, control and permuted labels a fit has; their products are in float32."""

FIT_SECONDS = 1.5e-11
"""Seconds of one core per float64 operation of a fit."""

ADDED = MappingProxyType({"added": True})
"""Metadata of a field that was added later: its default does not enter the hash of a run, so that old hashes stay."""

Readout = Mapping[str, np.ndarray]
"""What is kept of one condition: small arrays by name."""


@dataclass(frozen=True)
class Figure:
    """A plotly figure with its title, one sentence on how to read it, and the table that holds its data.

    >>> import plotly.graph_objects as go
    >>> figure = interp.Figure("decay", "Entropy by layer", "Lower is sharper.", go.Figure(go.Scatter(y=[2, 1])))
    """

    name: str
    title: str
    reading: str
    plot: "go.Figure"
    table: str | None = None


@dataclass(frozen=True)
class Condition:
    """The model under edits: what is changed, what is captured then, and what is kept of it.

    `read` reduces each capture at once to a few small arrays by name, so that memory never holds all captures.
    `prompts` are the indices of the base capture's prompts that are run (None: all); `on` names another prompt set to
    run on instead, `n_pool` prompts of it. Without edits it is a baseline. Conditions whose edits differ only in their
    numbers share forward passes.

    >>> kl = interp.Need("next_kl")
    >>> off = interp.Condition("no attention in layer 0", (interp.AttentionOff(layer=0),), (kl,),
    ...                        read=lambda capture: {"kl": capture[kl]})
    >>> off.name
    'no attention in layer 0'
    """

    name: str
    edits: "tuple[Edit, ...]"
    needs: tuple[Need, ...]
    read: Callable[[Capture], Readout]
    prompts: np.ndarray | None = None
    on: str | None = None
    n_pool: int | None = None


@dataclass(frozen=True)
class Screen:
    """Ablations of heads whose effect is estimated from gradients of the unedited model, without running them.

    Each of `edits` ablates all heads of some layers; the effect of every head is estimated separately, by `measure`:
    `posterior_kl` (scored rows, over the outcomes), `next_kl` (scored rows) or `loss` (the whole text). `n_draws`
    predicted tokens are drawn for each row. See `interp.editing.screen`.
    """

    edits: "Mapping[str, tuple[AblateHeads, ...]]"
    measure: Literal["posterior_kl", "next_kl", "loss"]
    n_draws: int
    prompts: np.ndarray
    seed: int


@dataclass(frozen=True)
class Planned:
    """Conditions that a probe will request, from its fields alone; `interp plan` adds up their cost.

    `n` conditions of `n_prompts` prompts each. Nothing is edited before the decoder block `first_layer` (from 0), where
    passes start, at the positions `at` (see `Edit`). Baselines need no pass and are left out. `needs` and `on` are as
    in `Condition`.
    """

    n: int
    n_prompts: int
    first_layer: int = 0
    needs: tuple[Need, ...] = ()
    on: str | None = None
    at: str = "all"


@dataclass(frozen=True)
class AnalysisCost:
    """Measured seconds of one core for the analysis of a probe: per capture, and per scored row of a layer.

    Each of `n_fits` per layer decomposes one half of the rows and predicts `FITTED_LABELS` labels of the other half.
    """

    seconds: float = 0.3
    row_seconds: float = 2e-5
    n_fits: int = 0

    def analysis(self, info: ModelInfo, n_rows: int) -> float:
        """Seconds in total."""
        n, width = n_rows // 2, info.d_model
        rank = min(n, width)
        operations = 10 * rank**3 + 6 * n * width * rank + 2 * n * rank * FITTED_LABELS
        return self.seconds + info.n_layers * (self.row_seconds * n_rows + self.n_fits * operations * FIT_SECONDS)


@dataclass(frozen=True)
class Sentences:
    """How findings answer a question in plain words: by one number, above, below or within its null.

    `numbers` are the possible names of that number (`{column}` stands for the run's target); the first that is a
    headline is taken. The answer is `yes` if it is on the `expected` side of its null, `no` if it is within, `opposite`
    if it is on the other side. After a yes follows `rest`, or `open` if an essential control is undecided. If the whole
    interval lies outside the band `full` (for a share of variance 0.8 to 1.25), the answer is "partly", below 0.1
    "hardly". `limit` says what a yes does not show, `further` what else was measured (both in small print), and `order`
    sorts the questions of all probes.

    Sentences are formats. Of the number they know `{value}`, `{size}` (its absolute value), `{n}`, `{null}`, `{fact}`,
    `{least}` (what would be found 80 % of the time), `{detail}` (its meaning after the first colon) and `{controls}`
    (for `..._beyond_controls`, the mean of the controls); of the run `{model}`, `{unit}` (prompt or sequence),
    `{place}` (site and layer) and `{target}` (this field, or another target by name); and any other number by its name,
    with its interval as `{interval[NAME]}`. A sentence with an unknown number is left out.

    >>> interp.Sentences(90, "Are values long?", ("length",), "They are {value} long.", "They are not.").expected
    'above'
    """

    order: int
    question: str
    numbers: tuple[str, ...]
    yes: str
    no: str
    opposite: str = ""
    expected: Literal["above", "below"] = "above"
    limit: str = ""
    target: str = "the model's next-token entropy"
    full: tuple[float, float] | None = None
    rest: str = ""
    open: str = ""
    further: str = ""


@dataclass(frozen=True)
class Question(Answering, metaclass=AnsweringType):
    """A question to models, answered by findings. Subclasses add fields with defaults, which are recorded parameters.

    `sentences` give the answer in words; of several with the same question the first whose number was found is used.
    """

    _habits = "`interp.run` and `interp.analyse` carry a probe out on a model or on a capture."

    name: ClassVar[str]
    question: ClassVar[str]
    sentences: ClassVar[tuple[Sentences, ...]] = ()
    quantities: ClassVar[Quantities] = Quantities()
    """Names, meanings and nulls of its numbers."""

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        """The figures of the page, from the findings alone; plotly is imported inside."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """The fields and their values, as recorded."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Probe(Question):
    """One question to a model: subclass it as a frozen dataclass with `name`, `question`, `needs` and `analyse`.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class ValueNorm(interp.Probe):
    ...     name = "value_norm"
    ...     question = "How long are the value vectors of the last layer?"
    ...     needs = (interp.Need("v"),)
    ...
    ...     def analyse(self, base, under):
    ...         length = np.linalg.norm(base[interp.Need("v")][-1], axis=-1).mean()
    ...         found = interp.Scalar.of(length, "activation", "one number", "lengths have no chance level")
    ...         return interp.Findings(self.name, scalars={"length": found}, headline=("length",))
    >>> record = interp.run(probes=[ValueNorm()], n_pool=20, out=None, quiet=True)
    >>> record.findings["value_norm"]["length"].value > 0
    True
    """

    observational: ClassVar[bool] = True
    own_prompts: ClassVar[str | None] = None
    """Its default prompt set for language models; None is the default of all runs."""
    needs_posterior: ClassVar[bool] = False
    """Whether it rejects prompts without an exact posterior, before a model is read."""
    least_clusters: ClassVar[int] = 1
    """The fewest clusters of prompts that it accepts; fewer are rejected before a model reads them."""
    on_drawn: ClassVar[bool] = False
    """Whether it reads only the subsample `Capture.drawn`; other prompts are then not read for it."""
    follows_checkpoints: ClassVar[bool] = False
    """Whether it reads checkpoints of a training: `interp.running.checkpoints`."""
    cost: ClassVar[AnalysisCost] = AnalysisCost()

    @property
    @abstractmethod
    def needs(self) -> tuple[Need, ...]:
        """The activations to capture; they may depend on the fields, never on the data."""

    def refuse(self, prompts: PromptSet) -> None:
        """Raise `PromptError` for prompts that cannot be analysed; called before a model reads them."""

    def refuse_fields(self, n_layers: int | None) -> None:
        """Raise `UsageError` for fields that do not fit `n_layers` layers (None, before a model is loaded: any)."""

    def screening(self, base: Capture) -> Screen | None:
        """Ablations to estimate first; `further_conditions` gets their readouts by the names of `edits`."""
        return None

    def conditions(self, base: Capture) -> Iterable[Condition]:
        """The conditions of a causal probe, given the base capture; an observational probe has none."""
        return ()

    @property
    def edits_model(self) -> bool:
        """Whether the probe is causal: it overrides `conditions`."""
        return type(self).conditions is not Probe.conditions

    def planned(self, info: ModelInfo, n_prompts: int, *, is_text: bool) -> Iterable[Planned]:
        """What `conditions` will request on `n_prompts` prompts (an upper bound), for `interp plan`.

        `is_text` is False on wind tunnels.
        """
        return ()

    def further_conditions(self, base: Capture, under: Mapping[str, Readout]) -> Iterable[Condition]:
        """Further conditions, given the readouts of earlier ones; called until it returns no new name."""
        return ()

    def read_checkpoint(self, capture: Capture, final: Capture) -> Readout:
        """The small arrays to keep of one checkpoint, for probes that follow a training.

        `capture` has the probe's needs at this checkpoint, `final` those at the end, both on the drawn prompts.
        `analyse` gets `final` as `base`, and the readouts as `under`, by training step as text, in order.
        """
        raise NotImplementedError(f"{self.name} follows checkpoints and does not say what it keeps of one")

    @property
    def exchange_needs(self) -> tuple[Need, ...]:
        """What `read_exchanged` needs with exchanged attention patterns at each checkpoint; may be nothing."""
        return ()

    @property
    def n_exchanged(self) -> int:
        """The most prompts on which patterns are exchanged, spread evenly over all."""
        return sys.maxsize

    def read_exchanged(self, with_patterns: Capture, of_network: Capture, prompts: np.ndarray) -> Readout:
        """The small arrays to keep of an exchange at one checkpoint, beside `read_checkpoint`.

        `with_patterns` is the final network with the patterns of the checkpoint, `of_network` the network of the
        checkpoint with the final patterns, both on these `prompts` (numbers of drawn ones). At the end of training both
        are the final network, on all drawn prompts.
        """
        raise NotImplementedError(f"{self.name} asks for an exchange and does not say what it keeps of one")

    @abstractmethod
    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        """Findings from the base capture and the readouts `under` every condition, by name. It changes neither."""


@dataclass
class Chosen:
    """The probes of a run. Those of a group are `optional`: one that refuses is left out, and its error is kept."""

    probes: tuple[Probe, ...]
    optional: Collection[str] = ()
    refused: dict[str, UsageError] = field(default_factory=dict)

    @contextmanager
    def leaving_out(self, *probes: Probe) -> Iterator[None]:
        """Keep a refusal in this block as that of these probes; raise it if one of them is not optional."""
        try:
            yield
        except UsageError as error:
            if any(probe.name not in self.optional for probe in probes):
                raise
            self.refused |= {probe.name: error for probe in probes}

    def served(self, probes: Iterable[Probe], refuse: Callable[[Probe], None]) -> tuple[Probe, ...]:
        """The probes for which `refuse` raises nothing."""
        listed = tuple(probes)
        for probe in listed:
            with self.leaving_out(probe):
                refuse(probe)
        return tuple(probe for probe in listed if probe.name not in self.refused)

    @property
    def notes(self) -> tuple[str, ...]:
        """A sentence for each probe that is left out, with the reason."""
        return tuple(f"{name} left out: {error.found}." for name, error in self.refused.items())
