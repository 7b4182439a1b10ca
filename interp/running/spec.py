"""The specification of a run: its whole configuration, hashed, and enough to repeat it."""

import json
import pprint
import shlex
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import Any

from interp.errors import InterpError, UsageError
from interp.formatting import printable
from interp.loading.aliases import MEMORY
from interp.options import BESIDE, HASHED, OPTIONS, RunOptions
from interp.probe import ADDED, Probe
from interp.records.record import RunRecord
from interp.records.versioned_json import REMOVED_OPTIONS
from interp.registry import load_entry, load_named
from interp.settings import read_fields
from interp.study import Study
from interp.system.digest import digest_of
from interp.system.foreign_files import readable

RECORDED = tuple(name for name in OPTIONS if name in (*HASHED, *BESIDE))

_ALWAYS = (
    "model", "probes", "prompts", "revision", "dtype", "n_pool", "per_quintile", "window", "seed",
    "text_column", "chat", "bos", "attention_window", "null", "n_untrained", "edits", "checkpoints",
)  # fmt: skip
"""Options that are hashed at their defaults, too, as in the first records; later ones do not change old hashes."""

EDITS_FILE = "edits.json"
"""Where a record keeps the edits of its run, beside `run.json`."""


@dataclass(frozen=True)
class RunSpec(RunOptions):
    """The options of a run as its record keeps them: names and plain values, and all settings of every probe.

    `prompts` is a registered name, a path or, for a tunnel, None (it samples itself); `edits` are written out;
    `checkpoints` are the steps or revisions that probes of a training were read at, besides the model itself.
    """

    model: str = field()
    probes: Sequence[str] = field()
    settings: Mapping[str, Mapping[str, Any]] = field()
    _: KW_ONLY
    prompts: str | None = None
    edits: Sequence[Mapping[str, Any]] = ()
    lens: str | None = None
    dtype: str | None = None
    device: str | None = None

    @property
    def hash(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of what changes the numbers."""
        hashed = {name: value for name, value in self.to_json().items() if name not in BESIDE}
        return digest_of({**hashed, **REMOVED_OPTIONS})

    def to_json(self) -> dict[str, Any]:
        """The specification as a record keeps it, with the settings under their probes."""
        probes = {name: _unusual(values, _usual(name, is_later=True)) for name, values in self.settings.items()}
        recorded = {name: getattr(self, name) for name in RECORDED if name != "settings"} | {"probes": probes}
        kept = {n: value for n, value in recorded.items() if n in _ALWAYS or value != getattr(RunOptions, n)}
        return json.loads(json.dumps(kept | {"command": self.command}))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RunSpec":
        """The specification in a record, of this version or an older one.

        Raises `RecordError` if it does not fit the types of options.
        """
        from pydantic import TypeAdapter

        values = {name: content[name] for name in RECORDED if name in content}
        if isinstance(probes := content.get("probes"), Mapping):
            values |= {"probes": list(probes), "settings": probes}
        fix = "It is no record of a run, or was edited: write the command out."
        with readable("what the record was asked to do", fix, found="it does not fit"):
            spec = TypeAdapter(cls).validate_json(json.dumps(values), strict=True)
        return replace(spec, edits=tuple(spec.edits), checkpoints=tuple(spec.checkpoints))

    @classmethod
    def of(cls, record: RunRecord) -> "RunSpec":
        """The specification of a record; a run on quantised weights is repeated on them."""
        spec = cls.from_json({"allow_quantised": bool(record.quantised), **record.spec})
        for name, value in record.spec.items():
            if name not in (*RECORDED, "command") and value != REMOVED_OPTIONS.get(name, record):
                raise UsageError(
                    asked=f"a run again that was made with --{name} {value}",
                    found="this version of interp has no such option",
                    fix="Repeat it with the version that made the record, or write the command out without the option.",
                )
        return spec

    def on(self, asked: RunOptions, given: Mapping[str, str]) -> RunOptions:
        """The same run with the device, folder and permissions of `asked`.

        Settings that a probe no longer has are left out, with a warning. `given` are the options of the command line,
        by flag. Raises `UsageError` if one would change the numbers.
        """
        changed = {name: getattr(asked, name) for name in given}
        changes = [flag for name, flag in given.items() if name in HASHED]
        if changes:
            raise UsageError(
                asked=f"the run of a record again, with {', '.join(changes)}",
                found="the record already specifies it",
                fix="Leave it out, or edit the command in the record.",
            )
        changed["settings"] = {name: _current(name, values) for name, values in self.settings.items()}
        for probe, values in self.settings.items():
            for gone in values.keys() - changed["settings"][probe].keys():
                words = f"the record sets {probe}.{gone}={values[gone]!r}, and {probe} has no field {gone} any more"
                warnings.warn(f"{words}: the run is made without it, and may give other numbers", stacklevel=2)
        return RunOptions(**vars(self) | changed | {n: getattr(asked, n) for n in OPTIONS if n not in RECORDED})

    @property
    def changed(self) -> dict[str, Any]:
        """The keywords of `interp.run` that repeat this: the model, its probes, and options that are not at defaults.

        The edits are those in the file beside the record.
        """
        settings = {name: _unusual(_current(name, values), _usual(name)) for name, values in self.settings.items()}
        recorded = {name: getattr(self, name) for name in RECORDED} | {
            "probes": list(self.probes),
            "settings": {name: changed for name, changed in settings.items() if changed} or None,
            "edits": EDITS_FILE if self.edits else (),
        }
        always = ("model", "probes")
        return {name: value for name, value in recorded.items() if name in always or value != getattr(RunOptions, name)}

    @property
    def command(self) -> str:
        """The command that repeats this run; empty for a model or prompts in memory."""
        if self._in_memory:
            return ""
        options = [OPTIONS[name].words(value) for name, value in self.changed.items()]
        return shlex.join(["interp", "run", *(word for words in options for word in words)])

    @property
    def python(self) -> str:
        """The Python code that repeats this run; an object in memory is a variable with a comment."""
        written = {name: pprint.pformat(value, width=80, sort_dicts=False) for name, value in self.changed.items()}
        values = {name: f"{value},".replace("\n", "\n    ") for name, value in written.items()}
        for name in self._in_memory:
            what = " ".join(printable(str(getattr(self, name)).removeprefix(MEMORY)).split())
            values[name] = f"{name},  # {what}, the object in memory"
        model = values.pop("model")
        arguments = "".join(f"    {line}\n" for line in (model, *(f"{name}={value}" for name, value in values.items())))
        return f"import interp\n\nrecord = interp.run(\n{arguments})\n"

    @property
    def _in_memory(self) -> tuple[str, ...]:
        return tuple(name for name in ("model", "prompts", "lens") if str(getattr(self, name)).startswith(MEMORY))


def make_probe(name: str, settings: Mapping[str, Any]) -> Probe:
    """A probe by name with some of its fields set; texts are read as the field's type.

    Raises `UnknownName` for an unknown probe or field, `UsageError` for a value that does not fit.
    """
    cls = load_named("probe", name)
    return cls(**read_fields(cls, name, settings))


def make_study(name: str, settings: Mapping[str, Any]) -> Study:
    """A study by name with some of its fields set, read and refused as those of a probe are."""
    cls = load_named("study", name)
    return cls(**read_fields(cls, name, settings))


def _usual(probe: str, *, is_later: bool = False) -> dict[str, Any] | None:
    """The defaults of a probe, or of its later fields; None if it is not installed."""
    try:
        kind = load_entry("probe", probe)
    except (InterpError, ImportError):
        return None
    usual = json.loads(json.dumps(kind().parameters()))
    return {f.name: usual[f.name] for f in fields(kind) if not is_later or f.metadata == ADDED}


def _current(probe: str, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters that the probe still has; all if it is not installed."""
    usual = _usual(probe)
    return {name: value for name, value in parameters.items() if usual is None or name in usual}


def _unusual(parameters: Mapping[str, Any], usual: Mapping[str, Any] | None) -> dict[str, Any]:
    """The parameters that differ from these defaults, or have no default."""
    given = json.loads(json.dumps(parameters))
    return {name: value for name, value in given.items() if not usual or name not in usual or value != usual[name]}
