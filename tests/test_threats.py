"""What a run executes, writes and sends, as the site says it: nothing but the record, the caches and `git`."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

WATCHED = """
import json, os, socket, sys
from pathlib import Path

seen = {"asked": [], "started": [], "written": []}

def watch(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.bind"):
        seen["asked"].append(repr(args[1:]))
    elif event in ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn"):
        seen["started"].append(os.path.basename(str(args[0])))
    elif event == "open" and isinstance(args[0], (str, bytes)) and args[2] & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
        seen["written"].append(os.path.abspath(os.fsdecode(args[0])))
    elif event in ("os.mkdir", "os.remove", "os.rename"):
        folder = os.readlink(f"/proc/self/fd/{args[-1]}") if args[-1] >= 0 else os.getcwd()  # names are relative to it
        seen["written"] += [os.path.join(folder, os.fsdecode(a)) for a in args if isinstance(a, (str, bytes))]

def refuse(*asked):
    seen["asked"].append(repr(asked[-1]))
    raise OSError("no network in this test")

socket.socket.connect = socket.socket.connect_ex = socket.socket.sendto = refuse
socket.getaddrinfo = socket.create_connection = refuse
sys.addaudithook(watch)
"""

RUN = """
import interp
from tests.paths import ROOT
record = interp.run(probes=["manifold"], settings={"manifold": {"n_null": 20}}, n_pool=40, out="runs", quiet=True)
print(json.dumps({**seen, "path": str(record.path), "page": (record.path / "report.html").stat().st_size}))
"""


def listing(folder: Path) -> set[str]:
    return {str(path) for path in folder.rglob("*") if "__pycache__" not in path.parts and ".git" not in path.parts}


@pytest.mark.slow
def test_a_run_asks_nobody_starts_git_alone_and_writes_under_out_and_the_caches(tmp_path):
    """In a process that can reach nothing, with a home, a cwd and a TMPDIR of its own."""
    home, work, temporary = (tmp_path / name for name in ("home", "work", "temporary"))
    for place in (home, work, temporary):
        place.mkdir()
    shipped = {name: listing(ROOT / name) for name in ("interp", "probes", "prompts", "wind_tunnels", "reports")}
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("HF_", "XDG_", "PYTEST", "TORCH"))}
    told = {"HOME": str(home), "TMPDIR": str(temporary), "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
            "PYTHONDONTWRITEBYTECODE": "1"}  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", WATCHED + RUN], cwd=work, env=kept | told, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert {name: listing(ROOT / name) for name in shipped} == shipped
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["asked"] == [] and seen["page"] > 100_000 and set(seen["started"]) <= {"git"}
    assert {path.name for path in work.iterdir()} == {"runs"}
    assert {path.name for path in home.iterdir()} <= {".cache"}
    left = {path.name for path in temporary.iterdir()}
    assert {name for name in left if not name.startswith("torchinductor_")} == set()  # an empty cache of torch's
    allowed = (str(work / "runs"), str(home / ".cache"), str(temporary), os.devnull)
    others = [path for path in seen["written"] if not path.startswith(allowed)]
    assert set(others) <= {str(work)}  # which is there: a folder is made with those above it
    assert any(path.startswith(str(work / "runs")) for path in seen["written"])


@pytest.mark.slow
def test_the_watch_sees_what_it_is_to_see(tmp_path):
    hurt = (
        "import subprocess\nsubprocess.run(['true'])\nopen('elsewhere', 'w').close()\n"
        "try:\n    socket.socket().connect(('127.0.0.1', 9))\nexcept OSError as error:\n    print(error)\n"
        "print(json.dumps(seen))"
    )
    done = subprocess.run([sys.executable, "-c", WATCHED + hurt], cwd=tmp_path, capture_output=True, text=True)
    refused, seen = done.stdout.splitlines()
    assert refused == "no network in this test" and json.loads(seen)["started"] == ["true"]
    assert json.loads(seen)["asked"] == ["('127.0.0.1', 9)"]
    assert str(tmp_path / "elsewhere") in json.loads(seen)["written"]
