"""A device without float64, as Apple's MPS is one, on any machine: its tensors lie on the CPU and say otherwise.

    with pretended_device():
        module.to(DEVICE)

It goes by the name `lazy`, which this PyTorch knows and has no code for. Operations are carried out by the CPU on the
tensors inside; what a result is called follows from what went in: an operation on tensors of two devices is refused,
but for single numbers of the CPU.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map_only

from interp.system import float64

DEVICE = "lazy"


class OnDevice(torch.Tensor):
    """A tensor that says it lies on the device."""

    inside: torch.Tensor

    @staticmethod
    def __new__(cls, inside: torch.Tensor):
        if inside.dtype in (torch.float64, torch.complex128):
            raise TypeError(f"this device has no {inside.dtype}")
        made = torch.Tensor._make_wrapper_subclass(
            cls, inside.shape, strides=inside.stride(), storage_offset=inside.storage_offset(), dtype=inside.dtype,
            device=DEVICE, requires_grad=False,
        )  # fmt: skip
        made.inside = inside
        return made

    def __repr__(self) -> str:
        return f"OnDevice({self.inside!r})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


_COPIES = {torch.ops.aten._to_copy, torch.ops.aten.copy_, torch.ops.aten.to}
_INDEXED = {torch.ops.aten.index, torch.ops.aten.index_put_}


def _of_one_place(func, given):
    """The tensors that have to lie on one device: indices may lie on the CPU."""
    return given[:1] if func.overloadpacket in _INDEXED else given


def _real(device):
    return torch.device("cpu") if device.type == DEVICE else device


def _run(func, args, kwargs):
    flat = tree_flatten((args, kwargs))[0]
    given = [x for x in flat if isinstance(x, torch.Tensor)]
    there = any(isinstance(x, OnDevice) for x in given)
    if func.overloadpacket in _COPIES:
        if torch.float64 in flat and any(isinstance(x, OnDevice) for x in given):
            raise TypeError("this device has no torch.float64, not on the way to another device either")
        there = isinstance(given[-1 if func is torch.ops.aten.to.other else 0], OnDevice)
    elif there and any(not isinstance(x, OnDevice) and x.ndim for x in _of_one_place(func, given)):
        raise RuntimeError(f"{func}: expected all tensors on one device, found the device and the CPU")
    for device in (x for x in flat if isinstance(x, torch.device)):
        there = device.type == DEVICE
    args, kwargs = tree_map_only(torch.device, _real, (args, kwargs))
    inner_args, inner = tree_map_only(OnDevice, lambda x: x.inside, (args, kwargs))
    out = func(*inner_args, **inner)
    if not there:
        return out
    if func._schema.is_mutable and isinstance(args[0], OnDevice):
        return args[0]
    return tree_map_only(torch.Tensor, OnDevice, out)


class _Placing(TorchDispatchMode):
    """Tensors that are made on the device, or moved there, become ours."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class _Making(TorchFunctionMode):
    """What works below the dispatcher: tensors of given numbers are made on the CPU and moved, lists read there."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.Tensor.tolist:
            return func(args[0].cpu())
        if func is torch.Tensor.new_tensor and isinstance(args[0], OnDevice):
            return torch.tensor(args[1], dtype=args[0].dtype).to(args[0].device)
        device = kwargs.pop("device", None) if func in (torch.tensor, torch.as_tensor) else None
        made = func(*args, **kwargs)
        return made if device is None else made.to(device)


@contextmanager
def pretended_device() -> Iterator[None]:
    """Let tensors and modules be moved to the device inside the block, which is known to have no float64."""
    known = patch.object(float64, "WITHOUT_FLOAT64", {DEVICE})
    plain = patch.object(torch, "inference_mode", torch.no_grad)  # whose tensors cannot be wrapped
    asked = torch.is_autocast_enabled  # which refuses names of devices that have no code
    cast = patch.object(torch, "is_autocast_enabled", lambda name="cuda": name != DEVICE and asked(name))
    with _Placing(), _Making(), known, plain, cast:
        yield
