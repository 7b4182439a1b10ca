"""A file system of FUSE that keeps what was brought to it: what is left of it after a power cut is laid out.

`python -m tests.lossy_disk MOUNTPOINT STATES` serves until it is unmounted and leaves in the folder STATES what the
disk held at first and after each `fsync`, every different state in a folder of its own. A file holds what it held when
it was last synced; of a folder the names are those of its last `fsync`. In `STATES/eager` the names are written at once
and the contents later, as journals of metadata do: a file that was never synced is empty there.
"""

import errno
import stat
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Node:
    """A file or folder, as it is and as it was when it was last synced."""

    mode: int
    data: bytearray = field(default_factory=bytearray)
    names: dict[str, "Node"] = field(default_factory=dict)
    kept_data: bytes = b""
    kept_names: dict[str, "Node"] = field(default_factory=dict)
    changed: float = field(default_factory=time.time)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def lay_out(self, at: Path, is_eager: bool) -> None:
        """What a power cut leaves of it."""
        if not self.is_folder:
            at.write_bytes(self.kept_data)
            return
        at.mkdir(parents=True)
        for name, node in (self.names if is_eager else self.kept_names).items():
            node.lay_out(at / name, is_eager)

    def described(self, is_eager: bool) -> object:
        """The same as a value that can be compared."""
        if not self.is_folder:
            return self.kept_data
        names = self.names if is_eager else self.kept_names
        return tuple((name, node.described(is_eager)) for name, node in sorted(names.items()))


def serve(mountpoint: str, states: Path) -> None:
    """Serve the file system at `mountpoint` until it is unmounted."""
    from fuse import FUSE, FuseOSError, Operations

    class Disk(Operations):
        def __init__(self) -> None:
            self.root = Node(stat.S_IFDIR | 0o755)
            self.seen: set[object] = set()
            self.n = 0
            self.keep()

        def keep(self) -> None:
            for is_eager in (False, True):
                described = (is_eager, self.root.described(is_eager))
                if described not in self.seen:
                    self.seen.add(described)
                    self.root.lay_out(states / ("eager" if is_eager else "lazy") / f"{self.n:04}", is_eager)
            self.n += 1

        def at(self, path: str) -> Node:
            node = self.root
            for name in filter(None, path.split("/")):
                if name not in node.names:
                    raise FuseOSError(errno.ENOENT)
                node = node.names[name]
            return node

        def above(self, path: str) -> tuple[dict[str, Node], str]:
            folder, _, name = path.rpartition("/")
            return self.at(folder).names, name

        def getattr(self, path, fh=None):
            node = self.at(path)
            times = dict.fromkeys(("st_mtime", "st_ctime", "st_atime"), node.changed)
            return {"st_mode": node.mode, "st_size": len(node.data), "st_nlink": 1 + node.is_folder} | times

        def readdir(self, path, fh):
            return [".", "..", *self.at(path).names]

        def mkdir(self, path, mode):
            names, name = self.above(path)
            names[name] = Node(stat.S_IFDIR | mode)

        def create(self, path, mode, fi=None):
            names, name = self.above(path)
            names[name] = Node(stat.S_IFREG | mode)
            return 0

        def open(self, path, flags):
            self.at(path)
            return 0

        def read(self, path, size, offset, fh):
            return bytes(self.at(path).data[offset : offset + size])

        def write(self, path, data, offset, fh):
            node = self.at(path)
            node.data.extend(bytes(max(0, offset - len(node.data))))
            node.data[offset : offset + len(data)] = data
            node.changed = time.time()
            return len(data)

        def truncate(self, path, length, fh=None):
            node = self.at(path)
            del node.data[length:]
            node.data.extend(bytes(length - len(node.data)))

        def unlink(self, path):
            names, name = self.above(path)
            if name not in names:
                raise FuseOSError(errno.ENOENT)
            del names[name]

        def rmdir(self, path):
            if self.at(path).names:
                raise FuseOSError(errno.ENOTEMPTY)
            self.unlink(path)

        def rename(self, old, new):
            names, name = self.above(old)
            others, other = self.above(new)
            if other in others and others[other].names:
                raise FuseOSError(errno.ENOTEMPTY)
            others[other] = names[name]
            if (names, name) != (others, other):
                del names[name]
            self.keep()

        def chmod(self, path, mode):
            self.at(path).mode = stat.S_IFMT(self.at(path).mode) | mode

        def chown(self, path, uid, gid):
            pass

        def utimens(self, path, times=None):
            self.at(path).changed = times[1] if times else time.time()

        def statfs(self, path):
            return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": 1 << 20, "f_bavail": 1 << 20, "f_bfree": 1 << 20,
                    "f_namemax": 255}  # fmt: skip

        def fsync(self, path, datasync, fh):
            node = self.at(path)
            node.kept_data = bytes(node.data)
            self.keep()

        def fsyncdir(self, path, datasync, fh):
            node = self.at(path)
            node.kept_names = dict(node.names)
            self.keep()

    FUSE(Disk(), mountpoint, foreground=True, nothreads=True, allow_other=False)


if __name__ == "__main__":
    serve(sys.argv[1], Path(sys.argv[2]))
