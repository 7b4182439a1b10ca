"""Every kind of writer on a disk that the kernel itself has filled; skipped where nothing may be mounted.

The faults of `test_disk_errors.py` are simulated over `os`; these reach pyarrow, safetensors and torch too.
"""

import errno
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

from interp.errors import InterpError
from tests.test_disk_errors import WRITERS, Writer

pytestmark = pytest.mark.stress

_ROOM = 6 << 20


def mount(*words: object) -> None:
    done = subprocess.run(["mount", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"nothing may be mounted here: {done.stderr.strip()}")


@pytest.fixture
def disk() -> Iterator[Path]:
    """A disk of a few megabytes that every user reaches; pytest's own folders lie in one that is its owner's alone."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("`mount -t tmpfs` is of Linux, and of the superuser")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        mount("-t", "tmpfs", "-o", f"size={_ROOM}", "tmpfs", folder)
        yield Path(folder)
        subprocess.run(["umount", "-l", folder], check=True)


def write_again(writer: Writer, folder: Path, words: str, whole: object) -> bool:
    """Write the second content, the `whole`, on a faulty disk: what is there is whole where it fails, in these words.

    Of several files each is whole by itself. Whether it failed.
    """
    before = writer.read(folder)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            writer.write(folder, 2)
            told = " ".join(str(warning.message) for warning in warned)
        except InterpError as error:
            told = error.found
            assert error.asked and error.fix
    assert writer.in_passing or not warned
    if told:
        found = writer.read(folder)
        files = found.items() <= {*before.items(), *whole.items()} if isinstance(whole, dict) else False
        assert words in told and (found in (before, whole) or files), told
    return bool(told)


def content(writer: Writer, folder: Path) -> object:
    """What the second content reads as, where nothing is wrong."""
    for n in (1, 2) if writer.replaces else (2,):
        writer.write(folder, n)
    return writer.read(folder)


def fill(disk: Path, left: int) -> Path:
    """Fill the disk but for so many bytes."""
    filler = disk / "filler"
    free = os.statvfs(disk)
    filler.write_bytes(bytes(max(0, free.f_bavail * free.f_frsize - left)))
    return filler


@pytest.mark.parametrize("name", WRITERS)
def test_a_disk_that_is_full_is_told_and_loses_nothing(disk, tmp_path, name):
    writer, n_told = WRITERS[name], 0
    whole = content(writer, tmp_path)
    for pages in (0, 1, 2, 5, 12, 40):
        folder = disk / f"at{pages}"
        folder.mkdir()
        if writer.replaces:
            writer.write(folder, 1)
        filler = fill(disk, pages * os.sysconf("SC_PAGESIZE"))
        told = write_again(writer, folder, os.strerror(errno.ENOSPC), whole)
        n_told += told
        assert not [path for path in folder.rglob("*") if path.suffix == ".writing"]
        filler.unlink()
        if told:
            writer.write(folder, 2)
        assert writer.read(folder) == whole
    assert n_told
