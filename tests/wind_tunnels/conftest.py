"""What the tests of the wind tunnels share."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Sums are taken in one order, so that equal means equal, and work stays in this process; whatever ran before."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def two_workers():
    """As on a machine of two cores, whatever the tests were started with."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)
