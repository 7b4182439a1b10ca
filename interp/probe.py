"""The contract of a probe: parameters are fields, needs are declared, the analysis is pure.

A probe is a frozen dataclass in a package of its own, found by name through the entry points `interp.probes`. It never
sees the model: the runner captures the union of all needs in one pass and hands every probe the same `Capture`.
"""

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.errors import Answering
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
"""True, control and permuted labels of a fit, about: products with them are in float32."""

FIT_SECONDS = 1.5e-11
"""Seconds of one core that an addition or multiplication of a fit takes, in float64."""

ADDED = MappingProxyType({"added": True})
"""Metadata of a field that an earlier release lacked: at its default no hash of a run counts it, so that records of
that release keep theirs."""

Readout = Mapping[str, np.ndarray]
"""What is kept of the model under one condition: small arrays by name."""


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

    `read` reduces the capture to a few small arrays at once, so that a hundred controls never mean a hundred captures.
    `prompts` are the indices of the base capture's prompts that are run (None: all of them); `on` names another
    prompt set to run on instead, `n_pool` prompts of it. Without edits it is a baseline. Conditions that differ in
    numbers alone share passes.

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
    """Ablations of heads whose harm is estimated from gradients of the model as it is: none of them is carried out.

    Each of `edits` ablates all heads of some layers; every head of it is judged by itself. `measure` is what they are
    judged by: `posterior_kl` (scored rows, over the outcomes), `next_kl` (scored rows) or `loss` (the whole text).
    `n_draws` predicted tokens are drawn for each row. See `interp.editing.screen`.
    """

    edits: "Mapping[str, tuple[AblateHeads, ...]]"
    measure: Literal["posterior_kl", "next_kl", "loss"]
    n_draws: int
    prompts: np.ndarray
    seed: int


@dataclass(frozen=True)
class Planned:
    """Conditions that a probe is going to ask for, told from its fields alone; `interp plan` adds up what they cost.

    `n` conditions, each of `n_prompts` prompts, that edit nothing before the decoder block `first_layer`, counted from
    0: passes start there; `at` says at which positions they do, as in `Edit`. Baselines cost no pass of their own and
    are left out. `needs`, `on` as in `Condition`.
    """

    n: int
    n_prompts: int
    first_layer: int = 0
    needs: tuple[Need, ...] = ()
    on: str | None = None
    at: str = "all"


@dataclass(frozen=True)
class AnalysisCost:
    """Seconds of one core that the analysis of a probe takes, as measured: for any capture, and for a row of a layer.

    Rows are the scored ones. `n_fits` of a layer decompose one half of the rows and read `FITTED_LABELS` labels off the
    other half.
    """

    seconds: float = 0.3
    row_seconds: float = 2e-5
    n_fits: int = 0

    def analysis(self, info: ModelInfo, n_rows: int) -> float:
        """Seconds in all."""
        n, width = n_rows // 2, info.d_model
        rank = min(n, width)
        operations = 10 * rank**3 + 6 * n * width * rank + 2 * n * rank * FITTED_LABELS
        return self.seconds + info.n_layers * (self.row_seconds * n_rows + self.n_fits * operations * FIT_SECONDS)


@dataclass(frozen=True)
class Sentences:
    """How findings answer a question in plain words, by where one number stands to its null.

    `numbers` are the names under which that number may be found (`{column}` stands for the run's target); the first
    headline of these names is taken. The sentences are formats: `{model}`, `{target}` (what the run's parameter of that
    name says, else the words given here), `{place}` (the site and layer that its parameters name), `{value}`, `{size}`
    (its absolute value), `{n}`, `{null}` and `{fact}` of the number, `{unit}` (prompt or sequence), `{controls}` (of a
    number `..._beyond_controls` what the controls give on average), `{detail}` (what the meaning of the number says
    after its first colon), and any number of the findings by its name. `no` is said if the number is no different from
    its null, `opposite` if it lies on the side that was not `expected`, and after a yes `rest`, or `open` where an
    essential control cannot be told. `{least}` is what would be found 80 % of the time, `{interval[NAME]}` the
    interval of a number. A sentence is left out where one of its numbers is not known. `order` is the
    place among the questions of all probes, `limit` what a yes does not show, and `further` what else was measured,
    for the small print. Where the whole interval lies outside the band `full` (of a share of variance 0.8 to 1.25),
    the answer is no more than partly yes, below 0.1 hardly.

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
    """What findings answer. Subclasses add fields with defaults; each is a parameter and is recorded.

    `sentences` say the answer in plain words; of several that ask the same question the first whose number was found
    answers it.
    """

    _habits = "`interp.run` and `interp.analyse` carry a probe out on a model or on a capture."

    name: ClassVar[str]
    question: ClassVar[str]
    sentences: ClassVar[tuple[Sentences, ...]] = ()
    quantities: ClassVar[Quantities] = Quantities()
    """What its numbers are called and mean, and what they are compared with."""

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        """The figures of the page, from the findings alone; plotly is imported inside."""
        return ()

    def parameters(self) -> dict[str, Any]:
        """The fields and their values, as recorded."""
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Probe(Question):
    """One question to a model.

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
    """The prompt set that a language model is read on where the user names none; None is the default of all runs."""
    needs_posterior: ClassVar[bool] = False
    """Whether prompts without an exact posterior are refused, before anything is read."""
    on_drawn: ClassVar[bool] = False
    """Whether it reads `Capture.drawn` alone: where few prompts are drawn, the others are not read for it."""
    follows_checkpoints: ClassVar[bool] = False
    """Whether it is read at checkpoints of the training: `interp.running.checkpoints`."""
    cost: ClassVar[AnalysisCost] = AnalysisCost()

    @property
    @abstractmethod
    def needs(self) -> tuple[Need, ...]:
        """What has to be captured. May depend on the fields, never on the data."""

    def refuse(self, prompts: PromptSet) -> None:
        """Raise `PromptError` for prompts that could not be analysed; asked before a model reads them."""

    def refuse_fields(self, n_layers: int | None) -> None:
        """Raise `UsageError` for fields that do not serve on a model of so many layers, or, with None, on any.

        It is asked before a model is loaded, and again before it reads a prompt.
        """

    def screening(self, base: Capture) -> Screen | None:
        """Ablations to be estimated first; further rounds find their readouts by the names of its `edits`."""
        return None

    def conditions(self, base: Capture) -> Iterable[Condition]:
        """The edits that a causal probe asks for, once the base capture is known; none for an observational one."""
        return ()

    @property
    def edits_model(self) -> bool:
        """Whether the probe is causal: it has `conditions` of its own."""
        return type(self).conditions is not Probe.conditions

    def planned(self, info: ModelInfo, n_prompts: int, *, is_text: bool) -> Iterable[Planned]:
        """What `conditions` will ask for on a base pool of `n_prompts` prompts, before a model is loaded.

        A causal probe declares it; upper bounds will do where the data decide. `is_text` is False on wind tunnels.
        """
        return ()

    def further_conditions(self, base: Capture, under: Mapping[str, Readout]) -> Iterable[Condition]:
        """Further rounds of edits, chosen by what was read before: asked again until no name is new."""
        return ()

    def read_checkpoint(self, capture: Capture, final: Capture) -> Readout:
        """What is kept of one checkpoint, for probes that follow them: small arrays.

        `capture` holds the probe's needs at this checkpoint and `final` those at the end of the training, both on the
        same tokens: the drawn prompts. `analyse` is handed all readouts as `under`, by their steps written out, in
        order of training, and `final` as `base`.
        """
        raise NotImplementedError(f"{self.name} follows checkpoints and does not say what it keeps of one")

    @property
    def exchange_needs(self) -> tuple[Need, ...]:
        """What of its needs is read of networks with exchanged attention patterns; none: nothing is exchanged.

        A probe that follows checkpoints is then handed, at each, two more captures: `read_exchanged`.
        """
        return ()

    @property
    def n_exchanged(self) -> int:
        """On how many of the prompts patterns are exchanged, at most; spread evenly over them."""
        return sys.maxsize

    def read_exchanged(self, with_patterns: Capture, of_network: Capture, prompts: np.ndarray) -> Readout:
        """What is kept of an exchange at one checkpoint, beside `read_checkpoint`.

        `with_patterns` is the final network with the attention patterns of the checkpoint, `of_network` the network
        of the checkpoint with the final patterns, both on these of the drawn `prompts`, by number. At the end of the
        training both are the end, on all of them.
        """
        raise NotImplementedError(f"{self.name} asks for an exchange and does not say what it keeps of one")

    @abstractmethod
    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        """Findings from the base capture, and from what was kept under every condition, by its name. Pure."""
