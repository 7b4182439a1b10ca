"""Many simulations are drawn without checks of annotations, which one simulation of each kind has gone through."""

from collections.abc import Iterator

import jaxtyping
import pytest


@pytest.fixture
def without_type_checks() -> Iterator[None]:
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
