"""GGUF files: what is read from one is the model that was written; rounded, broken and lying ones are told."""

import struct

import gguf
import numpy as np
import pytest
import torch

import interp
from interp.errors import ModelError, UsageError
from interp.options import RunOptions
from tests.gguf_files import original, written


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return written(tmp_path_factory.mktemp("gguf") / "tiny.gguf", original())


@pytest.fixture(scope="module")
def rounded_file(tmp_path_factory):
    return written(tmp_path_factory.mktemp("gguf") / "rounded.gguf", original(), gguf.GGMLQuantizationType.Q8_0)


IDS = torch.arange(3, 20)[None]


def test_a_plain_file_is_the_model_that_was_written(file):
    model = interp.load(file)
    with torch.inference_mode():
        torch.testing.assert_close(model.module(IDS).logits, original()(IDS).logits, rtol=1e-5, atol=1e-5)
    assert model.info.stored_as is None and model.info.family == "llama" and all(c.passed for c in model.checks)
    assert model.tokenizer.convert_ids_to_tokens(model.tokenizer("ab c")["input_ids"])[-3:] == ["ab", "Ġ", "c"]
    assert "m['content']" in model.tokenizer.chat_template


def test_a_file_is_named_by_its_path_or_within_its_folder(file):
    by_folder = interp.load(file.parent, gguf=file.name)
    assert by_folder.fingerprint == interp.load(str(file)).fingerprint
    with pytest.raises(ModelError, match="a second file is named"):
        interp.load(file, gguf=file.name)
    with pytest.raises(ModelError, match=r"its GGUF files are: tiny\.gguf"):
        interp.load(file.parent, gguf="other.gguf")
    with pytest.raises(ModelError, match="there is no such file"):
        interp.load(file.parent / "other.gguf")
    with pytest.raises(UsageError, match="read as it is"):
        interp.load(original(), gguf=file.name)


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


def test_a_run_of_a_file_records_how_it_is_stored_and_can_be_repeated(rounded_file, tmp_path):
    asked = {"probes": "orthogonality", "prompts": ["ab", "ba c", "c d", "a b"], "out": None, "quiet": True}
    record = interp.run(str(rounded_file), allow_quantised=True, **asked)
    assert record.model["stored_as"].startswith("GGUF: 16 tensors Q8_0")
    assert record.spec["model"] == str(rounded_file) and "gguf" not in record.spec
    inside = interp.run(str(rounded_file.parent), gguf=rounded_file.name, allow_quantised=True, **asked)
    assert inside.spec["gguf"] == rounded_file.name and inside.model["fingerprint"] == record.model["fingerprint"]
    assert RunOptions().gguf is None


@pytest.mark.parametrize(
    "spoil, found",
    [
        (lambda b: b[: len(b) // 2], "cut off, damaged"),
        (lambda b: b[:300], "cut off, damaged"),
        (lambda b: b[:10], "cut off, damaged.*it has 10 bytes"),
        (lambda b: b"", "does not begin as"),
        (lambda b: b"version https://git-lfs.github.com/spec/v1\n", "b'version htt'.*\n.*git lfs pull"),
        (lambda b: b"PK\x03\x04" + b[4:], "does not begin as"),
        (lambda b: b[:4] + struct.pack("<I", 9) + b[8:], "its version is 9"),
        (lambda b: b[:8] + struct.pack("<Q", 2**60) + b[16:], "entries are said to follow"),
        (lambda b: b[:16] + struct.pack("<Q", 2**60) + b[24:], "entries are said to follow"),
        (lambda b: b.replace(b"blk.1.attn_k.weight", b"blk.1.attn_x.weight"), "lack"),
        (lambda b: b.replace(b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00llama",
                             b"general.architecture\x08\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00whale"),
         "describes no model"),
    ],
)  # fmt: skip
def test_a_broken_foreign_or_lying_file_is_refused_in_words(file, tmp_path, spoil, found):
    path = tmp_path / "spoilt.gguf"
    path.write_bytes(spoil(file.read_bytes()))
    with pytest.raises(ModelError, match=found):
        interp.load(path)


def test_more_layers_than_any_model_has_are_refused_before_one_is_built(file, tmp_path):
    content, key = file.read_bytes(), b"llama.block_count\x04\x00\x00\x00"
    at = content.index(key) + len(key)
    path = tmp_path / "tall.gguf"
    path.write_bytes(content[:at] + struct.pack("<I", 2**31 - 1) + content[at + 4 :])
    with pytest.raises(ModelError, match="num_hidden_layers is 2147483647"):
        interp.load(path)
