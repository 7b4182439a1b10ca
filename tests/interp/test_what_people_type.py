"""What people type who come from transformers, TransformerLens, nnsight, SAELens, scikit-learn and pandas.

Each call works, or is refused in words that name what to type here. A Python exception is always a fault.
"""

import inspect
import re
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from interp.wind_tunnels import Bijection
from safetensors.numpy import save_file

import interp
from interp.errors import InterpError, UnknownName, UsageError
from interp.need import Need
from interp.options import OPTIONS, RunOptions
from tests.paths import SHARED
from tests.quick import quick

pytestmark = pytest.mark.usefixtures("without_type_checks")  # what people give
FOLDER = SHARED / "models" / "stories260K"
TEXTS = [f"Once there was a {what}" for what in ("dog", "cat", "big tree", "little car")] * 5
TEXT = "Once upon a time"


@cache
def here() -> SimpleNamespace:
    """A language model with its tokenizer, read once."""
    if not FOLDER.is_dir():
        pytest.skip(f"needs {FOLDER}")
    return SimpleNamespace(model=interp.load(FOLDER), edit=interp.AblateHeads(0, 1))


def collected(needs, prompts=TEXTS, **how):
    return interp.collect(here().model, prompts, needs, **how)


RUN = {"probes": "attention_entropy", "prompts": TEXTS, "per_quintile": None, "out": None, "report": False,
       "quiet": True}  # fmt: skip


def ran(**how):
    return interp.run(here().model, **(RUN | how))


def entered(block):
    with block:
        return block


WORKS = {
    "one probe, configured": lambda: ran(probes=interp.registry.load_entry("probe", "attention_entropy")()),
    "analyse the whole capture": lambda: interp.analyse(
        collected(interp.registry.load_entry("probe", "attention_entropy")().needs), "attention_entropy", per_quintile=0
    ),
    "one text to collect": lambda: collected("v", TEXT),
    "one text to attribute": lambda: interp.logit_attribution(here().model, TEXT, n_null=3),
    "one text to continue": lambda: interp.generate(here().model, TEXT, n_tokens=2),
    "one text to show": lambda: interp.show_tokens(here().model, TEXT),
    "needs of an array": lambda: collected(np.array(["v", "k"])),
    "layers of an array": lambda: collected("v", layers=np.array([0, -1])),
    "needs of a generator": lambda: collected(name for name in ("v", "k")),
    "one layer": lambda: collected("v", layers=1),
    "one edit": lambda: collected("v", edits=here().edit),
    "an edit in plain values": lambda: collected("v", edits={"kind": "bypass", "layer": 1}),
    "one edit to continue": lambda: interp.generate(here().model, TEXT, here().edit, n_tokens=2),
    "one edit to show": lambda: interp.show_tokens(here().model, TEXT, edits=here().edit),
    "one edit of a run": lambda: ran(edits=here().edit),
    "edits and lists to apply": lambda: entered(interp.applied(here().model, here().edit, [here().edit])),
    "layers and heads by position": lambda: (interp.FeedForwardOff([0, 1]), interp.AblateHeads(0, np.array([1, 2]))),
    "a fraction that is whole": lambda: interp.generate(here().model, TEXT, n_tokens=2.0, temperature=np.float32(0.5)),
    "one layer to patch": lambda: interp.patching_map(here().model, "A cat", "A dog", answer=5, n_null=1, layers=0),
    "batches of one to patch": lambda: interp.patching_map(here().model, ["A cat"], ["A dog"], n_null=1, layers=[0]),
    "a batch of ids to patch": lambda: interp.patching_map(
        here().model, torch.tensor([[3, 4, 5]]), np.array([3, 4, 6]), answer=5, n_null=1, layers=[0]
    ),
    "the class of a probe": lambda: ran(probes=interp.registry.load_entry("probe", "attention_entropy")),
    "a number rounded": lambda: round(ran()["attention_entropy"]["reduction"], 2) + 0.0,
    "a list of edits that want means": lambda: interp.with_means(
        here().model, TEXTS, [interp.AblateHeads(0, 1, by="mean")]
    ),
    "a folder of one model": lambda: interp.run_many("nowhere", options={"prompts": TEXTS}).failures[0].model + "",
    "a set of texts": lambda: collected("v", interp.PromptSet("mine", TEXTS)),
    "what a model is already": lambda: interp.run(here().model, **RUN, dtype="fp32", device="cpu"),
    "the version": lambda: interp.__version__.split("."),
    "the versions": lambda: interp.show_versions(),
}  # fmt: skip

SAID = {
    "a frame of a table": (lambda: pd.DataFrame(collected("v").rows), "to_frame()"),
    "a row of a table": (lambda: collected("v").rows[0], "no column of this name"),
    "a precision of a model in memory": (lambda: ran(dtype="bf16"), "with dtype: a model in memory is used as it is"),
    "a device of a model in memory": (lambda: ran(device="cuda:7"), "with device"),
    "a module to run": (lambda: interp.run(here().model.module, **RUN), "it is a LlamaForCausalLM"),
    "models to run": (lambda: interp.run([here().model], **RUN), "interp.run_many"),
    "a model to replicate": (lambda: interp.replicate("paper3", models=[here().model]), "it is a Model"),
    "a folder of prompts": (lambda: collected("v", str(FOLDER)), f"hf:{FOLDER} reads"),
    "no needs": (lambda: interp.collect(here().model, TEXTS), "heads: q, k, v, z"),
    "empty needs": (lambda: collected([]), "weights: W_Q"),
    **{
        name: (lambda name=name: collected(name), f"Here it is '{ours}'")
        for name, ours in {
            "hidden_states": "resid", "last_hidden_state": "resid", "attentions": "pattern_row",
            "logits": "next_log_prob", "past_key_values": "k", "blocks.3.attn.hook_pattern": "pattern_row",
            "blocks.0.hook_resid_pre": "resid", "resid_post": "resid", "hook_z": "z", "blocks.1.attn.hook_q": "q_pre",
            "blocks.1.attn.hook_rot_k": "k", "blocks.2.hook_mlp_out": "mlp_out", "attn.hook_attn_scores": "qk_logit",
            "model.layers.3.self_attn": "attn_out", "transformer.h.0.mlp": "mlp_out", "log_probs": "next_log_prob",
            "lm_head": "next_log_prob", "values": "v", "attn_weights": "pattern_row", "loss": "next_loss",
        }.items()
    },
    "torch_dtype": (lambda: interp.load(FOLDER, torch_dtype="auto"), "It is `dtype`"),
    "load_in_8bit": (lambda: interp.load(FOLDER, load_in_8bit=True), "allow_quantised"),
    "probes by position": (lambda: interp.run(here().model, "manifold"), "by name: probes, settings, prompts"),
    "batch_size": (lambda: collected("v", batch_size=8), "leave it out"),
    "a batch of none": (lambda: ran(batch_size=0), "1 to 10,000,000"),
    "a layer of a run": (lambda: ran(layer=3), "settings={'manifold': {'layer': 3}}"),
    "output_dir": (lambda: ran(output_dir="x"), "It is `out`"),
    "random_state": (lambda: ran(random_state=0), "It is `seed`"),
    "do_sample": (lambda: interp.generate(here().model, TEXT, do_sample=True), "A temperature above 0"),
    "top_k": (lambda: interp.generate(here().model, TEXT, top_k=50), "most likely"),
    "attn_implementation": (lambda: interp.load(FOLDER, attn_implementation="eager"), "leave it out"),
    "positions of a capture": (lambda: collected("v", at="last"), "interp.Need('v', at='last')"),
    "half a token": (lambda: interp.generate(here().model, TEXT, n_tokens=1.5), "Give a whole number"),
    "no temperature": (lambda: interp.generate(here().model, TEXT, temperature=None), "Give a number"),
    "the name of a model": (lambda: interp.collect("stories260K", TEXTS, "v"), "interp.load(name) gives a Model"),
    "edits of a name": (lambda: entered(interp.applied("stories260K", here().edit)), "interp.load(name)"),
    "a model to analyse": (lambda: interp.analyse(here().model, "manifold"), "gives a Capture"),
    "a model to sample": (lambda: interp.sampled_prompts(here().model, 3), "`task` of a wind tunnel"),
    "the task of a language model": (lambda: interp.sampled_prompts(here().model.task, 3), "`task` of a wind tunnel"),
    "a record to open": (lambda: interp.open_run(ran()), "Give a text or a path"),
    "a prompt by its name": (lambda: interp.show_tokens(here().model, TEXTS, "first"), "Give a whole number"),
    "fewer than no draws": (lambda: interp.logit_attribution(here().model, TEXT, n_null=-1), "from 0"),
    "a function as edit": (lambda: collected("v", edits=lambda x: x), "interp.AblateHeads(0, 1)"),
    "pairs of heads": (lambda: interp.AblateHeads([(0, 1), (1, 2)]), "By position: layer, heads"),
    "layers of an edit": (lambda: interp.AblateHeads(layers=[0], heads=[1]), "Did you mean layer"),
    "half an edit": (lambda: interp.ShiftAxis(0, axis=[1.0], site="resid"), "deviations"),
    "a field of a probe": (
        lambda: interp.registry.load_entry("probe", "manifold")(scalling="zscored"), "Did you mean scaling"
    ),
    "fit of a probe": (lambda: interp.registry.load_entry("probe", "manifold")().fit, "interp.analyse"),
    "ci of a number": (lambda: ran()["attention_entropy"]["reduction"].ci, "`interval` (95 %)"),
    "settings as in the shell": (lambda: ran(settings="manifold.scaling=zscored"), "{'manifold': {'scaling'"),
    "another null": (lambda: ran(null="random"), "Known: untrained"),
    "yes as true": (lambda: ran(chat="yes"), "True or False"),
    "clusters of values": (lambda: ran(cluster=["a", "b"]), "Give a text"),
    "a checkpoint": (lambda: ran(checkpoints="step1"), "the checkpoints step1"),
    "the number of a prompt": (lambda: ran(show_tokens=99), "0 to 19"),
    "a site by number": (lambda: Need(3), "there is no site"),
    "from_pretrained": (lambda: interp.from_pretrained, "interp.load"),
    "HookedTransformer": (lambda: interp.HookedTransformer, "interp.load"),
    "run_with_cache": (lambda: interp.run_with_cache, "interp.collect"),
    "SAE": (lambda: interp.SAE, "interp.open_features"),
    "a slip of interp": (lambda: interp.colect, "Did you mean collect"),
    "max_new_tokens": (lambda: interp.generate(here().model, TEXT, max_new_tokens=3), "It is `n_tokens`"),
    "names_filter": (lambda: collected("v", names_filter=None), "needs"),
    "settings of nobody": (lambda: ran(settings={"manifolds": {"n_null": 3}}), "attention_entropy"),
    "a seed in words": (lambda: ran(seed="zero"), "seed) = 'zero'"),
    "layers in words": (lambda: collected("v", layers="last"), "Give whole numbers"),
    "a layer too many": (lambda: collected(Need("v", layers=[99])), "0 to 4"),
    "an edit that is none": (lambda: collected("v", edits="ablate"), "JSON file"),
    "no sequences": (lambda: interp.sampled_prompts(Bijection(), 0), "from 1 to"),
    "a negative seed": (lambda: interp.sampled_prompts(Bijection(), seed=-1), "from 0 to"),
    "a negative seed to attribute": (lambda: interp.logit_attribution(here().model, TEXT, seed=-1), "from 0 to"),
    "a negative seed to patch": (lambda: interp.patching_map(here().model, "A cat", "A dog", seed=-1), "from 0 to"),
    "a negative seed to certify": (lambda: interp.certify("orthogonality", scale="smoke", seed=-1), "from 0 to"),
    "a negative seed of arrays": (
        lambda: interp.capture_from_arrays({}, [TEXT], [[1]], tool="x", model="y", seed=-1), "from 0 to"
    ),
    "half a token to attribute": (lambda: interp.logit_attribution(here().model, TEXT, answer=1.5), "a whole number"),
    "half tokens to attribute": (
        lambda: interp.logit_attribution(here().model, TEXTS[:2], answer=[1.5, 2.5]), "a whole number"
    ),
    "a negative precision": (lambda: interp.fit_lens(here().model, TEXTS, precision_bits=-1.0), "Give 0 or more"),
    "a negative horizon": (lambda: interp.fit_lens(here().model, TEXTS, horizon=-1), "fit_lens(horizon=-1)"),
    "a scored position too many": (lambda: interp.Prompt(token_ids=[1, 2], scored=[5]), "position 5 is scored, of 2"),
    "a position not captured": (lambda: collected("v").rows_at("last"), "Known: scored"),
    "a short mask": (lambda: collected("v").where(np.ones(3, bool)), "one boolean for each of the 20 rows"),
    "a mask in numbers": (lambda: collected("v").where([0, 1]), "its dtype int64"),
    "a tensor of numbers": (lambda: ran(prompts=torch.zeros(2)), "Give a text there"),
}  # fmt: skip


@pytest.mark.parametrize("call", WORKS)
def test_a_habit_works(call):
    here()
    assert WORKS[call]() is not RuntimeError


@pytest.mark.parametrize("call", SAID)
def test_a_habit_that_does_not_work_is_answered_with_what_to_type(call):
    here()
    asked, words = SAID[call]
    with pytest.raises(InterpError) as caught:
        asked()
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (torch.bfloat16, "bfloat16"), ("bf16", "bfloat16"), ("BF16", "bfloat16"), ("torch.float16", "float16"),
        ("fp16", "float16"), ("half", "float16"), (np.dtype("float64"), "float64"), (np.float32, "float32"),
    ],
)  # fmt: skip
def test_a_precision_is_recorded_by_its_name(given, name):
    assert RunOptions(dtype=given).dtype == name and interp.load("tunnel:bijection-gpt-neox").info.dtype == "float32"


@pytest.mark.parametrize("probe", quick(["attention_entropy"], ["attention_entropy", "causal"]))
def test_no_pass_has_more_sequences_than_were_asked_for_and_the_numbers_stay(probe):
    seen, head = [], here().model.module.model
    handle = head.register_forward_pre_hook(
        lambda _, args, given: seen.append(len(given["input_ids"])), with_kwargs=True
    )
    few = {"causal": {"n_controls": 19, "n_bootstrap": 20}} if probe == "causal" else None
    told = {"prompts": [f"{text} {word}" for text in TEXTS[:4] for word in ("ran", "sat", "came home")]}
    try:
        small = ran(probes=probe, settings=few, batch_size=3, **told)[probe].scalars
        largest, _ = max(seen), seen.clear()
        plain = ran(probes=probe, settings=few, **told)[probe].scalars
    finally:
        handle.remove()
    assert largest == 3 < max(seen)
    for name, scalar in plain.items():
        np.testing.assert_allclose(small[name].value, scalar.value, rtol=1e-3, atol=1e-4)


def test_paths_streams_options_and_signatures_take_what_people_give():
    table = pd.DataFrame({"text": TEXTS, "n": range(20)})
    counts = [len(interp.collect(here().model, given, "v").prompts) for given in (TEXT, table, iter(TEXTS))]
    assert counts == [1, 20, 20]
    assert list(inspect.signature(interp.AblateHeads).parameters)[:2] == ["layer", "heads"]
    asked = RunOptions(
        device=torch.device("cuda", 1), seed=np.int32(4), n_pool=torch.tensor(7), per_quintile=np.int64(0), out="~/runs"
    )
    assert (asked.device, asked.seed, asked.n_pool, asked.per_quintile) == ("cuda:1", 4, 7, None)
    assert type(asked.seed) is int and asked.out == Path.home() / "runs" and RunOptions(device=1).device == "cuda:1"


def test_a_need_of_some_layers_keeps_these_alone_in_a_file_too(tmp_path, tunnel):
    prompts = interp.sampled_prompts(tunnel.task, 4)
    some, every = Need("v", layers=np.array([2, 0])), Need("v")
    found = interp.collect(tunnel, prompts, [some, every, Need("resid", layers=-1), Need("W_Q", layers=[1])])
    np.testing.assert_array_equal(found[some], found[every][[2, 0]])
    assert found["resid"].shape[0] == 1 and found["W_Q"].shape[0] == 1 and "next_entropy_bits" in found.rows
    with pytest.raises(UsageError, match="no layers"):
        Need("next_log_prob", layers=[0])
    found = interp.collect(tunnel, interp.sampled_prompts(tunnel.task, 4), [Need("v", layers=[1]), Need("v")])
    again = interp.open_capture(found.save(tmp_path / "capture"))
    assert list(again) == list(found)
    np.testing.assert_array_equal(again[Need("v", layers=[1])], found[Need("v", layers=(1,))])


def test_a_path_may_begin_at_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "texts.txt").write_text("One day\nTwo days\n", encoding="utf-8")
    capture = collected("v", "~/texts.txt", to="~/kept")
    assert (tmp_path / "kept" / "capture.json").is_file() and len(capture.prompts) == 2
    assert len(interp.open_capture("~/kept").prompts) == 2
    monkeypatch.chdir(tmp_path)
    model = here().model
    interp.save_lens(interp.FittedLens.logit(model), "~/lens.safetensors")
    asked = {"probes": "orthogonality", "n_pool": 20, "quiet": True}
    record = interp.run(model, lens="~/lens.safetensors", out="~/runs", **asked)
    assert interp.open_lens("~/lens.safetensors").kind == "logit" and record.path.parent == tmp_path / "runs"
    assert interp.generate(model, ["the cat"], n_tokens=1).write("~/words.html") == tmp_path / "words.html"
    assert interp.index_runs("~/runs") == tmp_path / "runs" / "index.html"
    again = interp.run(model, seed=1, out="~/runs", **asked)
    assert interp.compare([record, again], out="~/compared").path.parent == tmp_path / "compared"
    (tmp_path / "sae").mkdir()
    (tmp_path / "sae" / "cfg.json").write_text('{"hook_name": "blocks.1.hook_resid_post"}')
    save_file({"W_dec": np.eye(8, dtype=np.float32)}, tmp_path / "sae" / "sae_weights.safetensors")
    assert interp.open_features("~/sae").place["layer"] == 2 and not (tmp_path / "~").exists()
    with pytest.raises(interp.InterpError, match="~nobody-of-this-name"):
        interp.open_run("~nobody-of-this-name/runs")


@pytest.mark.parametrize("function", [interp.run, interp.plan])
def test_a_tooltip_shows_names_types_and_defaults_on_a_screen(function):
    shown = str(inspect.signature(function))
    assert len(shown) < 2_500 and " Option(" not in shown and "dtype: 'str | torch.dtype | None' = None" in shown
    args = inspect.getdoc(function).partition("Args:\n")[2]
    assert all(f"    {name}: {option.help}" in args for name, option in OPTIONS.items())


@pytest.mark.parametrize("name", [name for name in interp.__all__ if inspect.isfunction(getattr(interp, name))])
def test_a_docstring_tells_every_argument_the_result_and_an_example(name):
    function = getattr(interp, name)
    parts = re.split(r"^(Args|Returns|Yields|Raises|Examples):$", inspect.getdoc(function), flags=re.MULTILINE)
    told = dict(zip(parts[1::2], parts[2::2], strict=True))
    args = re.findall(r"^    \*?(\w+): \S", told.get("Args", ""), flags=re.MULTILINE)
    assert args == list(inspect.signature(function).parameters)
    assert name == "show_versions" or {"Returns", "Yields"} & told.keys()
    assert ">>>" in told["Examples"]


def test_calls_with_unknown_or_missing_arguments_are_answered():
    functions = [each for name in interp.__all__ if inspect.isfunction(each := getattr(interp, name))]
    assert {"run", "load", "collect", "generate", "analyse", "compare"} <= {each.__name__ for each in functions}
    for function in functions:
        with pytest.raises(UnknownName, match=f"interp.{function.__name__}"):
            function(no_such_thing=1)
        kinds = {each.kind for each in inspect.signature(function).parameters.values()}
        if inspect.Parameter.VAR_POSITIONAL not in kinds:
            with pytest.raises(UsageError, match="By position"):
                function(*range(30))
    with pytest.raises(UsageError, match="missing a required argument: 'prompts'"):
        interp.collect(interp.load("tunnel:bijection-gpt-neox"))


TEXT_COLUMNS = [interp.Prompt("a", columns={"k": 1})]
MISUSED = {
    "positions of an output": (lambda: Need("next_log_prob", at="all"), "at scored positions alone, and not at 'all'"),
    "positions of weights": (lambda: Need("W_Q", at="all"), "neither positions nor a reduction"),
    "positions without a follower": (lambda: Need("next_loss"), "a token follows, and not at 'scored'"),
    "the mean of tunnel positions": (lambda: Need("v", interp.PromptMean(), at="tunnel"), "has no mean"),
    "a reduction by name": (lambda: Need("v", "mean"), "its reduction is 'mean'"),
    "the class of a reduction": (lambda: Need("v", interp.PromptMean), "its reduction is <class"),
    "a position by number": (lambda: Need("v", at=3), "its positions are 3"),
    "several sites": (lambda: Need(["v", "k"]), "there is no site of this name"),
    "a keyword": (lambda: Need("v", position="all"), "keyword of Need 'position'"),
    "no site": (lambda: Need(), "missing a required argument: 'site'"),
    "an edit of several sites": (lambda: interp.RemoveAxis(layer=0, axis=np.eye(4)[0], site=["v"]), "cannot be edited"),
    "no text": (lambda: interp.Prompt(), "either a text or token ids"),
    "two texts in one": (lambda: interp.Prompt(["a", "b"]), "the text of a prompt"),
    "columns without names": (lambda: interp.Prompt("a", columns=["k"]), "columns of a prompt"),
    "several values in a column": (lambda: interp.Prompt("a", columns={"k": [1, 2]}), r"holds \[1, 2\]"),
    "a missing value": (
        lambda: interp.Prompt(token_ids=[1, 2], scored=[0, 1], scored_columns={"k": [1]}), "scored positions: 2"),
    "scored positions of a text": (lambda: interp.Prompt("a b", scored=[0, 1]), "scored at its last token"),
    "one text as prompts": (lambda: interp.PromptSet("x", "abc"), "its prompts are 'abc'"),
    "a table as prompts": (lambda: interp.PromptSet("x", pd.DataFrame({"text": ["a"]})), "its prompts are"),
    "token ids as prompts": (lambda: interp.PromptSet("x", [[1, 2]]), r"prompt 1 of 'x': it is \[1, 2\]"),
    "no name": (lambda: interp.PromptSet(["a"]), "missing a required argument: 'prompts'"),
    "units without columns": (lambda: interp.PromptSet("x", TEXT_COLUMNS, units=["k"]), r"its units are \['k'\]"),
    "a posterior of other rows": (
        lambda: interp.PromptSet("x", ["a"], posterior=np.ones((3, 2)) / 2, outcome_ids=[1, 2]), "scored positions: 1"),
    "a posterior over nothing": (lambda: interp.PromptSet("x", ["a"], posterior=[[0.5, 0.5]]), "has 2 outcomes"),
    "prompts that are not there": (lambda: interp.PromptSet("x", ["a"])[[1]], r"they are \[1\]"),
    "fractions of prompts": (lambda: interp.PromptSet("x", ["a", "b"])[[0.7]], r"they are \[0.7\]"),
    "a prompt that is not there": (lambda: interp.PromptSet("x", ["a"])[3], "they are 3"),
    "a prompt by its name": (lambda: interp.PromptSet("x", ["a"])["a"], "they are 'a'"),
    "no prompts": (lambda: interp.PromptSet("x", ["a"])[1:], "they are slice"),
    "a habit": (lambda: interp.PromptSet("x", ["a"]).take([0]), r"`prompts\[3\]` is one prompt"),
}  # fmt: skip


@pytest.mark.parametrize("what", MISUSED)
def test_what_a_constructor_cannot_take_is_refused_in_words(what):
    make, told = MISUSED[what]
    with pytest.raises(UsageError, match=told):
        make()


def test_every_prompt_of_a_generator_is_kept_and_numbers_slices_and_masks_choose_prompts():
    made = interp.PromptSet("x", (each for each in ["a", "b", "c"]))
    assert [each.text for each in made] == ["a", "b", "c"]
    assert [each.text for each in made[np.array([True, False, True])]] == ["a", "c"]
    assert [made[np.int64(1)].text, made[-1].text, made[torch.tensor(0)].text] == ["b", "c", "a"]
    for some in (made[::2], made[[0, -1]], made[0, 2], made[torch.tensor([0, 2])], made[range(0, 3, 2)]):
        assert some == interp.PromptSet("x", ["a", "c"])


def test_outcomes_outside_the_vocabulary_and_what_is_no_listener_are_refused(tunnel):
    posterior = {"posterior": [[0.5, 0.5]], "outcome_ids": [1, 2000]}
    prompts = interp.PromptSet("x", [interp.Prompt(token_ids=[1, 2])], **posterior)
    with pytest.raises(UsageError, match="outcome_ids of 'x': they are 1 to 2000"):
        interp.collect(tunnel, prompts, ["outcome_log_prob"])
    for given in ([], [interp.Listener], [print]):
        with pytest.raises(UsageError, match="it was given"), interp.listening(tunnel, *given):
            pass
