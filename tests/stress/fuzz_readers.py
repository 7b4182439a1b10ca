"""Fuzzing of every reader of files: looks for an exception that is none of ours, and for what takes too long.

    .venv/bin/python -m tests.stress.fuzz_readers --inputs 20000       # mutated files over all readers, with counts

With the coverage of the code as a guide:

    python -m venv .venv-fuzz && .venv-fuzz/bin/pip install -c constraints.txt -e ".[dev,fuzz]"
    .venv-fuzz/bin/python -m tests.stress.fuzz_readers                 # a minute for each reader
    .venv-fuzz/bin/python -m tests.stress.fuzz_readers edits --seconds 600

The input is the file itself, and for JSON also the seed of changes to its entries. What breaks a reader is left as
`crash-<hash>` in the folder named with `--keep`.
"""

import argparse
import signal
import subprocess
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


def fuzz(name: str, seconds: int, keep: Path) -> None:
    """Fuzz one reader in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["interp", "wind_tunnels", "jinja2"]):
        from tests.hostile_files import check, spoilt_json
        from tests.hostile_model_files import JSON_READERS, READERS

    reader = READERS[name]
    folder = Path(tempfile.mkdtemp())
    reader.make(folder)
    whole = (folder / reader.file).read_bytes()
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "whole").write_bytes(whole)

    def one(data: bytes) -> None:
        check(reader, folder, data)
        if name in JSON_READERS:
            check(reader, folder, spoilt_json(Random(data), whole))

    options = [f"-max_total_time={seconds}", f"-artifact_prefix={keep}/", f"-max_len={4 * len(whole)}", "-timeout=20"]
    atheris.Setup([sys.argv[0], str(corpus), *options, "-rss_limit_mb=4096", "-print_final_stats=1"], one)
    atheris.Fuzz()


def count(names: list[str], n_inputs: int) -> int:
    """Try mutated files on the readers that are named, or on all, and say what came of them."""
    from tests.hostile_model_files import READERS

    total = 0
    for name in names or READERS:
        tried = try_mutated(name, each_of(n_inputs), Path(tempfile.mkdtemp()))
        total += tried.n
        print(f"{name}: {tried.n} files, {tried.n_refused} refused, the slowest {tried.slowest:.2f} s", flush=True)
    print(f"{total} files; nothing but errors of ours, none took {SECONDS} s")
    return 0


def main() -> int:
    """Fuzz the readers that are named, or all, each in a process of its own; 1 where one was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help="by the names of READERS in tests/hostile_model_files.py")
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--inputs", type=int, help="so many mutated files over all readers, without atheris")
    parser.add_argument("--keep", type=Path, default=Path("runs/fuzz"), help="folder for what breaks a reader")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.inputs:
        return count(asked.readers, asked.inputs)
    asked.keep.mkdir(parents=True, exist_ok=True)
    if asked.here:  # before anything is imported that is to be watched
        fuzz(asked.readers[0], asked.seconds, asked.keep)
    from tests.hostile_model_files import READERS

    options = ["--here", "--seconds", str(asked.seconds), "--keep", str(asked.keep)]
    broken = []
    for name in asked.readers or READERS:
        done = subprocess.run([sys.executable, "-m", "tests.stress.fuzz_readers", name, *options])
        broken += [name] if done.returncode else []
    print(f"broken: {', '.join(broken)}" if broken else "no reader was broken")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
