"""Numbers in edits as numpy, pandas and torch give them: the edit is the one of Python's own numbers."""

import json

import numpy as np
import pandas as pd
import pytest
import torch

from interp.editing.edit_files import edit_from_json
from interp.edits import AblateHeads, BypassLayer, RemoveAxis, ReplaceCoordinates, ShiftAxis
from interp.errors import UsageError

pytestmark = pytest.mark.usefixtures("without_type_checks")  # what people give
AXIS = [0.0, 1.0, 2.0, 0.5]
SCALARS = (np.int64, np.float64, np.float32, np.array, torch.tensor, lambda x: pd.Series([x, 0.5]).iloc[0],
           lambda x: pd.Series([x, "resid"]).iloc[0])  # fmt: skip
SEVERAL = (list, np.array, torch.tensor, pd.Series, pd.Index, lambda x: (np.int32(each) for each in x))
ARRAYS = (list, np.array, np.float32, lambda x: np.array(x, dtype=object), torch.tensor, pd.Series,
          lambda x: torch.tensor(x, requires_grad=True), lambda x: torch.tensor(x, dtype=torch.bfloat16))  # fmt: skip


@pytest.mark.parametrize("given", SCALARS)
def test_one_number(given):
    """Of a row with fractions or words beside it, too: there whole numbers come as 2.0."""
    edits = [
        (BypassLayer(layer=given(2), dose=given(1), at=given(3)), BypassLayer(layer=2, at=(3,))),
        (RemoveAxis(layer=0, head=given(1), axis=AXIS), RemoveAxis(layer=0, head=1, axis=np.array(AXIS))),
        (AblateHeads(layer=0, heads=given(1), by="resample", seed=given(7)),
         AblateHeads(layer=0, heads=1, by="resample", seed=7)),
        (ShiftAxis(layer=0, axis=AXIS, deviations=given(2), score_sigma=given(3)),
         ShiftAxis(layer=0, axis=np.array(AXIS), deviations=2.0, score_sigma=3.0)),
    ]  # fmt: skip
    entry = {"kind": "ablate", "layer": given(2), "heads": [given(1)], "dose": given(1)}
    for found, expected in [*edits, (edit_from_json(entry), AblateHeads(layer=2, heads=(1,)))]:
        assert found == expected and hash(found) == hash(expected) and str(found) == str(expected)
        assert json.loads(json.dumps(found.to_json())) == json.loads(json.dumps(expected.to_json()))


@pytest.mark.parametrize("given", SEVERAL)
def test_several_numbers(given):
    found = AblateHeads(layer=given([0, 2]), heads=given([1, 0]), at=given([3, 5]))
    assert found == AblateHeads(layer=(0, 2), heads=(1, 0), at=(3, 5)) and found.each_head == (1, 0)


@pytest.mark.parametrize("given", ARRAYS)
def test_arrays(given):
    for found, expected in (
        (RemoveAxis(layer=0, axis=given(AXIS), metric="z-scored", sigma=given([1.0, 2.0, 0.5, 1.0])),
         RemoveAxis(layer=0, axis=np.array(AXIS), metric="z-scored", sigma=np.array([1.0, 2.0, 0.5, 1.0]))),
        (ReplaceCoordinates(layer=0, axis=given(AXIS), values=given([2.0])),
         ReplaceCoordinates(layer=0, axis=np.array(AXIS), values=np.array([2.0]))),
    ):  # fmt: skip
        assert found == expected and isinstance(found.axis, np.ndarray)
        np.testing.assert_array_equal(found.covectors, expected.covectors)


@pytest.mark.parametrize(
    "make",
    [
        lambda: BypassLayer(layer="2"),
        lambda: BypassLayer(layer=2.5),
        lambda: BypassLayer(layer=True),
        lambda: BypassLayer(layer=None),
        lambda: BypassLayer(layer=float("nan")),
        lambda: BypassLayer(layer=(0, "last")),
        lambda: BypassLayer(layer=1, dose="1"),
        lambda: BypassLayer(layer=1, dose=None),
        lambda: BypassLayer(layer=1, dose=[1.0, 2.0]),
        lambda: AblateHeads(layer=1, heads=np.array([0.5])),
        lambda: AblateHeads(layer=1, heads=0, seed=1.5),
        lambda: RemoveAxis(layer=1, axis="v.axis"),
        lambda: RemoveAxis(layer=1, axis=["a", "b"]),
        lambda: RemoveAxis(layer=1, axis=[1 + 2j, 0]),
        lambda: RemoveAxis(layer=1, axis=[[1.0], [1.0, 2.0]]),
        lambda: RemoveAxis(layer=1, axis=None),
        lambda: RemoveAxis(layer=1, head="0", axis=AXIS),
        lambda: ShiftAxis(layer=1, axis=AXIS, deviations=True, score_sigma=1.0),
    ],
)
def test_what_is_no_number_is_refused_in_words(make):
    with pytest.raises(UsageError, match="does not fit") as refused:
        make()
    assert refused.value.fix.startswith("This field takes ")
