"""Known hazards are said for the device and the release that they concern, and for no other."""

import pytest

from interp.self_check.hazards import HAZARDS, hazards
from tests.paths import ROOT

BOUNDED = 193487


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
def test_other_devices_have_none(device):
    assert hazards(device, "2.13.0") == []


@pytest.mark.parametrize(
    ("version", "is_said"), [("2.6.0", False), ("2.7.0", True), ("2.13.1+cpu", True), ("2.14.0.dev20260901", False)]
)
def test_a_hazard_is_said_in_the_releases_that_its_report_names(version, is_said):
    said = [hazard.issue for hazard in hazards("mps", version)]
    assert (BOUNDED in said) == is_said
    assert {each.issue for each in HAZARDS if each.first is None} <= {*said}


def test_every_hazard_names_its_report_and_stands_on_the_page():
    page = (ROOT / "docs/reference/devices.md").read_text(encoding="utf-8")
    for hazard in HAZARDS:
        assert f"https://github.com/pytorch/pytorch/issues/{hazard.issue}" in str(hazard) and str(hazard.issue) in page
