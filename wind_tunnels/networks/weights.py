"""Trained weights: checkpoints by name or folder."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from interp.errors import ModelError, UsageError
from interp.families import families
from interp.loading.quiet_libraries import quiet_libraries
from interp.loading.sources import TUNNEL, locate
from interp.records.tunnel_card import refuse_changed, tunnel_name
from interp.system.fingerprint import fingerprint
from interp.tunnel import Task

from .architectures import Network
from .networks import attention_implementation
from .selective_scan import scan_quickly

WEIGHTS_NAME = "model.safetensors"


@dataclass(frozen=True)
class TunnelCheckpoint:
    """A checkpoint: its folder, the task it was trained on and its card as plain data."""

    folder: Path
    task: Task
    card: Mapping[str, Any]

    @property
    def name(self) -> str:
        """`<task>-<arch>[-<variant>]`, as its card says."""
        return tunnel_name(self.card["task"], self.card["arch"], self.card["variant"])

    @property
    def network(self) -> Network:
        """Architecture and sizes."""
        return Network(arch=self.card["arch"], **self.card["network"])

    @cached_property
    def fingerprint(self) -> str:
        return weights_fingerprint(self.folder)

    def record(self) -> dict[str, str]:
        """Its entry in the plan and the card of a training that starts from it."""
        return {"tunnel": self.name, "fingerprint": self.fingerprint}

    def refuse_larger(self, task: Task) -> None:
        """Raise `UsageError` where the task needs token ids that this checkpoint does not have."""
        known = load_weights(self.folder).config.vocab_size
        if known < task.vocab_size:
            raise UsageError(
                asked=f"training {task.name} from {self.name}",
                found=f"the task has {task.vocab_size} token ids, the checkpoint {known}",
                fix="Choose a smaller task, or start from a checkpoint of a larger vocabulary.",
            )


def open_tunnel(where: str | Path) -> TunnelCheckpoint:
    """The checkpoint in a folder (also `<folder>/steps/<step>`) or behind `tunnel:<task>-<arch>[-<variant>][@step]`."""
    source = locate(where if str(where).startswith(TUNNEL) else Path(where))
    if source.task is None or source.card is None:
        raise ModelError(
            asked=f"the tunnel in {where}",
            found="there is no tunnel.json",
            fix="Give a folder that `interp tunnel train` wrote, or tunnel:NAME (`interp list tunnels`).",
        )
    return TunnelCheckpoint(source.files.folder, source.task, source.card)


def load_weights(folder: Path) -> PreTrainedModel:
    """The network of a checkpoint folder, in float32."""
    if not (folder / WEIGHTS_NAME).is_file():
        raise ModelError(
            asked=f"the tunnel in {folder}",
            found=f"there is no {WEIGHTS_NAME}",
            fix="Give a folder that a finished training wrote.",
        )
    refuse_changed(folder)
    with quiet_libraries():
        families()  # registers the networks of other packages
        config = AutoConfig.from_pretrained(folder)
        attention = attention_implementation(config)
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=attention)
    scan_quickly(model)
    return model.eval()


def save_weights(model: PreTrainedModel, folder: Path, stored: torch.dtype) -> None:
    """Write a checkpoint with weights in this precision."""
    model.save_pretrained(folder)
    if stored != torch.float32:
        weights = {name: weight.to(stored) for name, weight in load_file(folder / WEIGHTS_NAME).items()}
        save_file(weights, folder / WEIGHTS_NAME, {"format": "pt"})


def weights_fingerprint(folder: Path) -> str:
    """The fingerprint of the network in a checkpoint folder: `interp.load(folder).fingerprint`."""
    return fingerprint(load_weights(folder))
