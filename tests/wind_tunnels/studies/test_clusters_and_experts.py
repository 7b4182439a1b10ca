"""Studies whose numbers are those of `interp run` on the networks that they leave, over seeds: clusters and experts."""

import numpy as np
import pytest
from interp.wind_tunnels.studies.belief_clusters import BeliefClusters
from interp.wind_tunnels.studies.expert_division import DOMAINS, SHOWN, ExpertDivision
from scipy import stats

import interp
from interp.registry import load_entry
from interp.tunnel import make_task

OF_CLUSTERS = ("arch=mamba", "S=3", "O=3", "K=8", "n_layers=1", "d_model=16", "n_steps=12", "batch=16", "n_copies=1")
ASKED = {"sites": "resid", "interchange": False, "n_permutations": 19}


pytestmark = pytest.mark.slow  # networks are trained


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    work = tmp_path_factory.mktemp("clusters")
    study = BeliefClusters(settings=OF_CLUSTERS, seeds=(1, 2), n_pool=40, n_permutations=19)
    return work, study, study.measure(work, lambda *_: None)


def test_silhouettes_are_those_of_the_probe_and_are_held_against_its_null_seed_by_seed(clusters):
    work, study, found = clusters
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


OF_EXPERTS = ("arch=mixtral", "n_layers=1", "d_model=16", "n_heads=2", "n_steps=12", "batch=16", "n_copies=1")


@pytest.fixture(scope="module")
def experts(tmp_path_factory):
    work = tmp_path_factory.mktemp("experts")
    study = ExpertDivision(settings=OF_EXPERTS, seeds=(1, 2), n_pool=60, n_permutations=24)
    return work, study, study.measure(work, lambda *_: None)


def test_numbers_are_those_of_the_probe_and_their_means_over_seeds(experts):
    work, study, found = experts
    seeds = found.tables["seeds"].to_frame().set_index(["domains", "seed"])
    asked = {"components": {"experts": True, "n_permutations": 24}}
    for domains in DOMAINS:
        for seed in study.seeds:
            folder = str(work / f"mixture-mixtral-{domains}-seed{seed}")
            read = interp.run(folder, probes=["components"], settings=asked, n_pool=60, out=None, quiet=True)
            for name, (number, _) in SHOWN.items():
                scalar = read.findings["components"][number]
                assert seeds.loc[(domains, seed), name] == pytest.approx(scalar.value), "the number is defined here"
    for name in SHOWN:
        different, same = (seeds.loc[domains, name].to_numpy() for domains in DOMAINS)
        assert np.isfinite([*different, *same]).all()
        assert found[f"{name}_different"].value == pytest.approx(different.mean())
        assert found[f"{name}_different"].p == pytest.approx(stats.ttest_1samp(different, 0).pvalue)
        assert found[f"{name}_gained"].p == pytest.approx(stats.ttest_rel(different, same).pvalue)
    assert len(found.tables["models"]["model"]) == 4


def test_both_domains_ask_at_the_same_tokens_or_the_number_beyond_them_would_not_exist():
    for _, components in DOMAINS.values():
        task = make_task(load_entry("tunnel", "mixture"), {"components": list(components), "symbols": "shared"})
        drawn = task.sample(np.random.default_rng(0), 400)
        asked = [set(drawn.tokens[drawn.tokens[:, 0] == domain][:, drawn.scored[0]].ravel()) for domain in (0, 1)]
        assert len(asked[0] & asked[1]) >= 4
