"""Query-key alignment: planted contrasts, posteriors and bindings; noise; the shipped tunnel in float64."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.qk_alignment.items import item_findings
from interp.probes.qk_alignment.probe import QKAlignment
from scipy.special import softmax

import interp
from interp.need import Need
from interp.testing import Shape, synthetic_capture

SMALL = QKAlignment(n_permutations=99, n_bootstrap=99)


def world(seed, gain=0.0, matching=()):
    """Contrasts like those of another prompt's keys, and `gain` bits larger in the heads that match."""
    rng = np.random.default_rng(seed)
    null = 5 + rng.standard_normal((3, 60, 4))
    own = 5 + rng.standard_normal((3, 60, 4))
    for layer, head in matching:
        own[layer, :, head] += gain
    probe = replace(SMALL, seed=seed)
    rows = {"qk_logit": own, "qk_logit_null": null, "sink_mass": np.full((3, 60, 4), 0.05)}
    return probe.analyse(synthetic_capture(probe.needs, Shape(60), planted=rows, seed=seed), {})


def test_planted_matching_heads_are_found_and_no_others():
    found = world(0, gain=2.0, matching=[(1, 0), (2, 3)])
    table = found.tables["by_head"]
    heads = np.flatnonzero(table["logit_gain_p"] <= 0.05)
    assert list(zip(table["layer"][heads], table["head"][heads], strict=True)) == [(1, 0), (2, 3)]
    assert found["matching_heads"].value == 2 and found["avoiding_heads"].value == 0
    assert found["matching_heads_no_first"].value == 0, "planted in whole rows alone"
    assert (table["logit"] - table["logit_null"])[heads] == pytest.approx(2, abs=0.6)
    assert table["logit_gain"] == pytest.approx(table["logit"] - table["logit_null"])
    assert found["logit"].value == pytest.approx(2 * 2 / 12, abs=0.2) and found["logit"].null.value == 0
    assert found.standing("logit") == "within", "the variant without the first position does not agree"


def test_a_contrast_that_turns_without_a_large_sink_is_read_there_and_its_heads_are_named():
    rng = np.random.default_rng(0)
    sites = {site: 5 + rng.standard_normal((3, 60, 4)) for site in ("qk_logit_null", "qk_logit_no_first_null")}
    sites |= {f"qk_logit{variant}": 5 + rng.standard_normal((3, 60, 4)) for variant in ("", "_no_first")}
    sites["qk_logit"] -= 1
    sites["qk_logit_no_first"][1, :, 2] += 3
    for sink, first, other, essential in (
        (0.95, "logit_no_first", "logit", False),
        (0.05, "logit", "logit_no_first", True),
    ):
        rows = sites | {"sink_mass": np.full((3, 60, 4), sink)}
        found = SMALL.analyse(synthetic_capture(SMALL.needs, Shape(60), planted=rows), {})
        assert found.headline[0] == first and found.controls[first][0].scalar == other
        assert found.controls[first][0].essential == essential
        assert found.facts[first] == "attention depends on this prompt's content"
        assert found["avoiding_heads"].value == 12 and found["matching_heads"].value == 0
        assert found["matching_heads_no_first"].value == 1 and found["avoiding_heads_no_first"].value == 0
        assert "turns" in found.tables["by_head"] and found.tables["by_head"]["turns"][6]
        assert any("logit changes sign" in note and "1.2" in note for note in found.notes)
        assert found.standing(first) == ("above" if first == "logit_no_first" else "within")


def test_what_is_undefined_of_texts_is_said():
    notes = " ".join(world(0).notes)
    assert "posterior_kl and feasible_mass are undefined: only a wind tunnel" in notes
    assert "binding is undefined: the prompts are no wind tunnel's" in notes


# the shipped tunnel


@pytest.fixture(scope="module")
def tunnel():
    model = interp.load("tunnel:bijection-gpt-neox")
    needs = (*SMALL.needs, *(Need(site, at="all") for site in ("q", "k")))
    return interp.collect(model, interp.sampled_prompts(model.task, 60), needs)


def float64_rows(q, k):
    """Causal attention of one sequence, `[head, pos, key]`, in float64."""
    s = np.einsum("qhd,khd->hqk", q.astype(np.float64), k.astype(np.float64)) / np.sqrt(q.shape[-1])
    return softmax(np.where(np.tril(np.ones(s.shape[1:], bool)), s, -np.inf), axis=-1)


@pytest.fixture(scope="module")
def rows(tunnel):
    q, k = (tunnel[Need(site, at="all")].reshape(3, 60, 23, 4, 16) for site in ("q", "k"))
    return np.array([[float64_rows(q[layer, i], k[layer, i]) for i in range(60)] for layer in range(3)])


def test_masses_on_the_shipped_tunnel_equal_an_independent_float64_computation(tunnel, rows):
    table = SMALL.analyse(tunnel, {}).tables["by_layer"]
    scored = rows[:, :, :, ::2]
    values = scored[..., 1::2].sum(-1).mean(axis=(1, 2, 3))
    own = np.stack([scored[..., i, 2 * i] for i in range(12)], axis=-1).mean(axis=(1, 2, 3))
    keys = scored[..., ::2].sum(-1).mean(axis=(1, 2, 3)) - own
    for name, expected in (("mass_values", values), ("mass_keys", keys), ("mass_self", own),
                           ("max_weight", scored.max(-1).mean(axis=(1, 2, 3)))):  # fmt: skip
        assert np.abs(table[name] - expected).max() < 1e-5, name
    rest = scored[:, :, :, 1:, 1:] / scored[:, :, :, 1:, 1:].sum(-1, keepdims=True)  # the first row has no other key
    for name, expected in (("mass_values_no_first", rest[..., ::2].sum(-1)), ("max_weight_no_first", rest.max(-1))):
        assert np.abs(table[name] - expected.mean(axis=(1, 2, 3))).max() < 1e-5, name


def test_the_divergence_on_the_shipped_tunnel_equals_an_independent_float64_computation(tunnel, rows):
    found = SMALL.analyse(tunnel, {})
    per_sequence = []
    for i, prompt in enumerate(tunnel.prompts):
        ids, kl = prompt.token_ids, []
        for row in range(12):
            before = list(ids[: 2 * row : 2])
            shown = ids[1 : 2 * row : 2]
            if ids[2 * row] not in before or len(set(shown)) < 2:
                continue
            answer = shown[before.index(ids[2 * row])]
            a = rows[:, i, :, 2 * row]
            mass = [a[..., [2 * j + 1 for j, v in enumerate(shown) if v == w]].sum(-1) for w in (answer, *set(shown))]
            kl.append(-np.log2(mass[0] / sum(mass[1:])))
        if kl:
            per_sequence.append(np.mean(kl, axis=0))
    expected = np.mean(per_sequence, axis=0)
    assert found.tables["items"]["posterior_kl"] == pytest.approx(expected.ravel(), rel=1e-4, abs=1e-4)
    assert found["posterior_kl"].value < 0.05 and found["posterior_kl"].p == 0.01
    assert found["feasible_mass"].value > 0.98


def test_without_a_row_that_eliminates_outcomes_a_note_says_so(tunnel):
    unseen = tunnel.where(~tunnel.rows["is_repeat"].astype(bool))
    notes = " ".join(item_findings(unseen, (9, 9), np.random.default_rng(0)).notes)
    assert "in no row are all possible outcomes, and another one, in the context" in notes
