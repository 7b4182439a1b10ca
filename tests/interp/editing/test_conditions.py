"""Conditions: batched, restarted, and over ends of prompts equals one by one; sites are as defined; proofs can fail."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch

from interp.editing import restart
from interp.editing.conditions import Run, capture_edited, read_conditions
from interp.editing.editor import Editor
from interp.editing.prompt_tensors import HeadOutputs
from interp.editing.restart import Prefixes, Residuals
from interp.editing.steps import EditStep
from interp.edits import (
    AblateHeads,
    AttentionOff,
    BypassLayer,
    FeedForwardOff,
    RemoveAxis,
    ReplaceCoordinates,
    ShiftAxis,
)
from interp.errors import ModelError, PromptError, UsageError
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import Condition, Probe
from interp.prompt import Prompt, PromptSet
from interp.reading.forward import capture
from interp.reductions import PromptMean
from interp.running.run import run
from tests.interp.test_families import tiny
from tests.quick import quick
from tests.tiny_models import FAMILIES, VOCAB, fresh_model, shapes_of_passes, tiny_model

KL, SIZE, LOSS = Need("next_kl"), Need("edit_size"), Need("next_loss", at="followed")
NEEDS = (KL, Need("next_log_prob"), Need("v"), Need("resid"), Need("z", at="all"), Need("pattern_entropy"), LOSS, SIZE)


def token_run(lengths=(9, 6, 9, 4), scored=None):
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, VOCAB, size=n) for n in lengths]
    prompts = [Prompt(token_ids=tuple(x.tolist()), columns={"mark": len(x) // 2}, scored=scored) for x in ids]
    return Run(PromptSet("tokens", prompts, units={"mark": "tokens"}), ids)


def everything(under):
    return {f"{need.site}": under[need] for need in under.arrays} | {
        "share": under.reduced(SIZE)["variance_share"], "entropy": under.rows["next_entropy_bits"],
    }  # fmt: skip


def axis(seed, d=24):
    return np.random.default_rng(seed).normal(size=d)


def many(d):
    """Conditions of several kinds, some of which differ in numbers alone."""
    edits = {f"cut{i}": (RemoveAxis(layer=-1, axis=axis(i, d)), RemoveAxis(layer=1, axis=axis(-i % 97, d)))
             for i in range(4)}  # fmt: skip
    edits |= {f"dose{t}": (ShiftAxis(layer=1, site="resid", axis=axis(1, 48), deviations=1.0, score_sigma=2.0, dose=t),)
              for t in (0.0, 0.5, -1.0)}  # fmt: skip
    edits |= {f"{by}{h}": (AblateHeads(layer=1, heads=(h % 4,), by=by, seed=h),)
              for h in (0, 3, 4) for by in ("zero", "mean", "resample")}  # fmt: skip
    edits |= {"bypass": (BypassLayer(layer=2),), "off": (AttentionOff(layer=0), FeedForwardOff(layer=0, at="last"))}
    edits |= {"end": (RemoveAxis(layer=-1, site="resid", axis=axis(3, 48), at="mark"),), "baseline": ()}
    return [Condition(name, chosen, NEEDS, everything) for name, chosen in edits.items()]


def read_whole(model, source, conditions, **how):
    """In passes that start at the embedding, over whole prompts: there is no memory for what lies before."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(restart, "MEMORY", 0)
        return read_conditions(model, source, conditions, **how)


def worst(a, b):
    assert a.keys() == b.keys()
    return max(float(np.abs(a[c][n] - b[c][n]).max()) for c in a for n in a[c] if a[c][n].size)


@pytest.mark.parametrize("family", quick(["gpt_neox", "llama"], FAMILIES))
def test_shared_and_restarted_passes_equal_whole_ones_of_one_condition(family):
    model, source = tiny_model(family), token_run()
    conditions = many(model.info.n_kv_heads * 12)
    shared = read_conditions(model, source, conditions)
    alone = {}
    for c in conditions:
        alone |= read_whole(model, source, [c], tokens_per_pass=1)
    assert list(shared) == [c.name for c in conditions]
    assert worst(shared, alone) < 2e-5
    assert shared["bypass"]["next_kl"].max() > 1e-3


def test_controls_share_passes_that_start_at_the_edited_layer():
    model, layers = fresh_model("llama"), []
    passes = shapes_of_passes(model)
    for n, block in enumerate(model.module.model.layers):
        block.mlp.register_forward_hook(lambda m, a, out, n=n: layers.append(n))
    conditions = [
        Condition(str(i), (RemoveAxis(layer=2, axis=axis(i)),), (KL,), everything_but_size) for i in range(20)
    ]
    read_conditions(model, token_run((8, 8)), conditions, tokens_per_pass=160)
    assert [n for n, _ in passes] == [2, 20, 20]
    assert layers == [0, 1, 2, 2, 2]


def everything_but_size(under):
    return {"kl": under[KL]}


def test_next_kl_and_next_loss_equal_their_definitions():
    model, source = tiny_model("gpt_neox"), token_run()
    needs = (KL, Need("next_log_prob"), LOSS)
    plain = capture(model, source.prompts, source.ids, needs)
    edited = capture_edited(model, source.prompts, source.ids, needs, [BypassLayer(layer=1)])
    before, after = plain[needs[1]].astype(np.float64), edited[needs[1]].astype(np.float64)
    assert np.abs(edited[KL] - (np.exp2(before) * (before - after)).sum(-1)).max() < 1e-5
    assert not plain[KL].any()
    expected = []
    with torch.inference_mode():
        for x in source.ids:
            logits = model.module(input_ids=torch.from_numpy(x)[None]).logits[0].double()
            log_p = torch.log_softmax(logits, -1).numpy() / np.log(2)
            expected.append(-log_p[np.arange(len(x) - 1), x[1:]])
    assert np.abs(plain[LOSS] - np.concatenate(expected)).max() < 1e-4
    assert plain.rows_at("followed")["position"].tolist() == [i for x in source.ids for i in range(len(x) - 1)]
    need = Need("next_loss", PromptMean(), "followed")
    means = capture(model, source.prompts, source.ids, [need])[need]
    assert np.abs(means - [e.mean() for e in expected]).max() < 1e-4


def test_edit_size_and_variance_share_equal_their_definitions():
    model, source = tiny_model("llama"), token_run()
    u = axis(0)
    unit = u / np.linalg.norm(u)
    v = Need("v", at="all")
    plain = capture(model, source.prompts, source.ids, [v])
    values = plain[v][1].reshape(-1, 24).astype(np.float64)
    prompt = plain.rows_at("all")["prompt"]
    got = capture_edited(model, source.prompts, source.ids, [SIZE], [RemoveAxis(layer=1, axis=u)])
    expected = [np.linalg.norm(values[prompt == p] @ unit) / np.linalg.norm(values[prompt == p]) for p in range(4)]
    assert np.abs(got[SIZE] - [expected]).max() < 1e-5
    share = (values @ unit).var() / values.var(axis=0).sum()
    assert got.reduced(SIZE)["variance_share"] == pytest.approx([share], rel=1e-4)
    assert got.reduced(SIZE)["layer"].tolist() == [1]


def test_blocks_whose_output_nothing_reads_do_not_run():
    """They run where passes are whole, where a dose or a need uses what they do, and where size is measured."""
    model, source, calls = fresh_model("llama"), token_run(), []
    last = model.family.layer_modules(model.module)[-1]
    last.mlp.register_forward_hook(lambda *called: calls.append(1))
    outputs, cut = (KL, Need("next_log_prob")), BypassLayer(layer=tuple(range(1, model.info.n_layers)))

    def read(edit=cut, needs=outputs, how=read_conditions):
        calls.clear()
        return how(model, source, [Condition("c", (edit,), needs, everything_but_size)]), len(calls)

    found, n = read()
    whole, n_whole = read(how=read_whole)
    assert worst(found, whole) < 1e-6 and n_whole == n + 1
    others = {"edit": replace(cut, dose=0.5)}, {"needs": (*outputs, Need("v"))}, {"needs": (*outputs, SIZE)}
    assert [read(**other)[1] for other in others] == [n + 1] * 3


def test_a_subset_of_prompts_keeps_its_order_and_what_is_known_of_it():
    model, source = tiny_model("phi"), token_run()
    chosen = np.array([3, 0])
    edit = (BypassLayer(layer=1),)
    whole = read_conditions(model, source, [Condition("all", edit, NEEDS, everything)])["all"]
    some = read_conditions(model, source, [Condition("some", edit, NEEDS, everything, prompts=chosen)])["some"]
    assert np.abs(some["next_kl"] - whole["next_kl"][chosen]).max() < 1e-5
    ways = {"mask": np.array([True, False, True, False]), "numbers": np.array([1, 0, 1, 0])}
    several = [Condition(way, edit, NEEDS, everything, prompts=chosen) for way, chosen in ways.items()]
    read = read_conditions(model, source, several)
    for way, chosen in ways.items():
        assert np.abs(read[way]["next_kl"] - whole["next_kl"][chosen]).max() < 1e-5
    prompts = [Prompt(token_ids=(1, 2, 3), scored=(0, 2)), Prompt(token_ids=(1,), scored=(0,)), Prompt(token_ids=(5,))]
    posterior = np.arange(8.0).reshape(4, 2)
    pool = PromptSet("p", prompts, posterior=posterior, belief=posterior, outcome_ids=np.arange(6).reshape(3, 2))
    taken = pool[2, 0]
    assert taken.posterior.tolist() == posterior[[3, 0, 1]].tolist() == taken.belief.tolist()
    assert taken.outcome_ids.tolist() == [[4, 5], [0, 1]]


def test_interchange_puts_a_donors_coordinates_in_place():
    model, source = tiny_model("gpt_neox"), token_run((7, 7), scored=(2, 6))
    need, basis = Need("resid"), np.linalg.qr(np.random.default_rng(0).normal(size=(48, 48)))[0]
    plain = capture(model, source.prompts, source.ids, [need, Need("next_log_prob")])
    donors = plain[need][2][[2, 3, 0, 1]].astype(np.float64)
    edit = ReplaceCoordinates(layer=2, site="resid", axis=basis, values=donors @ basis.T, at="scored")
    got = capture_edited(model, source.prompts, source.ids, [need], [edit])
    assert np.abs(got[need][2] - donors).max() < 1e-4
    with pytest.raises(UsageError, match="values of 4 rows"):
        capture_edited(model, source.prompts, source.ids, [need], [replace(edit, at="all")])


def test_a_resampled_head_has_its_donors_outputs():
    model, source = tiny_model("llama"), token_run((5, 5, 8))
    need = Need("z", at="all")
    plain = capture(model, source.prompts, source.ids, [need])
    got = capture_edited(model, source.prompts, source.ids, [need], [AblateHeads(layer=1, heads=(2,), by="resample")])
    bank = HeadOutputs(source.lengths, [1])
    donor = bank.donors(0)
    prompt = plain.rows_at("all")["prompt"]
    for p in range(3):
        theirs = plain[need][1][prompt == donor[p]]
        n = min(source.lengths[p], len(theirs))
        mine = got[need][1][prompt == p]
        assert np.abs(mine[:n, 2] - theirs[:n, 2]).max() < 1e-6
        for row in mine[n:, 2]:
            assert np.abs(row - theirs[:, 2]).max(axis=1).min() < 1e-6, "of another position of its donor"
        assert np.abs(mine[:, [0, 1, 3]] - plain[need][1][prompt == p][:, [0, 1, 3]]).max() < 1e-6
    for seed in range(20):
        lent = bank.donors(seed)
        assert lent[0] in (1, 2) and lent[1] in (0, 2) and lent[2] in (0, 1)
        assert HeadOutputs(np.array([3, 9, 5]), [1]).donors(seed)[1] == 2, "the longest of the others"
        assert HeadOutputs(np.array([3, 9, 5]), [1]).donors(seed)[2] == 1
    assert len({bank.donors(seed)[0] for seed in range(8)}) == 2
    with pytest.raises(PromptError, match="there is only one prompt"):
        capture_edited(model, *one(source), [need], [AblateHeads(layer=1, heads=(2,), by="resample")])


def test_the_longest_prompt_is_lent_many_positions_and_not_one_many_times():
    model, source = tiny_model("llama"), token_run((6, 30))
    need = Need("z", at="all")
    plain = capture(model, source.prompts, source.ids, [need])
    edit = AblateHeads(layer=1, heads=(2,), by="resample")
    prompt = plain.rows_at("all")["prompt"]
    theirs = plain[need][1][prompt == 0][:, 2]

    def lacking():
        mine = capture_edited(model, source.prompts, source.ids, [need], [edit])[need][1][prompt == 1][6:, 2]
        return np.abs(mine[:, None] - theirs[None]).max(axis=2).argmin(axis=1)

    lent = lacking()
    assert set(lent) == set(range(6)), "all positions of the donor, of 24 draws"
    assert max(np.bincount(lent)) < 12
    np.testing.assert_array_equal(lacking(), lent, err_msg="drawn by the seed alone")


def one(source):
    return source.prompts[:1], source.ids[:1]


def test_thin_memory_keeps_fewer_depths_and_the_same_numbers(monkeypatch):
    model, lengths = tiny_model("llama"), np.array([4, 3])
    assert Residuals(model, {0, 1, 2, 3}, lengths).kept.layers == [1, 2, 3]
    monkeypatch.setattr(restart, "MEMORY", 2 * 4 * 48 * 4)
    few = Residuals(model, {1, 2, 3}, lengths)
    assert few.kept.layers == [1] and few.start_of(3) == 1 and few.start_of(0) == 0
    monkeypatch.setattr(restart, "MEMORY", 1)
    assert Residuals(model, {1, 2, 3}, lengths).kept.layers == []


def test_edits_are_proved_and_the_proof_can_fail(monkeypatch):
    model, source = tiny_model("gpt_neox"), token_run()
    checks = []
    edits = (RemoveAxis(layer=1, axis=axis(0, 48)), AblateHeads(layer=2, heads=(1,), by="mean"), BypassLayer(layer=2))
    read_conditions(model, source, [Condition("c", edits, (KL,), everything_but_size)], checks=checks)
    names = ["read-back", "reached", "pattern", "dose 0", "restored", "restart"]
    assert [c.name for c in checks] == [f"edit {name}" for name in names]
    assert all(c.passed for c in checks)

    honest = Editor.before

    def touching_the_keys(self, call):
        honest(self, call)
        call.k = call.k * 1.5

    def changing_them_in_place(self, call):
        call.k.mul_(1.5)
        honest(self, call)

    for of, name, wrong, check in (
        (EditStep, "edited", lambda self, x, rows, others: x * 0.9, "read-back"),
        (Editor, "before", touching_the_keys, "pattern"),
        (Editor, "before", changing_them_in_place, "pattern"),
    ):
        with monkeypatch.context() as patch, pytest.raises(ModelError, match=f"edit {check}"):
            patch.setattr(of, name, wrong)
            read_conditions(model, source, [Condition("c", edits[:1], (KL,), everything_but_size)], checks=[])


def test_two_conditions_of_one_name_and_a_causal_probe_on_an_edited_model_are_refused():
    twice = [Condition("c", (BypassLayer(layer=2),), (KL,), everything_but_size)] * 2
    with pytest.raises(ValueError, match="two conditions are named 'c'"):
        read_conditions(tiny_model("llama"), token_run(), twice)
    with pytest.raises(UsageError, match="its own edits"):
        run("tunnel:bijection-gpt-neox", probes=[Bypassing()], edits=[BypassLayer(layer=0)], out=None, quiet=True)


@dataclass(frozen=True)
class Bypassing(Probe):
    """What bypassing each layer does to the next token."""

    name: ClassVar[str] = "bypassing"
    question: ClassVar[str] = "Which layers does the prediction need?"
    observational: ClassVar[bool] = False
    own_prompts: ClassVar[str | None] = "code"
    other: str = ""

    @property
    def needs(self):
        return (Need("next_log_prob"),)

    def conditions(self, base):
        for layer in range(base.model.n_layers):
            yield Condition(f"{layer}", (BypassLayer(layer=layer),), (KL,), everything_but_size,
                            prompts=np.arange(5), on=self.other or None, n_pool=12 if self.other else None)  # fmt: skip

    def analyse(self, base, under):
        kl = [float(readout["kl"].mean()) for readout in under.values()]
        scalar = Scalar(max(kl), "bits", interval_reason="a test", null_reason="a test", n=len(under["0"]["kl"]),
                        meaning="largest")  # fmt: skip
        return Findings(self.name, {"kl": scalar}, headline=("kl",))


def test_a_run_reads_conditions_and_keeps_the_proof():
    record = run("tunnel:bijection-gpt-neox", probes=[Bypassing()], n_pool=20, out=None, quiet=True)
    assert record.findings["bypassing"]["kl"].value > 0.1 and record.findings["bypassing"]["kl"].n == 5 * 12
    proofs = {c["name"]: c for c in record.selfcheck if c["name"].startswith("edit ")}
    assert proofs["edit read-back"]["passed"] and proofs["edit read-back"]["detail"] == "bypass block"
    assert "conditions bypassing" in record.timings
    assert record.prompts["name"] == "tunnel:bijection" and "others" not in record.prompts


def test_a_probe_is_read_on_its_own_prompts_where_none_are_named(tiny_text_model):
    both = run(tiny_text_model, probes=["orthogonality", Bypassing()], n_pool=40, per_quintile=4, window=8,
               out=None, quiet=True)  # fmt: skip
    assert (both.prompts["name"], both.prompts["probes"]) == ("mixed", ["orthogonality"])
    (other,) = both.prompts["others"]
    assert (other["name"], other["probes"], other["n"]) == ("code", ["bypassing"], 40)
    assert both.spec["prompts"] is None and list(both.findings) == ["orthogonality", "bypassing"]
    named = run(tiny_text_model, probes=[Bypassing(other="prose")], prompts="mixed", n_pool=20, window=8,
                per_quintile=None, out=None, quiet=True)  # fmt: skip
    assert named.prompts["name"] == "mixed" and "others" not in named.prompts


OUTPUTS = (Need("next_log_prob"), KL, SIZE)
LENGTHS = (9, 13, 4, 9, 2)


def outputs(under):
    return {need.site: under[need] for need in OUTPUTS}


def at_the_end(model):
    """Conditions at every kind of site, in every layer, that edit the last positions alone."""
    info, rng = model.info, np.random.default_rng(0)
    conditions = [Condition("plain", (), OUTPUTS, lambda under: {need.site: under[need] for need in OUTPUTS[:2]})]
    for i in range(3):
        values, frame = rng.normal(size=(len(LENGTHS), 2)), np.linalg.qr(rng.normal(size=(info.d_model, 2)))[0].T
        for depth in range(info.n_layers + 1):
            swap = ReplaceCoordinates(layer=depth, site="resid", axis=frame, values=values, at="scored")
            conditions.append(Condition(f"swap {depth} {i}", (swap,), OUTPUTS, outputs))
        for site, d in (("v", info.n_kv_heads), ("k", info.n_kv_heads), ("q", info.n_heads), ("z", info.n_heads)):
            cut = RemoveAxis(layer=1, site=site, axis=axis(i, d * info.d_head), at="scored")
            conditions.append(Condition(f"{site} {i}", (cut,), OUTPUTS, outputs))
        off = (AblateHeads(layer=0, heads=i, at="scored"), AttentionOff(layer=1, at="scored"))
        conditions.append(Condition(f"off {i}", off, OUTPUTS, outputs))
    return conditions


ON_TAILS = ("llama", "gpt_neox", "phi", "gpt2", "gpt_oss", "gemma2", "gemma3_text", "qwen3", "granite", "phi3")
ALL_OR_WHOLE = ("mistral", "opt", "gptj", "bloom", "mpt", "falcon", "gpt_neo")
"""Some of these have a window, or take no masks or positions of ours."""


@pytest.mark.parametrize("family", quick(["llama", "gpt_neox", "gpt2", "gemma2", "gpt_oss"], ON_TAILS + ALL_OR_WHOLE))
def test_ends_of_prompts_give_what_whole_ones_give(family):
    wide = {"sliding_window": 64} if family in ("gpt_oss", "gemma2", "gemma3_text") else {}
    model, source = fresh_model(family) if family in FAMILIES else tiny(family, **wide), token_run(LENGTHS)
    conditions, passes = at_the_end(model), shapes_of_passes(model)
    short = read_conditions(model, source, conditions)
    assert family in ALL_OR_WHOLE or np.median([n * length for n, length in passes]) <= 3 * len(LENGTHS)
    whole = read_whole(model, source, conditions)
    assert short["swap 1 0"]["next_kl"].max() > 1e-3
    for name, expected in whole.items():
        for site, array in expected.items():
            np.testing.assert_allclose(short[name][site], array, rtol=1e-3, atol=5e-5, err_msg=f"{name} {site}")


@pytest.mark.parametrize("change", ["at", "needs", "few", "resampled"])
def test_passes_are_whole_where_more_is_read_or_edited(change, monkeypatch):
    """All positions edited or read, too few conditions, or outputs of other prompts: no keys are kept."""
    model, source = fresh_model("llama"), token_run(LENGTHS)
    monkeypatch.setattr("interp.editing.conditions.BeforeTails", None)
    needs = (*OUTPUTS, LOSS) if change == "needs" else OUTPUTS
    made = {
        "at": lambda i: RemoveAxis(layer=1, axis=axis(i), at="all"),
        "resampled": lambda i: AblateHeads(layer=1, heads=i % 4, by="resample", at="last"),
    }.get(change, lambda i: RemoveAxis(layer=1, axis=axis(i), at="last"))
    conditions = [Condition(str(i), (made(i),), needs, outputs) for i in range(3 if change == "few" else 6)]
    assert len(read_conditions(model, source, conditions)) == len(conditions)


def test_a_model_whose_ends_do_not_agree_is_read_whole(monkeypatch):
    model, source = fresh_model("llama"), token_run(LENGTHS)
    conditions = at_the_end(model)
    whole = read_whole(model, source, conditions)
    after = Prefixes.after

    def wrong(self, call, z):
        after(self, call, z)
        self._kept[call.layer] += 1.0
        return z

    monkeypatch.setattr(Prefixes, "after", wrong)
    read = read_conditions(model, source, conditions)
    for name, expected in whole.items():
        np.testing.assert_allclose(read[name]["next_kl"], expected["next_kl"], rtol=1e-3, atol=5e-5)


def test_tails_take_the_tokens_that_their_cost_allows_and_prefixes_the_memory_that_they_fill(monkeypatch):
    lengths = np.array([40, 30])
    assert restart.tokens_of_tails(1000, np.zeros(2, dtype=int), lengths) == 1000, "whole prompts"
    starts = np.array([30, 20])  # 20 tokens pass and attend to 50 before them
    assert restart.tokens_of_tails(1000, starts, lengths) == 1000 * 20 // (20 + 50 // restart._TOKENS_BEFORE)
    model = tiny_model("llama")
    info = model.info
    kept = 2 * 40 * 2 * info.n_kv_heads * info.d_head * 4 * (info.n_layers - 1)  # keys and values in float32
    for memory, fits in ((kept, True), (kept - 1, False)):
        monkeypatch.setattr(restart, "MEMORY", memory)
        assert Prefixes.fits(model, 1, lengths) is fits
