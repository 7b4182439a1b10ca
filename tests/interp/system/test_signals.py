"""Ctrl-C and SIGTERM: nothing is left half done, the end comes within two seconds, and says what was kept."""

import os
import signal
import subprocess
import sys
import time

import pytest

from interp.system import signals as stopping
from interp.system.signals import Stopped, whole
from tests.quick import quick

BUSY = {
    "between two things": "while True: sum(range(1000))",
    "deep in a library that does not listen": "import numpy; a = numpy.ones((4000, 4000)); print(flush=True)\n"
    "while True: a @ a",
    "in the middle of a thing that takes long": "with stopping.whole(): time.sleep(60)",
    "where everything is caught": "while True:\n  try: time.sleep(60)\n  except BaseException: pass",
    "where nothing can be raised": "class Last:\n  def __del__(self): time.sleep(60)\n"
    "last = Last()\ndel last\ntime.sleep(60)",
    "in a library that raises another error": "try: time.sleep(60)\nexcept BaseException: raise OSError('cut in two')",
    "waiting for a thread": "from threading import Timer; t = Timer(60, print); t.start(); t.join()",
}
QUICK = (
    "deep in a library that does not listen",
    "where everything is caught",
    "in a library that raises another error",
)
CODE = """
import time
from interp.system import signals as stopping
with stopping.handling_signals():
    stopping.remember({kept!r})
    print("ready", flush=True)
    exec({busy!r})
"""


def stopped_program(busy: str, number: int, kept: str = "", interrupt=signal.SIG_DFL) -> tuple[int, str, float]:
    """Exit code, what was said, and the seconds from the signal to the end.

    `interrupt` is what SIGINT does in it at its start: tests may themselves run where it is ignored.
    """
    words = [sys.executable, "-c", CODE.format(kept=kept, busy=busy)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": {**os.environ, "OMP_NUM_THREADS": "1"}}
    start = {"preexec_fn": lambda: signal.signal(signal.SIGINT, interrupt)}
    with subprocess.Popen(words, text=True, **pipes, **start) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            if "flush" in busy:
                process.stdout.readline()
            began = time.monotonic()
            process.send_signal(number)
            _, said = process.communicate(timeout=20)
            return process.returncode, said, time.monotonic() - began
        finally:
            process.kill()  # one that did not end does not hold up the tests


@pytest.mark.parametrize("where", quick(QUICK, BUSY))
def test_a_program_ends_within_two_seconds_wherever_it_is(where):
    code, said, seconds = stopped_program(BUSY[where], signal.SIGINT, "4 of 9 batches are kept in runs/.partial/x")
    assert code == 130 and seconds < 2.0
    assert said == "interp: stopped: 4 of 9 batches are kept in runs/.partial/x; the same command goes on from there\n"


def test_signals_that_were_ignored_or_come_in_between_end_as_they_should():
    code, said, _ = stopped_program(BUSY["between two things"], signal.SIGTERM)
    assert code == 143
    assert said == "interp: stopped: nothing was saved; the same command starts over\n"
    # As `nohup` and shells do for what goes on behind them.
    code, said, _ = stopped_program("time.sleep(0.3)", signal.SIGINT, interrupt=signal.SIG_IGN)
    assert (code, said) == (0, "")


def test_what_is_to_be_whole_is_whole_before_the_end_and_is_not_cut_twice(monkeypatch):
    monkeypatch.setattr(stopping, "_here", stopping._State())
    done = []
    with pytest.raises(Stopped) as stopped, whole():
        with whole():
            stopping._on_signal(signal.SIGTERM, None)
            done.append("inner")
        done.append("outer")
    assert done == ["inner", "outer"] and stopped.value.exit_code == 143
    stopping._on_signal(signal.SIGTERM, None)  # while it ends a second signal changes nothing
    monkeypatch.setattr(stopping, "_here", stopping._State())
    with pytest.raises(Stopped), whole():
        stopping._on_signal(signal.SIGINT, None)
        raise ValueError("a fault in it does not hide the signal")


def test_outside_of_the_block_everything_is_as_before():
    was = signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored where the tests run
    before = [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)]
    with stopping.handling_signals():
        assert signal.getsignal(signal.SIGINT) is stopping._on_signal
    assert [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1
    signal.signal(signal.SIGINT, was)


def test_other_faults_that_cannot_be_raised_are_still_reported():
    code = CODE.format(kept="", busy="class Faulty:\n  def __del__(self): raise OSError('a fault')\nFaulty()")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=20)
    assert done.returncode == 0 and "OSError: a fault" in done.stderr
