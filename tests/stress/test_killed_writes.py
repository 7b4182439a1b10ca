"""A process that writes a record, killed by the kernel at every system call that changes something on a disk, in turn.

The simulated disk of `tests/faulty_disk.py` sees what goes through Python's `os`; this sees what libraries write too.
"""

import shutil
import signal
import subprocess
import sys

import pytest

from tests.interp.records.test_power_cuts import full_record, what_lies_in
from tests.paths import ROOT

pytestmark = [
    pytest.mark.stress,
    pytest.mark.skipif(not shutil.which("strace"), reason="needs strace, which kills at a system call of one's choice"),
]

WRITE = """
import sys
from pathlib import Path
from interp.records.record import written
from tests.interp.records.test_power_cuts import full_record
written(full_record(), Path(sys.argv[1]), "model")
"""
CALLS = ("mkdir", "write", "fsync", "rename", "unlink")


def test_a_record_is_whole_or_not_there_whatever_call_the_process_is_killed_at(tmp_path):
    numbers, n_killed, left = full_record().to_frame().to_json(), 0, []
    for call in CALLS:
        n = 0
        while True:
            n += 1
            out = tmp_path / f"{call}{n}"
            kill = ["strace", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", f"inject={call}:signal=KILL:when={n}"]
            write = [sys.executable, "-c", WRITE, str(out)]
            done = subprocess.run([*kill, *write], cwd=ROOT, capture_output=True, text=True)
            left.append(what_lies_in(out))
            if done.returncode == 0:
                break
            assert done.returncode == -signal.SIGKILL, done.stderr
            n_killed += 1
        assert left[-1] == [numbers], "nothing is in the way of the next"
    print(f"{n_killed} kills")
    assert n_killed > 20 and all(found in ([], [numbers]) for found in left) and [] in left
