"""Edits in files: there and back again, arrays by name, numbers of any library, and what is said about mistakes."""

import json
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file

from interp.editing.edit_files import edit_from_json, read_edits
from interp.edits import (
    KINDS,
    AblateHeads,
    AttentionOff,
    BypassLayer,
    FeedForwardOff,
    KeepAxis,
    PatternsOf,
    RemoveAxis,
    ReplaceCoordinates,
    RotateAxes,
    ShiftAxis,
)
from interp.errors import InterpError, UsageError
from interp.running.run import run

U = np.array([0.6, 0.0, 0.8, 0.0])
ALL = [
    RemoveAxis(layer=-1, axis=U, dose=0.5, at="last"),
    RemoveAxis(layer=(0, 2), axis=U, metric="z-scored", sigma=np.array([1.0, 2, 3, 0])),
    KeepAxis(layer=1, site="z", head=2, axis=np.stack([U, U[::-1] + 1])),
    ShiftAxis(layer=1, axis=U, metric="z-scored", displacement=U, deviations=-1.0, score_sigma=2.0, at=(0, 3)),
    RotateAxes(layer=0, site="resid", axis=np.eye(4)[:2], rotation=np.array([[0.0, 1], [-1, 0]])),
    ReplaceCoordinates(layer=0, site="q", axis=U, values=np.array([[1.0], [2.0]]), at="scored"),
    AblateHeads(layer=1, heads=(0, 3), by="mean", mean=np.ones((2, 4))),
    AblateHeads(layer=1, heads=(1,), by="resample", seed=3),
    BypassLayer(layer=1),
    AttentionOff(layer=0),
    PatternsOf(donor="tunnel:bijection-gpt-neox@256", layer=(0, 1)),
    FeedForwardOff(layer=-1, dose=0.3),
]


def test_every_edit_survives_json(tmp_path):
    assert {edit.kind for edit in ALL} == set(KINDS)
    path = tmp_path / "edits.json"
    path.write_text(json.dumps({"edits": [edit.to_json() for edit in ALL]}))
    read = read_edits(path)
    assert list(read) == ALL
    for mine, theirs in zip(read, ALL, strict=True):
        assert type(mine) is type(theirs) and mine.layer == theirs.layer and mine.at == theirs.at
    assert read[0] != read[1]


def test_arrays_are_found_in_files_and_in_runs(tmp_path):
    save_file({"w": np.stack([U, 2 * U])}, tmp_path / "axes.safetensors")
    folder = tmp_path / "a-run"
    folder.mkdir()
    save_file({"v.pc1.axis": np.stack([U, 3 * U]), "v.pc1.score_sigma": np.array([1.0, 2.5])},
              folder / "arrays.value_axis.safetensors")  # fmt: skip
    entries = [
        {"kind": "remove", "layer": 0, "axis": {"array": "axes.safetensors:w", "row": 1}},
        {"kind": "shift", "layer": 1, "deviations": 1, "axis": {"array": "a-run:value_axis.v.pc1.axis", "row": -1},
         "score_sigma": {"array": "a-run:value_axis.v.pc1.score_sigma", "row": -1}},
    ]  # fmt: skip
    path = tmp_path / "edits.json"
    path.write_text(json.dumps(entries))
    first, second = read_edits(path)
    assert np.array_equal(first.axis, 2 * U) and np.array_equal(second.axis, 3 * U) and second.score_sigma == 2.5


MISTAKES = {
    "key": ({"kind": "remove", "layer": 0, "axs": [1]}, "field of edit 1 of e.json: remove 'axs': there is no"),
    "kind": ({"kind": "remvoe"}, "kind of edit 'remvoe': there is no kind of edit of this name\n  Did you mean remove"),
    "no kind": ({"layer": 0}, "edit 1 of e.json: {'layer': 0} has no `kind`\n  Name one of remove"),
    "lacks": ({"kind": "shift", "layer": 0, "axis": [1]},
              "edit 1 of e.json: ShiftAxis: missing a required argument: 'deviations'\n  By position: layer; by name:"),
    "dose": ({"kind": "bypass", "layer": 0, "dose": "much"},
             "edit 1 of e.json: bypass.dose = 'much': the value does not fit\n  Give a number."),
    "huge": ({"kind": "bypass", "layer": 0, "dose": 1e300}, "edit 1 of e.json: bypass block at layer 0: the dose is"),
    "layer": ({"kind": "bypass", "layer": "last"},
              "edit 1 of e.json: bypass.layer = 'last': the value does not fit\n  Give a whole number or whole num"),
    "ragged": ({"kind": "remove", "layer": 0, "axis": [[1], [1, 2]]}, "edit 1 of e.json: remove.axis = [[1], [1, 2]]"),
    "row": ({"kind": "remove", "layer": 0, "axis": {"array": "x.safetensors:w", "rwo": 1}}, "key of an array 'rwo'"),
    "no name": ({"kind": "remove", "layer": 0, "axis": {"array": "x"}}, "edit 1 of e.json: axis: 'x' names no array"),
    "no file": ({"kind": "remove", "layer": 0, "axis": {"array": "x.safetensors:w"}}, "edit 1 of e.json: axis from"),
    "shape": ({"kind": "remove", "layer": 0, "axis": [[[1.0]]]}, "edit 1 of e.json: remove v at layer 0: axis has the"),
    "rotation": ({"kind": "rotate", "layer": 0, "axis": [1.0, 0], "rotation": [[1, 0], [0, 1]]},
                 "edit 1 of e.json: rotate v at layer 0: the rotation has the shape (2, 2) for 1 axes"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_mistakes_are_named(case, tmp_path):
    entry, words = MISTAKES[case]
    path = tmp_path / "e.json"
    path.write_text(json.dumps({"edits": [entry]}))
    with pytest.raises(InterpError) as refused:
        read_edits(path)
    assert str(refused.value).startswith(words)


def test_files_that_are_none_are_refused(tmp_path):
    path = tmp_path / "e.json"
    for content, words in (("{", "read as JSON"), ('{"edit": []}', "Did you mean edits"), ("[]", "no list of edits")):
        path.write_text(content)
        with pytest.raises(InterpError, match=words):
            read_edits(path)
    with pytest.raises(InterpError, match="No such file"):
        read_edits(tmp_path / "none.json")
    with pytest.raises(InterpError, match="no kind of edit"):
        run("a-model-that-is-never-looked-for", edits=[{"kind": "delete"}], out=None)
    assert edit_from_json({"kind": "bypass", "layer": [0, 1]}).layer == (0, 1)


GIVEN = pytest.mark.usefixtures("without_type_checks")  # what people give
AXIS = [0.0, 1.0, 2.0, 0.5]
SCALARS = (np.int64, np.float64, np.float32, np.array, torch.tensor, lambda x: pd.Series([x, 0.5]).iloc[0],
           lambda x: pd.Series([x, "resid"]).iloc[0])  # fmt: skip
SEVERAL = (list, np.array, torch.tensor, pd.Series, pd.Index, lambda x: (np.int32(each) for each in x))
ARRAYS = (list, np.array, np.float32, lambda x: np.array(x, dtype=object), torch.tensor, pd.Series,
          lambda x: torch.tensor(x, requires_grad=True), lambda x: torch.tensor(x, dtype=torch.bfloat16))  # fmt: skip


@GIVEN
@pytest.mark.parametrize("given", SCALARS)
def test_one_number_of_any_library_is_pythons_own(given):
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


@GIVEN
@pytest.mark.parametrize("given", SEVERAL)
def test_several_numbers_of_any_library_are_pythons_own(given):
    found = AblateHeads(layer=given([0, 2]), heads=given([1, 0]), at=given([3, 5]))
    assert found == AblateHeads(layer=(0, 2), heads=(1, 0), at=(3, 5)) and found.each_head == (1, 0)


@GIVEN
@pytest.mark.parametrize("given", ARRAYS)
def test_arrays_of_any_library_are_numpys(given):
    for found, expected in (
        (RemoveAxis(layer=0, axis=given(AXIS), metric="z-scored", sigma=given([1.0, 2.0, 0.5, 1.0])),
         RemoveAxis(layer=0, axis=np.array(AXIS), metric="z-scored", sigma=np.array([1.0, 2.0, 0.5, 1.0]))),
        (ReplaceCoordinates(layer=0, axis=given(AXIS), values=given([2.0])),
         ReplaceCoordinates(layer=0, axis=np.array(AXIS), values=np.array([2.0]))),
    ):  # fmt: skip
        assert found == expected and isinstance(found.axis, np.ndarray)
        np.testing.assert_array_equal(found.covectors, expected.covectors)


@GIVEN
@pytest.mark.parametrize(
    "make",
    [
        *(partial(BypassLayer, layer=layer) for layer in ("2", 2.5, True, None, float("nan"), (0, "last"))),
        *(partial(BypassLayer, layer=1, dose=dose) for dose in ("1", None, [1.0, 2.0])),
        lambda: AblateHeads(layer=1, heads=np.array([0.5])),
        lambda: AblateHeads(layer=1, heads=0, seed=1.5),
        *(partial(RemoveAxis, layer=1, axis=axis) for axis in (["a", "b"], [1 + 2j, 0], [[1.0], [1.0, 2.0]], None)),
        lambda: RemoveAxis(layer=1, head="0", axis=AXIS),
        lambda: ShiftAxis(layer=1, axis=AXIS, deviations=True, score_sigma=1.0),
    ],
)
def test_what_is_no_number_is_refused_in_words(make):
    with pytest.raises(UsageError, match=r"the value does not fit\n  Give (a|numbers)"):
        make()


@GIVEN
@pytest.mark.parametrize(
    ("field", "known", "make"),
    [
        ("metric", "z-scored", lambda: RemoveAxis(layer=1, axis=AXIS, metric="zscored")),
        ("lens", "True or False", lambda: BypassLayer(layer=1, lens="no")),
        ("lens", "True or False", lambda: BypassLayer(layer=1, lens="true")),
        ("by", "mean, resample, zero", lambda: AblateHeads(layer=1, heads=0, by="median")),
    ],
)
def test_a_word_that_a_field_does_not_know_is_refused_in_python_as_in_files(field, known, make):
    """`metric="zscored"` was taken for raw."""
    with pytest.raises(UsageError, match=rf"\w+\.{field} .*(there is no|does not fit)[\s\S]*{known}"):
        make()
