"""Mutated files over all readers: nothing but what was read or an error of ours, and nothing hangs."""

import json
import time

import pytest

from tests import hostile_model_files
from tests.hostile_files import Reader
from tests.hostile_model_files import READERS
from tests.stress import fuzz_readers
from tests.stress.fuzz_readers import N_INPUTS, each_of, try_mutated


@pytest.mark.stress
@pytest.mark.parametrize("name", READERS)
def test_mutated_files_give_what_was_read_or_our_own_error(name, tmp_path):
    tried = try_mutated(name, each_of(N_INPUTS), tmp_path)
    assert 0 < tried.n_refused <= tried.n and tried.slowest < fuzz_readers.SECONDS


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda folder: json.loads((folder / "a.json").read_bytes()), ValueError),
        (lambda _: time.sleep(9), TimeoutError),
    ],
    ids=["another error", "hangs"],
)
def test_a_reader_that_raises_another_error_or_hangs_is_found(read, error, tmp_path, monkeypatch):
    made = Reader("a.json", lambda folder: (folder / "a.json").write_text("[1]"), read)
    monkeypatch.setitem(hostile_model_files.READERS, "made", made)
    monkeypatch.setattr(fuzz_readers, "SECONDS", 1)
    with pytest.raises(error):
        try_mutated("made", 50, tmp_path)
