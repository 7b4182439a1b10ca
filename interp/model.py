"""A loaded model: the transformers module, its tokenizer, its family, and the results of the self-check."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

from interp.capture import Mechanism, ModelInfo
from interp.errors import Answering, UsageError

if TYPE_CHECKING:
    import torch
    from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

    from interp.family import Family
    from interp.tunnel import Task


@dataclass(frozen=True)
class Check:
    """One check of the self-check: what was compared, the largest error, and the bound.

    `when` is the time (UTC) of a check on an earlier load of the same files.
    """

    name: str
    meaning: str
    passed: bool
    value: float
    bound: float
    unit: str = "1"
    detail: str = ""
    when: str = ""


@runtime_checkable
class Carrying(Protocol):
    """A lens other than the logit lens, which maps the residual stream before the final norm."""

    def carried(self, x: "torch.Tensor", depth: int) -> "torch.Tensor":
        """Residual vectors `[..., d_model]` of a depth, as vectors of the final stream."""
        ...


@dataclass(frozen=True)
class Model(Answering):
    """What `interp.load` returns. `task` is set for a wind-tunnel model, `tokenizer` for a text model.

    Its stream is decoded through the logit lens, or through `lens`.
    """

    _habits = "`model.module` is the transformers model, `interp.generate(model, texts)` continues texts."

    module: "PreTrainedModel"
    tokenizer: "PreTrainedTokenizerBase | None"
    info: ModelInfo
    family: "Family"
    checks: tuple[Check, ...] = ()
    task: "Task | None" = None
    card: Mapping[str, Any] | None = None
    mechanism: Mechanism | None = None
    lens: Carrying | None = None
    kinds: frozenset[type] = field(default=frozenset(), compare=False)  # of its parts when it was loaded

    def __post_init__(self) -> None:
        if not self.kinds:
            object.__setattr__(self, "kinds", frozenset(map(type, self.module.modules())))

    def __call__(self, *given: Any, **how: Any) -> NoReturn:
        raise UsageError(
            asked=f"calling {self!r}",
            found="an interp Model is not callable",
            fix="Call model.module(...), or interp.collect(model, texts, needs).",
        )

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def config(self) -> "PretrainedConfig":
        """The configuration of the language model, which is a part of that of a multimodal model."""
        return self.module.config.get_text_config()

    @property
    def fingerprint(self) -> str:
        """A hash of its present weights: `interp.system.fingerprint`."""
        from interp.system.fingerprint import fingerprint

        return fingerprint(self.module)

    @property
    def input_device(self) -> "torch.device":
        """The device of token ids."""
        from interp.system.offload import device_of

        return device_of(self.module.get_input_embeddings())

    def __repr__(self) -> str:
        i = self.info
        family = i.family if i.text_part_of is None else f"{i.family} in {i.text_part_of}"
        return (
            f"Model({i.name!r}: {family}, {i.n_layers} layers, {heads_in_words(i)}, {i.dtype} on {i.device}; "
            f"{sum(c.passed for c in self.checks)} of {len(self.checks)} checks passed)"
        )


def heads_in_words(info: ModelInfo) -> str:
    """`8 heads on 2 KV heads of 64`."""
    if not info.n_heads:
        return "no attention"
    grouped = "" if info.n_heads == info.n_kv_heads else f" on {info.n_kv_heads} KV heads"
    return f"{info.n_heads} heads{grouped} of {info.d_head}"
