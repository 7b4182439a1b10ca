"""The defaults of tasks, networks and recipes are those that the shipped networks were made with."""

import json
from dataclasses import fields

import pytest
from interp.wind_tunnels.networks.architectures import Network
from interp.wind_tunnels.training.recipe import Recipe

from interp.registry import load_entry
from tests.paths import ROOT

CHECKPOINTS = ROOT / "wind_tunnels" / "checkpoints"


def card_of(name: str) -> dict:
    return json.loads((CHECKPOINTS / name / "tunnel.json").read_text(encoding="utf-8"))


def defaults_of(kind: type) -> dict:
    made = kind()
    return json.loads(json.dumps({field.name: getattr(made, field.name) for field in fields(made)}))


@pytest.mark.parametrize("name", ["bijection", "hmm-fixed", "mess3", "mixture", "permutation", "recall", "recurrence"])
def test_the_defaults_of_a_task_are_those_of_its_network(name):
    assert defaults_of(load_entry("tunnel", name)) == card_of(f"{name}-gpt-neox")["parameters"]


def test_the_defaults_are_those_of_the_paper_and_of_the_first_tunnel():
    # `hmm` is trained on harder sequences than its default samples, which probes of short runs read.
    paper = card_of("hmm-llama-five")["parameters"]
    changed = {"header": "entries", "stay": 0.0, "grid": 0.01, "floor": 0.05, "predict": "state"}
    assert defaults_of(load_entry("tunnel", "hmm")) == paper | changed
    card = card_of("bijection-gpt-neox")
    assert card["recipe"].pop("fresh_share") == 0.0  # recipes had it once
    for given, mine in ((card["network"], Network), (card["recipe"], Recipe)):
        assert given == {name: defaults_of(mine)[name] for name in given}
