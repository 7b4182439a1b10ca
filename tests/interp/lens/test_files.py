"""Lenses read back as they were written; archives as others publish them; spoilt files rejected with a message."""

import pickle

import numpy as np
import pytest
import torch

import interp
from interp.lens.fit import fit_prompts
from interp.lens.jacobian import Valid
from interp.lens.kinds import FittedLens
from interp.options import RunOptions
from interp.reading.lens import Lens
from tests.interp.lens.test_jacobian import exact, some_ids
from tests.tiny_models import fresh_model


@pytest.fixture(scope="module")
def model():
    return interp.load("tunnel:bijection-gpt-neox")


def a_lens(model, kind="jacobian"):
    rng = torch.Generator().manual_seed(0)
    matrices = {depth: torch.randn(64, 64, generator=rng) for depth in range(3)}
    offsets = {depth: torch.randn(64, generator=rng) for depth in range(3)} if kind == "tuned" else {}
    return FittedLens(kind, model.name, 3, 64, 9, matrices, offsets, {1: 0.25}, {"seed": 3})


@pytest.mark.parametrize("kind", ["jacobian", "tuned"])
def test_a_lens_is_read_back_as_it_was_written(model, kind, tmp_path):
    lens = a_lens(model, kind)
    read = interp.open_lens(interp.save_lens(lens, tmp_path / "lens.safetensors"))
    x = torch.randn(5, 64, generator=torch.Generator().manual_seed(1))
    assert all(torch.equal(read.carried(x, depth), lens.carried(x, depth)) for depth in range(4))
    assert (read.kind, read.n_prompts, read.error_bits, read.about) == (kind, 9, {1: 0.25}, {"seed": 3})


def test_the_published_layout_counts_layers_by_their_output_and_another_shape_is_refused(model, tmp_path):
    lens = a_lens(model)
    held = torch.load(interp.save_lens(lens, tmp_path / "lens.pt"), weights_only=True)
    assert set(held) == {"J", "n_prompts", "source_layers", "d_model", "metadata"}
    assert held["source_layers"] == [0, 1] and held["J"][0].dtype == torch.float16
    torch.testing.assert_close(held["J"][1].float(), lens.matrices[2], atol=2e-3, rtol=1e-3)
    read = interp.open_lens(tmp_path / "lens.pt", model)
    assert read.depths == (1, 2) and read.n_prompts == 9
    with pytest.raises(interp.InterpError, match="fitted at the depths 1, 2"):
        read.carried(torch.zeros(1, 64), 0)
    with pytest.raises(interp.InterpError, match="of 3 layers and width 64, the model of 3"):
        a_lens(model).on(fresh_model("llama"))


def test_transformer_lens_has_the_same_j_and_reads_our_archive(tmp_path):
    """Its own fit on the same weights and prompts, and its `load` of what we write."""
    bridges = pytest.importorskip("transformer_lens.model_bridge", reason="TransformerLens is not installed")
    tools = pytest.importorskip("transformer_lens.tools.analysis", reason="no JacobianLens in this TransformerLens")
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    model = fresh_model("llama", bos_token_id=1)
    model.module.save_pretrained(tmp_path / "model")
    words = Tokenizer(models.WordLevel({str(i): i for i in range(101)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0", pad_token="0", bos_token="1")
    tokenizer.save_pretrained(tmp_path / "model")
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
def test_a_spoilt_file_is_refused_in_words_and_no_code_in_it_runs(model, spoilt, tmp_path, capsys):
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
        interp.open_lens(path, model)
    assert "was run" not in capsys.readouterr().out


def test_all_lenses_leave_the_last_depth_as_it_is_and_decode_as_the_model_does(model):
    prompts = interp.sampled_prompts(model.task, 20)
    asked = fit_prompts(model, RunOptions(prompts=prompts))
    held = asked.held_out(model)
    for kind in ("logit", "tuned", "jacobian"):
        lens = interp.fit_lens(model, prompts, kind, seconds=5.0, quiet=True)
        read = lens.log_probabilities(model, held.stream[-1], 3)
        torch.testing.assert_close(read * np.log(2), held.final, atol=1e-4, rtol=1e-4)
        at_one = lens.log_probabilities(model, held.stream[1], 1)
        by_hand = torch.log_softmax(Lens(model).logits(lens.carried(held.stream[1], 1)), dim=-1)
        kl = (held.final.exp() * (held.final - by_hand)).sum(dim=-1)
        np.testing.assert_allclose(held.kl_of(lens)[1], kl / np.log(2), atol=1e-4)
        torch.testing.assert_close(at_one * np.log(2), by_hand, atol=1e-5, rtol=1e-5)
