"""Fuzzing of every reader of files: looks for an exception that is none of ours, and for what takes too long.

.venv/bin/python -m tests.stress.fuzz_readers --inputs 20000       # mutated files over all readers, with counts
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

N_INPUTS, SECONDS = 20_000, 20
"""Mutated files over all readers, and how long one of them may take."""


@dataclass(frozen=True)
class Tried:
    """How many mutated files a reader was given and refused, and the processor seconds that the slowest took."""

    n: int
    n_refused: int
    slowest: float


def mutated(name: str, whole: bytes, n: int) -> Iterator[bytes]:
    """`n` spoilt copies of a file, the same each time; of JSON every second has spoilt entries."""
    from tests.hostile_files import spoilt_bytes, spoilt_json
    from tests.hostile_model_files import JSON_READERS

    for i in range(n):
        spoil = spoilt_json if i % 2 and name in JSON_READERS else spoilt_bytes
        yield spoil(Random(f"{name} {i}"), whole)


def try_mutated(name: str, n: int, folder: Path) -> Tried:
    """Put mutated files before a reader. Whatever is no error of ours comes through, `TimeoutError` for a hang too."""
    from tests.hostile_files import check
    from tests.hostile_model_files import READERS

    reader = READERS[name]
    reader.make(folder)
    whole = (folder / reader.file).read_bytes()
    n_refused, slowest = 0, 0.0
    signal.signal(signal.SIGALRM, _too_long)
    try:
        for data in mutated(name, whole, n):
            signal.alarm(SECONDS)
            began = time.process_time()
            n_refused += check(reader, folder, data) is not None
            slowest = max(slowest, time.process_time() - began)
    except BaseException:
        print(f"{name} is broken by the file left in {folder / reader.file}", file=sys.stderr)
        raise
    finally:
        signal.alarm(0)
    return Tried(n, n_refused, slowest)


def _too_long(*_: object) -> None:
    raise TimeoutError(f"a file took more than {SECONDS} seconds")


def each_of(n_inputs: int) -> int:
    """How many files each reader is given."""
    from tests.hostile_model_files import READERS

    return -(-n_inputs // len(READERS))


def main() -> None:
    """Try mutated files on the readers that are named, or on all, and say what came of them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help="by the names of READERS in tests/hostile_model_files.py")
    parser.add_argument("--inputs", type=int, default=N_INPUTS, help="so many mutated files over all readers")
    asked = parser.parse_args()
    from tests.hostile_model_files import READERS

    total = 0
    for name in asked.readers or READERS:
        tried = try_mutated(name, each_of(asked.inputs), Path(tempfile.mkdtemp()))
        total += tried.n
        print(f"{name}: {tried.n} files, {tried.n_refused} refused, the slowest {tried.slowest:.2f} s", flush=True)
    print(f"{total} files; nothing but errors of ours, none took {SECONDS} s")


if __name__ == "__main__":
    main()
