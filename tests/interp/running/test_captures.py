"""Captures on disk and of other tools: nothing is lost, nothing damaged is read, and probes find the same in them."""

import copy
import dataclasses
import json
import runpy
import textwrap
import warnings

import numpy as np
import pytest
import safetensors.numpy
import torch
from interp.probes import Manifold
from interp.probes.causal.prompt_sample import PromptSample
from interp.wind_tunnels import Bijection

import interp
from interp.errors import PromptError, RecordError, UnknownName, UsageError
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from interp.reductions import PromptMean
from interp.running.collect import _streamed
from interp.system.array_files import ArrayFile, read_array, write_array
from interp.system.digest import digest_of
from tests.captures import assert_captures_agree
from tests.paths import ROOT

QUICK = {"manifold": {"n_permutations": 20, "n_null": 20, "n_bootstrap": 20, "n_splits": 2}}
NEEDS = (
    Need("v"), Need("W_K"), Need("outcome_log_prob"), Need("resid", at="last"),
    Need("pattern_entropy", PromptMean(), "all"), Need("k", at="all"),
)  # fmt: skip


@pytest.fixture(scope="module")
def sequences():
    return interp.sampled_prompts(Bijection(), n=20)


@pytest.fixture(scope="module")
def captured(tunnel, sequences):
    return interp.collect(tunnel, sequences, NEEDS)


@pytest.fixture(scope="module")
def texts_read(tiny_text_model):
    texts = ["the cat sat on the mat", "a dog barked", "we swim", "birds fly high"] * 3
    return texts, interp.collect(tiny_text_model, texts, ["v", "resid", "next_log_prob"])


def assert_same(one, other, **close):
    assert_captures_agree(one, other, **close)
    assert one.prompts.content_hash == other.prompts.content_hash and one.model == other.model
    assert one.prompts.described() == other.prompts.described() and one.layers == other.layers
    for name in ("posterior", "belief"):
        np.testing.assert_equal(getattr(one, name), getattr(other, name))


def test_a_saved_capture_is_read_back_whole_whatever_its_rows_are_called(captured, texts_read, tmp_path):
    texts, whole = texts_read
    opened = interp.open_capture(whole.save(tmp_path / "texts"))
    assert_same(whole, opened)
    assert opened.rows["text"].tolist() == texts and opened.rows["token_string"][0] in texts[0]
    opened = interp.open_capture(captured.save(tmp_path / "seed=3"))
    assert_same(captured, opened)
    assert np.array_equal(opened.outcomes, captured.outcomes) and opened["v"].shape == captured["v"].shape
    assert opened.provenance["tool"] == "interp" and len(opened.provenance["selfcheck"]) > 5
    assert_same(opened, interp.open_capture(opened.save(tmp_path / "again")))
    rows = dict.fromkeys(("end:pos", "Pos", "pos", "a/b", "x" * 300), captured.rows)
    odd = dataclasses.replace(captured, tables={**captured.tables, **rows})
    opened = interp.open_capture(odd.save(tmp_path / "c"))
    assert opened.tables.keys() == odd.tables.keys()
    assert all(np.array_equal(opened.rows_at(at)["token"], captured.rows["token"]) for at in rows)
    names = [path.name for path in (tmp_path / "c").iterdir()]
    assert len({name.casefold() for name in names}) == len(names) and not any(":" in name for name in names)
    assert "rows.scored.parquet" in names


def test_arrays_are_plain_safetensors_and_stay_in_their_files(tmp_path):
    x = np.random.default_rng(0).normal(size=(3, 5, 2)).astype(np.float32)
    write_array(tmp_path / "x", np.asfortranarray(x))
    assert np.array_equal(safetensors.numpy.load_file(tmp_path / "x")["array"], x)
    safetensors.numpy.save_file({"array": x}, tmp_path / "theirs")
    assert np.array_equal(read_array(tmp_path / "theirs"), x) and isinstance(read_array(tmp_path / "x").base, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        read_array(tmp_path / "x")[0] = 1
    for odd in (np.zeros((2, 0, 3)), np.array(4), np.array([True, False]), x.astype(">f4")):
        write_array(tmp_path / "odd", odd)
        assert np.array_equal(read_array(tmp_path / "odd"), odd)
    file = ArrayFile(tmp_path / "blocks", x.shape, x.dtype)
    for layer in (2, 0, 1):
        file.put((layer, 3), x[layer, 3:])
        file.put((layer, 0), x[layer, :3])
    assert np.array_equal(read_array(tmp_path / "blocks"), x)


def test_a_saved_or_streamed_capture_is_the_capture(tunnel, sequences, monkeypatch, tmp_path):
    monkeypatch.setattr("interp.running.collect.PROMPTS_AT_ONCE", 7)
    needs = [need for need in NEEDS if need.at != "last"]
    whole = interp.collect(tunnel, sequences, needs)
    assert_same(whole, interp.collect(tunnel, sequences, needs, to=tmp_path / "new" / "c"), atol=1e-5)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["c"]
    run = interp.run(tunnel, probes="manifold", prompts=sequences, settings=QUICK, out=None, quiet=True)
    saved = interp.collect(tunnel, sequences, ["v"]).save(tmp_path / "c")
    record = interp.analyse(interp.open_capture(saved), "manifold", settings=QUICK, out=tmp_path / "runs")
    assert dict(record.findings["manifold"].scalars) == dict(run.findings["manifold"].scalars)
    assert [c["name"] for c in record.selfcheck] == [c["name"] for c in run.selfcheck] and record.path is not None
    page = (record.path / "report.html").read_text()
    assert "self-check: not" not in page and interp.open_run(record.path).spec == record.spec


def test_a_prompt_without_scored_positions_has_no_row_and_a_set_of_such_is_refused(tunnel, sequences, tmp_path):
    silent = [
        dataclasses.replace(p, scored=(), scored_columns=dict.fromkeys(p.scored_columns, ())) for p in sequences.prompts
    ]
    first, n = sequences[:1], len(sequences)
    some = dataclasses.replace(sequences, prompts=[*first, *silent[1:]], posterior=first.posterior, belief=first.belief)
    for found in (interp.collect(tunnel, some, "v"), interp.collect(tunnel, some, "v", to=tmp_path / "c")):
        assert set(found.rows["prompt"]) == {0} and len(found.prompts) == n
        assert found.rows.n_rows == len(found.posterior)
        np.testing.assert_allclose(found["v"], interp.collect(tunnel, first, "v")["v"], atol=1e-5)
    with pytest.raises(interp.InterpError, match="no position is scored"):
        dataclasses.replace(sequences, prompts=silent)
    with pytest.raises(interp.InterpError, match="token_ids of a prompt: there are none"):
        interp.collect(tunnel, [[1, 2, 3], []], "v")


def test_a_capture_names_the_edits_that_are_applied_around_it(tunnel, sequences, tmp_path):
    around, given = interp.AttentionOff(1), interp.AblateHeads(0, (1,), by="zero")
    with interp.applied(tunnel, around):
        both = interp.collect(tunnel, sequences, "v", edits=given)
        saved = interp.collect(tunnel, sequences, "v", to=tmp_path / "c")
    assert both.provenance["edits"] == [around.to_json(), given.to_json()]
    record = interp.analyse(interp.open_capture(tmp_path / "c"), "manifold", settings=QUICK)
    assert saved.provenance["edits"] == [around.to_json()] == record.spec["edits"]
    assert any("attention-off" in caution for caution in record.cautions)


@pytest.mark.parametrize("gone", ["Mean", "Moments"])
def test_an_earlier_capture_opens_without_the_reductions_that_went(tunnel, sequences, tmp_path, gone):
    needs = [Need("v"), Need("pattern_entropy", PromptMean(), "all")]
    file = interp.collect(tunnel, sequences, needs).save(tmp_path / "c") / "capture.json"
    content = json.loads(file.read_text().replace('"PromptMean"', f'"{gone}"'))
    plain = {name: value for name, value in content.items() if name not in ("format", "digest")}
    file.write_text(json.dumps(content | {"digest": digest_of(plain)}))
    with pytest.warns(UserWarning, match=f"{gone} of pattern_entropy is left out"):
        opened = interp.open_capture(tmp_path / "c")
    assert list(opened) == [Need("v")]


@pytest.mark.slow
def test_streaming_holds_one_lot_of_prompts(tunnel, monkeypatch, tmp_path):
    """The largest memory of numpy does not grow with the prompts."""
    import gc
    import tracemalloc

    monkeypatch.setattr("interp.running.collect.PROMPTS_AT_ONCE", 20)
    gc.freeze()  # what earlier tests made does not put off the collection of garbage
    peaks = []
    for n in (40, 320):
        prompts = interp.sampled_prompts(Bijection(), n=n)
        tracemalloc.start()
        found = interp.collect(tunnel, prompts, [Need("resid", at="all")], to=tmp_path / str(n))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        size = found["resid"].nbytes
    gc.unfreeze()
    assert peaks[1] - peaks[0] < 0.25 * size


@pytest.mark.parametrize("extra", [{"layers": [0]}, {"edits": [interp.AblateHeads(layer=0, heads=0, by="zero")]}])
def test_what_depends_on_all_prompts_is_not_streamed(tunnel, sequences, tmp_path, extra):
    with pytest.raises(UsageError, match=next(iter(extra))):
        interp.collect(tunnel, sequences, ["v"], to=tmp_path / "c", **extra)
    for need in (Need("v", PromptSample(2)), Need("qk_logit_null"), Need("pattern_row")):
        with pytest.raises(UsageError, match=need.site):
            interp.collect(tunnel, sequences, [need], to=tmp_path / "c")
    (tmp_path / "c").mkdir()
    with pytest.raises(RecordError, match="exists"):
        interp.collect(tunnel, sequences, ["v"], to=tmp_path / "c")


def test_a_folder_that_another_process_made_meanwhile_is_left_alone(tunnel, sequences, tmp_path, monkeypatch):
    def streamed(*given):
        (tmp_path / "c").mkdir()
        return _streamed(*given)

    monkeypatch.setattr("interp.running.collect._streamed", streamed)
    with pytest.raises(RecordError, match="a file or folder of this name exists"):
        interp.collect(tunnel, sequences, ["v"], to=tmp_path / "c")
    assert [*tmp_path.rglob("*")] == [tmp_path / "c"]


def test_arrays_of_another_tool_are_the_capture_that_we_take(tiny_text_model, texts_read, tmp_path):
    texts, ours = texts_read
    ids = [tiny_text_model.tokenizer(text)["input_ids"] for text in texts]
    with torch.no_grad():
        logits = np.stack([tiny_text_model.module(torch.tensor([x])).logits[0, -1].numpy() for x in ids])
    theirs = interp.capture_from_arrays(
        {"v": ("row layer kv_head d_head", ours["v"].swapaxes(0, 1))}, texts, ids, tool="hooks of my own",
        model="mine", logits=logits, tokenizer=tiny_text_model.tokenizer,
    )  # fmt: skip
    np.testing.assert_array_equal(theirs["v"], ours["v"])
    for name, column in ours.rows.columns.items():
        if column.dtype.kind == "f":
            np.testing.assert_allclose(theirs.rows[name], column, atol=1e-4)
        else:
            assert np.array_equal(theirs.rows[name], column), name
    assert (theirs.model.n_layers, theirs.model.n_kv_heads) == (ours.model.n_layers, ours.model.n_kv_heads)
    again = interp.open_capture(theirs.save(tmp_path / "c"))
    assert_same(theirs, again)
    record = interp.analyse(again, Manifold(**QUICK["manifold"]), per_quintile=None, out=tmp_path / "runs")
    mine = interp.analyse(ours, Manifold(**QUICK["manifold"]), per_quintile=None)
    name = "pc1_plus_pc2_share"
    assert record.findings["manifold"][name].value == pytest.approx(mine.findings["manifold"][name].value, abs=1e-5)
    assert record.selfcheck == () and record.path is not None
    page = (record.path / "report.html").read_text()
    assert "Captured by hooks of my own; self-check: not ours" in page
    assert "Not ours" in theirs._repr_html_() and "Not ours" not in ours._repr_html_()


GOOD = np.zeros((2, 3, 4, 5), np.float32)
AXES = "layer row kv_head d_head"


def snippet(tool):
    """What the page shows for a tool, as the lines of a program."""
    page = (ROOT / "docs/how-to/captures.md").read_text(encoding="utf-8")
    shown = page.split(f'=== "{tool}"')[1].split("```py\n")[1].split("```")[0]
    return textwrap.dedent(shown)


def lens(model, folder):
    """The same weights in TransformerLens, which reads the tokenizer from the folder of the configuration."""
    bridges = pytest.importorskip("transformer_lens.model_bridge", reason="the extra oracle is not installed")
    config = copy.deepcopy(model.module.config)
    config.architectures = [type(model.module).__name__]
    config.save_pretrained(folder)
    tokenizer = copy.deepcopy(model.tokenizer)  # texts begin with a token there
    tokenizer.add_special_tokens({"bos_token": "!", "eos_token": "!", "pad_token": "!"})
    tokenizer.save_pretrained(folder)
    return bridges.TransformerBridge.boot_transformers(str(folder), hf_model=copy.deepcopy(model.module), device="cpu")


def traced(model, folder):
    """The same weights in nnsight."""
    nnsight = pytest.importorskip("nnsight", reason="the extra oracle is not installed")
    return nnsight.LanguageModel(copy.deepcopy(model.module), tokenizer=model.tokenizer)


@pytest.mark.parametrize(("tool", "of_tool"), [("TransformerLens", lens), ("nnsight", traced)])
def test_the_snippet_of_the_page_gives_the_capture_that_we_take(tool, of_tool, tiny_text_model, texts_read, tmp_path):
    texts, _ = texts_read
    info, program = tiny_text_model.info, tmp_path / "snippet.py"
    program.write_text(snippet(tool), encoding="utf-8")  # nnsight reads the source of its blocks
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known = {
            "model": of_tool(tiny_text_model, tmp_path), "texts": texts, "torch": torch, "interp": interp,
            "n_kv_heads": info.n_kv_heads, "d_head": info.d_head,
        }  # fmt: skip
        said = runpy.run_path(str(program), known)
    theirs, ids = said["capture"], [np.array(each) for each in said["ids"]]
    ours = capture(tiny_text_model, theirs.prompts, ids, [Need("v"), Need("next_log_prob")])
    assert [prompt.text for prompt in theirs.prompts] == texts
    assert tiny_text_model.tokenizer.decode(ids[0]).removeprefix("!") == texts[0]
    np.testing.assert_allclose(theirs["v"], ours["v"], atol=1e-5)
    np.testing.assert_allclose(theirs.rows["next_entropy_bits"], ours.rows["next_entropy_bits"], atol=1e-4)
    assert theirs.provenance["tool"] == tool


@pytest.mark.parametrize(
    "arrays, words",
    [
        ({"v": (AXES, GOOD[:, :2])}, "the axis row has 2 entries, by the rows at 'scored' it would have 3"),
        ({"v": ("layer row head d_head", GOOD)}, "the axes of v are layer row kv_head d_head"),
        ({"v": (AXES, GOOD[0])}, "the axes of v are layer row kv_head d_head"),
        ({"v": (AXES, GOOD), "k": (AXES, GOOD[..., :4])}, "d_head has 4 entries, by v it would have 5"),
        ({"v": (AXES, GOOD), "resid": ("depth row d_model", GOOD[:, :, 0])}, r"depth has 2 entries, by v .* 3"),
        ({"v": (AXES, GOOD.astype(int))}, "its dtype is int64"),
        ({"v": (AXES, GOOD.astype(object))}, "its dtype is object"),
        ({"v": (AXES, torch.zeros(2, 3, 4, 5, dtype=torch.bfloat16))}, "numpy cannot convert it"),
        ({"v": (AXES, [np.zeros(2), np.zeros(3)])}, "numpy cannot convert it"),
        ({Need("v", PromptSample(2)): (AXES, GOOD)}, "only rows and means over prompts"),
        ({}, "there is none"),
    ],
)  # fmt: skip
def test_arrays_that_do_not_fit_are_refused_in_words(arrays, words):
    with pytest.raises(UsageError, match=words):
        interp.capture_from_arrays(arrays, ["a", "b", "c"], [[1]] * 3, tool="t", model="m")


def test_names_ids_and_entropies_that_do_not_fit_are_refused_in_words():
    def made(**given):
        given = {"arrays": {"v": (AXES, GOOD)}, "tokens": [[1, 2], [3], [4]]} | given
        return interp.capture_from_arrays(prompts=["a", "b", "c"], tool="t", model="m", **given)

    with pytest.raises(UnknownName, match="site 'values'"):
        made(arrays={"values": (AXES, GOOD)})
    for tokens in ([[1, 2], [3]], [[1, 2], [], [4]], [["a"], [3], [4]], [[1.5], [3], [4]]):
        with pytest.raises(PromptError, match="token ids of 3 prompts"):
            made(tokens=tokens)
    with pytest.raises(UsageError, match=r"they are \[4, 9\], and there are 3 scored rows"):
        made(logits=np.zeros((4, 9)))
    with pytest.raises(UsageError, match="logits give them, too"):
        made(logits=np.zeros((3, 9)), next_entropy_bits=np.ones(3))
    for entropy in ([1.0, 2.0], [1.0, 2.0, np.nan], [1.0, 2.0, -1.0]):
        with pytest.raises(UsageError, match="next-token entropies"):
            made(next_entropy_bits=np.array(entropy))
    mixed = made(arrays={"v": (AXES, GOOD), "k": (AXES, GOOD.astype(np.float16))})
    assert mixed.model.dtype == "float16, float32" and mixed["k"].dtype == np.float32
    with pytest.raises(UsageError, match="no next_entropy_bits"):
        interp.analyse(mixed, "manifold")


def test_a_probe_that_needs_more_than_there_is_is_refused(texts_read, tiny_text_model):
    texts, ours = texts_read
    with pytest.raises(UsageError, match=r"it needs pattern_entropy, .*there are v, resid, next_log_prob"):
        interp.analyse(ours, "attention_entropy")
    with pytest.raises(UsageError, match="passes of its own"):
        interp.analyse(ours, "causal")
    with pytest.raises(UsageError, match="some of the layers"):
        interp.analyse(interp.collect(tiny_text_model, texts, ["v", "next_log_prob"], layers=[0]), "manifold")
    assert list(interp.analyse(ours, "all", settings=QUICK, per_quintile=None).findings) == ["manifold"]


def test_too_few_clusters_of_a_capture_are_refused_as_those_of_a_run_are():
    rows = np.random.default_rng(0).standard_normal((2, 6, 2, 4))
    texts = [Prompt(f"text {i} of a kind", columns={"kind": "ab"[i % 2]}) for i in range(6)]
    ids = np.arange(30).reshape(6, 5)

    def captured(prompts):
        arrays = {"v": ("layer row kv_head d_head", rows[:, : len(prompts)])}
        asked = {"tool": "mine", "model": "mine", "next_entropy_bits": np.arange(1.0, 1 + len(prompts))}
        return interp.capture_from_arrays(arrays, prompts, ids[: len(prompts)].tolist(), **asked)

    with pytest.raises(PromptError, match=r"manifold on 2 prompts[\s\S]*at least 3 prompts"):
        interp.analyse(captured(PromptSet("few", texts[:2], units={"kind": "label"})), "manifold")
    of_two = PromptSet("of two kinds", texts, units={"kind": "label"}, cluster="kind")
    with pytest.raises(PromptError, match=r"manifold on 6 prompts of 2 kinds[\s\S]*at least 3 clusters"):
        interp.analyse(captured(of_two), "manifold")


def edited(folder, name, change):
    content = json.loads((folder / name).read_text())
    change(content)
    (folder / name).write_text(json.dumps(content))


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda f: (f / "0-v.rows.safetensors").unlink(), "0-v.rows.safetensors is missing"),
        (lambda f: (f / "capture.json").unlink(), "there is no capture.json in it"),
        (lambda f: edited(f, "capture.json", lambda c: c.update(seed=5)), "capture.json is not as it was written"),
        (lambda f: edited(f, "capture.json", lambda c: c.update(format=3)), "it has format 3"),
        (lambda f: edited(f, "capture.json", lambda c: c.pop("needs")), "needs"),
        (lambda f: _flip(f / "0-v.rows.safetensors"), "0-v.rows.safetensors is not as it was written"),
        (lambda f: _flip(f / "prompts.parquet"), "prompts.parquet is not as it was written"),
    ],
)  # fmt: skip
def test_a_damaged_capture_is_refused_and_the_file_named(captured, tmp_path, damage, words):
    folder = captured.save(tmp_path / "c")
    damage(folder)
    with pytest.raises(RecordError, match=words):
        interp.open_capture(folder)


def _flip(path):
    content = bytearray(path.read_bytes())
    content[-20] ^= 1
    path.write_bytes(content)


def test_what_no_file_can_hold_or_what_is_there_already_is_refused_in_words(captured, texts_read, tmp_path):
    with pytest.raises(RecordError, match="numbers of type object"):
        dataclasses.replace(captured, arrays={Need("v"): {"rows": np.array([None])}}).save(tmp_path / "c")
    rows = texts_read[1].rows
    broken = rows.with_column("text", np.array(["\ud800"] * rows.n_rows, dtype=object), "label")
    with pytest.raises(RecordError, match="valid Unicode"):
        dataclasses.replace(texts_read[1], tables={"scored": broken}).save(tmp_path / "c")
    assert not list(tmp_path.iterdir())
    (tmp_path / "there").mkdir()
    with pytest.raises(RecordError, match="exists"):
        captured.save(tmp_path / "there")
