"""Options of a run: each survives the command, the Python and the record that repeat it, whichever is added later."""

import json
import shlex
import shutil
from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from interp.reports.page.about import python
from typer.testing import CliRunner

from interp.cli.app import app
from interp.edits import BypassLayer
from interp.errors import InterpError, UsageError
from interp.options import BESIDE, HASHED, OPTIONS, RunOptions
from interp.records.diff import diff
from interp.records.record import RunRecord, open_run
from interp.running.choose_probes import choose_probes
from interp.running.meta_model import meta_model
from interp.running.run import specify
from interp.running.spec import RunSpec
from tests.command_lines import all_commands
from tests.hostile_files import RECORDS
from tests.interp.records.test_record import small_record
from tests.quick import quick

PLAIN: dict[str, Any] = {"model": "pythia-70m", "prompts": "texts.jsonl"}
"""A run to start from; the prompts lie where the command is given."""

CHANGES: dict[str, dict[str, Any]] = {
    "model": {"model": "pythia-70m@step64"},
    "probes": {"probes": ["orthogonality", "manifold"]},
    "settings": {"settings": {"manifold": {"n_null": 20, "scaling": "zscored"}}},
    "prompts": {"prompts": "sula"},
    "revision": {"revision": "step64"},
    "gguf": {"gguf": "tiny.gguf"},
    "adapter": {"adapter": "an/adapter"},
    "chat": {"chat": True, "gguf": "tiny.gguf"},  # which has a chat template
    "dtype": {"dtype": "bfloat16"},
    "n_untrained": {"null": "untrained", "n_untrained": 7},
    "text_column": {"text_column": "backwards"},
    "cluster": {"cluster": "none"},
    "edits": {"edits": [BypassLayer(layer=0)]},
    "lens": {"lens": "lens.safetensors"},
    "checkpoints": {"probes": ["manifold", "dynamics"], "checkpoints": ("step1", "step64", "step1000")},
}
"""What asks for another value of an option whose values mean something; of the others it is made from the type."""


def another(name: str) -> dict[str, Any]:
    """Keywords that ask for another value of this option than its default."""
    if name in CHANGES:
        return CHANGES[name]
    (field,) = (f for f in fields(RunOptions) if f.name == name)
    kind, _ = get_args(field.type)
    for each in (kind, *get_args(kind)):
        if each is bool:
            return {name: not field.default}
        if each is int:
            return {name: 7}
        if get_origin(each) is Literal:
            return {name: get_args(each)[-1]}
        if each is str and name in BESIDE:
            return {name: "any words: it's a text"}
    raise AssertionError(f"say in CHANGES what asks for another value of {name}")


EVERYTHING = {key: value for name in HASHED for key, value in another(name).items()} | {
    "model": "pythia-70m",
    "prompts": "./texts.jsonl",
    "revision": "step1000",
    "probes": ["dynamics", "manifold"],
}
"""All options changed at once; those that exclude one another agree."""


def specified(options: RunOptions) -> RunSpec:
    return specify(meta_model(options).model, options, choose_probes(options.probes, options.settings))[0]


class Called(Exception):
    """Ends a command where it would begin to measure."""


@pytest.fixture
def calls(monkeypatch) -> list[RunOptions]:
    """The options of each call of `interp.run`; nothing is measured."""
    heard: list[RunOptions] = []

    def run(options: RunOptions) -> None:
        heard.append(options)
        raise Called

    monkeypatch.setattr("interp.running.run.run_as_asked", run)
    return heard


@pytest.fixture
def place(tmp_path, monkeypatch, revisions, use_cache) -> Path:
    """A folder to work in, with texts of two columns, and a hub that has one model."""
    use_cache(revisions)
    monkeypatch.chdir(tmp_path)
    words = [[f"w{(7 * i + j * j) % 90 + 1}" for j in range(12 + i % 6)] for i in range(24)]
    lines = [json.dumps({"text": " ".join(each), "backwards": " ".join(each[::-1])}) for each in words]
    (tmp_path / "texts.jsonl").write_text("\n".join(lines))
    return tmp_path


def ways_to_repeat(record: RunRecord) -> list[Callable[[], object]]:
    """The command of a record, `--from` the record, and the Python on its page."""
    commands = (record.spec["command"], f"interp run --from {record.path}")
    invoke = partial(CliRunner().invoke, app, catch_exceptions=False)
    return [*(partial(invoke, shlex.split(each)[1:]) for each in commands), partial(exec, python(record) or "", {})]


def record_of(spec: RunSpec, folder: Path) -> RunRecord:
    """A record with this specification; the edits of it lie where the commands of these tests are given."""
    record = replace(small_record(), spec=spec.to_json(), spec_hash=spec.hash).write(folder)
    if spec.edits:
        shutil.copyfile(folder / "edits.json", "edits.json")
    return open_run(record.path or folder)


@pytest.mark.parametrize(
    "changes",
    quick(
        [another("prompts"), {"per_quintile": None}, EVERYTHING],
        [*map(another, HASHED), {"per_quintile": None}, EVERYTHING],
    ),
    ids=",".join,
)
def test_what_is_asked_is_repeated_by_the_command_the_record_and_the_page(place, calls, changes):
    asked = RunOptions(**PLAIN | changes)
    spec = specified(asked)
    assert spec.hash != specified(RunOptions(**PLAIN)).hash
    for repeat in ways_to_repeat(record_of(spec, place / "record")):
        with pytest.raises(Called):
            repeat()
    assert [specified(call).hash for call in calls] == [spec.hash] * 3


@pytest.mark.parametrize("name", BESIDE[1:])
def test_what_a_record_keeps_beside_is_repeated_and_makes_no_difference(place, calls, name):
    asked = RunOptions(**PLAIN | another(name))
    plain, spec = specified(RunOptions(**PLAIN)), specified(asked)
    assert spec.hash == plain.hash and name not in plain.to_json()
    first, second = record_of(plain, place / "plain"), record_of(spec, place / "record")
    assert diff(first, second).settings == () and not getattr(RunSpec.of(first), name)
    for repeat in ways_to_repeat(second):
        with pytest.raises(Called):
            repeat()
    assert [getattr(call, name) for call in calls] == [getattr(asked, name)] * 3
    for again in (asked, RunOptions()):
        assert getattr(RunSpec.of(second).on(again, {name: OPTIONS[name].flag}), name) == getattr(again, name)


def test_every_recorded_option_is_asked_for():
    """The model, probes and settings apart, which are always said, nothing of `EVERYTHING` is at its default."""
    plain = RunOptions()
    everything = RunOptions(**PLAIN | EVERYTHING)
    assert [name for name in HASHED if getattr(everything, name) == getattr(plain, name)] == []


def test_a_record_of_the_first_version_is_repeated(place, calls):
    said = "the record sets manifold.umap='off', and manifold has no field umap any more: the run is made without"
    with pytest.raises(Called), pytest.warns(UserWarning, match=said):
        CliRunner().invoke(app, ["run", "--from", str(RECORDS / "run-1")], catch_exceptions=False)
    old = RunSpec.from_json(open_run(RECORDS / "run-1").spec)
    again = specified(calls[0])
    kept = old.settings["manifold"].items() - {("umap", "off")}  # a field that the probe has no longer
    assert kept < again.settings["manifold"].items()  # and it has more today
    assert replace(again, settings=old.settings).hash == old.hash
    assert "umap" not in old.command and "umap" not in old.python


def test_a_record_is_repeated_elsewhere_but_not_otherwise(place, calls):
    record = record_of(specified(RunOptions(**PLAIN)), place / "record")
    again = ["run", "--from", str(record.path)]
    with pytest.raises(Called):
        CliRunner().invoke(app, [*again, "--device", "cpu", "--out", "elsewhere", "-q"], catch_exceptions=False)
    assert (calls[0].device, calls[0].out, calls[0].quiet) == ("cpu", Path("elsewhere"), True)
    default = RunOptions.model
    for words in (
        ["--n-pool", "7"], ["--no-bos"], ["--bos"], ["--model", "phi-2"], ["--set", "layer=3"], ["--revisions", "a,b"],
        ["--seed", "0"], ["--model", default], [default], ["--probe", "manifold"], ["--prompt", "a text"],
    ):  # fmt: skip
        with pytest.raises(UsageError, match="the record already specifies it"):
            CliRunner().invoke(app, [*again, *words], catch_exceptions=False)


@pytest.mark.parametrize("words", [["--model", RunOptions.model], [RunOptions.model], ["--probe", "manifold"]])
def test_an_option_given_at_its_default_is_not_the_demonstration(place, calls, words):
    with pytest.raises(Called):
        CliRunner().invoke(app, ["run", *words], catch_exceptions=False)
    assert (calls[0].model, tuple(calls[0].probes)) == (RunOptions.model, RunOptions.probes)


@pytest.mark.parametrize("command", ["run", "plan"])
def test_every_recorded_option_is_one_of_the_command(command):
    shown = {flag: each.help for each in all_commands()[f"interp {command}"].params for flag in each.opts}
    for name in HASHED:
        flag = OPTIONS[name].flag.partition("/")[0]
        assert (shown[flag] or "").startswith(OPTIONS[name].help)


HALF = "half \ud83d"
NUMBERS = [name for name, option in OPTIONS.items() if option.least is not None]


@pytest.mark.parametrize("value", [-1, -(10**26), 2**63, int("9" * 26)])
@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_out_of_its_bounds_is_refused_in_words_wherever_it_is_given(name, value):
    with pytest.raises(UsageError, match=OPTIONS[name].flag):
        RunOptions(**{name: value})
    said = CliRunner().invoke(app, ["run", OPTIONS[name].flag, str(value)])
    assert isinstance(said.exception, UsageError) and "Give a whole number from" in said.exception.fix


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("seed", "-1", ""), ("seed", 2**40, ""), ("n_null", "1" + "0" * 26, ""), ("n_null", 10**400, ""),
        ("site", "[" * 100_000, ""), ("target", HALF, "half a surrogate pair at character 5"),
    ],
)  # fmt: skip
def test_a_setting_that_no_library_or_record_takes_is_refused_for_a_name_and_for_a_probe_that_is_made(
    field, value, words
):
    (made,) = choose_probes("manifold").probes
    with pytest.raises(UsageError, match=f"manifold.{field}(.|\n)*{words}"):
        choose_probes("manifold", {"manifold": {field: value}})
    if isinstance(value, int) or field == "target":
        with pytest.raises(UsageError, match=f"manifold.{field}(.|\n)*{words}"):
            choose_probes([replace(made, **{field: value})], {})


def test_settings_act_on_a_probe_that_is_made_and_two_of_one_name_are_refused():
    (made,) = choose_probes("manifold").probes
    other = replace(made, site="resid")
    assert choose_probes([made], {"manifold": {"site": "resid"}}).probes == (other,)
    assert [probe for probe in choose_probes(["all", other]).probes if probe.name == "manifold"] == [other]
    assert len(choose_probes([made, replace(made)]).probes) == 1
    for given in ([made, other], ["manifold", other]):
        with pytest.raises(UsageError, match="manifold twice"):
            choose_probes(given, {})


TEXTS = [name for name in (*HASHED, *BESIDE[1:]) if name != "null" and isinstance(another(name).get(name), str)]


@pytest.mark.parametrize("name", TEXTS)
def test_a_text_that_no_record_can_hold_is_refused_before_anything_is_measured(name):
    """Half a surrogate pair: what a shell hands over of a name in another encoding, or of a cut-off emoji."""
    with pytest.raises(InterpError, match="half"):
        RunOptions(**{name: HALF})
    said = CliRunner().invoke(app, ["run", OPTIONS[name].flag, HALF])
    assert isinstance(said.exception, InterpError)
