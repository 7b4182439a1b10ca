"""Checkpoints: a model at earlier steps of its training, read on the same tokens, one after the other.

The run's own model is the end of the training. One model is in memory at a time, and also the end if a probe exchanges
attention patterns with it.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from interp.capture import Capture, ModelInfo
from interp.errors import ModelError, UsageError
from interp.loading.aliases import MEMORY
from interp.loading.sources import TUNNEL, kept_steps, shipped_tunnels
from interp.model import Model
from interp.need import Need
from interp.probe import Probe, Readout
from interp.prompt import Run
from interp.records.tunnel_card import CARD_NAME
from interp.system.foreign_files import is_folder
from interp.system.threads import one_thread

MIN_CHECKPOINTS = 3
"""Points of the shortest training curve."""

_STEP = re.compile(r"(?:step|checkpoint)[-_]?(\d+)|^(\d+)$")


@dataclass(frozen=True)
class Checkpoint:
    """One checkpoint: its `name` in the options, its step, and the model and revision to load."""

    name: str
    step: int
    model: str
    revision: str | None = None


@dataclass
class Followed:
    """The probes of one prompt set that follow checkpoints, with their readouts so far (`under`).

    `run` are the drawn prompts, `final` the end of the training on them.
    """

    probes: tuple[Probe, ...]
    run: Run
    final: Capture
    under: dict[str, dict[str, Readout]] = field(default_factory=dict)

    @property
    def exchange_needs(self) -> tuple[Need, ...]:
        """The needs of its probes under exchanged attention patterns."""
        return tuple(dict.fromkeys(need for probe in self.probes for need in probe.exchange_needs))

    @property
    def exchanged_prompts(self) -> np.ndarray:
        """The prompts on which patterns are exchanged, as many as the probes need, spread evenly over the run."""
        n = len(self.run.ids)
        most = max((probe.n_exchanged for probe in self.probes if probe.exchange_needs), default=0)
        return np.linspace(0, n - 1, min(n, most)).round().astype(int)

    def take(self, step: int, capture: Capture, exchanged: tuple[Capture, Capture] | None) -> None:
        """Keep the readout of every probe at a checkpoint, and under exchanged attention patterns."""
        prompts = np.arange(len(self.run.ids)) if capture is self.final else self.exchanged_prompts
        with one_thread():
            for probe in self.probes:
                read = probe.read_checkpoint(capture, self.final)
                if exchanged is not None and probe.exchange_needs:
                    read = {**read, **probe.read_exchanged(*exchanged, prompts)}
                self.under.setdefault(probe.name, {})[str(step)] = read


def checkpoints_of(model: Model, probes: Sequence[Probe], asked: Sequence[str]) -> tuple[Checkpoint, ...]:
    """The checkpoints before the model's own step, in order of training; empty if no probe follows them.

    They are the steps, revisions or folders `asked`, for a wind tunnel by default all steps in its folder. Raises
    `UsageError` if there are too few, or one does not exist. The model needs no weights.
    """
    if not any(probe.follows_checkpoints for probe in probes):
        if asked:
            raise UsageError(
                asked=f"the checkpoints {', '.join(asked)}",
                found="no probe of this run follows a training",
                fix="Add --probe dynamics, or name one revision of the model.",
            )
        return ()
    found = _of_tunnel(model, asked) if model.task is not None else _named(model, asked)
    found = tuple(sorted({c.step: c for c in found}.values(), key=lambda c: c.step))
    own = step_of(model)
    late = [c.name for c in found if own is not None and c.step > own]
    if late:
        raise UsageError(
            asked=f"the checkpoints {', '.join(late)} of {model.name}",
            found=f"the model is at step {own}, and the model must be the last checkpoint",
            fix="Leave them out, or name the later model.",
        )
    earlier = tuple(c for c in found if c.step != own)
    if len(earlier) + (own is not None) < MIN_CHECKPOINTS:
        names = ", ".join(c.name for c in found)
        none = "it is in memory, and none is named" if model.name.startswith(MEMORY) else "there are none"
        raise UsageError(
            asked=f"the checkpoints of {model.name}",
            found=f"there are {len(found)} ({names})" if names else none,
            fix=f"A training curve needs {MIN_CHECKPOINTS} checkpoints or more: " + (
                "keep steps in the training (`interp tunnel train --help`), or use tunnel:bijection-gpt-neox."
                if model.task is not None
                else "--revisions step1,step512,step143000 of a hub model (pythia-410m), or --checkpoints of folders."
            ),
        )  # fmt: skip
    return earlier


def has_checkpoints(model: Model) -> bool:
    """Whether a model is a wind tunnel with enough saved steps for a training curve."""
    if model.task is None or model.name.startswith(MEMORY):
        return False
    own = step_of(model)
    return len({c.step for c in _of_tunnel(model, ())} | {own}) >= MIN_CHECKPOINTS


def step_of(model: Model) -> int | None:
    """The training step of a model, from a tunnel's card or the name of its revision or folder, or None."""
    if model.card is not None and "step" in model.card:  # a compiled program was never trained
        return int(model.card["step"])
    in_folder = model.info.revision is None and model.task is None and not model.name.startswith(MEMORY)
    return _step_in(Path(model.name).name if in_folder else model.name.partition("@")[2])


def _of_tunnel(model: Model, asked: Sequence[str]) -> list[Checkpoint]:
    name = model.name
    if name.startswith(TUNNEL):
        base = name.partition("@")[0]
        home, named = shipped_tunnels()[base.removeprefix(TUNNEL)], lambda step: f"{base}@{step}"
    else:
        folder = Path(name).expanduser()
        home = folder if (folder / CARD_NAME).is_file() else folder.resolve().parent.parent
        named = lambda step: str(home / "steps" / str(step))  # noqa: E731 (the two differ in nothing else)
    kept, own = kept_steps(home), step_of(model)
    words = [word.removeprefix("step") for word in asked]
    missing = [word for word in words if word not in {*map(str, kept), str(own)}]
    if missing:
        raise UsageError(
            asked=f"step {', '.join(missing)} of {name}",
            found=f"it has the steps {', '.join(map(str, kept)) or 'none'}, and is itself at {own}",
            fix="Name some of them, or leave --revisions out to read all.",
        )
    steps = [int(w) for w in words] if words else [step for step in kept if own is None or step <= own]
    return [Checkpoint(str(step), step, named(step)) for step in steps]


def _named(model: Model, asked: Sequence[str]) -> list[Checkpoint]:
    """The revisions of a hub model; for a model in a folder or in memory, other folders."""
    in_folder = model.info.revision is None
    unfit = [f"{name} is no folder" for name in asked if not is_folder(name)] if asked else ["no folders are named"]
    if in_folder and unfit:
        raise UsageError(
            asked=f"the checkpoints of {model.name}",
            found=f"it is no hub model, and {unfit[0]}",
            fix="Name two or more with their steps: --checkpoints run/checkpoint-100,run/checkpoint-200.",
        )
    steps = {name: _step_in(Path(name).name if in_folder else name) for name in asked}
    unknown = [name for name, step in steps.items() if step is None]
    if unknown:
        raise UsageError(
            asked=f"the checkpoints {', '.join(unknown)} of {model.name}",
            found="the name does not contain the training step",
            fix=f"Name {'folders such as checkpoint-500' if in_folder else 'revisions such as step512'}.",
        )
    base = "" if in_folder else model.name.partition("@")[0]
    known = {name: step for name, step in steps.items() if step is not None}
    return [Checkpoint(name, step, base or name, name if base else None) for name, step in known.items()]


def _step_in(name: str) -> int | None:
    found = _STEP.search(name)
    return None if found is None else int(found[1] or found[2])


def refuse_other_shape(info: ModelInfo, end: ModelInfo, checkpoint: Checkpoint) -> None:
    """Raise `ModelError` if a checkpoint has another architecture than the end."""
    names = ("family", "n_layers", "n_heads", "n_kv_heads", "d_head", "d_model", "vocab_size")
    both = {name: (getattr(info, name), getattr(end, name)) for name in names}
    unlike = [f"{name}: {there} there, {here} here" for name, (there, here) in both.items() if there != here]
    if unlike:
        raise ModelError(
            asked=f"the checkpoint {checkpoint.name} of {end.name}",
            found=f"it is another architecture ({'; '.join(unlike)})",
            fix="Name revisions of one training.",
        )
