"""Two captures against one another, and a curve to be found in one."""

import math

import numpy as np


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


def planted_curve(order, n_features, rng, noise=0.05):
    """Points along three quarters of a circle in a random plane, in this order, with isotropic noise.

    `noise` is the length of the noise vector in radii. The plane holds almost all variance, one coordinate along the
    arc tells everything, and no straight axis does.
    """
    low, high = float(order.min()), float(order.max())
    angle = 1.5 * np.pi * (order - low) / max(high - low, np.finfo(float).tiny)
    plane = np.linalg.qr(rng.standard_normal((n_features, 2)))[0]
    blur = rng.standard_normal((len(order), n_features)) * noise / math.sqrt(n_features)
    return np.stack([np.cos(angle), np.sin(angle)], axis=1) @ plane.T + blur
