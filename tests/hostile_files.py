"""Every file that `interp` reads and did not necessarily write, whole in a folder, and ways to spoil it.

A reader gives what it read, or an error of ours in words; `check` says whether it kept to that.
"""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, composite
from interp.reports.index import html as index_page
from interp.reports.page.render import html
from interp.wind_tunnels.evaluation.checkpoint import CURVE_NAME, read_curve
from safetensors.numpy import save_file

from interp.editing.edit_files import read_edits
from interp.edits import KINDS
from interp.errors import InterpError
from interp.ledger.claims import read_claims
from interp.ledger.ledger import LEDGER_NAME, show_ledger
from interp.loading.admission import read_config
from interp.loading.hub_files import files_in_folder
from interp.loading.sources import locate
from interp.loading.weights import weight_files
from interp.records.index import list_records
from interp.records.record import RunRecord, open_run
from interp.records.token_strip import TokenStrip
from interp.records.tunnel_card import CARD_NAME
from interp.running.spec import RunSpec
from tests.interp.records.test_record import small_record
from tests.named_prompts import resolve_prompts
from tests.tiny_models import tiny_config

RECORDS = Path(__file__).parent / "records"
CERTIFICATES = Path(__file__).parent.parent / "examples" / "certificates"

STRANGE: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 2**31, 2**63, -(10**30), 10**400, 0.5, -0.0, 1e308, float("nan"), float("inf"),
    "", " ", "0", "none", "v", "last", "full", "../../../../etc/passwd", "/dev/zero", "\0", "\ud800", "\u202e",
    "a" * 5000, "<script>window.hurt=1</script>", "%s{0}{x}", [], [[]], [None], [1, "a"], {}, {"": {}},
    {"array": "x:y"}, {"format": 2},
)  # fmt: skip
"""Values that somebody's file might hold where another was meant."""


@dataclass(frozen=True)
class Reader:
    """A kind of file: its name in a folder, what lays it there whole with all it needs, and what reads it."""

    file: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]


def check(reader: Reader, folder: Path, content: bytes) -> InterpError | None:
    """Put `content` in the place of the file and read it; the error of ours, or None where it could be read.

    Any other exception passes through: that is what the tests look for.
    """
    (folder / reader.file).write_bytes(content)
    try:
        reader.read(folder)
    except InterpError as error:
        assert error.asked and error.found and error.fix and str(error)
        str(error).encode("utf-8", "surrogatepass")
        return error
    return None


# --- spoiling ---------------------------------------------------------------------------------------------------------


@composite
def spoilt_bytes(draw: DrawFn, content: bytes) -> bytes:
    """Some bytes replaced, put in, taken out, doubled or cut off."""
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        end = draw(st.sampled_from([at, at + 1, at + 1, at + 2, at + 8, at + 64, len(content)]))
        new = draw(st.just(b"") | st.binary(min_size=1, max_size=4) | st.just(2 * content[at:end]))
        content = content[:at] + new + content[end:]
    return content


@composite
def spoilt_json(draw: DrawFn, content: bytes) -> bytes:
    """The JSON with some entries replaced, left out, doubled under another name, or moved."""
    whole = json.loads(content)
    for _ in range(draw(st.integers(1, 4))):
        places = [*_places(whole)]
        if not places:
            break
        (holder, key), (other, of) = (places[draw(st.integers(0, len(places) - 1))] for _ in range(2))
        how = draw(st.sampled_from(["left out", "moved", "doubled", "replaced", "replaced"]))
        if how == "left out":
            del holder[key]
        elif how == "doubled" and isinstance(holder, dict):
            name = draw(st.sampled_from(["extra", "", "../x", "a/b", "\0", "\ud800", "a" * 300, f"{key}2"]))
            holder[name] = holder[key]
        else:
            holder[key] = deepcopy(other[of] if how == "moved" else draw(st.sampled_from(STRANGE)))
    return json.dumps(whole).encode()


def _places(value: Any):
    """Every entry below a value, as its holder and its key."""
    keys = value.keys() if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in list(keys):
        yield value, key
        yield from _places(value[key])


# --- whole files ------------------------------------------------------------------------------------------------------


def whole_record() -> RunRecord:
    """A small record with everything that one can have."""
    spec = RunSpec("m", ["manifold"], {"manifold": {"layer": -1}}, edits=({"kind": "bypass", "layer": 0},)).to_json()
    return replace(
        small_record(), spec={**spec, "command": "interp run"}, model={"name": "m", "n_layers": 3},
        prompts={"n": 75, "name": "mixed"}, environment={"packages": {"interp": "0"}},
        selfcheck=({"name": "eager", "value": 1e-7, "bound": 1e-4, "passed": True},), timings={"load": 0.5},
    )  # fmt: skip


def _record(folder: Path) -> None:
    record = folder / "run"
    if not record.exists():
        whole_record().write(record)


def _read_record(folder: Path) -> object:
    record = open_run(folder / "run")
    listed = list_records(folder)
    drawn = html(record), index_page(listed), repr(record), record._repr_html_()
    RunSpec.from_json(record.spec)
    return record.to_frame(), drawn


def _certificate(folder: Path) -> None:
    if not (folder / "run").exists():
        shutil.copytree(CERTIFICATES / "heads", folder / "run")


def _read_certificate(folder: Path) -> object:
    record = open_run(folder / "run")
    return record.show().read_text(encoding="utf-8")


def _strips(folder: Path) -> None:
    """The record of a prompt of three tokens."""
    if not (folder / "run").exists():
        n, rng = 3, np.random.default_rng(0)
        weights = np.tril(np.ones((2, 1, n, n))) / np.arange(1, n + 1)[:, None]
        rows = rng.random((2, 1, n))
        strip = TokenStrip("m", ("a", "b\x1b", "c"), rows, rows, rows[0, 0], np.full(n, np.nan), weights)
        replace(whole_record(), shown=(strip,)).write(folder / "run")


def _edits(folder: Path) -> None:
    save_file({"w": np.eye(4)}, folder / "axes.safetensors")
    axis = [0.6, 0.0, 0.8, 0.0]
    entries = [
        {"kind": "remove", "layer": -1, "axis": axis, "dose": 0.5, "at": "last"},
        {"kind": "remove", "layer": [0, 2], "axis": {"array": "axes.safetensors:w", "row": 1}, "metric": "z-scored",
         "sigma": [1, 2, 3, 0]},
        {"kind": "shift", "layer": 1, "axis": axis, "deviations": -1.0, "score_sigma": 2.0, "at": [0, 3]},
        {"kind": "rotate", "layer": 0, "axis": [[1, 0], [0, 1]], "rotation": [[0, 1], [-1, 0]]},
        {"kind": "replace", "layer": 0, "site": "q", "axis": axis, "values": [[1.0], [2.0]], "at": "scored"},
        {"kind": "ablate", "layer": 1, "heads": [0, 3], "by": "mean", "mean": [[1, 1], [1, 1]]},
        {"kind": "bypass", "layer": 1}, {"kind": "attention-off", "layer": 0},
        {"kind": "feed-forward-off", "layer": -1}, {"kind": "patterns", "donor": "tunnel:bijection-gpt-neox@256"},
    ]  # fmt: skip
    assert {entry["kind"] for entry in entries} == set(KINDS) - {"keep"}
    (folder / "edits.json").write_text(json.dumps({"edits": entries}))


def _card(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / CARD_NAME).write_bytes((RECORDS / "tunnel-4.json").read_bytes())


def _config(folder: Path) -> None:
    tiny_config("llama", architectures=["LlamaForCausalLM"]).save_pretrained(folder)


def _index(folder: Path) -> None:
    (folder / "config.json").write_text("{}")
    (folder / "model-1.safetensors").touch()
    index = {"metadata": {"total_size": 4}, "weight_map": {"a": "model-1.safetensors", "b": "model-1.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def _claims(folder: Path) -> None:
    from interp.reports.claims import PAPER2

    (folder / "claims.toml").write_bytes(Path(PAPER2).read_bytes())


def _text(name: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(content)


def _parquet(folder: Path) -> None:
    import pandas

    frame = pandas.DataFrame({"text": ["one and", "two and"], "k": [1, 2], "domain": ["a", "b"]})
    frame.to_parquet(folder / "p.parquet", index=False)


JSONL = '{"text": "one and", "k": 1, "domain": "a"}\n{"text": "two and", "k": 2, "domain": "b"}\n'

READERS = {
    "token strips": Reader("run/tokens.json", _strips, _read_record),
    "certificate": Reader("run/run.json", _certificate, _read_certificate),
    "record": Reader("run/run.json", _record, _read_record),
    "record table": Reader("run/tables/manifold.by_layer.parquet", _record, _read_record),
    "record arrays": Reader("run/arrays.manifold.safetensors", _record, _read_record),
    "ledger": Reader(
        LEDGER_NAME, lambda folder: (folder / LEDGER_NAME).write_bytes((RECORDS / "ledger-1.json").read_bytes()),
        show_ledger,
    ),
    "edits": Reader("edits.json", _edits, lambda folder: read_edits(folder / "edits.json")),
    "edits arrays": Reader("axes.safetensors", _edits, lambda folder: read_edits(folder / "edits.json")),
    "card": Reader(CARD_NAME, _card, locate),
    "curve": Reader(
        CURVE_NAME, _text(CURVE_NAME, "step,stage,excess_bits,core_seconds\n5,0,0.5,1.25\n"), read_curve
    ),
    "claims": Reader("claims.toml", _claims, lambda folder: read_claims(folder / "claims.toml")),
    "configuration": Reader("config.json", _config, lambda folder: read_config(files_in_folder(folder))),
    "index": Reader(
        "model.safetensors.index.json",
        _index,
        lambda folder: weight_files(replace(files_in_folder(folder), allow_pickle=True)),
    ),
    "prompts jsonl": Reader("p.jsonl", _text("p.jsonl", JSONL), lambda folder: resolve_prompts(folder / "p.jsonl")),
    "prompts csv": Reader(
        "p.csv", _text("p.csv", 'text,k,domain\n"one, and",1,a\n"two ""and""",2,b\n'),
        lambda folder: resolve_prompts(folder / "p.csv"),
    ),
    "prompts txt": Reader(
        "p.txt", _text("p.txt", "one and\ntwo é and\n漢 then\n"), lambda folder: resolve_prompts(folder / "p.txt")
    ),
    "prompts parquet": Reader("p.parquet", _parquet, lambda folder: resolve_prompts(folder / "p.parquet")),
}  # fmt: skip
"""By name. Weights are read by safetensors, whose header is checked first; see `test_refusals.py`."""
