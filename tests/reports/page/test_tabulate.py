"""Tables of the page: what is shown, what is embedded, and what a page that is full does."""

import base64
import gzip
import json

import numpy as np
from interp.reports.page.tabulate import EMBEDDED_BYTES, N_ROWS, listings

from interp.table import Table


def table(n_rows: int, width: int = 0) -> Table:
    columns = {
        "layer": np.arange(n_rows), "bits": np.linspace(0, 1, n_rows),
        "text": np.array([f"{i}" + "x" * width for i in range(n_rows)], dtype=object),
    }  # fmt: skip
    return Table(columns, {"layer": "layer", "bits": "bits", "text": "label"}, "a caption")


def unpacked(data: str):
    return json.loads(gzip.decompress(base64.b64decode(data)))


def test_tables_of_any_length_are_embedded_whole():
    listing = listings({"p": {"t": table(3)}})["p"]["t"]
    assert listing.cells == (("0", "0", "0"), ("1", "0.5", "1"), ("2", "1", "2"))
    assert unpacked(listing.data) == {
        "names": ["layer", "bits", "text"], "values": [[0, 1, 2], [0.0, 0.5, 1.0], ["0", "1", "2"]],
    }  # fmt: skip
    assert listing.caption == "a caption" and listing.file == "tables/p.t.parquet"
    listing = listings({"p": {"t": table(N_ROWS + 50)}})["p"]["t"]
    assert len(listing.cells) == N_ROWS and listing.n_rows == N_ROWS + 50
    assert len(unpacked(listing.data)["values"][0]) == N_ROWS + 50
    listing = listings({"p": {"t": table(0)}})["p"]["t"]
    assert listing.cells == () and listing.n_rows == 0 and unpacked(listing.data)["values"] == [[], [], []]


def test_tables_point_to_files_and_columns_are_set_by_what_they_hold():
    noise = np.random.default_rng(0).random
    tables = {
        name: Table({"x": noise(n)}, {"x": "1"}) for name, n in (("small", 10), ("large", 9**5), ("larger", 10**5))
    }
    found = listings({"p": tables})["p"]
    assert [bool(found[name].data) for name in tables] == [True, True, False]
    assert len(found["larger"].cells) == N_ROWS and found["larger"].file == "tables/p.larger.parquet"
    assert len(found["small"].data) + len(found["large"].data) <= EMBEDDED_BYTES
    columns = {
        "n": np.array([1, 2]), "x": np.array([1.0, np.nan]), "is": np.array([True, False]),
        "name": np.array(["a", "b"]), "prompt": np.array(["a", "long " * 9], dtype=object),
        "odd": np.array([None, (1, 2)], dtype=object),
    }  # fmt: skip
    found = listings({"p": {"t": Table(columns, dict.fromkeys(columns, "1"))}})["p"]["t"]
    assert [c.kind for c in found.columns] == ["num", "num", "word", "word", "long", "word"]
    assert found.cells[1] == ("2", "–", "no", "b", "long " * 9, "(1, 2)")
    assert unpacked(found.data)["values"][1] == [1.0, None]


def test_tables_show_units_and_are_packed_to_the_same_bytes_in_their_script():
    columns = {name: np.zeros(1) for name in ("layer", "share", "bits_read", "word")}
    units = {"layer": "layer", "share": "1", "bits_read": "bits", "word": "label"}
    found = listings({"p": {"t": Table(columns, units)}})["p"]["t"].columns
    assert [c.unit for c in found] == ["", "", "bits", ""]
    assert listings({"p": {"t": table(50)}})["p"]["t"].data == listings({"p": {"t": table(50)}})["p"]["t"].data
    hostile = Table({"t": np.array(["</script><!--<script>\u2028&"])}, {"t": "label"})
    data = listings({"p": {"t": hostile}})["p"]["t"].data
    assert data.isascii() and not set("<>&") & set(data)
    assert unpacked(data)["values"] == [["</script><!--<script>\\u2028&"]]
