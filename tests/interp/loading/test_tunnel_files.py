"""A tunnel is its weights and its numbers: what lies beside a card and is not what it was written for is refused."""

import json
import shutil
from pathlib import Path

import pytest
from interp.wind_tunnels.networks.weights import load_weights, open_tunnel

import interp
from interp.errors import ModelError


def weights(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 4096] = bytes(4096)
    path.write_bytes(content)


def config(**changes):
    def change(path: Path) -> None:
        path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")

    return change


CHANGES = {
    "zeros": ("model.safetensors", weights),
    "another epsilon": ("config.json", config(layer_norm_eps=1e4)),
    "fewer layers": ("config.json", config(num_hidden_layers=2)),
    "another base of the rotation": (
        "config.json",
        config(rope_parameters={"rope_theta": 1e6, "rope_type": "default"}),
    ),
    "zeros on the way": ("steps/16/model.safetensors", weights),
    "another epsilon on the way": ("steps/16/config.json", config(layer_norm_eps=1e4)),
}


@pytest.fixture
def tunnel(tmp_path):
    return Path(shutil.copytree(open_tunnel("tunnel:bijection-gpt-neox").folder, tmp_path / "tunnel"))


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_not_what_the_card_was_written_for_is_refused(tunnel, change):
    file, what = CHANGES[change]
    folder = (tunnel / file).parent
    assert interp.load(folder, check=False).card
    what(tunnel / file)
    for read in (lambda: interp.load(folder, check=False), lambda: load_weights(folder)):
        with pytest.raises(ModelError, match="not the one that tunnel"):
            read()


def test_a_card_of_before_digests_loads_and_every_shipped_one_has_them(tunnel):
    card = json.loads((tunnel / "tunnel.json").read_text())
    assert "card" not in {check.name for check in interp.load(tunnel, check=False).checks}
    del card["files"]
    (tunnel / "tunnel.json").write_text(json.dumps(card | {"format": 3}))
    weights(tunnel / "model.safetensors")
    said = {check.name: check.detail for check in interp.load(tunnel, check=False).checks}
    assert "was not checked" in said["card"]
    from interp.loading.sources import shipped_tunnels
    from interp.records.tunnel_card import digests_of, read_card

    for folder in shipped_tunnels().values():
        assert len(files := read_card(folder).files) >= 2 and files == digests_of(folder)
