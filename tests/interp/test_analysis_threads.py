"""Probes analyse on one thread of linear algebra, and the run leaves the number of threads as it was."""

from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_info, threadpool_limits

import interp
from interp.findings import Findings, Scalar
from interp.need import Need
from interp.probe import Probe


def n_threads():
    return max(pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas")


@dataclass(frozen=True)
class Counting(Probe):
    name = "counting"
    question = "On how many threads is this analysed?"

    @property
    def needs(self):
        return (Need("v"),)

    def analyse(self, base, under):
        n = Scalar(float(n_threads()), "threads", interval_reason="a count", null_reason="a count", meaning="threads")
        return Findings(self.name, {"n": n}, headline=("n",))


def test_a_probe_is_analysed_on_one_thread_and_the_others_come_back():
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):
        assert n_threads() == 2
        found = interp.run("tunnel:bijection-gpt-neox", probes=[Counting()], n_pool=20, out=None, quiet=True)
        assert found.findings["counting"]["n"].value == 1
        assert n_threads() == 2
