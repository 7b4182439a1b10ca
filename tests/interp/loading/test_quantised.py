"""Quantised weights are refused by name, and read without the checks of plain weights where that is asked for."""

from dataclasses import replace

import numpy as np
import pytest
from transformers import BitsAndBytesConfig
from typer.testing import CliRunner

import interp
from interp.cli.app import app
from interp.errors import ModelError, UsageError
from interp.loading.admission import quantisation, read_config
from interp.loading.hub_files import files_in_folder
from interp.loading.placement import Placement, choose_placement
from interp.loading.weights import read_weights
from interp.need import Need
from interp.options import RunOptions
from interp.reading.forward import capture
from interp.running.plan import plan
from interp.self_check.selfcheck import left_out
from tests.interp.system.test_processes import sequences
from tests.tiny_models import fresh_model

STATED = {"quantization_config": {"quant_method": "bitsandbytes", "load_in_4bit": True}}
"""What a configuration says; the weights are plain ones."""


def rounded():
    module = fresh_model("llama").module
    module.config.quantization_config = STATED["quantization_config"]
    return module


@pytest.mark.parametrize(
    "stated, words",
    [
        ({"quant_method": "gptq", "bits": 4}, "gptq, 4 bits"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "bitsandbytes, 8 bits"),
        (BitsAndBytesConfig(load_in_4bit=True), "bitsandbytes, 4 bits"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
        ({"bits": 3}, "of an unnamed kind, 3 bits"),
        ({}, None),
        (None, None),
    ],
)
def test_the_quantisation_is_named(stated, words):
    assert quantisation(stated) == words


def test_a_quantised_folder_is_refused_and_then_asks_for_its_package(spoilt):
    """bitsandbytes is not installed here: allowed, the loader says that it is missing."""
    with pytest.raises(ModelError, match=r"quantised \(bitsandbytes, 4 bits\)"):
        interp.load(folder := spoilt(config=STATED))
    with pytest.raises(ModelError, match=r"(?s)quantised \(bitsandbytes, 4 bits\).*--allow-quantised"):
        interp.load(rounded())
    files = files_in_folder(folder)
    allowed = read_config(replace(files, allow_quantised=True))
    with pytest.raises(ModelError, match="needs a package that is not installed"):
        read_weights(files, allowed, Placement("float32", "cpu"))
    assert choose_placement(allowed, 10**14, RunOptions(device="cpu")).device == "cpu"  # its size is not guessed at


def test_allowed_it_is_read_but_for_its_weights():
    """Activations are those of the rounded model; checks of plain weights are named as left out; weights refused."""
    model = interp.load(rounded(), allow_quantised=True)
    assert model.info.quantisation == "bitsandbytes, 4 bits"
    assert {"output", "projections"} == set(left_out(model))
    names = {check.name for check in model.checks}
    assert {"eager", "causal", "rotary", "head", "edit"} <= names and not {"output", "projections"} & names
    prompts, ids = sequences(3)
    np.testing.assert_array_equal(
        capture(model, prompts, ids, [Need("v")])[Need("v")],
        capture(fresh_model("llama"), prompts, ids, [Need("v")])[Need("v")],
    )
    with pytest.raises(UsageError, match="no plain weights: they are quantised"):
        capture(model, prompts, ids, [Need("W_V")])


def test_plan_of_a_quantised_model_is_refused_unless_allowed(spoilt):
    folder = spoilt(config=STATED)
    with pytest.raises(ModelError, match="--allow-quantised"):
        plan(folder)
    found = plan(folder, allow_quantised=True)
    assert found.memory.weights == (folder / "model.safetensors").stat().st_size
    assert any("bitsandbytes, 4 bits" in note and "from the files" in note for note in found.notes)
    (folder / "model.safetensors").unlink()
    found = plan(folder, allow_quantised=True)
    assert found.memory.weights == 4 * found.model.n_parameters
    assert any("not known" in note for note in found.notes)


def test_command_line_passes_the_permission_on(spoilt, monkeypatch):
    folder = str(spoilt(config=STATED))
    shown = CliRunner().invoke(app, ["plan", "--model", folder, "--allow-quantised"])
    assert shown.exit_code == 0 and "bitsandbytes, 4 bits" in shown.stdout, shown.output
    asked = {}

    def load(options, check, text):
        asked.update(vars(options), check=check)
        return fresh_model("llama")

    monkeypatch.setattr("interp.loading.load.load_as_asked", load)
    shown = CliRunner().invoke(app, ["check", "--model", folder, "--allow-quantised", "--device-map", "auto"])
    assert shown.exit_code == 0, shown.output
    assert (asked["allow_quantised"], asked["device_map"], asked["check"]) == (True, "auto", False)
    CliRunner().invoke(app, ["check", "--model", folder])
    assert (asked["allow_quantised"], asked["device_map"]) == (False, None)
