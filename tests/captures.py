"""Captures against one another and against what the module itself computes, and a curve to be found in one."""

import math

import numpy as np
import torch

import interp
from interp.hooks.attention import attention_function
from tests.tiny_models import prompts_of


def assert_captures_agree(one, other, **close):
    """Every array and column as near as `close` says; counts and words, and all where it says nothing, bit for bit."""
    assert one.arrays.keys() == other.arrays.keys() and one.tables.keys() == other.tables.keys()
    for need, reduced in one.arrays.items():
        for name, array in reduced.items():
            _agree(array, other.reduced(need)[name], {} if name == "count" else close, f"{need} {name}")
    for at, table in one.tables.items():
        assert table.units == other.tables[at].units
        for name, column in table.columns.items():
            _agree(column, other.tables[at][name], close if column.dtype.kind == "f" else {}, f"{at} {name}")


def _agree(one, other, close, what):
    if close:
        np.testing.assert_allclose(other, one, **close, err_msg=what)
    else:
        np.testing.assert_array_equal(other, one, strict=one.dtype.kind not in "OU", err_msg=what)


def planted_curve(order, n_features, rng):
    """Points along three quarters of a circle in a random plane, in this order, with a little isotropic noise.

    The plane holds almost all variance, one coordinate along the arc tells everything, and no straight axis does.
    """
    low, high = float(order.min()), float(order.max())
    angle = 1.5 * np.pi * (order - low) / max(high - low, np.finfo(float).tiny)
    plane = np.linalg.qr(rng.standard_normal((n_features, 2)))[0]
    blur = rng.standard_normal((len(order), n_features)) * 0.05 / math.sqrt(n_features)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) @ plane.T + blur


def assert_read_as_computed(model, ids):
    """The stream, and rows, keys and values of every layer with attention, are those of the module's own eager pass."""
    needs = [interp.Need(name, at="all") for name in ("resid", "pattern_row", "k", "v")]
    got = interp.collect(model, prompts_of(ids), needs)
    with torch.inference_mode(), attention_function(model, "eager"):
        own = model.module(
            torch.from_numpy(ids)[None], use_cache=True, output_attentions=True, output_hidden_states=True
        )
    stream = torch.cat(own.hidden_states[:-1]).numpy()
    np.testing.assert_allclose(got[needs[0]][:-1], stream, rtol=1e-4, atol=1e-4)
    rows = [each[0].numpy() for each in own.attentions if each is not None]
    assert len(rows) == len(model.info.layers_with_attention)
    caches = [each for each in own.past_key_values.layers if getattr(each, "keys", None) is not None]
    for place, (theirs, cached) in enumerate(zip(rows, caches, strict=True)):
        ours = np.nan_to_num(np.exp2(got[needs[1]][place])).swapaxes(0, 1)  # [head, pos, key]
        np.testing.assert_allclose(ours, theirs, atol=5e-6)
        # of one with a window the last positions alone
        step, n = cached.keys.shape[1] // model.info.n_kv_heads, cached.keys.shape[2]
        for need, theirs in zip(needs[2:], (cached.keys, cached.values), strict=True):
            expected = theirs[0, ::step].transpose(0, 1).numpy()  # [pos, kv_head, d_head]
            np.testing.assert_allclose(got[need][place][-n:], expected, rtol=1e-6, atol=2e-5)
