"""Continuations: with a cache what every token computed afresh says, for every kind of edit and every family."""

import json
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pytest
import torch
from interp.wind_tunnels.networks.architectures import Network
from interp.wind_tunnels.networks.networks import build
from interp.wind_tunnels.tasks.bijection import Bijection
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.edits import KINDS
from interp.errors import ModelError, PromptError, UnknownName, UsageError
from interp.prompt import Prompt, PromptSet
from interp.running.generate import Continuation, Continuations, _chosen
from tests.quick import quick
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, tiny_model

N = 7
LENGTHS = (9, 6, 11)
IDS = [tuple(np.random.default_rng(i).integers(1, VOCAB, size=n).tolist()) for i, n in enumerate(LENGTHS)]
PROMPTS = PromptSet(
    "ids", [Prompt(token_ids=ids, columns={"spot": 2 + i}) for i, ids in enumerate(IDS)], {"spot": "tokens"}
)


def edits_of(model):
    """One edit of every kind, each strong enough to be seen."""
    info, rng = model.info, np.random.default_rng(3)
    v, z, resid = info.n_kv_heads * info.d_head, info.n_heads * info.d_head, info.d_model
    turned = np.linalg.qr(rng.normal(size=(z, z)))[0]
    donor = fresh_model(info.family)
    with torch.no_grad():
        for p in donor.module.parameters():
            p.mul_(1.5)
    return {
        "remove": interp.RemoveAxis(layer=(0, 1), axis=rng.normal(size=(5, v))),
        "keep": interp.KeepAxis(layer=1, site="z", axis=rng.normal(size=(3, z))),
        "shift": interp.ShiftAxis(layer=2, site="resid", axis=rng.normal(size=resid), deviations=3.0, score_sigma=4.0),
        "rotate": interp.RotateAxes(layer=0, site="q", axis=np.eye(z), rotation=turned),
        "replace": interp.ReplaceCoordinates(layer=1, site="k", axis=rng.normal(size=(2, v)), values=np.full(2, 5.0)),
        "ablate": interp.AblateHeads(layer=0, heads=(0, 2)),
        "bypass": interp.BypassLayer(layer=1),
        "attention-off": interp.AttentionOff(layer=2),
        "feed-forward-off": interp.FeedForwardOff(layer=0),
        "patterns": interp.PatternsOf(donor=donor),
    }  # fmt: skip


def afresh(model, ids, edits, n=N):
    """The most likely tokens, each from the whole sequence so far, without a cache."""
    so_far = list(ids)
    for _ in range(n):
        with torch.inference_mode(), interp.applied(model, *edits) if edits else nullcontext():
            logits = model.module(input_ids=torch.tensor([so_far]), use_cache=False).logits
        so_far.append(int(logits[0, -1].argmax()))
        if so_far[-1] == getattr(getattr(model.module, "generation_config", None), "eos_token_id", None):
            break
    return tuple(so_far[len(ids) :])


@pytest.mark.parametrize("family", quick(["llama"], FAMILIES))
def test_every_edit_goes_on_as_the_whole_sequence_computed_afresh(family):
    model, changed = tiny_model(family), 0
    edits = edits_of(model)
    assert edits.keys() == KINDS.keys()
    for kind, edit in edits.items():
        for found, ids in zip(interp.generate(model, PROMPTS, [edit], n_tokens=N), IDS, strict=True):
            assert found.ids == afresh(model, ids, ()), kind
            assert found.edited_ids == afresh(model, ids, [edit]), kind
            changed += found.ids != found.edited_ids
    assert changed > 2 * len(edits), "most edits are seen in the words"
    both = [edits["ablate"], edits["shift"]]
    assert interp.generate(model, PROMPTS, both, n_tokens=N)[1].edited_ids == afresh(model, IDS[1], both)


def test_a_window_that_no_layer_looks_at_drops_nothing_from_the_cache():
    model = fresh_model("llama")
    plain = interp.generate(model, PROMPTS, n_tokens=N)
    model.module.config.sliding_window = 3
    assert [c.ids for c in interp.generate(model, PROMPTS, n_tokens=N)] == [c.ids for c in plain]


@pytest.mark.parametrize(
    "at, spots", [("last", (8, 5, 10)), ("scored", (8, 5, 10)), ("spot", (2, 3, 4)), ((1,), (1,) * 3)]
)
def test_edits_at_positions_act_on_the_prompt_alone(at, spots):
    model = tiny_model("llama")
    edit = replace(edits_of(model)["shift"], at=at)
    found = interp.generate(model, PROMPTS, [edit], n_tokens=N)
    for each, ids, spot in zip(found, IDS, spots, strict=True):
        assert each.edited_ids == afresh(model, ids, [replace(edit, at=(spot,))])
    assert [c.edited_ids for c in found] == [
        c.edited_ids for c in interp.generate(model, PROMPTS, [edit], n_tokens=N, cache=False)
    ]


def test_ablation_by_the_mean_takes_that_of_these_prompts():
    model = tiny_model("llama")
    z = interp.collect(model, PROMPTS, [interp.Need("z", at="all")])[interp.Need("z", at="all")]
    edit = interp.AblateHeads(layer=(0, 2), heads=(1, 3), by="mean")
    given = [interp.AblateHeads(layer=i, heads=(1, 3), by="mean", mean=z[i].mean(axis=0)[[1, 3]]) for i in (0, 2)]
    found, same = (interp.generate(model, PROMPTS, edits, n_tokens=N) for edits in ([edit], given))
    assert [c.edited_ids for c in found] == [c.edited_ids for c in same]
    assert found[0].edited_ids == afresh(model, IDS[0], given)


def test_without_edits_both_are_what_transformers_generates(tiny_text_model):
    texts = ["the cat sat on the", "a dog", "once upon a time"]
    found = interp.generate(tiny_text_model, texts, n_tokens=N)
    for each, text in zip(found, texts, strict=True):
        ids = torch.tensor([tiny_text_model.tokenizer(text)["input_ids"]])
        made = tiny_text_model.module.generate(
            input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=N, do_sample=False, pad_token_id=0
        )[0, ids.shape[1] :]
        assert each.ids == each.edited_ids == tuple(made.tolist()) and each.n_shared == len(each.ids)
        assert each.text == each.edited_text == each.shared


@pytest.mark.parametrize("arch", ["lstm", "mamba"])
def test_a_network_without_attention_goes_on_too(arch):
    task = Bijection(V=6, L=8)
    model = interp.load(build(Network(arch=arch, n_layers=2, d_model=24), task, torch.Generator().manual_seed(0)))
    pool, edit = PromptSet("ids", [Prompt(token_ids=(1, 2, 3, 4))]), interp.BypassLayer(layer=0)
    found = interp.generate(model, pool, [edit], n_tokens=3)[0]
    assert found.ids == afresh(model, (1, 2, 3, 4), (), 3)
    assert found.edited_ids == afresh(model, (1, 2, 3, 4), [edit], 3)


def test_drawn_tokens_have_the_probabilities_of_the_model_and_the_seed_repeats_them():
    logits = torch.tensor([0.0, 2.0, 1.0, -float("inf"), 1.5])
    draws = np.random.default_rng(0).random(20_000)
    for temperature in (0.5, 1.0, 2.0):
        tokens = [_chosen(logits, temperature, float(x)) for x in draws]
        p = torch.softmax(logits.double() / temperature, dim=0).numpy()
        np.testing.assert_allclose(np.bincount(tokens, minlength=5) / len(draws), p, atol=0.012)
        assert 3 not in tokens
    model = tiny_model("llama")
    one, again, other = (interp.generate(model, PROMPTS, temperature=1.5, seed=s, n_tokens=N) for s in (1, 1, 2))
    assert one == again and one != other
    assert all(c.ids == c.edited_ids for c in one), "the same random numbers for both texts"
    whole = interp.generate(model, PROMPTS, temperature=1.5, seed=1, n_tokens=N, cache=False)
    assert [c.ids for c in whole] == [c.ids for c in one]


def test_a_text_ends_where_the_model_says_so_and_leaves_it_as_it_was():
    model = fresh_model("llama")
    first = afresh(model, IDS[0], ())
    model.module.generation_config.eos_token_id = [first[2], VOCAB + 5]
    assert interp.generate(model, PROMPTS, n_tokens=N)[0].ids == first[: first.index(first[2]) + 1]
    model = tiny_model("phi")
    ids = torch.tensor([IDS[0]])
    with torch.inference_mode():
        before = model.module(input_ids=ids).logits
        interp.generate(model, PROMPTS, list(edits_of(model).values())[:7], n_tokens=3)
        assert torch.equal(model.module(input_ids=ids).logits, before)


SHOWN = Continuations(
    "a model",
    ("ablate z at layer 0",),
    "most likely tokens",
    (
        Continuation("say <b>", (1, 2), (1, 3), " a <i>word", " a thing\nmore", " a "),
        Continuation("x", (), (), "", "", ""),
    ),
)


def test_texts_stand_side_by_side_and_no_text_is_markup(tmp_path):
    assert SHOWN[0].n_shared == 1 and len(SHOWN) == 2
    printed = repr(SHOWN).splitlines()
    assert "as it is" in printed[1] and "edited" in printed[1] and "thing⏎more" in printed[2]
    notebook = SHOWN._repr_html_()
    assert " a &lt;i&gt;word</td>" in notebook and "say &lt;b&gt;" in notebook and "<i>" not in notebook
    page = SHOWN.write(tmp_path / "new" / "page.html").read_text()
    assert "<strong>&lt;i&gt;word</strong>" in page and "say &lt;b&gt;" in page and "Content-Security-Policy" in page
    assert "http" not in page.replace("http-equiv", ""), "it fetches nothing"
    assert SHOWN.to_frame()["n_shared"].tolist() == [1, 0]


def test_what_cannot_go_on_is_refused_in_words():
    model = tiny_model("llama")
    resample = interp.AblateHeads(layer=0, heads=0, by="resample")
    rows = interp.ReplaceCoordinates(layer=0, axis=np.eye(24)[:1], values=np.ones((3, 1)), at="last")
    for edit, words in ((resample, "or means from interp.with_means"), (rows, "with 3 rows of values")):
        with pytest.raises(UsageError, match=words):
            interp.generate(model, PROMPTS, [edit])
    huge = interp.ShiftAxis(1, site="resid", axis=np.eye(48)[0], deviations=1e30, score_sigma=1e10)
    with pytest.raises(ModelError, match=r"the logits are not finite\n.*or make edits smaller"):
        interp.generate(model, PROMPTS, [huge])
    with pytest.raises(PromptError, match="position 8"):
        interp.generate(model, PROMPTS, [interp.BypassLayer(layer=0, at=(8,))])
    with pytest.raises(UnknownName, match="kind of edit"):
        interp.generate(model, PROMPTS, [{"kind": "nothing"}])
    for bad in ({"n_tokens": 0}, {"temperature": -1.0}, {"temperature": float("nan")}):
        with pytest.raises(UsageError, match=r"the number is too (small|large)"):
            interp.generate(model, PROMPTS, **bad)
    short = replace(model, info=replace(model.info, max_positions=12))
    with pytest.raises(UsageError, match="reads 12 positions"):
        interp.generate(short, PROMPTS, n_tokens=2)
    with pytest.raises(PromptError):
        interp.generate(model, ["a text, and no tokenizer"])


def test_the_command_prints_both_and_writes_the_page(tmp_path):
    (tmp_path / "edits.json").write_text(json.dumps({"edits": [{"kind": "bypass", "layer": 0}]}))
    words = ["generate", "--edit", str(tmp_path / "edits.json"), "--n-tokens", "3", "--n-pool", "2"]
    done = CliRunner().invoke(app, [*words, "--page", str(tmp_path / "page.html")])
    assert done.exit_code == 0 and "bypass block at layer" in done.output and "page.html" in done.output
    assert (tmp_path / "page.html").exists()
    refused = CliRunner().invoke(app, [*words, "--page", str(tmp_path)])
    assert isinstance(refused.exception, UsageError) and "bypass" not in refused.output, "before anything is generated"
