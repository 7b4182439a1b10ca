"""Builds a folder laid out as the hub's cache: a public model's real configuration, random weights, its tokenizer."""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.paths import SHARED

TOKENIZERS = SHARED / "tokenizers"

_SAME = {"hidden_act": "silu", "initializer_range": 0.02, "num_hidden_layers": 32, "tie_word_embeddings": False,
         "torch_dtype": "float16", "use_cache": True}  # fmt: skip
_PYTHIA_410M = {
    **_SAME, "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu",
    "hidden_size": 1024, "intermediate_size": 4096, "layer_norm_eps": 1e-05, "max_position_embeddings": 2048,
    "model_type": "gpt_neox", "num_attention_heads": 16, "num_hidden_layers": 24, "rotary_emb_base": 10000,
    "rotary_pct": 0.25, "transformers_version": "4.24.0", "use_parallel_residual": True, "vocab_size": 50304,
}  # fmt: skip
_PHI_2 = {
    **_SAME, "architectures": ["PhiForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 50256, "embd_pdrop": 0.0,
    "eos_token_id": 50256, "hidden_act": "gelu_new", "hidden_size": 2560, "intermediate_size": 10240,
    "layer_norm_eps": 1e-05, "max_position_embeddings": 2048, "model_type": "phi", "num_attention_heads": 32,
    "num_key_value_heads": 32, "partial_rotary_factor": 0.4, "qk_layernorm": False, "resid_pdrop": 0.1,
    "rope_scaling": None, "rope_theta": 10000.0, "transformers_version": "4.37.0", "vocab_size": 51200,
}  # fmt: skip
_MISTRAL_7B = {
    **_SAME, "architectures": ["MistralForCausalLM"], "bos_token_id": 1, "eos_token_id": 2, "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
    "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "rope_theta": 10000.0, "sliding_window": 4096,
    "torch_dtype": "bfloat16", "transformers_version": "4.34.0.dev0", "vocab_size": 32000,
}  # fmt: skip

MODELS = {
    "pythia-410m": ("EleutherAI/pythia-410m", _PYTHIA_410M, "pythia-gpt-neox-20b"),
    "phi-2": ("microsoft/phi-2", _PHI_2, "phi-2"),
    "mistral-7b": ("mistralai/Mistral-7B-v0.1", _MISTRAL_7B, "mistral-v0.1"),
}
"""Alias: hub id, the public config.json, folder of the tokenizer."""


def public_config(alias: str, n_layers: int | None = None) -> dict:
    """The public config.json of a model, with fewer layers if asked."""
    content = dict(MODELS[alias][1])
    return content | ({"num_hidden_layers": n_layers} if n_layers else {})


def build_hub_cache(alias: str, out: Path, n_layers: int | None = None) -> Path:
    """The cache of one public model under `out`; returns its snapshot."""
    hub_id, _, tokenizer = MODELS[alias]
    Path(out).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out) as folder:
        _write_model(Path(folder), public_config(alias, n_layers))
        for file in (TOKENIZERS / tokenizer).glob("*.json"):
            shutil.copyfile(file, Path(folder) / file.name)
        return lay_out(Path(folder), hub_id, out)


def lay_out(folder: Path, hub_id: str, out: Path, ref: str = "main") -> Path:
    """Move a model's files into `out/models--<owner>--<name>/{blobs,refs/<ref>,snapshots/<commit>}`."""
    home = Path(out) / f"models--{hub_id.replace('/', '--')}"
    blobs = {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.iterdir())}
    commit = hashlib.sha1("".join(blobs.values()).encode()).hexdigest()
    snapshot = home / "snapshots" / commit
    for each in (snapshot, home / "blobs", home / "refs"):
        each.mkdir(parents=True, exist_ok=True)
    for file, blob in blobs.items():
        file.replace(home / "blobs" / blob)
        link = snapshot / file.name
        link.unlink(missing_ok=True)
        link.symlink_to(Path("..", "..", "blobs", blob))
    (home / "refs" / ref).write_text(commit)
    return snapshot


def _write_model(folder: Path, config: dict) -> None:
    """Random weights as `save_pretrained` writes them, beside the configuration exactly as it is published."""
    published = folder / "config.json"
    published.write_text(json.dumps(config, indent=2) + "\n")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(folder), dtype=getattr(torch, config["torch_dtype"])
        )
    model.save_pretrained(folder)
    published.write_text(json.dumps(config, indent=2) + "\n")
