"""Two processes that train the same tunnel into the same folder: one trains, the other finds it finished."""

import subprocess
import sys

import pytest


@pytest.mark.slow
def test_two_trainings_of_one_tunnel_leave_one_folder(tmp_path):
    words = ["coin", "--set", "n_tosses=3", "--set", "n_steps=20", "--set", "batch=4", "--set", "n_warmup=1",
             "--set", "d_model=8", "--set", "n_heads=2", "--set", "n_layers=1"]  # fmt: skip
    call = [sys.executable, "-m", "interp", "tunnel", "train", *words, "--out", str(tmp_path)]
    both = [subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=300) for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    (folder,) = tmp_path.iterdir()
    assert (folder / "model.safetensors").is_file() and (folder / "tunnel.json").is_file()
