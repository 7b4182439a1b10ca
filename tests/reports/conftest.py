"""An installed probe for the pages."""

import sys
from collections.abc import Iterator

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
