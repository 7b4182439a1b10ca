"""The study of belief clusters: its numbers are those of `interp run` on the tunnels that it leaves, over seeds."""

import numpy as np
import pytest
from interp.wind_tunnels.studies.belief_clusters import BeliefClusters
from scipy import stats

import interp

SETTINGS = ("arch=mamba", "S=3", "O=3", "K=8", "n_layers=1", "d_model=16", "n_steps=12", "batch=16", "n_copies=1")
ASKED = {"sites": "resid", "interchange": False, "n_permutations": 19}


pytestmark = pytest.mark.slow  # networks are trained


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    work = tmp_path_factory.mktemp("clusters")
    study = BeliefClusters(settings=SETTINGS, seeds=(1, 2), n_pool=40, n_permutations=19)
    return work, study, study.measure(work, lambda *_: None)


def test_silhouettes_are_those_of_the_probe_and_are_held_against_its_null_seed_by_seed(measured):
    work, study, found = measured
    values, nulls = [], []
    for seed in study.seeds:
        record = interp.run(
            str(work / f"hmm-fixed-mamba-seed{seed}"), probes=["belief"], settings={"belief": ASKED}, n_pool=40,
            out=None, quiet=True,
        )  # fmt: skip
        scalar = record.findings["belief"]["silhouette"]
        values.append(scalar.value)
        nulls.append(scalar.null.value)
    assert found.tables["seeds"]["silhouette"].tolist() == pytest.approx(values)
    assert found.tables["seeds"]["silhouette_null"].tolist() == pytest.approx(nulls)
    assert found["silhouette"].value == pytest.approx(np.mean(values)) and found["silhouette"].n == 2
    test = stats.ttest_rel(values, nulls)
    beyond = found["silhouette_beyond_null"]
    assert beyond.p == pytest.approx(test.pvalue)
    assert beyond.interval == pytest.approx(tuple(test.confidence_interval()))
    assert (beyond.n, beyond.n_unit, beyond.null.value) == (2, "seed", 0.0)


@pytest.mark.slow
def test_what_is_trained_is_not_trained_again(measured):
    work, study, found = measured
    times = {path: path.stat().st_mtime_ns for path in work.glob("*/model.safetensors")}
    assert study.measure(work, lambda *_: None).scalars == found.scalars and len(times) == 2
    assert {path: path.stat().st_mtime_ns for path in work.glob("*/model.safetensors")} == times
