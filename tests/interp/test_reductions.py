"""Laws of reductions: nothing depends on how the stream was cut, and merging is associative."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interp.reductions import NarrowRows, PromptMean, Rows

REDUCTIONS = (Rows(), PromptMean(), NarrowRows(max_width=3))


def stream(n=23, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(5, 3, size=(n, 2, 3)).astype(np.float32), np.sort(rng.integers(0, 6, n))


def reduced(reduction, parts):
    state = reduction.starter(np.arange(6))()
    for rows, prompts in parts:
        state.add(rows, prompts)
    return state


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        np.testing.assert_allclose(a[name], b[name], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@given(cuts=st.lists(st.integers(0, 23), max_size=6))
@settings(max_examples=40, deadline=None)
def test_a_reduction_does_not_depend_on_how_the_stream_is_cut(reduction, cuts):
    rows, prompts = stream()
    edges = [0, *sorted(cuts), 23]
    parts = [(rows[a:b], prompts[a:b]) for a, b in itertools.pairwise(edges)]
    assert_same(reduced(reduction, parts).result(), reduced(reduction, [(rows, prompts)]).result())


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_merging_is_associative(reduction):
    rows, prompts = stream()
    thirds = [(rows[:7], prompts[:7]), (rows[7:9], prompts[7:9]), (rows[9:], prompts[9:])]
    left, right = [reduced(reduction, [t]) for t in thirds], [reduced(reduction, [t]) for t in thirds]
    left[0].merge(left[1])
    left[0].merge(left[2])
    right[1].merge(right[2])
    right[0].merge(right[1])
    assert_same(left[0].result(), right[0].result())
    assert_same(left[0].result(), reduced(reduction, [(rows, prompts)]).result())


def test_means_of_prompts_equal_numpy_however_prompts_are_split():
    rows, prompts = stream()
    got = reduced(PromptMean(), [(rows[:11], prompts[:11]), (rows[11:], prompts[11:])]).result()["rows"]
    for i, prompt in enumerate(np.unique(prompts)):
        np.testing.assert_allclose(got[i], rows[prompts == prompt].astype(np.float64).mean(0))


def test_narrow_rows_are_kept_as_rows_are_and_wide_ones_counted_and_not_held():
    narrow = np.random.default_rng(0).standard_normal((6, 5))
    kept, every = (reduced(each, [(narrow, np.arange(6))]).result() for each in (NarrowRows(max_width=5), Rows()))
    np.testing.assert_array_equal(kept["rows"], every["rows"])
    assert [NarrowRows(max_width=5).keeps(width) for width in (5, 6)] == [True, False]
    state = reduced(NarrowRows(), [(np.zeros((1000, 600), dtype=np.float32), np.arange(1000))])
    kept = state.result()["rows"]
    assert kept.shape == (1000, 0) and kept.base is None
    assert all(part.base is None for part in state.parts)
