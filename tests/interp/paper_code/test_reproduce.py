"""The defects of the published code: its wrong reads exactly, and right and wrong side by side."""

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config

from interp.errors import PromptError, UnknownName, UsageError
from interp.hooks.attention import listening
from interp.need import Need
from interp.paper_code.layer_minus_one import AxisCut
from interp.paper_code.reproduce import BUGS, reproduce_bug
from interp.paper_code.side_by_side import random_directions
from interp.paper_code.wrong_reads import fused_origin, reference_heads, reference_keys, reference_qkv
from interp.prompting.files import resolve_prompts
from interp.prompting.tokens import as_tokens
from interp.running.collect import collect
from tests.tiny_models import VOCAB, fresh_model, tiny_model, wrap

ROOT = Path(__file__).parent.parent.parent

N_PROMPTS = 40


@pytest.fixture(scope="module")
def texts():
    """Texts of 3 to 9 words; more than are held at a time, ending in many different words."""
    rng = np.random.default_rng(0)
    words = (rng.integers(1, VOCAB, size=rng.integers(3, 10)) for _ in range(N_PROMPTS))
    return [" ".join(f"w{i}" for i in some) for some in words]


@pytest.fixture(scope="module")
def models(word_tokenizer):
    """The tiny models with words to read."""
    families = ("gpt_neox", "phi", "llama")
    return {family: replace(tiny_model(family), tokenizer=word_tokenizer) for family in families}


def mean_abs_cosine(vectors):
    """Over all pairs of rows, one by one."""
    pairs = [(vectors[a], vectors[b]) for a in range(len(vectors)) for b in range(a)]
    return float(np.mean([abs(a @ b) / np.sqrt((a @ a) * (b @ b)) for a, b in pairs]))


def shares(points, zscored=False):
    """Variance shares of PC1 and of PC1+PC2, by singular values."""
    points = points.astype(np.float64)
    points = points - points.mean(axis=0)
    if zscored:
        points = points / points.std(axis=0)
    variance = np.square(np.linalg.svd(points, compute_uv=False))
    return variance[0] / variance.sum(), variance[:2].sum() / variance.sum()


def expected_cosine(d):
    return math.gamma(d / 2) / (math.sqrt(math.pi) * math.gamma((d + 1) / 2))


def projection_outputs(model, texts, path):
    """What a projection module of every layer gives at the last token, text by text, by a hook of its own."""
    seen = []

    def keep(module, args, out):
        seen.append(out[0, -1].numpy())

    layers = model.family.layer_modules(model.module)
    handles = [layer.get_submodule(path).register_forward_hook(keep) for layer in layers]
    pool = resolve_prompts(texts)
    with torch.inference_mode():
        for ids in as_tokens(model, pool, [], None).ids:
            model.module(input_ids=torch.from_numpy(ids)[None])
    for handle in handles:
        handle.remove()
    return np.swapaxes(np.array(seen).reshape(len(texts), len(layers), -1), 0, 1)


def test_the_wrong_split_is_the_thirds_of_the_fused_output(models, texts):
    model = models["gpt_neox"]
    i = model.info
    out = projection_outputs(model, texts, "attention.query_key_value")
    thirds = out.reshape(i.n_layers, len(texts), 3, i.n_heads, i.d_head)
    base = collect(model, texts, ["q_pre", "k_pre", "v"])
    wrong = reference_qkv(*(base[Need(site)] for site in ("q_pre", "k_pre", "v")))
    for part, read in enumerate(wrong):
        np.testing.assert_allclose(read, thirds[:, :, part], atol=1e-5)
    assert np.abs(wrong.v - base[Need("v")]).max() > 0.1


def test_the_origin_of_every_vector_of_the_wrong_split_is_the_one_named():
    n_heads = 16
    coded = {p: 100 * c + np.arange(n_heads)[:, None] for c, p in enumerate("qkv")}
    wrong = reference_qkv(coded["q"], coded["k"], coded["v"])
    for which, read in wrong._asdict().items():
        told = fused_origin(n_heads, which)
        assert [100 * "qkv".index(o.projection) + o.head for o in told] == read[:, 0].tolist()


@pytest.mark.parametrize("n_heads, counts", [(4, (1, 1, 2)), (16, (5, 5, 6)), (12, (4, 4, 4))])
def test_so_many_wrong_values_are_queries_keys_and_values(n_heads, counts):
    # counted on the flat output: of its last third, block b holds part b mod 3
    blocks = np.repeat(np.tile([0, 1, 2], n_heads), 8)[2 * n_heads * 8 :: 8]
    found = [o.projection for o in fused_origin(n_heads, "v")]
    assert tuple(found.count(p) for p in "qkv") == counts == tuple(np.bincount(blocks).tolist())


def test_the_wrong_cut_is_the_key_projection_viewed_as_query_heads(models, texts):
    model = models["llama"]
    i = model.info
    out = projection_outputs(model, texts, "self_attn.k_proj")
    base = collect(model, texts, ["k_pre", "v"])
    pieces = reference_heads(base[Need("k_pre")], i.n_heads)
    assert pieces.shape == (i.n_layers, len(texts), 4, 6)
    np.testing.assert_allclose(pieces, out.reshape(pieces.shape), atol=1e-5)
    values = base[Need("v")][-1]
    concatenated = reference_heads(values, i.n_heads).reshape(len(texts), -1)
    np.testing.assert_array_equal(concatenated, values.reshape(len(texts), -1))


def test_the_keys_of_the_published_code_are_rows_of_the_embedding_matrix():
    embeddings = np.random.default_rng(0).standard_normal((500, 7))
    layers = reference_keys(embeddings, 3, np.random.default_rng(1))
    assert [layer.shape for layer in layers] == [(100, 7)] * 3
    assert all((layer[:, None] == embeddings).all(axis=-1).any(axis=1).all() for layer in layers)
    assert not np.array_equal(layers[0], layers[1])


def test_fused_qkv_shows_both_splits_as_computed_independently(models, texts):
    model = models["gpt_neox"]
    i = model.info
    found = reproduce_bug(model, "fused-qkv", prompts=texts)
    out = projection_outputs(model, texts, "attention.query_key_value").astype(np.float64)
    heads = out.reshape(i.n_layers, len(texts), i.n_heads, 3, i.d_head)
    thirds = out.reshape(i.n_layers, len(texts), 3, i.n_heads, i.d_head)
    read = {"right": (heads[..., 1, :], heads[..., 2, :]), "wrong": (thirds[:, :, 1], thirds[:, :, 2])}
    for side, (keys, values) in read.items():
        for scaling in ("centred", "zscored"):
            expected = shares(values[-1].reshape(len(texts), -1), scaling == "zscored")
            for name, value in zip(("pc1_share", "pc1_plus_pc2_share"), expected, strict=True):
                scalar = found[f"{name}_{scaling}_{side}"]
                assert scalar.value == pytest.approx(value, rel=1e-4)
                assert scalar.interval is not None and scalar.interval[0] < value < scalar.interval[1]
        cosine = np.mean([[mean_abs_cosine(row) for row in layer] for layer in keys])
        assert found[f"head_keys_{side}"].value == pytest.approx(cosine, rel=1e-4)
        null = found[f"head_keys_{side}"].null
        assert null is not None and null.value == pytest.approx(expected_cosine(i.d_head))
    assert found["values_that_are_values_wrong"].value == 2
    assert found.to_frame("origin").query("taken_for == 'v'")["projection"].tolist() == ["v", "q", "k", "v"]


def test_gqa_shows_both_cuts_each_beside_its_own_dimension(models, texts):
    model = models["llama"]
    found = reproduce_bug(model, "gqa", prompts=texts)
    out = projection_outputs(model, texts, "self_attn.k_proj").astype(np.float64)
    for side, n_heads, d in (("right", 2, 12), ("wrong", 4, 6)):
        heads = out.reshape(3, len(texts), n_heads, d)
        by_layer = [np.mean([mean_abs_cosine(row) for row in layer]) for layer in heads]
        scalar = found[f"head_keys_{side}"]
        assert scalar.value == pytest.approx(np.mean(by_layer), rel=1e-4)
        np.testing.assert_allclose(found.tables["by_layer"][side], by_layer, rtol=1e-4)
        assert scalar.null is not None and scalar.null.value == pytest.approx(expected_cosine(d))
        assert scalar.interval is not None and scalar.interval[0] < scalar.value < scalar.interval[1]


def test_a_single_kv_head_has_no_right_cosine_and_says_so(word_tokenizer, texts):
    model = replace(fresh_model("llama", num_key_value_heads=1), tokenizer=word_tokenizer)
    found = reproduce_bug(model, "gqa", prompts=texts)
    right, wrong = found["head_keys_right"], found["head_keys_wrong"]
    assert np.isnan(right.value) and right.null_reason and right.interval_reason
    assert np.isfinite(wrong.value)
    assert any("no pair" in note for note in found.notes)


def test_embedding_keys_shows_keys_as_computed_independently(models, texts):
    model = models["llama"]
    found = reproduce_bug(model, "embedding-keys", prompts=texts)
    out = projection_outputs(model, texts, "self_attn.k_proj").astype(np.float64)
    last = np.array([ids[-1] for ids in as_tokens(model, resolve_prompts(texts), [], None).ids])
    by_layer = [mean_abs_cosine([layer[last == t].mean(axis=0) for t in np.unique(last)]) for layer in out]
    np.testing.assert_allclose(found.tables["by_layer"]["keys"], by_layer, rtol=1e-4)
    assert found["keys_right"].value == pytest.approx(np.mean(by_layer), rel=1e-4)
    weights = [layer.self_attn.k_proj.weight.detach().numpy() for layer in model.module.model.layers]
    columns = np.mean([mean_abs_cosine(w.reshape(2, 12, 48)[head]) for w in weights for head in range(2)])
    assert found["wk_columns_right"].value == pytest.approx(columns, rel=1e-4)
    nulls = [found[name].null for name in ("keys_right", "wk_columns_right", "keys_wrong")]
    repeated = 1 / model.tokenizer.vocab_size
    expected = [expected_cosine(24), expected_cosine(48), repeated + (1 - repeated) * expected_cosine(48)]
    assert [null and null.value for null in nulls] == pytest.approx(expected)


def test_embedding_keys_do_not_notice_what_happens_to_the_keys(word_tokenizer, texts):
    def both(model):
        found = reproduce_bug(replace(model, tokenizer=word_tokenizer), "embedding-keys", prompts=texts)
        return found["keys_right"].value, found["keys_wrong"].value

    model = fresh_model("llama")
    before = both(model)
    with torch.no_grad():
        for layer in model.module.model.layers:
            layer.self_attn.k_proj.weight[1:] = layer.self_attn.k_proj.weight[:1]
    after = both(model)
    assert after[1] == before[1]
    assert after[0] == pytest.approx(1.0, abs=1e-4) and before[0] < 0.9


def test_random_directions_with_replacement_meet_themselves():
    null = random_directions(40, 30, np.random.default_rng(0), n_tokens=8)
    rng = np.random.default_rng(1)
    drawn = [rng.standard_normal((8, 30))[rng.integers(8, size=40)] for _ in range(300)]
    assert null.value == pytest.approx(np.mean([mean_abs_cosine(x) for x in drawn]), rel=0.02)
    assert null.band[0] < null.value < null.band[1]


@pytest.mark.parametrize("family", ["gpt_neox", "llama"])
def test_layer_minus_one_changes_nothing_and_the_last_layer_what_new_weights_would(models, texts, family):
    model = models[family]
    found = reproduce_bug(model, "layer-minus-one", prompts=texts)
    assert found["max_logit_change_wrong"].value == 0.0
    assert found["kl_bits_wrong"].value == 0.0
    before, after = (logits_of(model, texts, cut) for cut in (False, True))
    moved = (after - after.mean(axis=1, keepdims=True)) - (before - before.mean(axis=1, keepdims=True))
    assert found["max_logit_change_right"].value == pytest.approx(np.abs(moved).max(), rel=1e-3)
    log_p, log_q = (x - np.log(np.exp(x).sum(axis=1, keepdims=True)) for x in (before, after))
    kl = (np.exp(log_p) * (log_p - log_q)).sum(axis=1).mean() / np.log(2)
    assert found["kl_bits_right"].value == pytest.approx(kl, rel=1e-3)
    assert kl > 1e-4


def logits_of(model, texts, cut):
    """Last-token logits one text at a time; with `cut`, of weights whose values have no PC1 part."""
    module = copy.deepcopy(model.module).double()
    layer = model.family.attention_modules(module)[-1]
    values = collect(model, texts, ["v"])[Need("v")][-1].reshape(len(texts), -1).astype(np.float64)
    u = torch.from_numpy(np.linalg.svd(values - values.mean(axis=0))[2][0])
    if cut and model.info.family == "gpt_neox":
        i = model.info
        rows = torch.arange(3 * i.d_model).view(i.n_heads, 3, i.d_head)[:, 2].flatten()
        for parameter in layer.query_key_value.parameters():
            parameter.data[rows] -= torch.tensordot(u, u @ parameter.data[rows], dims=0)
    elif cut:
        layer.v_proj.weight.data -= torch.outer(u, u @ layer.v_proj.weight.data)
    tokens = as_tokens(model, resolve_prompts(texts), [], None)
    with torch.inference_mode():
        out = [module(torch.from_numpy(ids)[None]).logits[0, -1] for ids in tokens.ids]
    return torch.stack(out).numpy()


def test_an_axis_cut_twice_is_an_axis_cut_once(models):
    model = models["llama"]
    axis = torch.nn.functional.normalize(torch.arange(1.0, 25.0), dim=0)
    ids = torch.tensor([[5, 6, 7, 8]])
    once, twice = [], []
    for out, n in ((once, 1), (twice, 2)):
        with torch.inference_mode(), listening(model, *[AxisCut(1, axis) for _ in range(n)]):
            out.append(model.module(ids).logits)
    torch.testing.assert_close(once[0], twice[0])


def test_the_table_has_a_row_a_quantity_with_both_sides_and_their_nulls(models, texts):
    families = {"fused-qkv": "gpt_neox", "gqa": "llama", "embedding-keys": "phi", "layer-minus-one": "phi"}
    assert families.keys() == BUGS.keys()
    for bug, family in families.items():
        found = reproduce_bug(models[family], bug, prompts=texts)
        frame = found.to_frame("side_by_side")
        assert list(frame) == ["quantity", "right", "right_null", "wrong", "wrong_null", "unit"]
        rights = [s for name, s in found.scalars.items() if name.endswith("_right")]
        np.testing.assert_array_equal(frame["right"], [s.value for s in rights])
        assert frame["unit"].tolist() == [s.unit for s in rights]
        assert np.isnan(frame["right_null"]).tolist() == [s.null is None for s in rights]


def test_a_seed_repeats_everything(models, texts):
    model = models["llama"]
    one, two, other = (reproduce_bug(model, "embedding-keys", prompts=texts, seed=s) for s in (1, 1, 2))
    assert one.scalars == two.scalars
    assert one["keys_wrong"].value != other["keys_wrong"].value


def test_a_wind_tunnel_reads_its_own_sequences():
    import interp

    found = reproduce_bug(interp.load("tunnel:bijection-gpt-neox", check=False), "fused-qkv", n_pool=20)
    scalar = found["pc1_share_centred_right"]
    assert (scalar.n, scalar.n_unit) == (20, "sequence")


def gpt2():
    config = GPT2Config(vocab_size=VOCAB, n_embd=24, n_layer=1, n_head=4)
    return wrap(AutoModelForCausalLM.from_config(config))


@pytest.mark.parametrize(
    "bug, make, said",
    [
        ("fused-qkv", lambda: tiny_model("llama"), "three projections (q_proj, k_proj, v_proj)"),
        ("fused-qkv", lambda: tiny_model("phi"), "Name a GPT-NeoX"),
        ("fused-qkv", gpt2, "thirds are right there"),
        ("gqa", lambda: tiny_model("gpt_neox"), "its 4 query heads have a key head each"),
        ("gqa", lambda: tiny_model("phi"), "grouped heads"),
        ("gqa", lambda: fresh_model("llama", num_attention_heads=6, head_dim=4), "2 KV heads of 4 make no 6"),
    ],
)
def test_a_model_that_cannot_have_the_bug_is_refused_in_words(bug, make, said):
    with pytest.raises(UsageError) as refused:
        reproduce_bug(make(), bug, prompts=["w1 w2"] * 3)
    assert said in str(refused.value) and BUGS[bug].what in str(refused.value)


def test_an_unknown_bug_lists_the_known_ones(models, texts):
    with pytest.raises(UnknownName, match="Did you mean fused-qkv"):
        reproduce_bug(models["gpt_neox"], "fused", prompts=texts)


@pytest.mark.parametrize("prompts, said", [(["w1 w2", "w3"], "three"), (["w1 w2", "w3 w2", "w2"], "1 different token")])
def test_prompts_that_cannot_be_compared_are_refused(models, prompts, said):
    with pytest.raises(PromptError, match=said):
        reproduce_bug(models["llama"], "embedding-keys", prompts=prompts)


@pytest.mark.parametrize("bug", ["fused-qkv", "gqa"])
def test_copies_of_prompts_leave_values_and_intervals_as_they_are(models, texts, bug):
    model = models["gpt_neox" if bug == "fused-qkv" else "llama"]
    once, thrice = (reproduce_bug(model, bug, prompts=given).scalars["head_keys_right"] for given in (texts, texts * 3))
    assert (thrice.n, thrice.n_clusters) == (3 * N_PROMPTS, N_PROMPTS) and once.n_clusters is None
    assert "over clusters" in thrice.interval_method and "over prompts" in once.interval_method
    np.testing.assert_allclose([thrice.value, *thrice.interval], [once.value, *once.interval], rtol=1e-6)
