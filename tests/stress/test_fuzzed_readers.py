"""Mutated files over all readers: nothing but what was read or an error of ours, and nothing hangs."""

import json
import signal
import time
from pathlib import Path
from random import Random

import pytest

from tests.hostile_files import Reader, check, spoilt_bytes, spoilt_json
from tests.hostile_model_files import JSON_READERS, READERS

N_INPUTS, SECONDS = 20_000, 20
"""Mutated files over all readers, and how long one of them may take."""


def try_mutated(name: str, reader: Reader, n: int, folder: Path, seconds: int = SECONDS) -> tuple[int, float]:
    """How many of `n` spoilt copies of a file are refused, and the processor seconds that the slowest took.

    They are the same each time; of JSON every second has spoilt entries. Whatever is no error of ours comes through,
    `TimeoutError` for a hang too, and the file that did it is left in the folder.
    """
    reader.make(folder)
    whole = (folder / reader.file).read_bytes()
    n_refused, slowest = 0, 0.0
    signal.signal(signal.SIGALRM, _too_long)
    try:
        for i in range(n):
            spoil = spoilt_json if i % 2 and name in JSON_READERS else spoilt_bytes
            data = spoil(Random(f"{name} {i}"), whole)
            signal.alarm(seconds)
            began = time.process_time()
            n_refused += check(reader, folder, data) is not None
            slowest = max(slowest, time.process_time() - began)
    finally:
        signal.alarm(0)
    return n_refused, slowest


def _too_long(*_: object) -> None:
    raise TimeoutError("a file took too long")


@pytest.mark.stress
@pytest.mark.parametrize("name", READERS)
def test_mutated_files_give_what_was_read_or_our_own_error(name, tmp_path):
    n = -(-N_INPUTS // len(READERS))
    n_refused, slowest = try_mutated(name, READERS[name], n, tmp_path)
    assert 0 < n_refused <= n and slowest < SECONDS


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda folder: json.loads((folder / "a.json").read_bytes()), ValueError),
        (lambda _: time.sleep(9), TimeoutError),
    ],
    ids=["another error", "hangs"],
)
def test_a_reader_that_raises_another_error_or_hangs_is_found(read, error, tmp_path):
    made = Reader("a.json", lambda folder: (folder / "a.json").write_text("[1]"), read)
    with pytest.raises(error):
        try_mutated("made", made, 50, tmp_path, seconds=1)
