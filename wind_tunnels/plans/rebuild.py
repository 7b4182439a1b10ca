"""Rebuilding: a shipped checkpoint trained again from its card, and compared with what is shipped."""

from dataclasses import dataclass
from pathlib import Path

from interp.errors import ModelError, UsageError
from interp.loading.sources import TUNNEL, kept_steps
from interp.records.tunnel_card import TunnelCard, read_card
from interp.tunnel import Task

from ..networks.weights import open_tunnel, weights_fingerprint
from ..training.loop import STATE_NAME, OnStep
from .train_tunnel import plan_from_card, train_and_evaluate


@dataclass(frozen=True)
class Rebuild:
    """A shipped checkpoint and the same training repeated; weights differ at `other_steps`."""

    shipped: TunnelCard
    rebuilt: TunnelCard
    is_identical: bool
    other_steps: tuple[int, ...] = ()

    @property
    def failures(self) -> list[str]:
        """Every figure with a limit that the rebuild misses, by the limit or by the card's tolerance."""
        found = []
        factor = 1.0 + self.shipped.tolerance
        for name, figure in self.shipped.figures.items():
            value = self.rebuilt.figures[name].value
            if figure.limit is None:
                continue
            if value > figure.limit:
                found.append(f"{name} is {value:.4g}, its limit {figure.limit:.4g}")
            near = (figure.value / factor, figure.value * factor, figure.low, figure.high)  # which may be below 0
            if not min(near) <= value <= max(near):
                found.append(f"{name} is {value:.4g}, shipped {figure.value:.4g}, more than a factor {factor:g} apart")
        return found

    def in_words(self) -> str:
        """The result in one line."""
        same = "bit for bit the same weights" if self.is_identical else "other weights than shipped"
        if self.other_steps:
            same += f" (at steps {', '.join(map(str, self.other_steps))} other weights)"
        verdict = "; ".join(self.failures) or f"within a factor {1 + self.shipped.tolerance:g} of the card"
        return f"{same}, {self.rebuilt.core_seconds:.0f} core-seconds, {verdict}"


def rebuild(shipped: Path, kind: type[Task], folder: Path, on_step: OnStep | None = None) -> Rebuild:
    """Train a shipped checkpoint again from its card into a folder, empty or of an interrupted rebuild, and compare."""
    if not (folder / STATE_NAME).is_file() and any(path.is_file() for path in folder.glob("*")):
        raise UsageError(
            asked=f"rebuilding into {folder}",
            found="there is something else already",
            fix="Choose another --out, or move it away.",
        )
    card, steps = read_card(shipped), kept_steps(shipped)
    init = None if card.init is None else open_tunnel(f"{TUNNEL}{card.init['tunnel']}")
    if init is not None and card.init != init.record():
        raise ModelError(
            asked=f"a training that started from {init.name}",
            found="the weights shipped under that name have changed since",
            fix="Train both again, the first one first.",
        )
    rebuilt = train_and_evaluate(plan_from_card(card, kind, init, keep=tuple(steps)), folder, on_step)
    (folder / STATE_NAME).unlink()
    others = tuple(step for step, path in steps.items() if not _has_same_weights(path, folder / "steps" / str(step)))
    return Rebuild(card, rebuilt, _has_same_weights(shipped, folder), others)


def _has_same_weights(one: Path, other: Path) -> bool:
    return weights_fingerprint(one) == weights_fingerprint(other)
