"""Coverage-guided fuzzing of every reader of files: looks for an exception that is none of ours.

    python -m venv .venv-fuzz && .venv-fuzz/bin/pip install -c constraints.txt -e ".[dev,fuzz]"
    .venv-fuzz/bin/python -m tests.stress.fuzz_readers                 # a minute for each reader
    .venv-fuzz/bin/python -m tests.stress.fuzz_readers edits --seconds 600

The input is the file itself, and for JSON also the seed of changes to its entries. What breaks a reader is left as
`crash-<hash>` in the folder named with `--keep`.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random


def fuzz(name: str, seconds: int, keep: Path) -> None:
    """Fuzz one reader in this process, which ends with it."""
    import atheris

    with atheris.instrument_imports(include=["interp", "wind_tunnels", "jinja2"]):
        from tests.hostile_files import check, spoilt_json
        from tests.hostile_model_files import JSON_READERS, WATCHED

    reader = WATCHED[name]
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


def main() -> int:
    """Fuzz the readers that are named, or all, each in a process of its own; 1 where one was broken."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("readers", nargs="*", help="by the names of WATCHED in tests/hostile_model_files.py")
    parser.add_argument("--seconds", type=int, default=60, help="for each reader")
    parser.add_argument("--keep", type=Path, default=Path("runs/fuzz"), help="folder for what breaks a reader")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    asked.keep.mkdir(parents=True, exist_ok=True)
    if asked.here:  # before anything is imported that is to be watched
        fuzz(asked.readers[0], asked.seconds, asked.keep)
    from tests.hostile_model_files import WATCHED

    options = ["--here", "--seconds", str(asked.seconds), "--keep", str(asked.keep)]
    broken = []
    for name in asked.readers or WATCHED:
        done = subprocess.run([sys.executable, "-m", "tests.stress.fuzz_readers", name, *options])
        broken += [name] if done.returncode else []
    print(f"broken: {', '.join(broken)}" if broken else "no reader was broken")
    return int(bool(broken))


if __name__ == "__main__":
    sys.exit(main())
