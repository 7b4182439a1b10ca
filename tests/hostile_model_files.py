"""Captures, model files and certificates that `interp` reads and did not write, and all readers of files together.

In the form of `tests/hostile_files.py`. Whoever edits a capture can make its digests anew, so they are made anew here.
"""

import copy
import json
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import interp
from interp.editing.features import open_features
from interp.loading.adapter import locate_adapter, merge_adapter
from interp.loading.admission import read_config
from interp.loading.quiet_libraries import quiet_libraries
from interp.loading.sources import locate
from interp.loading.tokenizer import read_tokenizer
from interp.records.capture_files import open_capture
from interp.system.array_files import digest_of_file
from interp.system.digest import digest_of
from tests import hostile_files
from tests.hostile_files import Reader
from tests.tiny_models import tiny_model

ARRAY, FOLDER = "0-next_log_prob.rows.safetensors", "capture"


@cache
def _capture() -> interp.Capture:
    model = interp.load("tunnel:bijection-gpt-neox", check=False)
    return interp.collect(model, interp.sampled_prompts(model.task, 2), ["next_log_prob"])


def _saved(folder: Path) -> None:
    if not (folder / FOLDER).exists():
        _capture().save(folder / FOLDER)


def _sign(folder: Path) -> None:
    """Make the digests of a capture fit what stands in it, as far as it can be read."""
    file = folder / "capture.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        content["files"] = {**content["files"]} | {
            path.name: digest_of_file(path) for path in folder.iterdir() if path.is_file() and path != file
        }
        plain = {name: x for name, x in content.items() if name not in ("format", "digest")}
        file.write_text(json.dumps({**content, "digest": digest_of(plain)}), encoding="utf-8")
    except (ValueError, KeyError, TypeError, RecursionError, OSError):
        return


def _open_signed(folder: Path) -> object:
    _sign(folder / FOLDER)
    capture = open_capture(folder / FOLDER)
    read = [np.asarray(x)[..., :1] for reduced in capture.arrays.values() for x in reduced.values()]
    return read, [table.to_frame() for table in capture.tables.values()], repr(capture), capture._repr_html_()


def _features(folder: Path) -> None:
    (folder / "cfg.json").write_text(
        json.dumps({"d_in": 4, "d_sae": 6, "metadata": {"hook_name": "blocks.1.hook_resid_post", "hook_head_index": 0}})
    )
    save_file({"W_dec": np.eye(6, 4, dtype=np.float32)}, folder / "sae_weights.safetensors")


def _read_features(folder: Path) -> object:
    features = open_features(folder)
    return features, features.place


def _adapter(folder: Path) -> None:
    import peft

    if (folder / "adapter_config.json").exists():
        return
    config = peft.LoraConfig(r=2, lora_alpha=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False)
    with quiet_libraries():
        peft.get_peft_model(copy.deepcopy(tiny_model("llama").module), config).save_pretrained(folder)


def _read_adapter(folder: Path) -> object:
    return merge_adapter(copy.deepcopy(tiny_model("llama").module), "base", str(folder), locate_adapter(str(folder)))[1]


def _gguf(folder: Path) -> None:
    from tests.gguf_files import original, written

    if not (folder / "m.gguf").exists():
        written(folder / "m.gguf", original())


def _read_gguf(folder: Path) -> object:
    files = locate(folder / "m.gguf").files
    return read_config(files), read_tokenizer(files)


def _program(folder: Path) -> None:
    from interp.loading.sources import shipped_programs

    (folder / "config.json").write_text("{}")
    home = shipped_programs()["frac_prevs"]
    (folder / "program.json").write_bytes((home / "program.json").read_bytes())
    labels = json.loads((home / "program.json").read_text(encoding="utf-8"))["labels"]
    save_file({"directions": np.eye(len(labels), dtype=np.float32)}, folder / "truth.safetensors")


def _read_program(folder: Path) -> object:
    mechanism = locate(folder).mechanism
    if mechanism is None:
        return None
    found = [(mechanism.first_depth(name), mechanism.is_read(name, 1)) for name in mechanism.directions]
    return found, mechanism.variable("answer")


_OURS = {
    "capture": Reader(f"{FOLDER}/capture.json", _saved, _open_signed),
    "capture prompts": Reader(f"{FOLDER}/prompts.parquet", _saved, _open_signed),
    "capture rows": Reader(f"{FOLDER}/rows.scored.parquet", _saved, _open_signed),
    "capture array": Reader(f"{FOLDER}/{ARRAY}", _saved, _open_signed),
    "features": Reader("cfg.json", _features, _read_features),
    "features weights": Reader("sae_weights.safetensors", _features, _read_features),
    "program truth": Reader("truth.safetensors", _program, _read_program),
}

_ADAPTERS = {
    "adapter": Reader("adapter_config.json", _adapter, _read_adapter),
    "adapter weights": Reader("adapter_model.safetensors", _adapter, _read_adapter),
}
_GGUF = {"gguf": Reader("m.gguf", _gguf, _read_gguf)}

READERS = {
    **hostile_files.READERS, **_OURS, **(_ADAPTERS if find_spec("peft") else {}),
    **(_GGUF if find_spec("gguf") else {}),
}  # fmt: skip
"""By name; adapters and GGUF files where the libraries that read them are installed."""
