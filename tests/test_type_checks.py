"""What all other tests rely on: annotations of `interp` are checked while they run, and shapes across arguments."""

import numpy as np
import pytest
from beartype.roar import BeartypeCallHintViolation
from jaxtyping import TypeCheckError

from interp.formatting import near_zero_as_zero
from interp.information import entropy_bits, kl_bits
from interp.need import Need

EVEN = np.array([[0.5, 0.5]])


def test_arguments_shapes_and_results_are_checked(monkeypatch):
    with pytest.raises(BeartypeCallHintViolation, match="near_zero_as_zero"):
        near_zero_as_zero("0")
    with pytest.raises(BeartypeCallHintViolation, match="site"):
        Need(7)
    assert kl_bits(EVEN, EVEN) == [0]
    with pytest.raises(TypeCheckError, match="outcome"):
        kl_bits(EVEN, np.full((1, 3), 1 / 3))
    with pytest.raises(TypeCheckError, match="probabilities"):
        entropy_bits(np.array([[1, 0]]))
    need = Need("v")
    monkeypatch.setattr("interp.need.site", lambda name: name)
    with pytest.raises(BeartypeCallHintViolation, match="described"):
        _ = need.described
    with pytest.raises(TypeCheckError, match="return value"):
        entropy_bits(EVEN[0])  # a number, no array


def test_the_checks_can_be_switched_off(without_type_checks):
    assert Need("v", layers=[0]).layers == (0,)
    assert entropy_bits(np.array([[1, 0]])) == [0]
