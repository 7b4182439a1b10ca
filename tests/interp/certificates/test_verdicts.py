"""Words are earned by exact binomial intervals: a share above five per cent is no verdict by itself."""

import numpy as np
import pytest
from scipy import stats

from interp.certificates.verdicts import NONE as NOTHING_PLANTED
from interp.certificates.verdicts import Count, judge, suspects, total


def kinds_of(*counts: Count) -> dict[str, Count]:
    return {str(i): count for i, count in enumerate(counts)}


def test_counts_of_simulations_are_judged():
    assert Count(6, 60).share == 0.1 and judge(kinds_of(Count(6, 60)), NOTHING_PLANTED) == "holds"
    assert judge(kinds_of(Count(40, 400)), NOTHING_PLANTED) == "liberal"
    assert judge(kinds_of(Count(26, 400)), NOTHING_PLANTED) == "holds"
    assert judge(kinds_of(Count(0, 400)), Count(60, 60)) == "conservative"
    assert judge(kinds_of(Count(0, 60)), Count(20, 20)) == "holds", "none of sixty may still be 5 %"
    assert judge(kinds_of(Count(0, 30), Count(0, 29)), Count(20, 20)) == "not tested", "none of 59 says nothing"
    assert judge(kinds_of(Count(20, 400)), Count(5, 60)) == "without power"
    assert judge(kinds_of(Count(20, 400)), Count(1, 3)) == "holds", "three cannot say that there is no power"
    assert judge(kinds_of(), NOTHING_PLANTED) == "not tested"
    assert Count.of([True, None, False, None]) == Count(1, 2)
    assert np.isnan(Count(1, 59).rate) and Count(3, 60).rate == 0.05
    exact = stats.binomtest(57, 400).proportion_ci(0.95, "exact")
    assert Count(57, 400).interval() == pytest.approx((exact.low, exact.high)) and Count(0, 0).interval() == (0.0, 1.0)
    assert total([Count(1, 3), Count(2, 5)]) == Count(3, 8) and np.isnan(total([]).share)


def test_kinds_are_liberal_alone_together_or_where_fresh_simulations_say_so():
    calm = [Count(1, 50)] * 7
    assert not suspects(kinds_of(Count(7, 50))) or Count(7, 50).interval()[0] > 0.05
    assert suspects(kinds_of(*calm, Count(12, 50)))
    assert Count(7, 50).interval()[0] > 0.05 and not suspects(kinds_of(*calm, Count(7, 50)))
    kinds = {"a": Count(2, 50), "b": Count(12, 50), "c": Count(1, 50)}
    assert suspects(kinds) == [["b"], [*kinds]] and suspects(dict.fromkeys("abc", Count(2, 50))) == []
    eight = dict.fromkeys("abcdefgh", Count(5, 60))
    assert suspects(eight) == [list(eight)], "no kind alone, all of them together"
    assert judge(kinds, NOTHING_PLANTED) == "liberal"
    assert judge(kinds, NOTHING_PLANTED, {"b": Count(9, 150)}) == "holds"
    assert judge(kinds, NOTHING_PLANTED, {"b": Count(20, 150)}) == "liberal"
    loud = dict.fromkeys("abcd", Count(6, 60)) | {"e": Count(11, 60)}  # liberal together, and one of them alone
    assert suspects(loud) == [["e"], list(loud)]
    tried_again = dict.fromkeys("abcd", Count(18, 180))
    assert judge(loud, NOTHING_PLANTED, tried_again | {"e": Count(9, 180)}) == "liberal", "the others are so again"
    tried_again = dict.fromkeys("abcd", Count(9, 180))
    assert judge(loud, NOTHING_PLANTED, tried_again | {"e": Count(9, 180)}) == "holds"


@pytest.mark.slow
def test_a_p_that_is_right_is_seldom_called_liberal():
    rng = np.random.default_rng(0)
    for share, n, least, most in ((0.05, 400, 0.0, 0.08), (0.12, 100, 0.9, 1.0)):
        drawn = ([Count(int(k), 57) for k in kinds] for kinds in rng.binomial(57, share, (n, 7)))
        assert least <= np.mean([bool(suspects(kinds_of(*counts))) for counts in drawn]) <= most
