"""The study `other_variants`: how far networks are from the exact posterior of another variant of their task.

Source: the authors' construction-boundary experiments (July 2026): held-out prefixes and relabelled symbols.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from interp.findings import Scalar
from interp.model import Model
from interp.table import Table
from interp.tunnel import Task, make_task

from ..plans.settings import read_settings
from .over_seeds import Rows, TunnelStudy, ratio_scalar, values_of
from .tunnel_training import OF_ONE_OR_MORE, evaluation_scalars


@dataclass(frozen=True)
class OtherVariants(TunnelStudy):
    """Networks (a name or a folder pattern with `*`) on their task with some `settings` (field=value) changed."""

    tunnels: str = "tunnel:recurrence-gpt-neox"
    settings: tuple[str, ...] = ("prefixes=held_out",)
    n: int = 4000

    name: ClassVar[str] = "other_variants"
    question: ClassVar[str] = "Does a network keep to the exact posterior on another variant of its task?"

    headline = ("kl_bits", "kl_bits_own")
    intervals = OF_ONE_OR_MORE

    def read(self, model: Model, task: Task) -> dict[str, Any]:
        from ..evaluation.checkpoint import evaluate_model
        from ..evaluation.evaluation import figure_scalars

        variant = make_task(type(task), task.describe() | read_settings(self.settings))
        if variant.vocab_size != task.vocab_size:
            found = f"it has {variant.vocab_size} tokens, and {model.name} knows {task.vocab_size}"
            raise self.refusal(found, "Change settings that leave the tokens as they are.")
        own, other = (figure_scalars(evaluate_model(model.module, each, n=self.n)) for each in (task, variant))
        return {f"{name}_own": scalar for name, scalar in own.items()} | other

    def scalars(self, rows: Rows, tables: Mapping[str, Table]) -> dict[str, Scalar]:
        own, other = (values_of(rows, name) for name in ("kl_bits_own", "kl_bits"))
        times = ratio_scalar(other, own, "KL on the other variant over that on its own")
        return evaluation_scalars(rows) | {"kl_bits_times": times}
