"""Which files a model was read from: every change is seen, whatever the dates say, and one of a tunnel is refused."""

import json
import os
import shutil
import time
from pathlib import Path

import numpy as np
import pytest
from interp.wind_tunnels.networks.weights import load_weights, open_tunnel
from safetensors.numpy import save_file

import interp
from interp.edits import PatternsOf
from interp.errors import ModelError
from interp.loading import identity
from interp.loading.identity import files_identity
from interp.loading.sources import shipped_tunnels
from interp.options import RunOptions
from interp.records.tunnel_card import digests_of, read_card

WEIGHTS = "model.safetensors"


def in_place(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"12345678")


def swapped(path: Path) -> None:
    """As `rsync` and `mv` leave it: another file under the name."""
    other = path.with_name("other")
    shutil.copy2(path, other)
    in_place(other)
    other.replace(path)


CHANGES = {
    "weights in place": ("model/model.safetensors", in_place),
    "weights swapped": ("model/model.safetensors", swapped),
    "configuration": ("model/config.json", lambda path: path.write_bytes(path.read_bytes() + b" ")),
    "card": ("model/tunnel.json", lambda path: path.write_text(path.read_text().replace('"seed": ', '"seed": 1'))),
    "step on the way": ("model/steps/4/model.safetensors", in_place),
    "weights of the adapter": ("adapter/adapter_model.safetensors", in_place),
    "numbers of a lens": ("lens/lens.safetensors", in_place),
    "weights of a donor": ("donor/model.safetensors", in_place),
}


def laid(folder: Path) -> RunOptions:
    home = open_tunnel("tunnel:bijection-gpt-neox").folder
    for name in ("model", "donor"):
        shutil.copytree(home, folder / name)
    (folder / "model" / "steps" / "4").mkdir(parents=True, exist_ok=True)
    shutil.copy(home / WEIGHTS, folder / "model" / "steps" / "4")
    (folder / "adapter").mkdir()
    (folder / "adapter" / "adapter_config.json").write_text("{}")
    save_file({"a": np.ones(9)}, folder / "adapter" / "adapter_model.safetensors")
    (folder / "lens").mkdir()
    save_file({"matrix.0": np.ones((3, 3))}, folder / "lens" / "lens.safetensors")
    donor, lens = PatternsOf(donor=str(folder / "donor")), folder / "lens" / "lens.safetensors"
    return RunOptions(model=str(folder / "model"), adapter=str(folder / "adapter"), lens=lens, edits=donor)


@pytest.mark.parametrize("system", ["posix", "nt"])
@pytest.mark.parametrize("change", CHANGES)
def test_a_file_that_changed_is_seen_with_an_older_date(tmp_path, monkeypatch, change, system):
    options = laid(tmp_path)
    monkeypatch.setattr(identity, "IS_WINDOWS", system == "nt")
    before = files_identity(options)
    (tmp_path / "model" / "notes.md").write_text("no part of a model")
    assert files_identity(options) == before
    name, what = CHANGES[change]
    time.sleep(0.02)  # times of changes come in ticks
    what(tmp_path / name)
    os.utime(tmp_path / name, (0, 0))
    after = files_identity(options)
    assert [each for each in before if before[each] != after[each]] == [
        next(each for each in before if each.startswith(name.partition("/")[0]))
    ]


def test_the_identity_costs_at_most_a_tenth_of_loading_the_smallest_network():
    options = RunOptions(model=str(open_tunnel("tunnel:bijection-gpt-neox").folder))

    def seconds(work) -> float:
        spent = []
        for _ in range(5):
            began = time.process_time()
            work()
            spent.append(time.process_time() - began)
        return min(spent)

    assert seconds(lambda: files_identity(options)) < 0.1 * seconds(lambda: interp.load(options.model))


def half_zero(path: Path) -> None:
    content = path.read_bytes()
    half = len(content) // 2
    path.write_bytes(content[:half] + bytes(4096) + content[half + 4096 :])


def config(**changes):
    def change(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")

    return change


OF_TUNNELS = {
    "zeros": ("model.safetensors", half_zero),
    "another epsilon": ("config.json", config(layer_norm_eps=1e4)),
    "fewer layers": ("config.json", config(num_hidden_layers=2)),
    "zeros on the way": ("steps/16/model.safetensors", half_zero),
    "another epsilon on the way": ("steps/16/config.json", config(layer_norm_eps=1e4)),
}


@pytest.fixture
def copied(tmp_path):
    return Path(shutil.copytree(open_tunnel("tunnel:bijection-gpt-neox").folder, tmp_path / "tunnel"))


@pytest.mark.parametrize("change", OF_TUNNELS)
def test_what_is_not_what_the_card_was_written_for_is_refused(copied, change):
    file, what = OF_TUNNELS[change]
    folder = (copied / file).parent
    assert interp.load(folder, check=False).card
    what(copied / file)
    for read in (lambda: interp.load(folder, check=False), lambda: load_weights(folder)):
        with pytest.raises(ModelError, match="not the one that tunnel"):
            read()


def test_weights_that_the_card_tells_of_and_are_not_there_are_missed_in_words(copied):
    (copied / "model.safetensors").unlink()
    for read in (lambda: interp.load(copied, check=False), lambda: load_weights(copied)):
        with pytest.raises(ModelError, match=r"there is no model\.safetensors"):
            read()


def test_a_card_of_before_digests_loads_and_every_shipped_one_has_them(copied):
    card = json.loads((copied / "tunnel.json").read_text())
    assert "card" not in {check.name for check in interp.load(copied, check=False).checks}
    del card["files"]
    (copied / "tunnel.json").write_text(json.dumps(card | {"format": 3}))
    half_zero(copied / "model.safetensors")
    said = {check.name: check.detail for check in interp.load(copied, check=False).checks}
    assert "was not checked" in said["card"]
    for folder in shipped_tunnels().values():
        assert len(files := read_card(folder).files) >= 2 and files == digests_of(folder)
