"""The fingerprint of weights: what it depends on, and that it can be computed again from the description alone."""

import copy
import hashlib

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch.nn.utils.prune import l1_unstructured
from transformers import AutoModelForCausalLM

import interp
import interp.system.fingerprint
from interp.system.fingerprint import fingerprint
from tests.tiny_models import FAMILIES, fresh_model


def recomputed(tensors: dict[str, torch.Tensor]) -> str:
    """The docstring's recipe, in numpy, from the tensors of a file."""
    lines = []
    for name, tensor in tensors.items():
        data = tensor.contiguous().view(torch.uint8).numpy().tobytes()
        n_whole = len(data) // 4096 * 4096
        words = np.frombuffer(data[:n_whole], dtype="<u8").reshape(-1, 512)
        multiplier = (2 * np.arange(512, dtype=np.uint64) + 1) * np.uint64(0x9E3779B97F4A7C15)
        condensed = (words * multiplier).sum(axis=1, dtype=np.uint64).tobytes() + data[n_whole:]
        kind = str(tensor.dtype).split(".")[1]
        lines.append(f"{name} {kind} {list(tensor.shape)} {hashlib.sha256(condensed).hexdigest()}")
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


@pytest.mark.parametrize(
    ("family", "changes"), [*((family, {}) for family in FAMILIES), ("llama", {"tie_word_embeddings": True})]
)
def test_fingerprint_can_be_computed_again_from_the_file_and_survives_saving(tmp_path, family, changes):
    """A tied embedding is counted once."""
    module = fresh_model(family, **changes).module
    module.save_pretrained(tmp_path)
    names = dict(module.named_parameters())
    stored = load_file(tmp_path / "model.safetensors")
    # transformers stores the head of GPT-NeoX under the name it had in the original checkpoints.
    renamed = {("lm_head.weight" if name == "embed_out.weight" else name): t for name, t in stored.items()}
    by_name = renamed if set(renamed) == set(names) else stored
    assert set(by_name) == set(names)
    assert fingerprint(module) == recomputed(by_name) == fingerprint(AutoModelForCausalLM.from_pretrained(tmp_path))


def test_fingerprint_sees_masks_of_pruned_weights():
    found = {fingerprint(fresh_model("llama").module)}
    for amount in (0.3, 0.6):
        module = fresh_model("llama").module
        l1_unstructured(module.model.layers[0].self_attn.v_proj, "weight", amount)
        found.add(fingerprint(module))
    assert len(found) == 3


def test_fingerprint_sees_every_single_number():
    module = fresh_model("llama").module
    before = fingerprint(module)
    seen = {before}
    for parameter in module.parameters():
        flat = parameter.detach().view(-1)
        for index in (0, len(flat) // 2, len(flat) - 1):
            old = flat[index].clone()
            flat[index] = torch.nextafter(old, torch.tensor(torch.inf))
            seen.add(fingerprint(module))
            flat[index] = old
    assert len(seen) == 1 + 3 * len(list(module.parameters()))
    assert fingerprint(module) == before


def test_fingerprint_sees_exchanges_of_numbers_blocks_and_names():
    module = fresh_model("llama").module
    weight = module.model.embed_tokens.weight.detach().view(-1)
    seen = {fingerprint(module)}
    for i, j in ((0, 1), (0, 2), (5, 1000), (7, 4000)):
        weight[[i, j]] = weight[[j, i]]
        seen.add(fingerprint(module))
        weight[[i, j]] = weight[[j, i]]
    assert len(seen) == 5
    one = torch.nn.Module()
    one.weight = torch.nn.Parameter(torch.arange(4096.0))
    exchanged = copy.deepcopy(one)
    exchanged.weight.data = torch.cat([one.weight[1024:], one.weight[:1024]])
    renamed = torch.nn.Module()
    renamed.other = torch.nn.Parameter(torch.arange(4096.0))
    assert len({fingerprint(m) for m in (one, exchanged, renamed)}) == 3


def test_fingerprint_tells_precisions_but_not_layouts_or_offloading():
    module = fresh_model("llama").module
    plain = fingerprint(module)
    assert fingerprint(copy.deepcopy(module).to(torch.bfloat16)) != plain
    for parameter in module.parameters():
        if parameter.ndim == 2:
            parameter.data = parameter.data.T.contiguous().T
            assert not parameter.is_contiguous()
    assert fingerprint(module) == plain
    from accelerate import cpu_offload

    module = fresh_model("llama").module
    plain = fingerprint(module)
    offloaded = cpu_offload(copy.deepcopy(module), execution_device=torch.device("cpu"))
    assert all(p.is_meta for p in offloaded.parameters())
    assert fingerprint(offloaded) == plain


def test_a_loaded_model_is_named_as_it_is_whenever_that_is_asked_for(monkeypatch):
    made = []
    monkeypatch.setattr(interp.system.fingerprint, "fingerprint", lambda module: made.append(module) or "a name")
    model = interp.load("tunnel:bijection-gpt-neox", check=False)
    assert not made
    assert model.fingerprint == model.fingerprint == "a name"
    assert made == [model.module, model.module]
