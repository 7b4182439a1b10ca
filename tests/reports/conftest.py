"""An installed probe for the pages, and one headless browser for the session."""

import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from interp import registry

CHROMIUM_FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


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


@pytest.fixture(scope="session")
def chromium_file() -> str:
    """Where Chromium lies; skipped where there is none."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no Chromium on this machine: pages are not looked at, images not drawn")
    return found


@pytest.fixture(scope="session")
def chromium(chromium_file):
    """A running headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_file, args=list(CHROMIUM_FLAGS))
        yield browser
        browser.close()


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
