"""The example of a third-party probe: built and installed as pip does it, without a network, and found by its name."""

import dataclasses
import shutil
import subprocess
import sys

import numpy as np
import pytest

import interp
from interp import registry
from interp.certificates.text_simulations import TEXTS
from interp.testing import Shape, check_probe, synthetic_capture
from tests.paths import ROOT

SOURCE = ROOT / "examples" / "my_probe"


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that holds what pip makes of the package; nothing is left in the example's own."""
    copy, site = tmp_path_factory.mktemp("source") / "my_probe", tmp_path_factory.mktemp("site")
    shutil.copytree(SOURCE, copy)
    words = ["--quiet", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([sys.executable, "-m", "pip", "install", *words, "--target", site, copy], check=True)
    return site


@pytest.fixture
def value_length(installed, monkeypatch):
    monkeypatch.syspath_prepend(str(installed))
    registry.entries.cache_clear()
    yield registry.load_entry("probe", "value_length")
    registry.entries.cache_clear()


def test_it_is_found_by_its_name_keeps_the_contract_and_writes_its_page(value_length, tmp_path):
    assert "value_length" in registry.entries("probe")
    findings = check_probe(value_length())
    assert findings["correlation"].p > 0.001 and findings["correlation"].underpowered
    settings = {"value_length": {"n_permutations": 50, "n_bootstrap": 50}}
    record = interp.run(probes=["value_length"], settings=settings, n_pool=30, out=tmp_path, quiet=True)
    assert "Length of values and entropy" in (record.path / "report.html").read_text()


def test_planted_lengths_are_found_with_their_sign_and_only_there(value_length):
    probe = value_length(n_permutations=200, n_bootstrap=200)
    capture = synthetic_capture(probe.needs, Shape(n_prompts=220))
    entropy = capture.rows["next_entropy_bits"]
    values = np.random.default_rng(1).standard_normal(capture[probe.needs[0]].shape)
    values /= np.linalg.norm(values, axis=(2, 3), keepdims=True)
    values[-1] *= (1 / (1 + entropy))[:, None, None]
    values[0] *= np.random.default_rng(2).uniform(1, 2, len(entropy))[:, None, None]
    planted = dataclasses.replace(capture, arrays={probe.needs[0]: {"rows": values}})
    found = probe.analyse(planted, {})
    assert found["correlation"].value < -0.999 and found["correlation"].p < 0.01
    low, high = found["correlation"].null.band
    assert low == -high and not low <= found["correlation"].value <= high
    assert found.tables["by_layer"]["correlation_p"][0] > 0.05


@pytest.mark.slow
def test_it_is_certified_on_worlds_that_it_never_heard_of(value_length, tmp_path):
    record = interp.certify("value_length", scale="smoke", out=tmp_path)
    row = record.findings["certificate"].to_frame("headlines").set_index("number").loc["correlation"]
    assert row["n_judged"] == 5 * len(TEXTS) and row["called"] < 0.3 and row["word"] in ("holds", "liberal")
    assert row["power_3"] == 1.0, "lengths that follow the entropy are found"
    assert record.spec["certified"]["class"] == "my_probe:ValueLength"
    assert "Certificate of value length" in (record.path / "report.html").read_text()
