"""Models whose weights are not all where they compute: spread over devices, or kept in main memory or on disk.

accelerate brings the weights of a module in for its forward pass and sends them away again. Whoever reads weights
outside a pass has to ask for them the same way; until then their place is PyTorch's `meta` device, without numbers.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


@contextmanager
def brought_in(module: torch.nn.Module, *, recurse: bool = True) -> Iterator[None]:
    """Let the weights of a module, and of all inside it, be where they compute until the block is left."""
    with ExitStack() as stack:
        for part in module.modules() if recurse else [module]:
            if hasattr(part, "_hf_hook"):
                from accelerate.utils import align_module_device

                stack.enter_context(align_module_device(part))
        yield


def device_of(module: torch.nn.Module) -> torch.device:
    """The device that the weights of a module, which lie in one place, compute on."""
    weight = next(module.parameters())
    if not weight.is_meta or not hasattr(module, "_hf_hook"):
        return weight.device
    hooks: Any = getattr(module._hf_hook, "hooks", [module._hf_hook])
    return torch.device(next(hook.execution_device for hook in hooks if hook.execution_device is not None))
