"""Many command lines in one fresh process, which costs a second where a process each costs a minute."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_SCRIPT = """
import contextlib, io, json, os, sys, traceback
from interp.cli.app import main
found = []
for words, environment in json.loads(sys.stdin.read()):
    out, err, code = io.StringIO(), io.StringIO(), 0
    sys.argv = ["interp", *words]
    os.environ.update(environment)
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main()
        except SystemExit as ended:
            code = ended.code or 0
        except Exception:
            code = traceback.print_exc() or 1
    for name in environment:
        del os.environ[name]
    imported = [name for name in ("torch", "transformers", "pandas") if name in sys.modules]
    found.append((code, out.getvalue(), err.getvalue(), imported))
print(json.dumps(found))
"""


@dataclass(frozen=True)
class Said:
    """How a command ended, and which heavy libraries the process had imported by then."""

    code: int
    out: str
    err: str
    imported: list[str]


def in_one_process(
    calls: Sequence[tuple[Sequence[str], Mapping[str, str]]], folder: Path, before: str = ""
) -> list[Said]:
    """Each command line with more of an environment, in a fresh Python that has run `before`."""
    called = [sys.executable, "-W", "ignore", "-c", before + _SCRIPT]
    done = subprocess.run(
        called, input=json.dumps(calls), capture_output=True, text=True, encoding="utf-8", cwd=folder, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return [Said(*one) for one in json.loads(done.stdout)]
