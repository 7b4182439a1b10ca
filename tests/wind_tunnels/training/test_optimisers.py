"""Muon against its definition by singular values; which parameters it takes."""

import numpy as np
import pytest
import torch
from interp.wind_tunnels.networks.networks import BUILDERS, Network, build
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.training.optimisers import Muon, make_optimisers, orthogonalise
from interp.wind_tunnels.training.plan import Recipe
from torch import nn


@pytest.mark.parametrize("shape", [(64, 64), (192, 64), (64, 256)])
def test_orthogonalising_keeps_the_singular_vectors_and_levels_the_values(shape):
    matrix = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
    u, s, vh = (x.numpy() for x in torch.linalg.svd(matrix[0], full_matrices=False))
    core = u.T @ orthogonalise(matrix)[0].numpy() @ vh.T
    level = np.diag(core)
    assert np.abs(core - np.diag(level)).max() < 1e-4
    is_seen = s / np.linalg.norm(s) > 0.01  # five steps do not lift what is next to nothing
    assert is_seen.sum() >= 60
    assert level[is_seen].min() > 0.65 and level.max() < 1.25


def test_orthogonalising_does_each_matrix_alone_and_leaves_zero_at_zero():
    matrices = torch.randn(3, 8, 5, generator=torch.Generator().manual_seed(0))
    matrices[1] = 0
    together = orthogonalise(matrices)
    assert (together[1] == 0).all()
    for i in (0, 2):
        torch.testing.assert_close(together[i], orthogonalise(matrices[i : i + 1])[0])
        torch.testing.assert_close(orthogonalise(1000 * matrices[i : i + 1])[0], together[i])
    stacks = torch.stack([matrices, matrices.flip(0)])  # as the experts of several layers are
    torch.testing.assert_close(orthogonalise(stacks), torch.stack([together, together.flip(0)]))


def test_muon_steps_along_the_orthogonalised_nesterov_momentum():
    generator = torch.Generator().manual_seed(0)
    p = nn.Parameter(torch.zeros(6, 12))
    optimiser = Muon([p], lr=0.1, momentum=0.9)
    running = torch.zeros(6, 12)
    for _ in range(3):
        before, gradient = p.detach().clone(), torch.randn(6, 12, generator=generator)
        p.grad = gradient.clone()
        optimiser.step()
        running = 0.9 * running + 0.1 * gradient
        ahead = 0.9 * running + 0.1 * gradient
        expected = before - 0.1 * 0.2 * np.sqrt(12) * orthogonalise(ahead[None])[0]
        torch.testing.assert_close(p.detach(), expected)


def test_muon_update_has_the_same_size_for_every_shape():
    for shape in [(32, 32), (96, 32), (32, 128)]:
        p = nn.Parameter(torch.zeros(shape))
        p.grad = torch.randn(shape, generator=torch.Generator().manual_seed(1))
        Muon([p], lr=1.0).step()
        assert p.detach().square().mean().sqrt().item() == pytest.approx(0.2, rel=0.2)


MAPS = {
    **dict.fromkeys(("gpt-neox", "phi", "llama", "mistral", "mixtral"), ("query", "_proj", "dense", "mlp.")),
    "mlp-position": ("join.", "mlp."),
    "mlp-context": ("join.", "mlp."),
    "mamba": ("in_proj", "x_proj", "dt_proj", "out_proj"),
    "lstm": (),
}


@pytest.mark.parametrize("arch", BUILDERS)
def test_maps_between_hidden_spaces_go_to_muon_and_everything_else_to_adamw(arch):
    model = build(Network(arch=arch), Bijection(), torch.Generator().manual_seed(0))
    *muon, adamw = make_optimisers(model, Recipe())
    assert isinstance(adamw, torch.optim.AdamW) and all(isinstance(o, Muon) for o in muon)
    name_of = {id(p): name for name, p in model.named_parameters()}
    taken, left = (
        {name_of[id(p)] for o in optimisers for group in o.param_groups for p in group["params"]}
        for optimisers in (muon, [adamw])
    )
    assert taken | left == set(name_of.values()) and not taken & left
    is_map = {
        n: (n.endswith("weight") or ".experts." in n)
        and not any(other in n for other in ("norm", "gate.weight"))
        and any(m in n for m in MAPS[arch])
        for n in name_of.values()
    }
    assert taken == {name for name, goes_to_muon in is_map.items() if goes_to_muon}
    assert any("embed" in name for name in left) and any("lm_head" in name for name in left)
