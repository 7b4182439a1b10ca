"""Whatever stands in a file, its reader gives what it read or an error of ours in words: nothing else comes through."""

import functools
import json
import operator
import shutil
from datetime import timedelta

import pytest
from hypothesis import given, settings

from interp.errors import InterpError
from interp.records.index import list_records
from tests.hostile_files import check, spoilt_bytes, spoilt_json
from tests.hostile_model_files import ARRAY, READERS

N_OF_ALL = 20_000
"""Spoilt files over all readers in `make stress`."""


def folder_for(name, tmp_path):
    reader = READERS[name]
    reader.make(tmp_path)
    return reader, (tmp_path / reader.file).read_bytes()


@pytest.mark.parametrize("n", [40, pytest.param(-(-N_OF_ALL // len(READERS)), marks=pytest.mark.stress)])
@pytest.mark.parametrize("name", READERS)
def test_whole_files_are_read_and_spoilt_ones_give_what_was_read_or_our_own_error(name, n, tmp_path):
    reader, whole = folder_for(name, tmp_path)
    assert check(reader, tmp_path, whole) is None
    refused = []
    spoilt = spoilt_bytes(whole) | spoilt_json(whole) if reader.file.endswith(".json") else spoilt_bytes(whole)

    @settings(max_examples=n, deadline=timedelta(seconds=20))
    @given(spoilt)
    def read(content: bytes) -> None:
        refused.append(check(reader, tmp_path, content))

    read()
    assert any(refused)


def test_a_capture_without_scored_positions_is_refused(tmp_path):
    reader, whole = folder_for("capture", tmp_path)
    refused = check(reader, tmp_path, whole.replace(b'"scored": {', b'"score": {', 1))
    assert refused is not None and "no table of the scored positions" in str(refused)


OTHER_CONTENTS = (
    b"", b"\0", b"\xff\xfe\x00", b"null", b"[]", b"{}", b'"x"', b"1e999", b"NaN", b"\xef\xbb\xbf{}", b'{"format": 99}',
    b'{"format": true}', b"[" * 100_000, b'{"a":' * 100_000, b"9" * 100_000, b"[" * 500 + b"]" * 500,
    b'{"a":' * 300 + b"1" + b"}" * 300, b"a = " + b"[" * 100_000,
)  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_a_file_of_something_else_altogether_is_refused(name, tmp_path):
    reader, _ = folder_for(name, tmp_path)
    for content in OTHER_CONTENTS:
        refused = check(reader, tmp_path, content)
        is_text = name in ("prompts txt", "claims") and refused is None
        assert refused is not None or is_text or (name, content) in {("prompts jsonl", b"")}, content[:12]


@pytest.mark.parametrize("name", READERS)
def test_a_folder_in_the_place_of_the_file_and_no_file_at_all_are_refused(name, tmp_path):
    reader, _ = folder_for(name, tmp_path)
    (tmp_path / reader.file).unlink()
    optional = {
        "card": "a folder without one is no tunnel",
        "record arrays": "a probe may keep none",
        "program truth": "its directions are then those of the card",
        "token strips": "a record may show none",
    }
    if name not in optional:
        with pytest.raises(InterpError):
            reader.read(tmp_path)
    (tmp_path / reader.file).mkdir()
    if name != "card":
        with pytest.raises(InterpError):
            reader.read(tmp_path)


@pytest.mark.parametrize("change", [{"shape": [0, 0]}, {"shape": [-2, -1]}, {"tokens": []}, {"shape": [2**40, 2**40]}])
def test_a_record_with_token_strips_of_no_shape_is_left_out_of_an_index_that_holds_the_others(change, tmp_path):
    reader, whole = folder_for("token strips", tmp_path)
    shutil.copytree(tmp_path / "run", tmp_path / "sound")
    content = json.loads(whole)
    content["strips"][0] |= change
    assert check(reader, tmp_path, json.dumps(content).encode()) is not None
    listed = list_records(tmp_path)
    assert [entry.path for entry in listed.entries] == ["sound"] and [path for path, _ in listed.left_out] == ["run"]


WRONG = [
    *(("capture", f"prompts.{entry}", value, f"prompts.{entry}")
      for entry, value in (("units", 2), ("name", 2), ("seed", "x"), ("unit", None))),
    *(("capture", "needs.0.arrays", {name: ARRAY}, "it has contents that no capture has")
      for name in ("Rows", "rows2", "")),
    ("capture", "needs.0.arrays", {}, "has no array of its rows"),
    ("capture", "needs.0.arrays.rows", "a" * 5000 + ".safetensors", ""),  # which no system can have
    *(("record", f"{part}.{entry}", value, f"{part}: {entry}") for part, entry, value in (
        ("spec", "probes", 5), ("spec", "probes", [["a"]]), ("spec", "edits", "x"), ("model", "n_layers", "many"),
        ("prompts", "n", "all"), ("prompts", "draw", 3), ("prompts", "clusters", {"n": 3}),
        ("model", "card", {"figures": {"kl_bits": {"value": 1.0, "unit": "bits"}}}), ("model", "tensor_kinds", 1),
        ("environment", "packages", True),
    )),
    *((name, "format", number, "which does not exist")
      for name in ("record", "ledger", "card") for number in (0, -1, 1.0, True, "1", None, [1])),
    ("ledger", "note", "x", "note: extra inputs"), ("record", "status", "fine", "status"),
    ("record", "more", 1, "more"), ("record", "findings.manifold.scalars.share.null", None, "null_reason"),
    *(("token strips", f"strips.0.{entry}", value, words) for entry, value, words in (
        ("tokens", ["a", "b"], "2 tokens have"), ("weights", "AAAA", "`weights` has 3 bytes"), ("sink", "é", "strips"),
        ("more", 1, "more"), ("belief", [0.0], "one entropy for each"),
    )),
]  # fmt: skip


@pytest.mark.parametrize(("name", "place", "value", "words"), WRONG)
def test_a_file_with_a_part_of_another_kind_or_name_is_refused_and_says_which(name, place, value, words, tmp_path):
    reader, whole = folder_for(name, tmp_path)
    content = json.loads(whole)
    *way, last = [int(key) if key.isdigit() else key for key in place.split(".")]
    functools.reduce(operator.getitem, way, content)[last] = value
    refused = check(reader, tmp_path, json.dumps(content).encode())
    assert refused is not None and words in str(refused) and len(str(refused)) < 1000
