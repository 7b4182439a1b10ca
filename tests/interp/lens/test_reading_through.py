"""Lenses: files that are read back, whatever decodes the stream through one, and records that say so."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import UsageError
from interp.lens.fit import fit_prompts
from interp.lens.jacobian import Valid
from interp.lens.kinds import FittedLens
from interp.lens.show import depth_strip, kl_by_depth, writer
from interp.options import RunOptions
from interp.prompt import Run
from interp.reading.lens import Lens
from tests.interp.lens.test_jacobian import exact, some_ids
from tests.tiny_models import fresh_model
from tests.tokenised import of_words

SITES = [interp.Need(site) for site in ("lens_entropy", "lens_kl", "lens_log_prob", "mlp_logit", "attn_logit", "resid")]


@pytest.fixture(scope="module")
def lens(tunnel):
    return interp.fit_lens(tunnel, interp.sampled_prompts(tunnel.task, 20), "tuned", seconds=None, quiet=True)


def test_a_capture_decodes_and_attributes_through_the_lens(tunnel, lens):
    prompts = interp.sampled_prompts(tunnel.task, 6)
    plain = interp.collect(tunnel, prompts, SITES)
    through = interp.collect(lens.on(tunnel), prompts, SITES)
    entropy, kl, log_p, mlp, _, resid = (through[need] for need in SITES)
    final = torch.from_numpy(plain[SITES[2]][-1]).double()
    for depth in range(4):
        expected = lens.log_probabilities(tunnel, torch.from_numpy(resid[depth]), depth).double()
        np.testing.assert_allclose(log_p[depth], expected, atol=1e-3)
        np.testing.assert_allclose(entropy[depth, :], -(expected.exp2() * expected).sum(-1), atol=1e-3)
        np.testing.assert_allclose(kl[depth], (final.exp2() * (final - expected)).sum(-1), atol=1e-3)
    assert np.abs(entropy[:3] - plain[SITES[0]][:3]).max() > 0.1
    np.testing.assert_array_equal(mlp[-1], plain[SITES[3]][-1])  # behind the last block nothing is carried
    direction = Lens(tunnel).direction(torch.from_numpy(resid[-1]), final.argmax(-1))
    update = torch.from_numpy(interp.collect(tunnel, prompts, "mlp_out")[interp.Need("mlp_out")][0])
    np.testing.assert_allclose(mlp[0], (update @ lens.matrices[1].mT * direction).sum(-1), atol=1e-3)


def test_layers_cut_from_the_end_answer_through_the_lens(tunnel, lens):
    """By hand from the unedited stream: a cut model is the lens at that depth, in a capture and in `depth_use`."""
    through, prompts = lens.on(tunnel), interp.sampled_prompts(tunnel.task, 40)
    read = interp.collect(tunnel, prompts, "resid")[SITES[-1]]
    for depth in range(3):
        edits = [interp.BypassLayer(tuple(range(depth, 3)), lens=True)]
        cut = interp.collect(through, prompts, "next_log_prob", edits=edits)[interp.Need("next_log_prob")]
        expected = lens.log_probabilities(tunnel, torch.from_numpy(read[depth]), depth)
        np.testing.assert_allclose(cut, expected, atol=1e-3)
    with pytest.raises(interp.InterpError, match="all from one to 2"):
        interp.collect(through, prompts, "resid", edits=[interp.BypassLayer(0, lens=True)])
    asked = {"n_pool": 40, "out": None, "quiet": True}
    found = interp.run(tunnel, probes="depth_use", lens=lens, **asked).findings["depth_use"].tables["by_depth"]
    whole = interp.run(tunnel, probes="components", lens=lens, **asked).findings["components"].tables["by_depth"]
    original = np.asarray(found["copies"]) == 0
    np.testing.assert_allclose(np.asarray(found["posterior_kl"])[original], whole["posterior_kl"], atol=2e-3)


def test_a_run_through_a_lens_is_another_run_and_says_so(tunnel, lens, tmp_path):
    asked = {"probes": "components", "n_pool": 24, "out": tmp_path, "quiet": True, "report": False}
    plain = interp.run(tunnel, **asked)
    path = interp.save_lens(lens, tmp_path / "lens.safetensors")
    read = interp.run(tunnel, lens=path, **asked)
    assert read.spec["lens"] == str(path) and "lens" not in plain.spec and read.spec_hash != plain.spec_hash
    assert read.model["lens"] == f"tuned {lens.digest}"
    assert any("tuned lens" in note for note in read.findings["components"].notes)
    beside = interp.run(tunnel, lens=lens, null="untrained", n_untrained=1, **asked).findings["components"]
    assert any("decoded through the lens of the trained model" in note for note in beside.notes)
    name = "lens_kl_trend"
    assert read.findings["components"][name].value != plain.findings["components"][name].value
    assert f"--lens {path}" in interp.run("tunnel:bijection-gpt-neox", lens=path, **asked).spec["command"]
    interp.save_lens(FittedLens.logit(tunnel), path)  # another lens under the same name is measured again
    assert interp.run(tunnel, lens=path, **asked).model["lens"] is None


def test_on_a_tunnel_the_lens_is_held_against_the_exact_posterior_at_every_depth(tunnel, lens):
    """Bits between what the lens reads and the exact posterior, by hand and in `components`."""
    asked = {"probes": "components", "n_pool": 12, "out": None, "quiet": True}
    table = interp.run(tunnel, lens=lens, **asked).findings["components"].tables["by_depth"]
    prompts = interp.sampled_prompts(tunnel.task, 12)
    stream = interp.collect(tunnel, prompts, "resid")[SITES[-1]]
    posterior = np.asarray(prompts.posterior)
    outcomes = np.broadcast_to(prompts.outcome_ids, posterior.shape)
    for depth in range(4):
        log2_q = lens.log_probabilities(tunnel, torch.from_numpy(stream[depth]), depth).numpy()
        log2_q = np.take_along_axis(log2_q, outcomes, axis=1)
        terms = np.where(posterior > 0, posterior * (np.log2(np.where(posterior > 0, posterior, 1)) - log2_q), 0)
        np.testing.assert_allclose(table["posterior_kl"][depth], terms.sum(axis=1).mean(), atol=2e-3)


def test_a_plan_counts_the_lens_and_a_strip_ends_in_what_the_model_predicts(tunnel, lens, tmp_path):
    path = interp.save_lens(lens, tmp_path / "lens.safetensors")
    asked = {"model": "tunnel:bijection-gpt-neox", "probes": "components", "n_pool": 24}
    more = interp.plan(**asked, lens=path).memory.weights - interp.plan(**asked).memory.weights
    assert 4 * 3 * 64 * 65 <= more == path.stat().st_size
    ids = np.array(interp.sampled_prompts(tunnel.task, 1).prompts[0].token_ids)
    strip = depth_strip(tunnel, lens, ids)
    with torch.inference_mode():
        logits = tunnel.module(torch.from_numpy(ids)[None]).logits[0]
    assert [*strip] == ["0", "1", "2", "final"] and strip["final"] == tuple(map(str, logits.argmax(-1).tolist()))


def test_lenses_stand_side_by_side_with_intervals_and_the_null_of_another_depth(tunnel, lens):
    prompts = interp.sampled_prompts(tunnel.task, 40)
    held = fit_prompts(tunnel, RunOptions(prompts=prompts)).held_out(tunnel)
    for each in (FittedLens.logit(tunnel), lens):
        means, other_depth = kl_by_depth(each, held)
        assert len(means) == 3 and all(0 <= mean.low < mean.value < mean.high for mean in means)
        assert np.isnan(other_depth).all() == (each.kind == "logit")
    assert other_depth[2] > means[2].high  # a map of depth 0 does not serve at depth 2
    one = replace(lens, matrices={1: lens.matrices[1]})
    assert np.isnan(kl_by_depth(one, held)[1]).all()  # there is no other depth


def test_the_block_that_writes_most_is_found_by_hand_for_every_lens(tunnel, lens):
    prompts = interp.sampled_prompts(tunnel.task, 12)
    run = Run(prompts, [np.array(p.token_ids) for p in prompts])
    for each, through in ((FittedLens.logit(tunnel), tunnel), (lens, lens.on(tunnel))):
        block, mean, share = writer(tunnel, each, run)
        read = interp.collect(through, prompts, SITES)
        by_block = {}
        for kind, site in (("attention", SITES[4]), ("feed-forward", SITES[3])):
            for layer in range(3):
                by_block[f"{kind} {layer}"] = read[site][layer].reshape(12, -1).mean(axis=1)
        assert block == max(by_block, key=lambda name: by_block[name].mean())
        assert mean.value == pytest.approx(by_block[block].mean(), abs=1e-4) and mean.low < mean.value < mean.high
        assert share == np.mean([max(by_block, key=lambda b: by_block[b][i]) == block for i in range(12)])


def test_the_commands_fit_and_show(tmp_path):
    out = tmp_path / "lens.safetensors"
    few = ["--n-pool", "24"]
    asked = ["--model", "tunnel:bijection-gpt-neox", *few]
    fitted = CliRunner().invoke(app, ["lens", "fit", *asked, "--precision", "9", "--out", str(out)])
    assert fitted.exit_code == 0 and fitted.stdout.splitlines()[-1] == str(out) and "standard error" in fitted.stdout
    shown = CliRunner().invoke(app, ["lens", "show", str(out), *asked, "--strip", "1"])
    assert shown.exit_code == 0 and "1 jacobian" in shown.stdout and "final" in shown.stdout
    assert "adds most to the predicted token" in shown.stdout
    assert "other weights" not in shown.stdout
    with pytest.warns(UserWarning, match=r"jacobian \w+, fitted on other weights .*\(tunnel:bijection-gpt-neox\)"):
        other = CliRunner().invoke(app, ["lens", "show", str(out), *few, "--model", "tunnel:bijection-llama"])
    assert other.exit_code == 0
    misfit = [*few, "--model", "tunnel:hmm-llama"]
    for other in ([*asked, "--seed", "1"], [*asked, "--n-pool", "30"], misfit):  # the first two are not held out
        refused = CliRunner().invoke(app, ["lens", "show", str(out), *other])
        assert refused.exit_code != 0 and isinstance(refused.exception, UsageError | SystemExit)


def test_a_lens_of_other_weights_of_the_same_shape_is_named_aloud_and_in_the_record(tunnel, tmp_path):
    fitted = interp.fit_lens(tunnel, interp.sampled_prompts(tunnel.task, 20), seconds=0.1, quiet=True)
    assert fitted.on(tunnel).info.lens == f"jacobian {fitted.digest}"
    earlier = interp.load("tunnel:bijection-gpt-neox@128")
    read = {
        name: interp.open_lens(interp.save_lens(fitted, tmp_path / f"lens.{name}"), tunnel)
        for name in ("safetensors", "pt")
    }
    for lens in read.values():
        assert lens.about == fitted.about and "other weights" not in lens.on(tunnel).info.lens
        with pytest.warns(UserWarning, match="other weights"):
            assert "other weights" in lens.on(earlier).info.lens
    with pytest.warns(UserWarning, match="other weights"):
        record = interp.run(earlier, probes="components", n_pool=24, lens=read["safetensors"], out=None, quiet=True)
    assert "other weights" in record.model["lens"] and "other weights" in " ".join(record.cautions)


def a_lens(model, kind="jacobian"):
    rng = torch.Generator().manual_seed(0)
    matrices = {depth: torch.randn(64, 64, generator=rng) for depth in range(3)}
    offsets = {depth: torch.randn(64, generator=rng) for depth in range(3)} if kind == "tuned" else {}
    return FittedLens(kind, model.name, 3, 64, 9, matrices, offsets, {1: 0.25}, {"seed": 3})


@pytest.mark.parametrize("kind", ["jacobian", "tuned"])
def test_a_lens_is_read_back_as_it_was_written(tunnel, kind, tmp_path):
    lens = a_lens(tunnel, kind)
    read = interp.open_lens(interp.save_lens(lens, tmp_path / "lens.safetensors"))
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    assert all(torch.equal(read.carried(x, depth), lens.carried(x, depth)) for depth in range(4))
    assert (read.kind, read.n_prompts, read.error_bits, read.about) == (kind, 9, {1: 0.25}, {"seed": 3})


def test_the_published_layout_counts_layers_by_their_output_and_another_shape_is_refused(tunnel, tmp_path):
    lens = a_lens(tunnel)
    held = torch.load(interp.save_lens(lens, tmp_path / "lens.pt"), weights_only=True)
    assert set(held) == {"J", "n_prompts", "source_layers", "d_model", "metadata"}
    assert held["source_layers"] == [0, 1] and held["J"][0].dtype == torch.float16
    torch.testing.assert_close(held["J"][1].float(), lens.matrices[2], atol=2e-3, rtol=1e-3)
    read = interp.open_lens(tmp_path / "lens.pt", tunnel)
    assert read.depths == (1, 2) and read.n_prompts == 9
    with pytest.raises(interp.InterpError, match="fitted at the depths 1, 2"):
        read.carried(torch.zeros(1, 64), 0)
    with pytest.raises(interp.InterpError, match="of 3 layers and width 64, the model of 3"):
        a_lens(tunnel).on(fresh_model("llama"))
    again = interp.open_lens(interp.save_lens(lens, tmp_path / "lens.pth"), tunnel)
    torch.testing.assert_close(again.matrices, read.matrices)


def test_a_lens_that_its_file_cannot_hold_is_refused_before_it_is_fitted(tunnel, tmp_path):
    prompts = interp.sampled_prompts(tunnel.task, 1)  # too few to fit on
    with pytest.raises(UsageError, match="holds Jacobian lenses alone"):
        interp.fit_lens(tunnel, prompts, "tuned", out=tmp_path / "lens.pt", quiet=True)


def test_transformer_lens_has_the_same_j_and_reads_our_archive(tmp_path):
    """Its own fit on the same weights and prompts, and its `load` of what we write."""
    bridges = pytest.importorskip("transformer_lens.model_bridge", reason="TransformerLens is not installed")
    tools = pytest.importorskip("transformer_lens.tools.analysis", reason="no JacobianLens in this TransformerLens")
    model = fresh_model("llama", bos_token_id=1)
    model.module.save_pretrained(tmp_path / "model")
    words = of_words("<unk>", *map(str, range(1, 101)), pad_token="<unk>", bos_token="1")
    words.save_pretrained(tmp_path / "model")
    module = fresh_model("llama", bos_token_id=1).module
    bridge = bridges.TransformerBridge.boot_transformers(str(tmp_path / "model"), hf_model=module, device="cpu")
    texts = [" ".join(map(str, x)) for x in some_ids((8, 10))]
    theirs = tools.JacobianLens.fit(
        bridge, texts, corpus="numbers", skip_first_positions=2, show_progress=False, dim_batch=16
    )
    ids = [bridge.to_tokens(text)[0].numpy() for text in texts]
    ours = exact(model, ids, Valid(2, 1))
    for layer, matrix in theirs.jacobians.items():
        np.testing.assert_allclose(ours[layer + 1], matrix, atol=1e-4 * float(matrix.abs().max()))
    lens = FittedLens("jacobian", model.name, 3, 48, 2, dict(enumerate(ours)))
    read = tools.JacobianLens.load(str(interp.save_lens(lens, tmp_path / "ours.pt")))
    assert read.source_layers == theirs.source_layers
    theirs.save(str(tmp_path / "theirs.pt"))
    torch.testing.assert_close(
        interp.open_lens(tmp_path / "theirs.pt", model).matrices[1], ours[1], atol=2e-3, rtol=2e-3
    )


class Runs:
    def __reduce__(self):
        return (print, ("code in a file was run",))


@pytest.mark.parametrize("spoilt", ["empty", "no lens", "code", "another shape", "not a number", "text"])
def test_a_spoilt_file_is_refused_in_words_and_no_code_in_it_runs(tunnel, spoilt, tmp_path, capsys):
    path = tmp_path / "lens.pt"
    held = {"J": {0: torch.eye(64)}, "n_prompts": 1, "source_layers": [0], "d_model": 64}
    changes = {"another shape": {"d_model": 32}, "not a number": {"J": {0: torch.full((64, 64), torch.nan)}}}
    if spoilt == "code":
        path.write_bytes(pickle.dumps(Runs()))
    elif spoilt in ("empty", "text"):
        path.write_bytes(b"words" * (spoilt == "text"))
    else:
        torch.save({"weights": 1} if spoilt == "no lens" else held | changes[spoilt], path)
    with pytest.raises(interp.InterpError, match=r"the lens .*lens\.pt"):
        interp.open_lens(path, tunnel)
    with pytest.raises(interp.InterpError, match=r"Is a directory|Permission denied"):  # the second on Windows
        interp.open_lens(tmp_path)
    assert "was run" not in capsys.readouterr().out


def test_all_lenses_leave_the_last_depth_as_it_is_and_decode_as_the_model_does(tunnel):
    prompts = interp.sampled_prompts(tunnel.task, 20)
    asked = fit_prompts(tunnel, RunOptions(prompts=prompts))
    held = asked.held_out(tunnel)
    for kind in ("logit", "tuned", "jacobian"):
        lens = interp.fit_lens(tunnel, prompts, kind, seconds=5.0, quiet=True)
        read = lens.log_probabilities(tunnel, held.stream[-1], 3)
        torch.testing.assert_close(read * np.log(2), held.final, atol=1e-4, rtol=1e-4)
        at_one = lens.log_probabilities(tunnel, held.stream[1], 1)
        by_hand = torch.log_softmax(Lens(tunnel).logits(lens.carried(held.stream[1], 1)), dim=-1)
        kl = (held.final.exp() * (held.final - by_hand)).sum(dim=-1)
        np.testing.assert_allclose(held.kl_of(lens)[1], kl / np.log(2), atol=1e-4)
        torch.testing.assert_close(at_one * np.log(2), by_hand, atol=1e-5, rtol=1e-5)
