"""Work side by side in processes: what comes back, and how they end."""

import os
import pickle
import signal
import subprocess
import sys
import time

import psutil
import pytest
import torch

from interp.errors import InterpError, UnknownName, UsageError
from interp.system.child_processes import in_processes
from tests.quick import quick

SCRIPT = """
import os, sys, time
from pathlib import Path
from interp.system.child_processes import in_processes
from interp.system.signals import handling_signals

print("the script", flush=True)

def work(i):
    Path(sys.argv[1], f"{os.getpid()}.began").touch()
    time.sleep(120)

with handling_signals():
    print(list(in_processes(work, [1, 2], "waiting", 2)))
"""


def of_process(number):
    """A product; the process that made it, its threads, and what Ctrl-C does there."""
    return number**2, os.getpid(), torch.get_num_threads(), signal.getsignal(signal.SIGINT)


def refuse(number):
    if number == 2:
        raise UnknownName("probe", "manifol", ["manifold"])
    return number


def be_killed(number):
    os.kill(os.getpid(), signal.SIGKILL)


def test_every_item_comes_back_from_processes_of_one_thread_each():
    numbered = list(in_processes(of_process, range(5), "counting", 2))
    assert sorted(number for number, _ in numbered) == [*range(5)]
    assert all(found[0] == number**2 for number, found in numbered)
    found = [each for _, each in numbered]
    pids = {pid for _, pid, _, _ in found}
    assert len(pids) == 2 and os.getpid() not in pids
    assert {threads for *_, threads, _ in found} == {1}
    assert {interrupt for *_, interrupt in found} == {signal.SIG_IGN}


def test_one_at_a_time_nothing_leaves_this_process():
    before = signal.getsignal(signal.SIGINT)
    for items, at_once in ((range(3), 1), ([2], 4)):
        numbers, found = zip(*in_processes(of_process, items, "counting", at_once), strict=True)
        assert numbers == tuple(range(len(items)))
        assert [square for square, *_ in found] == [i**2 for i in items]  # in their order
        assert {(pid, interrupt) for _, pid, _, interrupt in found} == {(os.getpid(), before)}


@pytest.mark.slow
def test_an_error_of_a_process_arrives_as_itself():
    with pytest.raises(UnknownName) as caught:
        list(in_processes(refuse, [1, 2, 3], "asking", 2))
    assert caught.value.near == ["manifold"] and "Did you mean manifold?" in str(caught.value)


@pytest.mark.parametrize(
    "error", [InterpError(asked="a", found="b", fix="c"), UsageError(asked="a", found="b", fix="c"),
              UnknownName("probe", "manifol", ["manifold"])],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
def test_errors_of_the_toolkit_are_the_same_once_pickled(error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error) and str(again) == str(error)
    assert (again.args, vars(again)) == (error.args, vars(error))


@pytest.mark.slow
def test_a_process_that_is_killed_is_told_in_words_and_the_next_work_goes_on():
    with pytest.raises(InterpError, match="one of 2 processes was ended from outside"):
        list(in_processes(be_killed, [1, 2], "counting", 2))
    assert sorted(found[0] for _, found in in_processes(of_process, [1, 2], "counting", 2)) == [1, 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    quick([(signal.SIGKILL, -9)], [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)]),
    ids=lambda value: str(value),
)
def test_processes_end_with_the_one_that_started_them_and_never_run_its_script(tmp_path, number, code):
    """The script has no guard, and what it sends is defined in it, as in a notebook."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    words = [sys.executable, str(script), str(tmp_path)]
    start = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **start) as process:
        try:
            assert until(lambda: len(list(tmp_path.glob("*.began"))) == 2)
            process.send_signal(number)
            said, _ = process.communicate(timeout=20)
        finally:
            process.kill()
    assert (process.returncode, said) == (code, "the script\n")
    children = [int(path.stem) for path in tmp_path.glob("*.began")]
    assert until(lambda: not any(map(psutil.pid_exists, children)))


def until(holds) -> bool:
    """Whether something comes to hold within two minutes."""
    end = time.monotonic() + 120.0
    while not holds():
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
