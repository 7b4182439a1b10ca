"""Models without attention: what can be read is read and proved, what cannot is refused by name."""

from dataclasses import replace
from operator import attrgetter

import numpy as np
import pytest
import torch
from interp.probes.manifold.probe import Manifold
from interp.wind_tunnels.networks.architectures import Network
from interp.wind_tunnels.networks.networks import build
from interp.wind_tunnels.tasks.bijection import Bijection
from transformers import MambaConfig, MambaForCausalLM
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import UsageError
from interp.family import Family, Layout
from interp.information import log_softmax
from interp.loading.load import load
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.reading.forward import capture
from interp.running.choose_probes import choose_probes, probe_names, readable_probes
from interp.running.collect import collect
from interp.self_check.selfcheck import check_model, left_out, run_checks
from tests.tiny_models import tiny_model

TASK = Bijection(V=6, L=8)
ARCHS = ("lstm", "mlp-position", "mlp-context", "mamba")
OF_ATTENTION = ("captured", "eager", "causal", "output", "projections", "rotary", "shared", "edit", "dose 0")
OF_BLOCKS = ("blocks", "blind ahead", "stream", "reading")


def tunnel(arch: str, **sizes):
    module = build(Network(arch=arch, n_layers=2, d_model=24, **sizes), TASK, torch.Generator().manual_seed(0))
    return replace(load(module), task=TASK)


@pytest.fixture(scope="module", params=ARCHS)
def model(request):
    return tunnel(request.param)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """An LSTM as a tunnel on the disk, its card included."""
    from interp.wind_tunnels.evaluation.checkpoint import save
    from interp.wind_tunnels.training.loop import train
    from interp.wind_tunnels.training.plan import Recipe, TrainingPlan

    task, network, recipe = Bijection(V=4, L=4), Network(arch="lstm", n_layers=2, d_model=16), Recipe(n_steps=2)
    where = tmp_path_factory.mktemp("tunnels") / "bijection-lstm"
    plan = TrainingPlan(task, network, recipe)
    save(train(plan), plan, where)
    return where


def prompts_and_ids(n: int = 5):
    prompts = sampled_prompts(TASK, n, 0)
    return prompts, [np.array(p.token_ids) for p in prompts]


def test_the_checks_that_apply_are_run_and_the_others_are_named(model):
    names = [c.name for c in model.checks]
    assert all(c.passed for c in model.checks)
    assert set(OF_BLOCKS) <= set(names) and not set(OF_ATTENTION) & set(names)
    assert {"finite", "head", "batched", "restored"} <= set(names)
    adds = model.family.mlp is not None
    assert ("residual" in names) == adds
    assert set(left_out(model)) == set(OF_ATTENTION) | (set() if adds else {"residual"})
    assert f"{len(names)} of {len(names)} checks passed" in repr(model) and "no attention" in repr(model)
    assert [c.name for c in check_model(model)] == [c.name for c in run_checks(model)]
    assert left_out(tiny_model("llama")) == ()
    info = model.info
    assert (info.n_heads, info.n_kv_heads, info.d_head) == (0, 0, 0)
    assert (info.n_layers, info.d_model, info.vocab_size) == (2, 24, 12)
    assert (info.attention_kernel, info.n_rotary, info.window) == ("none", None, None)


def once_a_token(module):
    block, run = module.layers[0], module.layers[0].forward
    block.forward = lambda x: run(x) if block.training else (block.train(), block(x), block.eval())[1]


CHANGED = [
    ("lstm", lambda m: setattr(m.layers[1], "lstm", torch.nn.LSTM(24, 12, batch_first=True, bidirectional=True)),
     {"blind ahead", "batched"}),
    ("mlp-context", lambda m: m.layers[1].register_forward_pre_hook(lambda m, x: (x[0] * 1.001,)), {"stream"}),
    ("mlp-context", lambda m: m.layers[0].register_forward_hook(lambda m, x, out: out * 1.001), {"residual"}),
    ("lstm", lambda m: m.lm_head.register_forward_pre_hook(lambda m, x: (x[0] * 2,)), {"head"}),
    ("lstm", lambda m: m.layers[0].register_forward_hook(
        lambda m, x, out: out + (len(m._forward_hooks) - 1) * 1e-3), {"reading"}),
    ("lstm", once_a_token, {"blocks"}),
]  # fmt: skip


@pytest.mark.parametrize(("arch", "change", "caught"), CHANGED)
def test_what_is_changed_inside_is_caught(arch, change, caught):
    module = tunnel(arch).module
    change(module)
    assert caught <= {c.name for c in run_checks(load(module, check=False)) if not c.passed}


def test_half_a_family_is_refused():
    with pytest.raises(ValueError, match="attention, layout and out belong together"):
        Family(name="half", layers="layers", final_norm="norm", layout=Layout("per_head", ("qkv",)))


def test_the_residual_stream_is_what_a_hook_by_hand_sees(model):
    prompts, ids = prompts_and_ids()
    got = capture(model, prompts, ids, [Need("resid", at="all")])[Need("resid", at="all")]
    seen: dict[int, torch.Tensor] = {}
    blocks = model.family.layer_modules(model.module)
    norm = attrgetter(model.family.final_norm)(model.module)
    handles = [
        m.register_forward_pre_hook(lambda m, args, depth=depth: seen.__setitem__(depth, args[0]))
        for depth, m in enumerate([*blocks, norm])
    ]
    with torch.no_grad():
        model.module(input_ids=torch.from_numpy(np.stack(ids)))
    for handle in handles:
        handle.remove()
    assert got.shape == (3, 5 * TASK.n_positions, 24)
    for depth, theirs in seen.items():
        np.testing.assert_allclose(got[depth], theirs.flatten(0, 1).numpy(), rtol=1e-5, atol=1e-5)


def test_predictions_are_the_logits_of_a_plain_forward(model):
    prompts, ids = prompts_and_ids()
    needs = [Need("next_log_prob"), Need("outcome_log_prob"), Need("lens_log_prob"), Need("lens_kl")]
    got = capture(model, prompts, ids, needs)
    with torch.no_grad():
        logits = model.module(input_ids=torch.from_numpy(np.stack(ids))).logits
    scored = logits[:, list(prompts.prompts[0].scored)].flatten(0, 1).double().numpy()
    bits = log_softmax(scored) / np.log(2)
    np.testing.assert_allclose(got[Need("next_log_prob")], bits, atol=1e-4)
    named = np.take_along_axis(bits, got.outcomes, axis=1)
    np.testing.assert_allclose(got[Need("outcome_log_prob")], named, atol=1e-4)
    np.testing.assert_allclose(got[Need("lens_log_prob")][-1], bits, atol=1e-4)
    assert np.abs(got[Need("lens_kl")][-1]).max() < 1e-5 < np.abs(got[Need("lens_kl")][0]).max()


def test_feed_forwards_join_the_depths_where_there_are_any():
    model = tunnel("mlp-context")
    prompts, ids = prompts_and_ids()
    got = capture(model, prompts, ids, [Need("resid"), Need("mlp_out"), Need("mlp_logit")])
    resid = got[Need("resid")]
    np.testing.assert_allclose(resid[:-1] + got[Need("mlp_out")], resid[1:], atol=1e-5)
    assert got[Need("mlp_logit")].shape == (2, len(resid[0]))
    prompts, ids = prompts_and_ids(2)
    with pytest.raises(UsageError, match=r"mlp_out .* this model has no feed-forward"):
        capture(tunnel("lstm"), prompts, ids, [Need("mlp_out")])


def test_a_site_of_attention_is_refused_by_name(model):
    prompts, ids = prompts_and_ids(2)
    for site in ("q", "v", "z", "k_pre", "attn_out", "pattern_entropy", "attn_logit", "W_Q"):
        with pytest.raises(UsageError) as refusal:
            capture(model, prompts, ids, [Need("resid"), Need(site)])
        assert f"reading {model.name}: {site} (" in str(refusal.value)
        assert "this model has no attention" in str(refusal.value)


def test_probes_and_changes_of_attention_are_refused_with_the_setting_that_works(model):
    with pytest.raises(UsageError) as refusal:
        interp.run(model, probes=["manifold"], out=None, quiet=True)
    assert str(refusal.value) == (
        f"the probe manifold on {model.name}: `manifold` reads v (values, before the attention mixes them); "
        "this model has no attention\n"
        "  Read the residual stream in place of it: --set manifold.site=resid."
    )
    with pytest.raises(UsageError) as refusal:
        interp.run(model, probes=["attention_entropy"], out=None, quiet=True)
    assert "`attention_entropy` reads pattern_entropy" in str(refusal.value)
    assert "Name a model that has it, or a probe that reads what this model has" in str(refusal.value)
    with pytest.raises(UsageError, match=r"changing the attention of .*: this model has no attention"):
        interp.run(model, probes=[Manifold(site="resid")], n_pool=5, attention_window=3, out=None, quiet=True)


def test_all_takes_the_probes_that_can_be_asked(model):
    chosen = choose_probes(["all"], {"manifold": {"site": "resid"}})
    taken = [p.name for p in readable_probes(model, chosen)]
    assert "manifold" in taken and "attention_entropy" not in taken
    assert all(need.site in ("resid", "mlp_out") or need.described.source in ("output", "lens")
               for p in readable_probes(model, chosen) for need in p.needs)  # fmt: skip
    chosen = choose_probes(["all"], {})
    without_lens = [name for name in probe_names(["all"]) if name != "workspace"]
    assert [p.name for p in readable_probes(tiny_model("llama"), chosen)] == without_lens
    every = choose_probes(["all"])
    only = tuple(probe for probe in every.probes if probe.name in ("manifold", "orthogonality"))
    with pytest.raises(UsageError) as refusal:
        readable_probes(model, replace(every, probes=only))
    assert "`manifold` reads v (" in str(refusal.value)
    assert "--set manifold.site=resid" in str(refusal.value)
    names = probe_names(["all", "manifold"])
    assert names["manifold"] and not names["attention_entropy"]
    optional = choose_probes(["manifold", "all"]).optional
    assert "manifold" not in optional and "attention_entropy" in optional


def test_a_tunnel_folder_is_loaded_by_its_path_and_has_a_twin(folder):
    model = load(str(folder))
    assert model.family.name == "lstm" and model.task == Bijection(V=4, L=4)
    assert model.checks[0].name == "weights"
    assert collect(model, sampled_prompts(model.task, 3, 0), ["resid"])[Need("resid")].shape == (3, 12, 16)
    from interp.loading.untrained import untrained_copy

    twin, label = untrained_copy(model)
    assert label == "transformers' initialisation of lstm, seed 0"
    assert twin.fingerprint != model.fingerprint and all(c.passed for c in twin.checks)


def test_a_mamba_folder_without_a_card_is_a_text_model(tmp_path, tiny_text_model):
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=256, hidden_size=16, num_hidden_layers=2, state_size=4, initializer_range=0.2)
    MambaForCausalLM(config).save_pretrained(tmp_path)
    tiny_text_model.tokenizer.save_pretrained(tmp_path)
    model = load(str(tmp_path))
    assert (model.info.family, model.info.n_heads, model.info.max_positions) == ("mamba", 0, None)
    assert all(c.passed for c in model.checks)
    texts = PromptSet("two", [Prompt(text="one text"), Prompt(text="and another, longer one")])
    assert collect(model, texts, ["resid"])[Need("resid")].shape == (3, 2, 16)


def test_the_command_line_says_what_it_left_out_and_runs_the_rest(folder, tmp_path):
    result = CliRunner().invoke(app, ["check", "--model", str(folder)])
    assert result.exit_code == 0, result.output
    assert "left out, as the model has nothing for them: captured, eager" in result.output
    assert "lstm, 2 layers, no attention, " in result.output
    words = ["run", "--model", str(folder), "--probe", "all", "--n-pool", "30", "--out", str(tmp_path)]
    settings = ["site=resid", "n_permutations=19", "n_null=20", "n_bootstrap=20"]
    result = CliRunner().invoke(app, [*words, *(x for s in settings for x in ("--set", f"manifold.{s}"))])
    assert result.exit_code == 0, result.output
    assert "report.html" in result.output
    assert "attention_entropy left out: `attention_entropy` reads pattern_entropy" in result.output
    refused = CliRunner().invoke(app, ["run", "--model", str(folder), "--out", str(tmp_path / "no")])
    assert isinstance(refused.exception, UsageError) and "manifold.site=resid" in str(refused.exception)
