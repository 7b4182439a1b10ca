"""Key orthogonality: planted angles, chance, the gauge, and the shipped tunnel by other formulas in float64."""

from dataclasses import replace

import numpy as np
import pytest
from interp.probes.orthogonality.probe import Orthogonality

import interp
from interp.need import Need
from interp.prompt import Prompt
from interp.statistics.cosines import expected_abs_cosine
from interp.testing import Shape, check_probe, synthetic_capture

FAST = {"n_null": 40, "n_bootstrap": 60}
SHAPE = Shape(n_prompts=40, n_layers=2, n_heads=4, n_kv_heads=2, d_head=8, d_model=32)


def analyse(definition, planted=None, columns=None, shape=SHAPE, prompts=None):
    probe = Orthogonality(definition=definition, **FAST)
    capture = synthetic_capture(probe.needs, shape, planted=planted, columns=columns)
    if prompts is not None:
        capture = replace(capture, prompts=replace(capture.prompts, prompts=prompts))
    return probe.analyse(capture, {})


def one_frame(n):
    return [Prompt(text=f"the word is w{i}") for i in range(n)]


@pytest.mark.parametrize("definition", ["all", "wk_columns", "token_keys", "head_keys", "embedding_proxy"])
def test_orthogonality_meets_the_contract(definition):
    check_probe(Orthogonality(definition=definition, **FAST))


def test_needs_are_those_of_the_definition_and_undefined_ones_say_so():
    assert Orthogonality(definition="wk_columns").needs == (Need("W_K"), Need("W_Q"))
    assert set(Orthogonality().needs) == {Need(s) for s in ("W_K", "W_Q", "k_pre", "resid")}
    found = analyse("head_keys", shape=replace(SHAPE, n_kv_heads=1))
    assert np.isnan(found["head_keys"].value) and "single KV head" in found["head_keys"].interval_reason
    found = analyse("wk_columns", {"W_K": np.zeros((2, 2, 32, 8))})
    assert np.isnan(found["wk_columns"].value) and np.isnan(found["w_qk_effective_rank"].value)
    assert "zeros" in found["wk_columns"].null_reason


def test_planted_angle_between_columns_is_recovered_and_gone_once_centred():
    rng = np.random.default_rng(0)
    d_model, d_head = 400, 20
    common = rng.standard_normal((d_model, 1))
    columns = rng.standard_normal((2, 3, d_model, d_head)) + common
    shape = Shape(n_prompts=8, n_layers=2, n_heads=3, n_kv_heads=3, d_head=d_head, d_model=d_model)
    found = analyse("wk_columns", {"W_K": columns}, shape=shape)
    assert found["wk_columns"].value == pytest.approx(0.5, abs=0.02)
    assert found["wk_columns"].p < 1e-4
    centred = found["wk_columns_centred"]
    assert centred.null.band[0] < centred.value < centred.null.band[1]
    assert found.tables["wk_columns"]["abs_shuffled"] == pytest.approx(expected_abs_cosine(d_model), abs=0.005)


def test_keys_below_chance_or_unchanged_by_the_prompt_are_told():
    n, shape = 16, Shape(n_prompts=16, n_layers=2, n_heads=2, n_kv_heads=2, d_head=16, d_model=32)
    keys = np.broadcast_to(np.eye(32)[:n].reshape(1, n, 2, 16), (2, n, 2, 16)).copy()
    columns = {"token": np.arange(n), "position": np.full(n, 5)}
    found = analyse("token_keys", {"k_pre": keys}, columns, shape, prompts=one_frame(n))
    scalar = found["token_keys"]
    assert scalar.value == 0 and scalar.p < 1e-4 and scalar.null.band[0] > 0.1
    assert scalar.underpowered, "16 tokens are few"
    rng = np.random.default_rng(10)
    keys = rng.standard_normal((2, 40, 2, 8))
    keys[0] = keys[0, :1] * (1 + 1e-7 * rng.standard_normal((40, 2, 8)))
    found = analyse("head_keys", {"k_pre": keys})
    table = found.tables["head_keys"]
    assert np.isnan(table["abs_centred"][0]) and np.isfinite(table["abs"][0])
    assert found["head_keys_centred"].value == pytest.approx(table["abs_centred"][1])


@pytest.mark.parametrize(
    ("columns", "frame", "why"),
    [
        ({"token": np.zeros(40, dtype=int)}, True, "one token"),
        ({}, True, "different positions"),
        ({"position": np.full(40, 5)}, False, "more than their last word"),
    ],
)
def test_token_keys_are_undefined_where_contexts_would_be_compared(columns, frame, why):
    prompts = one_frame(40) if frame else None
    found = analyse("token_keys", None, columns, prompts=prompts)
    assert np.isnan(found["token_keys"].value) and why in found["token_keys"].null_reason
    assert any("undefined" in note and why in note for note in found.notes)


def test_heads_that_are_equal_or_share_a_mean_are_told_apart():
    keys = np.random.default_rng(3).standard_normal((2, 40, 1, 8)).repeat(2, axis=2)
    found = analyse("head_keys", {"k_pre": keys})
    assert found["head_keys"].value == pytest.approx(1)
    assert found["head_keys"].p == pytest.approx(1 / 41)
    assert found["head_keys_centred"].value == pytest.approx(1)
    rng = np.random.default_rng(4)
    keys = rng.standard_normal((2, 40, 2, 8)) + 4 * rng.standard_normal((2, 1, 1, 8))
    found = analyse("head_keys", {"k_pre": keys})
    centred = found["head_keys_centred"]
    assert found["head_keys"].value > 0.7
    assert centred.value == pytest.approx(expected_abs_cosine(8), abs=0.05) and centred.p > 0.05


@pytest.fixture(scope="module")
def tunnel():
    """The shipped tunnel, its capture of 120 sequences, and the findings."""
    model = interp.load("tunnel:bijection-gpt-neox", check=False)
    probe = Orthogonality(**FAST)
    captured = interp.collect(model, interp.sampled_prompts(model.task, n=120, seed=1), probe.needs)
    return model, captured, probe.analyse(captured, {})


def float64(parameter):
    return parameter.detach().double().numpy()


def test_token_keys_of_the_shipped_tunnel_equal_embedding_norm_projection(tunnel):
    model, _, found = tunnel
    block = model.module.gpt_neox.layers[0]
    norm, fused = block.input_layernorm, block.attention.query_key_value
    x = float64(model.module.gpt_neox.embed_in.weight)[:10]
    x = (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + norm.eps)
    x = x * float64(norm.weight) + float64(norm.bias)
    out = x @ float64(fused.weight).T + float64(fused.bias)
    keys = np.concatenate([out[:, 48 * h + 16 : 48 * h + 32] for h in range(4)], axis=1)

    def mean_abs(vectors):
        unit = [v / np.sqrt(np.dot(v, v)) for v in vectors]
        return np.mean([abs(np.dot(a, b)) for i, a in enumerate(unit) for b in unit[:i]])

    assert found["token_keys"].value == pytest.approx(mean_abs(keys), rel=1e-5)
    assert found["token_keys_centred"].value == pytest.approx(mean_abs(keys - keys.mean(axis=0)), rel=1e-5)


def test_token_keys_and_the_embedding_proxy_of_the_shipped_tunnel_are_what_is_known(tunnel):
    model, _, found = tunnel
    unit = float64(model.module.gpt_neox.embed_in.weight)[:10]
    unit /= np.linalg.norm(unit, axis=1, keepdims=True)
    expected = np.abs((unit @ unit.T)[np.triu_indices(10, 1)]).mean()
    assert found["embedding_proxy"].value == pytest.approx(expected, rel=1e-5)
    assert found["token_keys"].value > 0.7 > found["token_keys"].null.band[1]
    assert found["token_keys_centred"].value < 0.2


def test_the_matrices_hold_the_means_that_the_profiles_show():
    """Mean |cos| off the diagonal of the token matrix is the headline at one position; one panel is the null's."""
    n, shape = 16, Shape(n_prompts=16, n_layers=2, n_heads=2, n_kv_heads=2, d_head=16, d_model=32)
    columns = {"token": np.arange(n), "position": np.full(n, 5)}
    found = analyse("token_keys", None, columns, shape, prompts=one_frame(n))
    table = found.tables["token_key_matrix"]
    apart = table["token"] != table["other"]
    assert np.abs(table["cos"][apart]).mean() == pytest.approx(found["token_keys"].value, rel=1e-5)
    heads = analyse("head_keys", shape=SHAPE).tables["head_key_matrix"]
    assert heads.n_rows == 2 * 2 * 2
    figure = next(f for f in Orthogonality(**FAST).figures(found) if f.name == "token_key_matrix")
    keys, null = figure.plot.data
    np.testing.assert_array_equal(np.asarray(keys.z).ravel(), table["cos"])
    np.testing.assert_array_equal(np.asarray(null.z).ravel(), table["cos_null"])
    assert null.name == "null"
