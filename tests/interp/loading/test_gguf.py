"""GGUF files: what is read from one is the model that was written; rounded, broken and lying ones are told."""

import os
import struct
from dataclasses import replace

import gguf
import numpy as np
import pytest
import torch
import tqdm
from interp.reports.page.about import python
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import ModelError, UsageError
from interp.loading import hub_files
from interp.loading.gguf_file import read_header
from interp.records.record import open_run
from interp.running.spec import RunSpec
from tests.gguf_files import INNER, LAYERS, WIDTH, original, written


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return written(tmp_path_factory.mktemp("gguf") / "tiny.gguf", original())


@pytest.fixture(scope="module")
def rounded_file(tmp_path_factory):
    return written(tmp_path_factory.mktemp("gguf") / "rounded.gguf", original(), gguf.GGMLQuantizationType.Q8_0)


IDS = torch.arange(3, 20)[None]


def test_a_plain_file_is_the_model_that_was_written_by_path_or_within_its_folder(file, word_tokenizer):
    word_tokenizer.save_pretrained(file.parent)  # its own tokenizer lies in it
    model = interp.load(file)
    with torch.inference_mode():
        torch.testing.assert_close(model.module(IDS).logits, original()(IDS).logits, rtol=1e-5, atol=1e-5)
    assert model.info.stored_as is None and model.info.family == "llama" and all(c.passed for c in model.checks)
    assert model.tokenizer.convert_ids_to_tokens(model.tokenizer("ab c")["input_ids"])[-3:] == ["ab", "Ġ", "c"]
    assert "m['content']" in model.tokenizer.chat_template
    by_folder = interp.load(file.parent, gguf=file.name)
    assert by_folder.fingerprint == interp.load(str(file)).fingerprint
    with pytest.raises(ModelError, match="two files are given"):
        interp.load(file, gguf=file.name)
    with pytest.raises(ModelError, match=r"there is no other\.gguf in it \(tiny\.gguf, "):
        interp.load(file.parent, gguf="other.gguf")
    with pytest.raises(ModelError, match="there is no such file"):
        interp.load(file.parent / "other.gguf")
    with pytest.raises(UsageError, match="used as it is"):
        interp.load(original(), gguf=file.name)


def test_loading_prints_nothing_and_leaves_progress_bars_as_they_were(file, capfd):
    usual = vars(tqdm.std.tqdm)["__init__"]
    interp.load(file)
    assert capfd.readouterr().err == "" and vars(tqdm.std.tqdm)["__init__"] is usual


def test_the_header_is_read_once_in_a_load(file, monkeypatch):
    read = []
    monkeypatch.setattr(hub_files, "read_header", lambda path: read.append(path) or read_header(path))
    assert interp.load(file).info.stored_as is None and read == [file]


def test_rounded_weights_are_refused_unless_allowed_and_then_told(rounded_file):
    with pytest.raises(ModelError, match=r"quantised \(GGUF: 16 tensors Q8_0 \(8.5 bits\), 5 tensors F32") as caught:
        interp.load(rounded_file)
    assert "--allow-quantised" in str(caught.value)
    model = interp.load(rounded_file, allow_quantised=True)
    assert model.info.stored_as.startswith("GGUF: 16 tensors Q8_0") and model.info.quantisation is None
    expected = original()
    with torch.inference_mode():
        for weight in (p for p in expected.parameters() if p.ndim == 2):
            rounded = gguf.quants.quantize(weight.numpy(), gguf.GGMLQuantizationType.Q8_0)
            weight.copy_(torch.from_numpy(gguf.quants.dequantize(rounded, gguf.GGMLQuantizationType.Q8_0)))
        torch.testing.assert_close(model.module(IDS).logits, expected(IDS).logits, rtol=1e-5, atol=1e-5)
        assert not torch.allclose(expected(IDS).logits, original()(IDS).logits, atol=1e-2)
    assert {c.name for c in model.checks} >= {"output", "projections"}, (
        "weights can be read once they are plain numbers"
    )


def _over_another(content):
    """A tensor that lies where the first one does."""
    at = content.index(name := b"blk.0.attn_v.weight") + len(name) + 24  # behind axes, shape and kind
    return content[:at] + struct.pack("<Q", 0) + content[at + 8 :]


@pytest.mark.parametrize(
    "spoil, found",
    [
        (_over_another, "attn_v.weight begins at byte 0 of the tensors, and the one before ends at"),
        (lambda b: b[:8] + struct.pack("<Q", 9 * LAYERS + 2) + b[16:], "take 255,232 bytes, and there are 263,456"),
        (lambda b: b"", "does not begin as"),
        (lambda b: b"version https://git-lfs.github.com/spec/v1\n", "b'version htt'.*\n.*git lfs pull"),
        (lambda b: b[:4] + struct.pack("<I", 9) + b[8:], "its version is 9"),
        (lambda b: b[:8] + struct.pack("<Q", 2**60) + b[16:], "cut off, damaged"),
        (lambda b: b[:16] + struct.pack("<Q", 2**60) + b[24:], "cut off, damaged"),
        (lambda b: b.replace(b"blk.1.attn_k.weight", b"blk.1.attn_x.weight"), "lack"),
        (lambda b: b.replace(b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00llama",
                             b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00whale"),
         "transformers has no model for its header"),
    ],
)  # fmt: skip
def test_a_broken_foreign_or_lying_file_is_refused_in_words(file, tmp_path, spoil, found):
    path = tmp_path / "spoilt.gguf"
    path.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(ModelError, match=found):
        interp.load(path)


def test_headers_that_lack_a_part_or_say_fewer_layers_are_refused(file, tmp_path):
    # Wherever the file is cut, by length or inside the header, it is rejected with a message.
    whole = file.read_bytes()
    for n in {*range(0, 1200, 7), *range(1200, len(whole), 4001), len(whole) - 33}:
        cut = file.parent / "cut.bin"
        cut.write_bytes(whole[:n])
        with pytest.raises(ModelError, match="cut off, damaged"):
            read_header(cut)
    assert read_header(file).n_numbers == sum(p.numel() for p in original().parameters())
    content, key = file.read_bytes(), b"llama.block_count\x04\x00\x00\x00"
    at = content.index(key) + len(key)
    path = tmp_path / "short.gguf"
    path.write_bytes(content[:at] + struct.pack("<I", LAYERS - 1) + content[at + 4 :])
    with pytest.raises(ModelError, match="some would be left out"):
        interp.load(path)


@pytest.mark.parametrize(
    "add, found",
    [
        (lambda out: out.add_tensor("blk.0.attn_q.bias", np.ones(WIDTH, np.float32)), "some would be left out"),
        (lambda out: out.add_tensor("blk.2.ffn_up.weight", np.ones((INNER, WIDTH), np.float32)), "would be left out"),
        (lambda out: out.add_tensor("rope_freqs.weight", np.ones(8, np.float32)), r"stretched \(rope_freqs"),
        (lambda out: out.add_rope_scaling_type(gguf.RopeScalingType.YARN), r"stretched \(rope.scaling.type yarn"),
    ],
)
def test_what_transformers_would_leave_out_is_refused(tmp_path, add, found):
    """Each of these was read as the model without it, and passed the self-check."""
    with pytest.raises(ModelError, match=found):
        interp.load(written(tmp_path / "more.gguf", original(), add=add))


def test_a_file_of_the_hub_is_read_from_the_cache(revisions, use_cache):
    use_cache(revisions)
    model = interp.load("pythia-70m", gguf="tiny.gguf")
    assert model.info.family == "llama" and model.info.source == "EleutherAI/pythia-70m"
    with torch.inference_mode():
        torch.testing.assert_close(model.module(IDS).logits, original()(IDS).logits, rtol=1e-5, atol=1e-5)


def test_a_run_of_a_file_records_how_it_is_stored_and_is_repeated_on_it(rounded_file, tmp_path):
    (tmp_path / "texts.txt").write_text("ab\nba c\nc d\na b\n")
    asked = {"allow_quantised": True, "probes": "orthogonality", "prompts": str(tmp_path / "texts.txt"), "quiet": True}
    record = interp.run(str(rounded_file), out=tmp_path, **asked)
    assert record.model["stored_as"].startswith("GGUF: 16 tensors Q8_0")
    assert record.model["tensor_kinds"]["blk.1.attn_v.weight"] == "Q8_0, 8.5 bits"
    assert record.model["tensor_kinds"]["blk.1.attn_norm.weight"] == "F32, 32 bits"
    page = (record.path / "report.html").read_text()
    assert "Quantised weights: all numbers describe the quantised model" in page and "Q8_0, 8.5 bits" in page
    assert "--allow-quantised" in record.spec["command"] and "allow_quantised=True" in (python(record) or "")
    shown = CliRunner().invoke(app, ["run", "--from", str(record.path), "--out", str(tmp_path / "again"), "-q"])
    assert shown.exit_code == 0, shown.output
    (again,) = (open_run(file) for file in (tmp_path / "again").glob("*/run.json"))
    assert (again.spec_hash, again.model["fingerprint"]) == (record.spec_hash, record.model["fingerprint"])
    inside = interp.run(str(rounded_file.parent), gguf=rounded_file.name, out=None, **asked)
    assert inside.spec["gguf"] == rounded_file.name and inside.model["fingerprint"] == record.model["fingerprint"]
    spec = RunSpec.from_json(record.spec)  # of no file beside the model it is specified as before there were any
    assert "gguf" not in record.spec and spec.hash == record.spec_hash != replace(spec, gguf="f.gguf").hash


@pytest.mark.slow
def test_the_real_file_is_the_folder_that_was_made_of_it():
    """Weights by the formula of Q4_1, then logits, captured values and words of SmolLM2-135M-Instruct."""
    folder, file = os.environ.get("SMOLLM2"), os.environ.get("SMOLLM2_GGUF")
    if not folder or not file:
        pytest.skip("SMOLLM2 and SMOLLM2_GGUF do not name the folder and the file of the real model")
    texts = ["The capital of France is", "def f(x):\n    return x + 42"]
    of_file, of_folder = interp.load(file, allow_quantised=True), interp.load(folder)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}["blk.7.ffn_up.weight"]
    blocks = stored.data.reshape(-1, 20)  # scale and offset in half precision, then 32 numbers of four bits
    scale, offset = (blocks[:, i : i + 2].copy().view(np.float16).astype(np.float32) for i in (0, 2))
    numbers = scale * np.hstack([blocks[:, 4:] & 15, blocks[:, 4:] >> 4]) + offset
    up = of_file.module.model.layers[7].mlp.up_proj.weight
    np.testing.assert_allclose(up.numpy(), numbers.reshape(up.shape), rtol=1e-6)
    read = [interp.collect(model, texts, ["v", "resid"]) for model in (of_file, of_folder)]
    for site in ("v", "resid"):
        np.testing.assert_allclose(read[0][site], read[1][site], rtol=1e-5, atol=1e-5)
    ids = torch.tensor(of_folder.tokenizer(texts[0])["input_ids"])[None]
    with torch.inference_mode():
        torch.testing.assert_close(of_file.module(ids).logits, of_folder.module(ids).logits)
    assert of_file.tokenizer(texts)["input_ids"] == of_folder.tokenizer(texts)["input_ids"]
    assert of_file.tokenizer.chat_template == of_folder.tokenizer.chat_template
