"""Every registered probe meets the contract, and the check notices probes that do not."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import ClassVar

import numpy as np
import pytest

from interp.capture import Capture
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import Figure, Probe, Readout
from interp.registry import entries, load_entry
from interp.table import Table
from interp.testing import Shape, check_probe, synthetic_capture
from tests.paths import ROOT
from tests.probes.test_degenerate import small


@pytest.mark.parametrize("name", entries("probe"))
def test_registered_probe_conforms(name: str) -> None:
    check_probe(small(name))


@pytest.mark.parametrize("name", entries("probe"))
def test_the_defaults_of_a_probe_are_those_that_its_certificate_is_of(name: str) -> None:
    file = ROOT / "examples" / "certificates" / name / "run.json"
    again = f"`interp certify {name} --out build` makes its certificate: move that folder to {file.parent}"
    assert file.exists(), again
    certificate = json.loads(file.read_text(encoding="utf-8"))
    defaults = json.loads(json.dumps(load_entry("probe", name)().parameters()))
    assert defaults == certificate["spec"]["certified"]["parameters"], again


@dataclass(frozen=True)
class Loudness(Probe):
    """A minimal third-party probe: the mean length of the values."""

    scale: float = 1.0

    name: ClassVar[str] = "loudness"
    question: ClassVar[str] = "How long are the values?"

    @property
    def needs(self) -> tuple[Need, ...]:
        return (Need("v"),)

    def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
        value = float(np.linalg.norm(base[self.needs[0]], axis=-1).mean()) * self.scale
        scalar = Scalar(
            value, "activation", interval_reason="a demonstration", null_reason="a demonstration", meaning="x"
        )
        return Findings(self.name, {"length": scalar}, headline=("length",))


CALLS = count()


def faulty(fault: Callable[[Findings, Capture], Findings]) -> Probe:
    """The probe with something done to its findings, or to what it was given."""

    class Faulty(Loudness):
        def analyse(self, base: Capture, under: Mapping[str, Readout]) -> Findings:
            return fault(super().analyse(base, under), base)

    return Faulty()


def impure(found: Findings, base: Capture) -> Findings:
    base[Need("v")][:] *= 2
    return found


def uses_the_global_generator(found: Findings, _: Capture) -> Findings:
    np.random.random()  # noqa: NPY002 (the fault that is to be found)
    return found


def beside(found: Findings, _: Capture) -> Findings:
    return replace(found, scalars={"length": replace(found["length"], interval=(-2.0, -1.0), interval_method="m")})


def screened(found: Findings, _: Capture) -> Findings:
    """Its table has a p that is none, as heads had that a screen had left out."""
    return replace(found, tables={"t": Table({"size": np.ones(2), "size_p": np.array([0.5, -0.1])}, {"size": "1"})})


class Silent(Loudness):
    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        import plotly.graph_objects as go

        return (Figure("f", "a title", "", go.Figure()),)


class Busy(Loudness):
    def __post_init__(self) -> None:
        """Work in a constructor is not allowed."""


def test_a_minimal_third_party_probe_conforms() -> None:
    assert check_probe(Loudness())["length"].unit == "activation"


@pytest.mark.parametrize(
    ("probe", "complaint"),
    [
        (faulty(impure), "gives another answer|changed v"),
        (faulty(lambda found, _: replace(found, notes=(f"call {next(CALLS)}",))), "another answer the second time"),
        (faulty(uses_the_global_generator), "global generator"),
        (faulty(beside), "outside its interval"),
        (faulty(screened), r"t.size_p: -0.1 to 0.5 are no probabilities"),
        (Silent(), "does not say how to read it"),
        (Busy(), "does more than store"),
    ],
)
def test_a_fault_is_found(probe: Probe, complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_probe(probe)


def test_planted_captures_hold_what_is_planted() -> None:
    rows = np.ones((3, 10, 2, 8))
    capture = synthetic_capture((Need("v"),), Shape(n_prompts=10), planted={"v": rows})
    np.testing.assert_array_equal(capture[Need("v")], rows)
    with pytest.raises(ValueError, match="planted v has shape"):
        synthetic_capture((Need("v"),), Shape(n_prompts=11), planted={"v": rows})
