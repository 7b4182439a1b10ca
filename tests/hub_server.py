"""A server on this machine that stands for the hub: it serves folders as repositories, or refuses them in its ways."""

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

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
class Hub:
    """`repositories` maps hub ids to folders or refusals; `asked` lists what was requested."""

    repositories: Mapping[str, Path | Refusal]
    url: str = ""
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(repositories: Mapping[str, Path | Refusal]) -> Iterator[Hub]:
    """A hub with these repositories, until the block is left."""
    hub = Hub(repositories)
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

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def log_message(self, *_: object) -> None:
        """Nothing: the tests read what was asked from `hub.asked`."""

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.asked.append(f"{self.command} {path}")
        is_api = path.startswith("/api/models/")
        parts = path.removeprefix("/api/models").strip("/").split("/")
        repository = self.hub.repositories.get("/".join(parts[:2]), NOT_FOUND)
        if isinstance(repository, Refusal) and not (is_api and repository.files_only):
            code = {"X-Error-Code": repository.code} if repository.code else {}
            self._send(repository.status, b"{}", code)
        elif is_api:
            self._describe(repository, is_tree="tree" in parts)
        else:
            self._file(repository, parts[-1])

    def _describe(self, repository: Path | Refusal, *, is_tree: bool) -> None:
        files = [] if isinstance(repository, Refusal) else sorted(repository.iterdir())
        if is_tree:
            content = [
                {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": f"{f.name}-oid"} for f in files
            ]
        else:
            content = {"id": "owner/name", "sha": COMMIT, "siblings": [{"rfilename": f.name} for f in files]}
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _file(self, repository: Path | Refusal, name: str) -> None:
        assert isinstance(repository, Path)
        file = repository / name
        if not file.exists():
            self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})
            return
        self._send(200, file.read_bytes(), {"ETag": f'"{name}-oid"', "X-Repo-Commit": COMMIT})

    def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
