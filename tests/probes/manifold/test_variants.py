"""What the manifold probe reports besides its headline: other sites, loud columns, single prompts, shared planes."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.manifold.probe import Manifold

from interp.need import Need
from interp.testing import Shape, check_probe, synthetic_capture

QUICK = Manifold(n_permutations=99, n_null=20, n_bootstrap=100, per_quintile=6, n_splits=4)


@pytest.mark.slow
@pytest.mark.parametrize("site", ["z", "resid"])
def test_other_sites_conform(site):
    check_probe(replace(QUICK, site=site))


@pytest.mark.parametrize("site", ["v", "z", "resid"])
def test_the_site_asked_for_is_the_one_measured(site):
    probe = replace(QUICK, site=site)
    assert probe.needs == (Need(site),)
    capture = synthetic_capture(probe.needs, Shape(n_prompts=60))
    rows = capture[Need(site)][-1].reshape(60, -1).astype(np.float64)
    eigen = np.linalg.eigvalsh(np.cov(rows.T))
    found = probe.analyse(capture, {})
    assert found["pc1_share"].value == pytest.approx(eigen[-1] / eigen.sum())
    assert found.tables["by_layer"].n_rows == (4 if site == "resid" else 3)


def test_loud_columns_and_their_absence_stand_beside_each_other():
    rng = np.random.default_rng(1)
    values = rng.standard_normal((1, 75, 2, 8))
    values[..., 0, :2] *= 40
    found = replace(QUICK, n_dropped=2).analyse(
        synthetic_capture(QUICK.needs, Shape(75, n_layers=1), planted={"v": values}), {}
    )
    assert found["pc1_plus_pc2_share"].value > 0.95 and found["pc1_plus_pc2_share_dropped"].value < 0.3
    dropped = found.tables["dropped"]
    assert dropped["pc1_plus_pc2_share"][dropped["n_dropped"] == 2] == pytest.approx(
        found["pc1_plus_pc2_share_dropped"].value
    )
    assert {"dropped", "axis_stability"} <= {figure.name for figure in QUICK.figures(found)}
