"""The table of how each probe's cost grows: the slope, the sizes, and the lines that it becomes."""

from pathlib import Path

import pytest

from benchmarks import growth
from benchmarks.growth import Growth, analysis_growth, reading_growth, shape_of
from interp.running.choose_probes import choose_probes


def test_growth_is_a_power_of_one_size_timed_as_often_as_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    for power in (0.5, 1.0, 2.0):
        seconds = {n: 0.03 * n**power for n in (10, 20, 40, 80)}
        assert Growth("any", "layers", seconds).exponent == pytest.approx(power)
    wide = shape_of("width", 512)
    assert (wide.n_heads * wide.d_head, wide.d_model, wide.n_layers) == (512, 512, growth.BASE.n_layers)
    deep = shape_of("layers", 24)
    assert (deep.n_layers, deep.d_model, deep.n_prompts) == (24, growth.BASE.d_model, growth.BASE.n_prompts)
    clock = iter([0.0, 0.5, 1.0, 1.2, 2.0, 2.3])
    monkeypatch.setattr(growth.time, "process_time", lambda: next(clock))
    assert growth.least_seconds(lambda: None) == pytest.approx(0.2)
    clock = iter([0.0, 3.0])
    assert growth.least_seconds(lambda: None) == pytest.approx(3.0)


def test_analysing_and_reading_are_timed_at_every_size(tmp_path: Path) -> None:
    (probe,) = choose_probes(["components"]).probes
    assert analysis_growth(probe, "layers", (2, 3)).seconds.keys() == {2, 3}
    bare, read = reading_growth([probe], (8, 16), tmp_path)
    assert (bare.work, read.work) == ("bare pass", "components")
    assert bare.seconds.keys() == read.seconds.keys() == {8, 16}
    assert min(bare.seconds.values()) > 0
