"""Studies that read what they train by probes: their numbers against the probes' own and their definitions."""

from dataclasses import replace

import numpy as np
import pytest
from interp.wind_tunnels.plans.settings import read_settings
from interp.wind_tunnels.plans.train_tunnel import make_plan, plan_from_card
from interp.wind_tunnels.studies.belief_clusters import BeliefClusters
from interp.wind_tunnels.studies.depth_profiles import NEEDED_RATIO, PROFILES, DepthProfiles, profile
from interp.wind_tunnels.studies.expert_division import DOMAINS, SHOWN, ExpertDivision
from interp.wind_tunnels.tasks.bijection import Bijection
from scipy import stats

import interp
from interp.findings import Findings
from interp.ledger.claims import load_claims
from interp.records.tunnel_card import read_card
from interp.registry import load_entry
from interp.table import Table
from interp.tunnel import make_task

TINY = ("V=4", "L=5", "n_layers=4", "n_heads=2", "d_model=16", "n_steps=30", "batch=16", "n_copies=4")
SEEDS = (3, 5)


@pytest.fixture(scope="module")
def studied(tmp_path_factory):
    work = tmp_path_factory.mktemp("work")
    study = DepthProfiles(settings=TINY, seeds=SEEDS, n_pool=40, n_prompts=20)
    return study.measure(work, lambda done, n: None), work


def test_the_table_of_every_layer_gives_trends_ends_and_smallest(studied):
    layers = studied[0].tables["layers"]
    assert layers["seed"].tolist() == [3] * 4 + [5] * 4 and layers["layer"].tolist() == [*range(4)] * 2
    assert all(np.isfinite(layers[name]).all() for name in PROFILES)
    # Those of profiles can be made again from the table; of the stream, correlations are averaged over positions.
    found, layers = studied[0], studied[0].tables["layers"]
    columns = {"entropy_trend": "attention_entropy_bits", "max_weight_trend": "max_weight", "cosine_trend": "cosine"}
    for name, column in columns.items():
        by_seed = [stats.spearmanr(np.arange(4), layers.where(layers["seed"] == s)[column]).statistic for s in SEEDS]
        assert found[name].value == pytest.approx(np.mean(by_seed)), name
        if by_seed[0] != pytest.approx(by_seed[1]):
            interval = stats.t.interval(0.95, 1, np.mean(by_seed), stats.sem(by_seed))
            assert found[name].interval == pytest.approx(np.clip(interval, -1, 1)), name
            assert found[name].p == pytest.approx(stats.ttest_1samp(by_seed, 0).pvalue), name
        assert found[name].underpowered == (found[name].interval is None), name
        assert found[name].n == 2 and found[name].n_unit == "seed"
    each = [layers.where(layers["seed"] == seed) for seed in SEEDS]
    falls = [1 - rows["attention_entropy_bits"][-1] / rows["attention_entropy_bits"][0] for rows in each]
    assert found["attention_reduction"].value == pytest.approx(np.mean(falls))
    assert found["bypass_ratio_min"].value == pytest.approx(stats.gmean([min(rows["bypass_ratio"]) for rows in each]))
    shares = [np.mean(rows["bypass_ratio"] >= NEEDED_RATIO) for rows in each]
    assert found["layers_needed"].value == pytest.approx(np.mean(shares)) and not found["layers_needed"].underpowered
    cards = [read_card(studied[1] / f"bijection-gpt-neox-seed{seed}") for seed in SEEDS]
    assert found["kl_bits"].value == pytest.approx(np.mean([card.figures["kl_bits"].value for card in cards]))


def test_a_profile_is_what_the_probe_says_of_that_network(studied):
    found, work = studied
    folder = str(work / "bijection-gpt-neox-seed3")
    record = interp.run(folder, probes=["components", "attention_entropy"], n_pool=40, out=None, quiet=True)
    layers = found.tables["layers"].where(found.tables["layers"]["seed"] == 3)
    assert layers["posterior_kl_bits"] == pytest.approx(
        record.findings["components"].tables["by_depth"]["posterior_kl"][1:], rel=1e-4
    )
    means = record.findings["attention_entropy"].tables["by_layer"]
    scored = means.where(means["positions"] == "scored")["entropy"]
    assert layers["attention_entropy_bits"] == pytest.approx(scored, rel=1e-4)


def test_of_all_that_is_done_to_a_layer_its_bypass_is_taken():
    columns = {"part": np.array(["layer bypassed", "attention off"] * 2), "ratio": np.array([40.0, 0.5, 12.0, 0.5])}
    found = Findings("heads", {}, {"by_layer": Table(columns, {"part": "label", "ratio": "1"})})
    assert profile("bypass_ratio", {"heads": found}).tolist() == [40, 12]


def test_the_shipped_deep_tunnel_is_one_of_the_networks_of_the_ledger():
    card = read_card(Bijection.checkpoints / "bijection-gpt-neox-deep")
    asked = load_claims("paper1").sources()["depth_bijection"].scales["default"].settings["settings"]
    plan = make_plan(Bijection, {**read_settings(asked), "seed": DepthProfiles().seeds[0]}, variant="deep")
    assert (plan.network.n_layers, plan.network.n_heads) == (6, 6)
    shipped = plan_from_card(card, Bijection, None)
    assert shipped.recipe.stored == "float16", "as a file; it was trained as the ledger's are"
    recipe = replace(plan.recipe, stored="float16")
    assert (shipped.task, shipped.network, shipped.recipe) == (plan.task, plan.network, recipe)


OF_CLUSTERS = ("arch=mamba", "S=3", "O=3", "K=8", "n_layers=1", "d_model=16", "n_steps=12", "batch=16", "n_copies=1")
ASKED = {"sites": "resid", "interchange": False, "n_permutations": 19}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory):
    work = tmp_path_factory.mktemp("clusters")
    study = BeliefClusters(settings=OF_CLUSTERS, seeds=(1, 2), n_pool=40, n_permutations=19)
    return work, study, study.measure(work, lambda *_: None)


@pytest.mark.slow
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
    table = found.tables["networks"]
    assert table["silhouette"].tolist() == pytest.approx(values)
    assert table["silhouette_beyond_null"].tolist() == pytest.approx(np.subtract(values, nulls))
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


@pytest.mark.slow
def test_numbers_are_those_of_the_probe_and_their_means_over_seeds(experts):
    work, study, found = experts
    seeds = found.tables["networks"].to_frame().set_index(["domains", "seed"])
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
