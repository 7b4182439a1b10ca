"""The toolkit is imported where the modules that Python has on Unix alone are absent."""

import ast
import subprocess
import sys

from tests.paths import ROOT

UNIX = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty"}
FOLDERS = ("interp", "probes", "prompts", "reports", "wind_tunnels")


def imported_at_the_top(source: str) -> set[str]:
    """The modules that are imported whenever the file is."""
    found = set()
    for statement in ast.parse(source).body:
        if isinstance(statement, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in statement.names}
        elif isinstance(statement, ast.ImportFrom) and statement.module and not statement.level:
            found.add(statement.module.partition(".")[0])
    return found


def test_no_file_needs_a_module_of_unix():
    files = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")]
    needing = {str(file): UNIX & imported_at_the_top(file.read_text(encoding="utf-8")) for file in files}
    assert len(files) > 200 and not {file for file, names in needing.items() if names}


def test_the_guard_can_fail():
    assert imported_at_the_top("import os, resource\nfrom fcntl import flock") == {"os", "resource", "fcntl"}


def test_memory_signals_and_processes_are_imported_without_these_modules():
    code = f"""
import shutil  # as this system has it
import sys
sys.modules.update(dict.fromkeys({sorted(UNIX)!r}))
sys.platform = "win32"
from interp.system import heap, processes, progress, signals, threads, whole_files
print(heap.bound_heap())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
