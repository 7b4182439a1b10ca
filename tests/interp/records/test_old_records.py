"""Files of every version ever written load today; edited, truncated and newer ones are rejected with a message.

tests/records/ holds what was written when: `run-1` by the first version that ran from end to end, `ledger-1.json` and
`tunnel-2.json` by the first that wrote ledgers, `tunnel-1.json` by the first that trained a tunnel, `tunnel-3.json` by
the first whose cards name weights by their fingerprint; `capture-1` by the first that saved captures. A format that
changes in meaning leaves its last file here.
"""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import interp.capture
import interp.ledger.ledger
import interp.records.record
from interp.errors import ModelError, RecordError
from interp.ledger.ledger import LEDGER_NAME, read_ledger, show_ledger
from interp.records.record import open_run
from interp.records.tunnel_card import CARD_FORMAT, CARD_NAME, read_card
from interp.running.spec import RunSpec
from tests.hostile_files import RECORDS

NEWEST = {
    "run": interp.records.record.FORMAT,
    "ledger": interp.ledger.ledger.FORMAT,
    "tunnel": CARD_FORMAT,
}


@pytest.fixture
def laid_out(tmp_path):
    """`laid_out(name)`: a copy of one of the old files, under the name that it is read by."""

    def lay(name: str) -> Path:
        folder = tmp_path / name
        if name.startswith("run"):
            return Path(shutil.copytree(RECORDS / name, folder))
        folder.mkdir()
        into = LEDGER_NAME if name.startswith("ledger") else CARD_NAME
        shutil.copyfile(RECORDS / f"{name}.json", folder / into)
        return folder

    return lay


def test_a_file_of_every_version_is_kept_and_says_its_own():
    # Of captures those of earlier versions: tests of captures write today's.
    kept = {path.stem for path in RECORDS.iterdir()}
    files = {f"{kind}-{version}" for kind, newest in NEWEST.items() for version in range(1, newest + 1)}
    assert kept == files | {f"capture-{version}" for version in range(1, interp.capture.FORMAT)}
    assert sum(path.stat().st_size for path in RECORDS.rglob("*")) < 200_000
    for path in RECORDS.iterdir():
        name = "capture.json" if path.stem.startswith("capture") else "run.json"
        file = path / name if path.is_dir() else path
        assert json.loads(file.read_text())["format"] == int(re.search(r"\d+$", path.stem)[0])


def test_the_first_record_loads_with_its_tables_and_arrays_and_can_be_repeated(laid_out):
    record = open_run(laid_out("run-1"))
    found = record.findings["manifold"]
    assert record.model["name"] == "tunnel:bijection-gpt-neox"
    assert set(found.headline) <= set(found.scalars) and found.headline
    for name in found.headline:
        scalar = found[name]
        assert np.isfinite(scalar.value) and (scalar.interval or scalar.interval_reason)
    assert {name: table.n_rows for name, table in found.tables.items()}["by_layer"] > 0
    assert all(np.isfinite(array).all() for array in found.arrays.values()) and found.arrays
    assert len(record.to_frame()) == len(found.scalars)
    spec = RunSpec.from_json(record.spec)
    assert spec.model == record.model["name"] and list(spec.probes) == ["manifold"] and spec.edits == ()


def test_the_first_record_and_ledger_still_have_a_page(laid_out):
    page = open_run(laid_out("run-1")).show()
    text = page.read_text()
    assert text.startswith("<!doctype html>") and "tunnel:bijection-gpt-neox" in text
    folder = laid_out("ledger-1")
    ledger = read_ledger(folder)
    assert [paper.name for paper in ledger.papers] == ["paper2"] and ledger.papers[0].rows
    assert ledger.papers[0].title in show_ledger(folder).read_text()


@pytest.mark.parametrize("version", range(1, NEWEST["tunnel"] + 1))
def test_every_card_loads(laid_out, version):
    card = read_card(laid_out(f"tunnel-{version}"))
    assert card.format == NEWEST["tunnel"] and card.figures["kl_bits"].value > 0 and card.n_parameters > 0


READ = {"run": (open_run, "run.json", RecordError), "ledger": (read_ledger, LEDGER_NAME, RecordError),
        "tunnel": (read_card, CARD_NAME, ModelError)}  # fmt: skip


@pytest.mark.parametrize("kind", READ)
def test_one_that_is_newer_cut_off_or_without_a_field_is_refused(laid_out, kind):
    # A field that has a default may be left out where a file is older than the field; no other.
    read, file, error = READ[kind]
    folder = laid_out(f"{kind}-{NEWEST[kind]}")
    content = json.loads((folder / file).read_text())
    read_without = []
    for name in content:
        (folder / file).write_text(json.dumps({key: value for key, value in content.items() if key != name}))
        try:
            read(folder)
        except error as refused:
            assert name in str(refused)
        else:
            read_without.append(name)
    assert set(read_without) <= {"format", "init", "variant", "baselines", "files"}
    (folder / file).write_text(json.dumps(content | {"format": 99, "a field of the future": 1}))
    with pytest.raises(error, match=rf"99, this version reads up to {NEWEST[kind]}"):
        read(folder)
    (folder / file).write_bytes((folder / file).read_bytes().rstrip()[:-1])
    with pytest.raises(error, match="cannot be read"):
        read(folder)


@pytest.mark.parametrize("file", ["tables/manifold.by_layer.parquet", "arrays.manifold.safetensors"])
def test_tables_and_arrays_cut_off_or_of_another_record_are_refused(laid_out, file):
    folder = laid_out("run-1")
    path = folder / file
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(RecordError, match=f"{Path(file).name} of the record .* cannot be read"):
        open_run(folder)
    if path.suffix == ".parquet":
        shutil.copyfile(folder / "tables/manifold.spectrum.parquet", path)
        with pytest.raises(RecordError, match="but units for"):
            open_run(folder)


@pytest.mark.parametrize(("name", "path", "words"), [
    *((name, None, "cannot be the name of a probe")
      for name in ("../outside", "/../outside", "a/b", "..\\outside", "", "a" * 300, "nul\0")),
    *(("manifold", path, "leaves the record's folder")
      for path in ("../outside.parquet", "/etc/passwd", "tables/../../x", "a/../../../x")),
], ids=lambda n: repr(n[:12]) if n else "")  # fmt: skip
def test_a_name_or_a_table_that_leads_out_of_the_record_is_refused(laid_out, tmp_path, name, path, words):
    """Arrays of a probe are looked for in `arrays.<name>.safetensors`."""
    folder = laid_out("run-1")
    content = json.loads((folder / "run.json").read_text())
    content["findings"] = {name: content["findings"]["manifold"]}
    if path is not None:
        content["findings"][name]["tables"]["by_layer"]["path"] = path
    (folder / "run.json").write_text(json.dumps(content))
    (folder / "arrays.").mkdir()
    shutil.copyfile(folder / "arrays.manifold.safetensors", tmp_path / "outside.safetensors")
    with pytest.raises(RecordError, match=words):
        open_run(folder)


@pytest.mark.parametrize("spec", [
    {}, {"model": 7, "probes": {}}, {"model": "m", "probes": [1]}, {"model": "m", "probes": {}, "edits": 5},
    {"model": "m", "probes": {}, "seed": "x"},
])  # fmt: skip
def test_what_no_run_was_asked_with_cannot_be_repeated(spec):
    with pytest.raises(RecordError, match="what the record was asked to do: "):
        RunSpec.from_json(spec)
