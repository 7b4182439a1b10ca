"""Mamba's selective scan with a backward pass of its own, for training on a CPU.

    h_t = exp(Δ_t A) h_{t−1} + Δ_t x_t B_t        y_t = h_t · C_t

The cost of the plain torch scan in `transformers` grows with the square of the length, since the gradient of each slice
has the size of the whole tensor. Here both passes write into preallocated tensors. The weights are the same.
"""

import torch
from jaxtyping import Float
from torch import nn
from torch.nn import functional as F
from transformers.models.mamba.modeling_mamba import MambaMixer


class SelectiveScan(torch.autograd.Function):
    """The outputs y of all positions, from the start state 0; states are [position, sequence, state, channel]."""

    @staticmethod
    def forward(
        ctx: torch.autograd.function.FunctionCtx,
        x: Float[torch.Tensor, "pos sequence channel"],
        delta: Float[torch.Tensor, "pos sequence channel"],
        rates: Float[torch.Tensor, "state channel"],
        write: Float[torch.Tensor, "pos sequence state"],
        read: Float[torch.Tensor, "pos sequence state"],
    ) -> Float[torch.Tensor, "pos sequence channel"]:
        n, n_sequences, n_channels = x.shape
        states = x.new_zeros(n + 1, n_sequences, len(rates), n_channels)
        decays = torch.empty_like(states[1:])
        y, inputs = torch.empty_like(x), delta * x
        for t in range(n):
            torch.mul(delta[t, :, None], rates, out=decays[t]).exp_()
            torch.mul(decays[t], states[t], out=states[t + 1]).addcmul_(inputs[t, :, None], write[t, :, :, None])
            torch.bmm(read[t, :, None], states[t + 1], out=y[t, :, None])
        ctx.save_for_backward(x, delta, rates, write, read, states, decays)
        return y

    @staticmethod
    def backward(ctx, grad_y):  # pyrefly: ignore[bad-override]
        x, delta, rates, write, read, states, decays = ctx.saved_tensors
        inputs, grad_y = delta * x, grad_y.contiguous()
        grad_inputs, grad_delta = torch.empty_like(x), torch.empty_like(delta)
        grad_write, grad_read = torch.empty_like(write), torch.empty_like(read)
        grad_state = torch.zeros_like(states[0])  # [sequence, state, channel]
        grad_exponent, grad_rates = torch.empty_like(grad_state), torch.zeros_like(grad_state)
        for t in reversed(range(len(x))):
            torch.bmm(states[t + 1], grad_y[t, :, :, None], out=grad_read[t, :, :, None])
            grad_state.addcmul_(grad_y[t, :, None], read[t, :, :, None])
            torch.bmm(grad_state, inputs[t, :, :, None], out=grad_write[t, :, :, None])
            torch.bmm(write[t, :, None], grad_state, out=grad_inputs[t, :, None])
            torch.mul(grad_state.mul_(decays[t]), states[t], out=grad_exponent)  # of Δ_t A
            grad_rates.addcmul_(grad_exponent, delta[t, :, None])
            torch.sum(grad_exponent.mul_(rates), dim=1, out=grad_delta[t])
        grad_delta.addcmul_(grad_inputs, x)
        return grad_inputs * delta, grad_delta, grad_rates.sum(0), grad_write, grad_read


class ScanMixer(MambaMixer):
    """The mixer of `transformers` with this scan; with a cache, the parent's."""

    def forward(self, hidden_states, cache_params=None, attention_mask=None, **kwargs):
        held = kwargs.pop("cache", cache_params)  # so it is called from transformers 5.24 on
        if held is not None or attention_mask is not None:
            return super().forward(hidden_states, held, attention_mask, **kwargs)
        n = hidden_states.shape[1]
        x, gate = self.in_proj(hidden_states).transpose(0, 1).chunk(2, dim=-1)  # [pos, sequence, channel]
        x = self.act(self._convolve(x, n))
        sizes = [self.time_step_rank, self.ssm_state_size, self.ssm_state_size]
        step, write, read = self.x_proj(x).split(sizes, dim=-1)
        delta = F.softplus(self.dt_proj(step))
        rates = -torch.exp(self.A_log).T.contiguous()
        y = SelectiveScan.apply(x, delta, rates, write.contiguous(), read.contiguous())
        return self.out_proj(((y + x * self.D) * self.act(gate)).transpose(0, 1))

    def _convolve(self, x, n):
        padded = F.pad(x, (0, 0, 0, 0, self.conv_kernel_size - 1, 0))
        taps = self.conv1d.weight[:, 0].unbind(dim=1)
        y = sum(padded[i : i + n] * tap for i, tap in enumerate(taps))
        return y if self.conv1d.bias is None else y + self.conv1d.bias


def scan_quickly(model: nn.Module) -> None:
    """Give every Mamba mixer of the network this scan; weights and configuration stay."""
    for module in model.modules():
        if type(module) is MambaMixer:
            module.__class__ = ScanMixer
