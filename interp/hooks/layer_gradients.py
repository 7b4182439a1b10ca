"""The gradients of one attention layer, by autograd through the model's kernel and by the laws of Paper II.

With scores s_ij, responsibilities α_i = softmax_j(s_ij), head outputs z_i = Σ_j α_ij v_j, u_i = ∂L/∂z_i and
b_ij = u_i·v_j, for any loss L and any use of z:

    ∂L/∂s_ij = α_ij (b_ij − Σ_k α_ik b_ik) = −α_ij A_ij      (A: the advantage), so every row sums to 0
    ∂L/∂v_j  = Σ_i α_ij u_i
    ∂L/∂q_i  = c Σ_j ∂L/∂s_ij k_j,   ∂L/∂k_j = c Σ_i ∂L/∂s_ij q_i      (c: the scaling of scores, mostly 1/√d_k)

Shared keys and values receive the sum over their heads. Scores are reached through the attention hook: the gradient at
zeros that are added to the mask is the gradient at the scores. Queries and keys are those after rotary embedding. All
is in float64, on a copy of the model; the loss is in bits.

Source: Paper II (arXiv 2512.22473), equations of section 3.
"""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from interp.errors import ModelError, UsageError
from interp.hooks.attention import Listener, listening
from interp.hooks.pattern import AttentionCall, visible_keys
from interp.hooks.state import as_described
from interp.information import BITS_PER_NAT
from interp.model import Model
from interp.system.float64 import double, has_float64
from interp.system.memory import available_bytes
from interp.system.plain_numbers import from_0


@dataclass(frozen=True)
class ScoredSequence:
    """Token ids `[pos]`, and the positions and targets of the predictions whose mean is the loss."""

    ids: torch.Tensor
    positions: torch.Tensor
    targets: torch.Tensor

    @classmethod
    def of_text(cls, ids: torch.Tensor) -> "ScoredSequence":
        """Every token but the first is predicted from those before it."""
        return cls(ids, torch.arange(len(ids) - 1), ids[1:])


@dataclass(frozen=True)
class LayerGradients:
    """One layer on one sequence: what attention computed, and autograd's gradients of the loss in bits.

    Shapes are `[head, pos, ...]`, and `[kv_head, pos, d_head]` for keys and values; scores are after any cap.
    """

    loss_bits: float
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    z: torch.Tensor
    visible: torch.Tensor
    scaling: float
    softcap: float | None
    sink: torch.Tensor | None
    d_scores: torch.Tensor
    d_q: torch.Tensor
    d_k: torch.Tensor
    d_v: torch.Tensor
    d_z: torch.Tensor

    @property
    def n_shared(self) -> int:
        """How many query heads share one key and value head."""
        return len(self.q) // len(self.v)

    @cached_property
    def alpha(self) -> torch.Tensor:
        """The responsibilities, `[head, pos, key_pos]`."""
        return self.alpha_after(self.q, self.k)

    @cached_property
    def benefit(self) -> torch.Tensor:
        """b_ij = u_i·v_j, `[head, pos, key_pos]`."""
        return self.d_z @ self.v.repeat_interleave(self.n_shared, dim=0).mT

    @cached_property
    def advantage(self) -> torch.Tensor:
        """A_ij: by how much more than the average value j lowers the loss at i."""
        return (self.alpha * self.benefit).sum(dim=-1, keepdim=True) - self.benefit

    def value_law(self) -> torch.Tensor:
        return self._shared(self.alpha.mT @ self.d_z)

    def residuals(self) -> dict[str, float]:
        """Largest |autograd − law| of each law over the largest |autograd|; `rows` is for the row sums of ∂L/∂s."""
        return self._residuals(-self.alpha * self.advantage, self.value_law(), self.d_scores)

    def residuals_of_wrong_laws(self) -> dict[str, float]:
        """The residuals of two wrong laws: b not centred, and even attention to values."""
        seen = self.visible.to(self.q.dtype).expand_as(self.alpha)
        even = seen / seen.sum(dim=-1, keepdim=True)
        uncentred = self.alpha * self.benefit
        return self._residuals(uncentred, self._shared(even.mT @ self.d_z), uncentred)

    def _residuals(self, d_scores: torch.Tensor, d_v: torch.Tensor, summed: torch.Tensor) -> dict[str, float]:
        d_product = self.scaling * self._slope * d_scores
        pairs = {
            "scores": (self.d_scores, d_scores), "values": (self.d_v, d_v),
            "queries": (self.d_q, d_product @ self.k.repeat_interleave(self.n_shared, dim=0)),
            "keys": (self.d_k, self._shared(d_product.mT @ self.q)),
        }  # fmt: skip
        found = {name: relative_error(autograd, law) for name, (autograd, law) in pairs.items()}
        rows = summed.sum(dim=-1)
        if self.sink is not None:  # a sink has no value: a row and its sink sum to 0
            rows = rows + (self.alpha.sum(dim=-1) - 1) * (self.alpha * self.benefit).sum(dim=-1)
        return found | {"rows": float(rows.abs().max() / self.d_scores.abs().max())}

    def alpha_after(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """The responsibilities for these queries and keys, under the same mask."""
        s = capped(self._product(q, k), self.softcap)
        return _weights(s.masked_fill(~self.visible, -torch.inf), self.sink)

    def _product(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return self.scaling * q @ k.repeat_interleave(self.n_shared, dim=0).mT

    @property
    def _slope(self) -> torch.Tensor | float:
        if self.softcap is None:
            return 1.0
        return 1 - torch.tanh(self._product(self.q, self.k) / self.softcap).square()

    def _shared(self, by_head: torch.Tensor) -> torch.Tensor:
        return by_head.unflatten(0, (-1, self.n_shared)).sum(dim=1)


def relative_error(autograd: torch.Tensor, law: torch.Tensor) -> float:
    """max |autograd − law| / max |autograd|; NaN if all gradients are 0."""
    return float((autograd - law).abs().max() / autograd.abs().max())


def in_float64(model: Model, n_copies: int = 1) -> Model:
    """A copy of the model in float64, on the CPU if its device has no float64.

    Raises `UsageError` for a model without attention and `ModelError` for a quantised one, or if `n_copies` in float64
    (of weights, and gradients) exceed the free memory.
    """
    if not model.family.has_attention:
        raise UsageError(
            asked=f"the gradients of attention in {model.name}",
            found="this model has no attention",
            fix="Name a transformer; `interp list models` shows some.",
        )
    refuse_without_gradients(model)
    needed, free = 8 * n_copies * model.info.n_parameters, available_bytes(torch.device("cpu"))
    if needed > free:
        raise ModelError(
            asked=f"{model.name} in float64",
            found=f"it needs {needed / 1e9:.1f} GB, and {free / 1e9:.1f} GB are free",
            fix="Choose a smaller model: the laws are identities, and hold in every one.",
        )
    with as_described(model):
        module, device = copy.deepcopy(model.module), model.info.device
    if not has_float64(model.input_device):
        module, device = module.cpu(), "cpu"
    module = module.double()
    module.config._experts_implementation = "eager"  # the fast one of mixtures of experts has no float64
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    return replace(model, module=module, info=replace(model.info, dtype="float64", device=device))


def refuse_without_gradients(model: Model, *, of_weights: bool = True) -> None:
    """Raise `ModelError` for a model without gradients; quantised ones have no gradients `of_weights`."""
    made_there = any(parameter.is_inference() for parameter in model.module.parameters())
    reasons = {
        "its weights are quantised": of_weights and model.info.quantisation is not None,
        "parts of it are offloaded, and the backward pass needs all weights at once": "offloaded" in model.info.device,
        "its weights were made inside torch.inference_mode, where nothing has gradients": made_there,
    }
    for found in (reason for reason, is_so in reasons.items() if is_so):
        other = "" if of_weights else " Or measure without a screen (--set heads.screen=off)."
        fix = f"Load it whole, in float32 or bfloat16, outside of torch.inference_mode.{other}"
        raise ModelError(asked=f"the gradients of {model.name}", found=found, fix=fix)


@contextmanager
def with_gradients() -> Iterator[None]:
    """Compute gradients in the block, or the function, even if the caller has disabled them."""
    with torch.inference_mode(False), torch.enable_grad():
        yield


class _Layer(Listener):
    """Makes queries, keys, values and zeros at the scores of one layer leaves of a graph, or applies a change."""

    def __init__(self, layer: int, change: Callable[[AttentionCall], None] | None = None) -> None:
        self.layer, self.change = layer, change
        self.call: AttentionCall | None = None

    def before(self, call: AttentionCall) -> None:
        if call.layer != self.layer:
            return
        if self.change is not None:
            self.change(call)
            return
        if call.bias is not None or call.gate is not None:
            raise UsageError(
                asked=f"gradients at the scores of layer {call.layer}",
                found="ALiBi is added to them, or a gate multiplies head outputs, and the laws are of attention alone",
                fix="Choose a model without these.",
            )
        self.visible = _visible(call)
        call.q, call.k, call.v = (x.detach().requires_grad_() for x in (call.q, call.k, call.v))
        shape = (*call.q.shape[:3], call.k.shape[2])  # [batch, head, pos, key_pos]
        self.nudge = torch.zeros(shape, dtype=call.q.dtype, device=call.q.device).requires_grad_()
        if call.softcap is None and call.sink is None:
            call.mask = self.nudge.masked_fill(~self.visible, -torch.inf)
        self.call = call

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        # The hook's attention with a cap or a sink is in float32 and without gradients, so it is repeated here.
        z = z if call.softcap is None and call.sink is None else self._again(call)
        if call is self.call:
            self.z = z
        return z

    def _again(self, call: AttentionCall) -> torch.Tensor:
        n_shared = call.q.shape[1] // call.v.shape[1]
        k, v = (x.repeat_interleave(n_shared, dim=1) for x in (call.k, call.v))
        s = capped(call.scaling * call.q @ k.mT, call.softcap)  # [batch, head, pos, key_pos]
        s = s + self.nudge if call is self.call else s
        return (_weights(s.masked_fill(~_visible(call), -torch.inf), call.sink) @ v).transpose(1, 2)


def _visible(call: AttentionCall) -> torch.Tensor:
    return visible_keys(call, call.positions)[:, None]


def capped(product: torch.Tensor, softcap: float | None) -> torch.Tensor:
    """Scores within ± the cap, if there is one."""
    return product if softcap is None else torch.tanh(product / softcap) * softcap


def _weights(scores: torch.Tensor, sink: torch.Tensor | None) -> torch.Tensor:
    if sink is None:
        return scores.softmax(dim=-1)
    beside = sink[:, None, None].expand(*scores.shape[:-1], 1)
    return torch.cat([scores, beside], dim=-1).softmax(dim=-1)[..., :-1]


def loss_bits(model: Model, sequence: ScoredSequence) -> torch.Tensor:
    """Mean cross-entropy of one sequence at its scored positions, over the whole vocabulary, in bits."""
    device = model.input_device
    logits = model.module(input_ids=sequence.ids[None].to(device), use_cache=False).logits[0]
    chosen = double(logits[sequence.positions.to(logits.device)])
    return torch.nn.functional.cross_entropy(chosen, sequence.targets.to(chosen.device)) * BITS_PER_NAT


def with_attention(model: Model, layer: int) -> int:
    """The layer counted from 0; raises `UsageError` if it does not exist or has no attention."""
    asked = f"layer {layer} of {model.name}"
    (layer,) = from_0(asked, [layer], model.info.n_layers, "it has the layers")
    model.info.refuse_without_attention(asked, [layer])
    return layer


def layer_gradients(model: Model, layer: int, sequence: ScoredSequence) -> LayerGradients:
    """The gradients of one pass of a float64 model at the scores, queries, keys and values of a layer."""
    seen = _Layer(with_attention(model, layer))
    with torch.enable_grad(), listening(model, seen):
        loss = loss_bits(model, sequence)
    call = seen.call
    assert call is not None
    leaves = (seen.nudge, call.q, call.k, call.v, seen.z)
    d_scores, d_q, d_k, d_v, d_z = torch.autograd.grad(loss, leaves)
    return LayerGradients(
        float(loss.detach()), *(x.detach()[0] for x in (call.q, call.k, call.v)),
        z=seen.z.detach()[0].transpose(0, 1), visible=seen.visible[0], scaling=call.scaling, softcap=call.softcap,
        sink=None if call.sink is None else call.sink.detach(),
        d_scores=d_scores[0], d_q=d_q[0], d_k=d_k[0], d_v=d_v[0], d_z=d_z[0].transpose(0, 1),
    )  # fmt: skip


def loss_with_values(model: Model, layer: int, sequence: ScoredSequence, v: torch.Tensor) -> float:
    """The loss in bits with values `[kv_head, pos, d_head]` in place of those of one layer."""

    def put(call: AttentionCall) -> None:
        call.v = v[None]

    with torch.no_grad(), listening(model, _Layer(with_attention(model, layer), put)):
        return float(loss_bits(model, sequence))


def queries_and_keys(model: Model, layer: int, sequence: ScoredSequence) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys of one layer on a sequence, after rotary embedding."""
    found: list[torch.Tensor] = []

    def keep(call: AttentionCall) -> None:
        found.extend((call.q[0], call.k[0]))

    with torch.no_grad(), listening(model, _Layer(with_attention(model, layer), keep)):
        loss_bits(model, sequence)
    return found[0], found[1]


def step_all_weights(model: Model, sequences: list[ScoredSequence], size: float) -> None:
    """Change the model by one gradient step on the mean loss, of length `size` times that of all weights."""
    parameters = list(model.module.parameters())
    for p in parameters:
        p.requires_grad_(True)
    with torch.enable_grad():
        for sequence in sequences:
            (loss_bits(model, sequence) / len(sequences)).backward()
    moved = [p for p in parameters if p.grad is not None]
    length = torch.stack([p.detach().norm() for p in moved]).norm()
    steepness = torch.stack([p.grad.norm() for p in moved if p.grad is not None]).norm()
    with torch.no_grad():
        for p in moved:
            assert p.grad is not None
            p -= size * length / steepness * p.grad
            p.grad = None
    for p in parameters:
        p.requires_grad_(False)
