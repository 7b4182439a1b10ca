"""Specifications: settings become typed fields, repeat themselves as a command, and refuse in words."""

import ast
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint
from typing import Literal

import pytest

from interp import registry
from interp.errors import InterpError, UsageError
from interp.records.record import open_run
from interp.running.spec import RunSpec, make_probe
from interp.settings import split_settings
from tests.hostile_files import RECORDS
from tests.plain_probe import PlainProbe


@dataclass(frozen=True)
class Toy(PlainProbe):
    name = "toy"

    count: int = 3
    level: float = 0.5
    way: Literal["centred", "zscored"] = "centred"
    only: str | None = None
    on: bool = False
    other: str | None = "x"
    levels: tuple[float, ...] = (0.5, 1.0)
    ways: tuple[Literal["a", "b"], ...] = ("a",)
    sets: tuple[tuple[int | Literal["all"], ...], ...] = (("all",),)


@pytest.fixture(autouse=True)
def toy_probe(monkeypatch):
    """The toy is registered the way every probe is, as an entry point."""
    entry = EntryPoint("toy", f"{__name__}:Toy", "interp.probes")
    known = {"manifold": EntryPoint("manifold", "interp.probes.manifold.probe:Manifold", "interp.probes"), "toy": entry}
    monkeypatch.setattr(registry, "entries", lambda kind: known)


def test_texts_become_values_of_the_field():
    probe = make_probe("toy", {"count": "7", "level": "0.25", "way": "zscored", "only": "none", "on": "true"})
    assert probe == Toy(7, 0.25, "zscored", None, True)
    assert [make_probe("toy", {"on": word}).on for word in ("True", "False", "false")] == [True, False, False]
    assert make_probe("toy", {"count": 7, "only": "x"}) == Toy(count=7, only="x")
    assert make_probe("toy", {"levels": "0, .5,1", "ways": "b, a"}) == Toy(levels=(0.0, 0.5, 1.0), ways=("b", "a"))
    for sets in ("-1; all, 2", '[[-1], ["all", 2]]', [[-1], ["all", 2]]):
        assert make_probe("toy", {"sets": sets}) == Toy(sets=((-1,), ("all", 2)))
    assert make_probe("toy", {"sets": "2,3", "levels": "none"}) == Toy(sets=((2, 3),), levels=())


@pytest.mark.parametrize("key, value", [
    ("ways", "a,c"), ("sets", "1;x"), ("sets", "1;;2"), ("count", "many"), ("way", "raw"), ("on", "perhaps"),
    ("count", 2.5),
])  # fmt: skip
def test_values_that_do_not_fit_are_refused(key, value):
    with pytest.raises(UsageError, match=f"toy.{key}"):
        make_probe("toy", {key: value})


def test_a_spec_reads_back_and_settings_are_split_by_probe():
    assert split_settings(["toy.count=1", "manifold.layer=2"], ["toy", "manifold"]) == {
        "toy": {"count": "1"}, "manifold": {"layer": "2"},
    }  # fmt: skip
    assert split_settings(["count=1"], ["toy"]) == {"toy": {"count": "1"}}
    assert split_settings(["only=a=b.c"], ["toy"]) == {"toy": {"only": "a=b.c"}}
    with pytest.raises(UsageError, match="not part of this run"):
        split_settings(["manifold.layer=2"], ["toy"])
    with pytest.raises(UsageError, match="count: it is given more than once: 1 and 2"):
        split_settings(["toy.count=1", "count=2"], ["toy"])
    spec = RunSpec("m", ["toy"], {"toy": Toy(count=4).parameters()}, prompts="mixed", seed=3)
    again = RunSpec.from_json(spec.to_json() | {"command": spec.command})
    assert again.hash == spec.hash
    assert RunSpec("m", ["toy"], {"toy": Toy(count=5).parameters()}, prompts="mixed", seed=3).hash != spec.hash


@pytest.mark.parametrize("setting", ["count", "count=", "=1", "toy.=1"])
def test_malformed_settings_are_refused(setting):
    with pytest.raises(UsageError, match=r"PROBE\.field=value"):
        split_settings([setting], ["toy"])


def test_the_command_and_the_code_of_a_spec_repeat_it():
    spec = RunSpec(
        "my model", ["toy"], {"toy": Toy(count=4).parameters()}, prompts="mixed", n_pool=90, per_quintile=None
    )
    assert spec.command == (
        "interp run --model 'my model' --probe toy --set toy.count=4 --prompts mixed --n-pool 90 --draw 0"
    )
    spec = RunSpec("memory:Mine", ["toy"], {"toy": Toy().parameters()}, prompts="memory:texts")
    assert spec.command == ""
    assert "prompts=prompts,  # texts, the object in memory" in spec.python and "memory:" not in spec.python
    called = ast.parse(spec.python).body[-1].value
    assert called.args[0].id == "model" and {k.arg: k.value.id for k in called.keywords if k.arg == "prompts"} == {
        "prompts": "prompts"
    }
    assert "interp.run(\n    model,  # Mine, the object in memory\n" in spec.python


@pytest.mark.parametrize(("value", "said"), [("no_such_module:A", "No module named"), ("json:Nothing", "Nothing")])
def test_a_registered_object_that_cannot_be_imported_is_named(monkeypatch, value, said):
    broken = {"toy": EntryPoint("toy", value, "interp.probes")}
    monkeypatch.setattr(registry, "entries", lambda kind: broken)
    with pytest.raises(InterpError, match=rf"the probe 'toy': {value} cannot be imported \(.*{said}.*\)"):
        registry.load_entry("probe", "toy")


def test_a_name_registered_twice_is_an_error(monkeypatch):
    monkeypatch.undo()
    twice = [EntryPoint("toy", "a:A", "interp.probes"), EntryPoint("toy", "b:B", "interp.probes")]
    monkeypatch.setattr(registry, "entry_points", lambda group: twice)
    registry.entries.cache_clear()
    try:
        with pytest.raises(InterpError, match="two packages register it"):
            registry.entries("probe")
    finally:
        registry.entries.cache_clear()


def test_a_target_at_its_default_leaves_the_hash_as_it_is_without_it_and_another_one_is_repeated():
    """`target` came with this release: what is written, hashed and read back knows nothing of its default."""

    def spec(**changed):
        settings = {"manifold": make_probe("manifold", changed).parameters()}
        return RunSpec(model="tunnel:bijection-llama", probes=("manifold",), settings=settings)

    plain, asked = spec(), spec(target="evidence")
    earlier = plain.to_json()
    assert "target" not in earlier["probes"]["manifold"] and "seed" in earlier["probes"]["manifold"]
    assert RunSpec.from_json(earlier).hash == plain.hash == "e4fbf11766289e96"
    assert asked.hash != plain.hash and RunSpec.from_json(asked.to_json()).settings["manifold"]["target"] == "evidence"
    assert "--set manifold.target=evidence" in asked.command and "'target': 'evidence'" in asked.python
    assert "target" not in plain.command + plain.python


def test_a_run_of_an_option_that_went_or_is_yet_to_come_is_not_repeated_without_it():
    record = open_run(RECORDS / "run-1")
    assert RunSpec.of(record).hash
    for name, value in (("splits", "1/3"), ("of_tomorrow", True)):
        with pytest.raises(UsageError, match=f"--{name} {value}: this version of interp has no such option"):
            RunSpec.of(replace(record, spec=record.spec | {name: value}))
