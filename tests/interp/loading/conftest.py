"""A tiny model in a folder of its own, to be spoilt."""

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file


@pytest.fixture
def spoilt(tmp_path, tiny_folders):
    """`spoilt(family, change)`: a folder of that tiny model whose configuration or tensors were changed."""

    def make(family="llama", config=None, tensors=None) -> Path:
        folder = Path(shutil.copytree(tiny_folders[family], tmp_path / family))
        if config:
            content = json.loads((folder / "config.json").read_text())
            (folder / "config.json").write_text(json.dumps(content | config))
        if tensors:
            held = load_file(folder / "model.safetensors")
            tensors(held)
            save_file(held, folder / "model.safetensors", {"format": "pt"})
        return folder

    return make


@pytest.fixture
def folder(spoilt) -> Path:
    """A tiny Llama as it is."""
    return spoilt()
