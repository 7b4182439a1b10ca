"""A server on this machine that stands for the hub: it serves folders as repositories, refuses them, or stumbles."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

COMMIT = "c0ffee" + "0" * 34


@dataclass(frozen=True)
class Refusal:
    """An answer of the real hub: its status, and the error code that its client library looks for."""

    status: int
    code: str = ""
    files_only: bool = False
    """Gated repositories show what they are to everybody, and refuse their files only."""


GATED = Refusal(403, "GatedRepo", files_only=True)
NOT_FOUND = Refusal(404, "RepoNotFound")
NO_REVISION = Refusal(404, "RevisionNotFound")
BAD_TOKEN = Refusal(401)
BUSY = Refusal(429)


@dataclass
class Fault:
    """What goes wrong with the next `times` answers to a GET whose path ends so: the hub stumbles, or the wire does.

    `status` answers that; `dropped` ends the connection without an answer, `cut` in the middle of the body; `short`
    sends half a body as if it were whole; `slow` waits `seconds`.
    """

    ending: str
    kind: Literal["status", "dropped", "cut", "short", "slow"]
    status: int = 500
    seconds: float = 0.0
    times: int = 1


@dataclass
class Hub:
    """`repositories` maps hub ids to folders or refusals; `asked` lists what was requested; `faults` come first."""

    repositories: Mapping[str, Path | Refusal]
    faults: list[Fault] = field(default_factory=list)
    url: str = ""
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(repositories: Mapping[str, Path | Refusal], *faults: Fault) -> Iterator[Hub]:
    """A hub with these repositories and faults, until the block is left."""
    hub = Hub(repositories, list(faults))
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    fault: Fault | None = None

    def log_message(self, *_: object) -> None:
        """Nothing: the tests read what was asked from `hub.asked`."""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.asked.append(f"{self.command} {path}")
        self.fault = self._next_fault(path)
        if self.fault and self.fault.kind == "status":
            return self._send(self.fault.status, b"{}", {})
        if self.fault and self.fault.kind == "dropped":
            return None
        if self.fault and self.fault.kind == "slow":
            threading.Event().wait(self.fault.seconds)
        is_api = path.startswith("/api/") and not path.endswith("/auth-check")
        parts = re.sub("^(/api)?/(models|datasets)", "", path).strip("/").split("/")
        repository = self.hub.repositories.get("/".join(parts[:2]), NOT_FOUND)
        if isinstance(repository, Refusal) and not (is_api and repository.files_only):
            code = {"X-Error-Code": repository.code} if repository.code else {}
            self._send(repository.status, b"{}", code)
        elif is_api:
            self._describe(repository, "/".join(parts[:2]), is_tree="tree" in parts)
        else:
            self._file(repository, parts[-1])

    do_HEAD = do_GET

    def _next_fault(self, path: str) -> Fault | None:
        for fault in self.hub.faults:
            if self.command == "GET" and fault.times and path.endswith(fault.ending):
                fault.times -= 1
                return fault
        return None

    def _describe(self, repository: Path | Refusal, name: str, *, is_tree: bool) -> None:
        files = [] if isinstance(repository, Refusal) else sorted(repository.iterdir())
        if is_tree:
            content = [{"type": "file", "path": f.name, "size": f.stat().st_size, "oid": checksum(f)} for f in files]
        else:
            content = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": f.name} for f in files]}
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _file(self, repository: Path | Refusal, name: str) -> None:
        assert isinstance(repository, Path)
        file = repository / name
        if not file.exists():
            self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
            return
        self._send(200, file.read_bytes(), {"ETag": f'"{checksum(file)}"', "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        kind = self.fault.kind if self.fault else ""
        body = body[: len(body) // 2] if kind == "short" else body
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            with suppress(BrokenPipeError, ConnectionResetError):  # who is too slow is not waited for
                self.wfile.write(body[: len(body) // 2] if kind == "cut" else body)


def checksum(file: Path) -> str:
    """As the hub names content: large files, which weights are, by SHA-256, others by the SHA-1 of git."""
    content = file.read_bytes()
    if file.suffix == ".safetensors":
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()
