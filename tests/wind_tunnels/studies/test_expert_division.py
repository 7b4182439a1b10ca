"""The study of experts and domains: its numbers are those of `components` on its networks, over seeds."""

import numpy as np
import pytest
from interp.wind_tunnels.studies.expert_division import DOMAINS, SHOWN, ExpertDivision
from scipy import stats

import interp
from interp.registry import load_entry
from interp.tunnel import make_task

SETTINGS = ("arch=mixtral", "n_layers=1", "d_model=16", "n_heads=2", "n_steps=12", "batch=16", "n_copies=1")


pytestmark = pytest.mark.slow  # networks are trained


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    work = tmp_path_factory.mktemp("experts")
    study = ExpertDivision(settings=SETTINGS, seeds=(1, 2), n_pool=60, n_permutations=24)
    return work, study, study.measure(work, lambda *_: None)


def test_numbers_are_those_of_the_probe_and_their_means_over_seeds(measured):
    work, study, found = measured
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
