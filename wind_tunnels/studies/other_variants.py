"""The study `other_variants`: how far networks are from the exact posterior of another variant of their task.

Source: the authors' construction-boundary experiments (July 2026): held-out prefixes and relabelled symbols.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from interp.findings import Findings
from interp.system.progress import Report
from interp.tunnel import make_task

from ..plans.settings import read_settings
from .over_seeds import CheckedStudy


@dataclass(frozen=True)
class OtherVariants(CheckedStudy):
    """Networks (a name or a folder pattern with `*`) on their task with some `settings` (field=value) changed."""

    tunnels: str = "tunnel:recurrence-gpt-neox"
    settings: tuple[str, ...] = ("prefixes=held_out",)
    n: int = 4000

    name: ClassVar[str] = "other_variants"
    question: ClassVar[str] = "Does a network keep to the exact posterior on another variant of its task?"

    def measure(self, work: Path, progress: Report) -> Findings:
        from ..evaluation.checkpoint import evaluate_model
        from .over_seeds import fingerprint_table, opened, ratio_scalar
        from .tunnel_training import evaluation_scalars

        models, own, other = [], [], []
        for name, model, task in opened(self.tunnels, progress):
            models.append((name, model.fingerprint))
            variant = make_task(type(task), task.describe() | read_settings(self.settings))
            if variant.vocab_size != task.vocab_size:
                found = f"it has {variant.vocab_size} tokens, and {name} knows {task.vocab_size}"
                raise self.refusal(found, "Change settings that leave the tokens as they are.")
            own.append(evaluate_model(model.module, task, n=self.n))
            other.append(evaluate_model(model.module, variant, n=self.n))
        here, there = ([each.figures["kl_bits"].value for each in found] for found in (own, other))
        scalars = {f"{name}_own": scalar for name, scalar in evaluation_scalars(own).items()}
        scalars |= evaluation_scalars(other)
        scalars["kl_bits_times"] = ratio_scalar(there, here, "KL on the other variant over that on its own")
        return Findings(self.name, scalars, {"models": fingerprint_table(models)}, headline=("kl_bits", "kl_bits_own"))
