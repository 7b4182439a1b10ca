"""An installed probe for the pages."""

from importlib.metadata import EntryPoint

import pytest

from interp.registry import entries


@pytest.fixture(autouse=True)
def installed_probe(monkeypatch) -> None:
    """The probe `pictures`, registered by an entry point as any third party's would be."""
    entry = EntryPoint("pictures", "tests.reports.pictures:Pictures", "interp.probes")
    monkeypatch.setitem(entries("probe"), entry.name, entry)
