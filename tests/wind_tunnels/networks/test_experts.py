"""Mixtral tunnels: experts are drawn from the generator alone, and the load-balancing loss stays out of the record."""

import numpy as np
import pytest
import torch
from interp.wind_tunnels.networks.architectures import Network
from interp.wind_tunnels.networks.networks import build
from interp.wind_tunnels.tasks.mixture import Mixture
from interp.wind_tunnels.training.loop import cross_entropy
from interp.wind_tunnels.training.optimisers import orthogonalise
from interp.wind_tunnels.training.plan import TrainingPlan
from interp.wind_tunnels.training.recipe import Recipe

from interp.errors import UsageError

SMALL = Network(arch="mixtral", n_layers=2, d_model=32, d_mlp=24)


def made(seed=0):
    return build(SMALL, Mixture(), torch.Generator().manual_seed(seed))


def test_experts_and_routers_start_at_their_spread_and_come_from_the_generator_alone():
    one, torch_state = made(), torch.manual_seed(99)
    other = made()
    assert torch_state is not None
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    spread = {name: p.std().item() for name, p in one.named_parameters() if "mlp" in name}
    assert len(spread) == 6
    for name, std in spread.items():
        expected = SMALL.init_std * (SMALL.residual_scale if name.endswith("down_proj") else 1)
        assert std == pytest.approx(expected, rel=0.2), name


def test_the_load_balancing_loss_is_transformers_own_and_no_part_of_the_cross_entropy():
    model, sequences = made(), Mixture().sample(np.random.default_rng(0), 12)
    uneven = []
    loss = cross_entropy(model, sequences, "labels", uneven)
    assert loss.item() == pytest.approx(cross_entropy(model, sequences, "labels").item(), rel=1e-6)
    with torch.no_grad():
        logits = model(torch.from_numpy(sequences.tokens), output_router_logits=True).router_logits
    p = torch.softmax(torch.cat([x.reshape(-1, 4) for x in logits]), dim=-1)  # [layer * position, expert]
    chosen = torch.zeros_like(p).scatter(1, p.topk(2).indices, 1.0)
    assert uneven[0].item() == pytest.approx(4 * (chosen.mean(0) * p.mean(0)).sum().item(), rel=1e-5)


def test_stacks_of_experts_are_orthogonalised_where_there_are_any():
    stacks = torch.randn((2, 4, 24, 32), generator=torch.Generator().manual_seed(0))
    together = orthogonalise(stacks)
    for i in range(2):
        for j in range(4):
            assert torch.allclose(together[i, j], orthogonalise(stacks[i, j][None])[0], atol=1e-5)
    with pytest.raises(UsageError, match="llama has no experts"):
        Network(arch="llama", n_experts=4)
    with pytest.raises(UsageError, match="5 active experts of 4"):
        Network(arch="mixtral", n_experts=4, n_active=5)
    with pytest.raises(UsageError, match="no experts to keep in balance"):
        TrainingPlan(Mixture(), Network(arch="llama"), Recipe(balance=0.01))
