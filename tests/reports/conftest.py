"""An installed probe for the pages, and a server that pages must not reach."""

import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from interp import registry


@pytest.fixture(autouse=True)
def installed_probe(tmp_path_factory, monkeypatch) -> Iterator[None]:
    """The probe `pictures`, found by its entry point as any third party's would be."""
    site = tmp_path_factory.mktemp("site")
    info = site / "pictures-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pictures\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[interp.probes]\npictures = tests.reports.pictures:Pictures\n")
    monkeypatch.setattr(sys, "path", [str(site), *sys.path])
    registry.entries.cache_clear()
    yield
    registry.entries.cache_clear()


@dataclass
class Server:
    """A server on this machine that remembers what it was asked for."""

    address: str
    asked: list[str] = field(default_factory=list)


@pytest.fixture
def listening() -> Iterator[Server]:
    """A server that a page could reach if its policy let it."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield Server(f"http://127.0.0.1:{server.server_port}", asked)
        server.shutdown()
        thread.join()
