"""Capacity is matched within 2 %, or rejected with a message."""

import pytest
import torch
from interp.wind_tunnels.networks.architectures import ARCHITECTURES, Network
from interp.wind_tunnels.networks.equal_capacity import matched_to
from interp.wind_tunnels.networks.networks import build, count_parameters
from interp.wind_tunnels.tasks.bijection import Bijection

from interp.errors import UsageError
from tests.quick import quick

TASK = Bijection(V=6, L=8)
REFERENCE = Network(arch="gpt-neox", n_layers=2, d_model=48)


@pytest.mark.parametrize("n_layers", quick([1], [1, 3]))
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_parameter_counts_agree_within_two_per_cent(arch, n_layers):
    network = Network(arch=arch, n_layers=n_layers, init_std=0.07)
    matched = matched_to(network, REFERENCE, TASK)
    made = build(matched, TASK, torch.Generator().manual_seed(0)).num_parameters()
    assert abs(made / count_parameters(REFERENCE, TASK) - 1) <= 0.02
    assert (matched.arch, matched.n_layers, matched.init_std) == (arch, n_layers, 0.07)


def test_networks_are_matched_to_the_nearest_width_or_refused():
    matched = matched_to(REFERENCE, REFERENCE, TASK)
    assert (matched.d_model, matched.d_feed_forward) == (48, 192)
    target = count_parameters(REFERENCE, TASK)
    width = matched_to(Network(arch="lstm", n_layers=2), REFERENCE, TASK).d_model
    gaps = {d: abs(count_parameters(Network(arch="lstm", n_layers=2, d_model=d), TASK) / target - 1)
            for d in range(width - 2, width + 3)}  # fmt: skip
    assert min(gaps, key=gaps.__getitem__) == width
    small = Network(n_layers=1, d_model=16)
    target = count_parameters(small, TASK)
    with pytest.raises(UsageError) as refusal:
        matched_to(Network(arch="lstm", n_layers=4), small, TASK)
    words = str(refusal.value)
    assert f"lstm of 4 layers with the {target:,} parameters of gpt-neox" in words
    below, above = (count_parameters(Network(arch="lstm", n_layers=4, d_model=d), TASK) for d in (9, 10))
    assert f"{below:,} with d_model = 9 and {above:,} with d_model = 10" in words
    assert below < 0.98 * target and above > 1.02 * target
    tiny = Network(n_layers=1, n_heads=1, d_model=2, d_mlp=1)
    with pytest.raises(UsageError, match="the nearest have"):
        matched_to(Network(arch="llama", n_layers=6), tiny, TASK)
