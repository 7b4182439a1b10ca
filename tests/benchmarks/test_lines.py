"""What counts as met, what fails, and what the table and the results file hold."""

import json
from dataclasses import asdict, replace

import pytest

from benchmarks.__main__ import FIGURES, Results, as_results, lines_from, main, relations
from benchmarks.lines import Line, comparison, failures, growth, lines_of, ratios, table, use_lines
from benchmarks.meters import MIB
from benchmarks.methods import METHODS
from benchmarks.shapes import SHAPES
from benchmarks.worker import Measured

MEASURED = Measured((2.1, 2.2, 2.7), (2.0, 2.0, 2.0), 164 * MIB, 100 * MIB, "s CPU")


VERDICTS = ("met", "met", "within 15 %", "FAILED")


def line(value, figure, **more) -> Line:
    return Line("128 tokens", "ours", "time", value, "x floor", figure=figure, **more)


def figures() -> dict:
    import tomllib

    return tomllib.loads(FIGURES.read_text())


@pytest.mark.parametrize(
    ("judged", "verdict"),
    [
        *((line(value, 1.0), verdict) for value, verdict in zip((0.9, 1.0, 1.149, 1.151), VERDICTS, strict=True)),
        *((line(v, 1.15, is_least=True), w) for v, w in zip((1.4, 1.001, 0.999), VERDICTS[1:], strict=True)),
    ],
    ids=str,
)
def test_a_measurement_may_miss_its_figure_by_fifteen_percent(judged, verdict):
    assert judged.verdict == verdict and judged.holds is (verdict != "FAILED")
    assert (failures([judged]) == []) is judged.holds


def test_figures_that_were_not_measured_fail_and_stand_in_the_table():
    assert failures([line(None, 1.0, note="failed (MemoryError)")]) != []
    assert failures([line(None, None, note="nnsight is not installed"), line(99.0, None)]) == []
    text = table([line(1.2, 1.0), line(None, None, note="nnsight is not installed")]).splitlines()
    assert text[2] == "| 128 tokens | ours | 1.2 x floor |  | 1 | FAILED |"
    assert text[3] == "| 128 tokens | ours | not measured |  |  | nnsight is not installed |"
    assert len(text) == 4


def test_time_memory_and_devices_are_judged_over_their_floors():
    time, memory = lines_of("w", "ours", MEASURED, {"time": 1.05, "memory_mib": 64})
    assert ratios(MEASURED) == pytest.approx([1.05, 1.1, 1.35])
    assert (time.value, time.figure) == (pytest.approx(1.1), 1.05)
    assert time.spread == pytest.approx((1.05, 1.35))
    assert (memory.value, memory.holds) == (64.0, True)
    over = replace(MEASURED, bytes=MEASURED.bytes + 10 * MIB)
    assert not lines_of("w", "ours", over, {"memory_mib": 64})[1].holds
    other = Measured((6.0, 6.0), (4.0, 4.0), 820 * MIB, 90 * MIB, "s CPU")
    speed, memory = comparison("w", ("ours", "theirs"), MEASURED, other, {"faster": 1.3, "memory_share": 0.2})
    assert (speed.value, speed.verdict) == (pytest.approx(1.5 / 1.1), "met")
    assert (memory.value, memory.verdict) == (pytest.approx(0.2), "met")
    (absent,) = comparison("w", ("ours", "theirs"), MEASURED, None, {"faster": 1.3})
    assert absent.value is None
    short = replace(MEASURED, bytes=100 * MIB)
    linear, square = (replace(MEASURED, bytes=n * 100 * MIB) for n in (4, 16))
    assert growth(("a", "b"), "ours", short, linear, (512, 2048), 1.5).value == 1.0
    assert not growth(("a", "b"), "ours", short, square, (512, 2048), 1.5).holds
    speed, use = use_lines("w", "ours", replace(MEASURED, least_seconds=0.55), 1024)
    assert (speed.value, use.value) == (pytest.approx(1024 / 2.2), pytest.approx(0.25))
    assert use_lines("w", "ours", MEASURED, 1024) == []


def test_every_name_in_the_file_of_figures_exists():
    found = figures()
    assert set(found["rows"]) == set(found["works"])
    for rows in (*found["rows"].values(), found["gpu"]["rows"]):
        assert set(rows) <= set(METHODS)
        assert all(set(limits) <= {"time", "memory_mib"} for limits in rows.values())
    for work in (*found["works"].values(), *found["gpu"]["works"].values()):
        assert work["model"] in SHAPES
    for each in found["comparisons"]:
        assert {each["ours"], each["other"]} <= set(found["rows"][each["work"]])
    for each in found["growth"]:
        assert all(each["method"] in found["rows"][each[end]] for end in ("short", "long"))


def test_the_results_hold_every_line_and_every_measurement_and_no_name_of_a_machine():
    given = figures()
    found = {("128 tokens", name): MEASURED for name in given["rows"]["128 tokens"]}
    found["128 tokens", "nnterp"] = "nnterp is not installed"
    works = {"128 tokens": given["works"]["128 tokens"]}
    lines = lines_from(found, works, given["rows"]) + relations(found, given)
    assert len(lines) == 1 + 2 * 10 + 1 + 4  # floor, ten rows of time and memory, one missing, two comparisons
    results = json.loads(json.dumps(as_results(lines, found, {"128 tokens": "2026-11-25"})))
    assert set(results) == {"format", "measured", "machine", "lines", "measurements"}
    assert set(results["lines"][0]) == {*asdict(lines[0]), "holds"}
    assert results["measurements"][0]["seconds"] == [2.1, 2.2, 2.7]
    assert results["measurements"][-1] == {
        "work": "128 tokens", "method": "nnterp", "failed": "nnterp is not installed"
    }  # fmt: skip
    import platform

    assert platform.node() not in json.dumps(results["machine"]) or not platform.node()
    assert {"cores", "packages", "load", "gpu"} <= set(results["machine"])


def test_what_is_measured_again_takes_its_place_and_the_rest_stays(tmp_path):
    path, given = tmp_path / "r.json", figures()
    old = Results({}, [], {})
    old.take({(work, "ours-entropy"): MEASURED for work in ("128 tokens", "512 tokens")}, ["128 tokens", "512 tokens"])
    old.take_once([Line("start", "interp run", "time", 9.0, "s", (8.0, 9.5), 8.0)])
    path.write_text(json.dumps(as_results(old.lines(given), old.found, dict.fromkeys(old.days, "2026-11-01"))))
    now = Results.read(path)
    assert (now.found, now.once) == (old.found, old.once)
    now.take({("512 tokens", "ours-same"): replace(MEASURED, bytes=200 * MIB)}, ["512 tokens"])
    assert set(now.found) == {("128 tokens", "ours-entropy"), ("512 tokens", "ours-same")}
    assert now.days["128 tokens"] == now.days["once"] == "2026-11-01" < now.days["512 tokens"]
    assert {line.work for line in now.lines(given)} == {"128 tokens", "512 tokens", "start"}
    path.write_text('{"format": 1, "lines": []}')
    assert Results.read(path) == Results({}, [], {})


def test_the_command_measures_nothing_where_no_work_has_the_name(tmp_path, capsys):
    assert main(["--cpu", "--only", "no such work", "--out", str(tmp_path / "r.json")]) == 0
    assert json.loads((tmp_path / "r.json").read_text())["lines"] == []
    assert capsys.readouterr().out.startswith("| Work |")
