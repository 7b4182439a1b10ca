"""Models that accelerate spreads over devices, main memory and disk.

Offloaded weights are on PyTorch's `meta` device, without numbers, except during the forward pass of their module.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


@contextmanager
def brought_in(module: torch.nn.Module, *, recurse: bool = True) -> Iterator[None]:
    """Load the offloaded weights of a module, and of its submodules, for the length of the block."""
    with ExitStack() as stack:
        for part in module.modules() if recurse else [module]:
            if hasattr(part, "_hf_hook"):
                from accelerate.utils import align_module_device

                stack.enter_context(align_module_device(part))
        yield


def device_of(module: torch.nn.Module) -> torch.device:
    """The device on which a module computes."""
    weight = next(module.parameters())
    if not weight.is_meta or not hasattr(module, "_hf_hook"):
        return weight.device
    hooks: Any = getattr(module._hf_hook, "hooks", [module._hf_hook])
    return torch.device(next(hook.execution_device for hook in hooks if hook.execution_device is not None))
