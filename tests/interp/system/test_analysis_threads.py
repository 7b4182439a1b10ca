"""Probes analyse with one thread of linear algebra for each piece of work, and leave their number as it was."""

import threading
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

import interp
from interp.findings import Findings, Scalar
from interp.running.choose_probes import choose_probes
from interp.system.threads import (
    AT_ONCE,
    OWN_SETTING,
    PER_THREAD,
    n_workers,
    one_thread,
    side_by_side,
    threads_worth,
    torch_on,
)
from interp.testing import Shape, same_findings, synthetic_capture
from tests.plain_probe import PlainProbe
from tests.quick import quick


def n_threads():
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


class Counting(PlainProbe):
    name = "counting"

    def analyse(self, base, under):
        n = Scalar(float(n_threads()), "threads", interval_reason="a count", null_reason="a count", meaning="threads")
        return Findings(self.name, {"n": n}, headline=("n",))


def test_a_probe_is_analysed_on_one_thread_and_errors_are_raised():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):
        assert n_threads() == 2
        found = interp.run("tunnel:bijection-gpt-neox", probes=[Counting()], n_pool=20, out=None, quiet=True)
        assert found.findings["counting"]["n"].value == 1
        assert n_threads() == 2
    with threads_of_torch(2), pytest.raises(ZeroDivisionError):
        side_by_side(lambda x: 1 / x, [1, 0, 2])


@contextmanager
def threads_of_torch(n):
    before = torch.get_num_threads()
    torch.set_num_threads(n)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def test_pieces_go_side_by_side_each_on_one_thread_and_come_back_in_order():
    met = threading.Barrier(2, timeout=60)

    def piece(i):
        met.wait()  # nobody gets past it alone
        return i, torch.get_num_threads(), n_threads(), n_workers(), side_by_side(lambda x: threading.get_ident(), "ab")

    with threads_of_torch(2):
        found = side_by_side(piece, range(4))
        assert torch.get_num_threads() == 2
    assert [one[:4] for one in found] == [(i, 1, 1, 1) for i in range(4)]
    for *_, inner in found:
        assert inner[0] == inner[1], "what a piece spreads stays on its own thread"


def test_a_run_of_one_thread_has_no_other_and_no_run_has_more_pieces_at_once_than_told():
    with threads_of_torch(1):
        assert side_by_side(lambda x: threading.get_ident(), range(3)) == [threading.get_ident()] * 3
    with threads_of_torch(AT_ONCE + 3), one_thread():
        ready = threading.Semaphore(AT_ONCE)

        def piece(i):
            assert ready.acquire(blocking=False), "more at once than allowed"
            np.linalg.eigh(np.eye(200))
            ready.release()
            return i

        assert side_by_side(piece, range(40)) == list(range(40))


@pytest.mark.parametrize("name", quick(["manifold", "sula"], ["manifold", "value_axis", "orthogonality", "sula"]))
def test_findings_do_not_depend_on_the_number_of_threads(name):
    (probe,) = choose_probes([name]).probes
    shape = Shape(n_prompts=60, n_layers=3, n_heads=2, n_kv_heads=2, d_head=8, d_model=16, vocab_size=30)
    capture = synthetic_capture(probe.needs, shape)
    found = []
    for n in (1, 2):
        with threads_of_torch(n), one_thread():
            found.append(probe.analyse(capture, {}))
    assert same_findings(*found)


def threads_in(n_operations):
    with torch_on(threads_worth(n_operations)):
        return torch.get_num_threads()


def test_passes_take_the_threads_that_their_work_is_worth_and_no_more_than_torch_may_use(monkeypatch):
    for name in OWN_SETTING:
        monkeypatch.delenv(name, raising=False)
    with threads_of_torch(3):
        assert [threads_in(n * PER_THREAD // 10) for n in (0, 9, 19, 20, 35, 1000)] == [1, 1, 1, 2, 3, 3]
        with pytest.raises(ZeroDivisionError), torch_on(1):
            1 / 0  # noqa: B018
        assert torch.get_num_threads() == 3
    with threads_of_torch(3), one_thread():
        assert threads_in(100 * PER_THREAD) == 1


@pytest.mark.parametrize("name", OWN_SETTING)
def test_a_number_of_threads_that_the_environment_names_stands(name, monkeypatch):
    monkeypatch.setenv(name, "2")
    with threads_of_torch(2):
        assert threads_in(0) == 2
