"""Whether experts divide domains: by brute force, planted, and where the assumptions of the exchange are broken."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.components.experts import _pointwise, division
from interp.probes.components.probe import Components
from interp.probes.simulations.vectors import components as trials

from interp.table import Table
from interp.testing import Shape, check_probe, synthetic_capture

FAST = {"n_permutations": 99, "n_bootstrap": 20, "experts": True}
BEYOND = "expert_domain_information_beyond_token"
SIMULATIONS = [simulation for simulation in trials().simulations if "experts follow" in simulation.name]


def routing(kind, rng, size=0.0, n=100):
    """Top two of four experts: routing, domain, token, position and prompt of every row."""
    domain = rng.integers(2, size=n)
    prompt, position = np.repeat(np.arange(n), 6), np.tile(np.arange(6), n)
    d = domain[prompt]
    token = (rng.random(len(prompt)) ** np.where(d, 2, 0.5) * 4).astype(int)
    of_token = 3 * np.random.default_rng(5).standard_normal((12, 1, 4))
    scores = rng.gumbel(size=(len(prompt), 1, 4)) + size * np.eye(4)[d][:, None]
    scores += {"noise": 0.0, "token": of_token[token], "habit": 2 * rng.standard_normal((n, 1, 4))[prompt]}[kind]
    q = np.where(scores >= np.sort(scores, axis=-1)[..., 2:3], np.exp(scores), 0.0)
    return np.moveaxis(q, 0, 1), d, token, position, prompt


def test_the_mean_of_pointwise_information_is_the_conditional_mutual_information():
    rng = np.random.default_rng(0)
    expert, domain, stratum = rng.integers(3, size=300), rng.integers(2, size=300), rng.integers(4, size=300)
    found = _pointwise(np.eye(3)[expert][:, None], stratum, 2 * stratum + domain).mean()
    by_hand = 0.0
    for s in range(4):
        here = stratum == s
        for e in range(3):
            for d in range(2):
                joint = (here & (expert == e) & (domain == d)).sum()
                alone = (here & (expert == e)).sum() * (here & (domain == d)).sum()
                by_hand += joint / 300 * np.log2(joint * here.sum() / alone) if joint else 0.0
    assert found == pytest.approx(by_hand)


def test_each_cluster_gives_one_row_and_is_counted_once():
    """Copies of a prompt say nothing more of its domain: bits, null and p are those of one of each, in any order."""
    rng = np.random.default_rng(4)
    n, copies = 60, 5
    domain, of = rng.integers(2, size=n), np.repeat(np.arange(n), copies)
    q = rng.dirichlet(np.ones(4), (1, n))
    weight = {"router_weight": np.repeat(q[:, of], 2, axis=0)}
    columns = {"domain": np.array(["a", "b"])[domain[of]], "token": of * 0, "position": of * 0 + 3}
    probe = Components(**FAST)
    shape = Shape(n * copies, n_layers=2, d_model=6)
    known, unknown = (
        probe.analyse(synthetic_capture(probe.needs, shape, planted=weight, columns=columns | more), {})[BEYOND]
        for more in ({"cluster": of}, {})
    )
    assert known.n == n and known.n_unit == "cluster" and unknown.n == n * copies
    assert np.ptp(known.null.band) > 3 * np.ptp(unknown.null.band)


def test_what_the_token_routes_is_no_division_of_domains():
    called = 0
    for seed in range(40):
        q, domain, token, position, prompt = routing("token", np.random.default_rng(seed))
        called += division(q, domain, 100 * position + token, prompt, 39, np.random.default_rng(seed)).p[-1] <= 0.05
    assert called <= 2 + 3.3 * np.sqrt(40 * 0.05 * 0.95)


def test_experts_share_bits_with_domains_under_the_contract():
    q, domain, _, position, prompt = routing("token", np.random.default_rng(1), n=300)
    assert division(q, domain, position, prompt, 99, np.random.default_rng(1)).p[-1] <= 0.05
    domain = np.arange(400) % 2
    found = division(np.eye(2)[domain][None], domain, np.zeros(400, int), np.arange(400), 99, np.random.default_rng(0))
    assert found.value[-1] == pytest.approx(1, abs=0.01) and found.p[-1] == 0.01
    q, domain, token, _, prompt = routing("noise", np.random.default_rng(3))
    assert division(q, domain, 1000 * domain + token, prompt, 39, np.random.default_rng(3)) is None
    check_probe(Components(**FAST))
    probe = Components(**FAST)
    found = probe.analyse(synthetic_capture(probe.needs, Shape(40, n_layers=2, d_model=6)), {})
    assert "one domain" in found[BEYOND].interval_reason
    assert np.isnan(found[BEYOND].value) and "experts_by_layer" not in found.tables


@pytest.mark.parametrize("kind", ["noise", "token", "habit"])
def test_a_planted_division_is_found_beyond_position_and_token(kind):
    q, domain, token, position, prompt = routing(kind, np.random.default_rng(2), size=4.0, n=200)
    found = division(q, domain, 100 * position + token, prompt, 99, np.random.default_rng(2))
    assert found.p[-1] <= 0.05 and found.value[-1] > found.interval[1, -1] - found.value[-1]


def test_the_figure_has_both_curves_with_what_exchange_gives_and_says_where_one_is_undefined():
    probe = Components()
    found = SIMULATIONS[0].findings(probe, 0, 3.0)
    table = found.tables["experts_by_layer"]
    figure = next(figure for figure in probe.figures(found) if figure.name == "experts")
    drawn = {trace.name: trace for trace in figure.plot.data if trace.name}
    for ending, label in (("", "at a given position"), ("_beyond_token", "at a given position and token")):
        column = f"expert_domain_information{ending}"
        assert np.array_equal(drawn[label].y, table[column])
        assert np.array_equal(drawn[f"null: routing permuted, {label}"].y, table[f"{column}_null"])
    assert "undefined" not in figure.reading
    kept = {name: column for name, column in table.columns.items() if "beyond_token" not in name}
    one = replace(
        found, tables={**found.tables, "experts_by_layer": Table(kept, {name: table.units[name] for name in kept})}
    )
    figure = next(figure for figure in probe.figures(one) if figure.name == "experts")
    assert "undefined" in figure.reading
    assert not any("token" in (trace.name or "") for trace in figure.plot.data)
