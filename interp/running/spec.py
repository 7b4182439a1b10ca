"""What a run was asked to do: the whole configuration, hashed, and enough to repeat it."""

import json
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from interp.errors import RecordError, UnknownName, UsageError
from interp.probe import Probe, Question
from interp.registry import load_entry
from interp.study import Study
from interp.system.digest import digest_of

PER_QUINTILE = 15


@dataclass(frozen=True)
class RunSpec:
    """The configuration of one run. Everything here changes the numbers; nothing else does.

    `prompts` is a registered name, a path or, for a tunnel, None (it samples itself); `per_quintile` prompts are drawn
    from each fifth of the pool's next-token entropies, None measures the whole pool; `window` overrides the prompt
    set's own token window (0 reads texts whole); `bos` False leaves out the token that some tokenizers put in front;
    `attention_window` lets every query see so many keys; `null` `untrained` repeats everything on untrained weights;
    `edits` change the model for the whole run (see interp.edits), written out as plain values; `checkpoints` are the
    steps or revisions that probes of a training were read at, besides the model itself.
    """

    model: str
    probes: Mapping[str, Mapping[str, Any]]
    prompts: str | None = None
    revision: str | None = None
    dtype: str | None = None
    n_pool: int | None = None
    per_quintile: int | None = PER_QUINTILE
    window: int | None = None
    seed: int = 0
    text_column: str = "text"
    bos: bool = True
    attention_window: int | None = None
    null: str | None = None
    edits: Sequence[Mapping[str, Any]] = ()
    checkpoints: Sequence[str] = ()

    @property
    def hash(self) -> str:
        """The first 16 hexadecimal digits of the SHA-256 of the configuration."""
        return digest_of(self.to_json())

    def to_json(self) -> dict[str, Any]:
        return json.loads(json.dumps(asdict(self)))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RunSpec":
        """The specification in a record; what only repeats it in words is ignored.

        Raises `RecordError` for one that no run can have been asked with.
        """
        from pydantic import TypeAdapter, ValidationError

        from interp.records.versioned_json import first_fault

        known = {f.name for f in fields(cls)}
        values: dict[str, Any] = {name: value for name, value in content.items() if name in known}
        try:
            spec = TypeAdapter(cls).validate_json(json.dumps(values), strict=True)
        except ValidationError as error:
            where, words = first_fault(error, "all of it")
            raise RecordError(
                asked="what the record was asked to do",
                found=f"{where}: {words.lower()}",
                fix="It is no record of a run, or was edited: write the command out.",
            ) from error
        return replace(spec, edits=tuple(spec.edits), checkpoints=tuple(spec.checkpoints))

    @property
    def options(self) -> dict[str, Any]:
        """Everything but the model and the probes, as `interp.run` takes it."""
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("model", "probes")}

    @property
    def command(self) -> str:
        """The command that repeats this run."""
        words = ["interp", "run", "--model", self.model]
        for name, parameters in self.probes.items():
            words += ["--probe", name]
            defaults = _defaults(name)
            for key, value in parameters.items():
                if key not in defaults or _plain(value) != _plain(defaults[key]):
                    words += [
                        "--set",
                        f"{name}.{key}={json.dumps(value) if not isinstance(value, str) else value}",
                    ]
        options = {
            "--prompts": self.prompts, "--revision": self.revision, "--dtype": self.dtype, "--n-pool": self.n_pool,
            "--window": self.window, "--seed": self.seed or None,
            "--text-column": None if self.text_column == "text" else self.text_column,
            "--attention-window": self.attention_window, "--null": self.null,
            "--edit": "edits.json" if self.edits else None, "--revisions": ",".join(self.checkpoints) or None,
            "--draw": None if self.per_quintile == PER_QUINTILE else self.per_quintile or 0,
        }  # fmt: skip
        for option, value in options.items():
            words += [] if value is None else [option, str(value)]
        words += [] if self.bos else ["--no-bos"]
        return shlex.join(words)


def make_probe(name: str, settings: Mapping[str, Any]) -> Probe:
    """A probe by name with some of its fields set; texts are read as the field's type.

    Raises `UnknownName` for an unknown probe or field, `UsageError` for a value that does not fit.
    """
    return _configured(load_entry("probe", name), settings)


def make_study(name: str, settings: Mapping[str, Any]) -> Study:
    """A study by name with some of its fields set, read and refused as those of a probe are."""
    return _configured(load_entry("study", name), settings)


_Asked = TypeVar("_Asked", bound=Question)


def _configured(cls: type[_Asked], settings: Mapping[str, Any]) -> _Asked:
    known = {f.name for f in fields(cls)}
    hints = get_type_hints(cls)
    values = {}
    for key, value in settings.items():
        if key not in known:
            raise UnknownName(f"field of {cls.name}", key, known)
        values[key] = _read(f"{cls.name}.{key}", value, hints[key])
    return cls(**values)


def _defaults(probe: str) -> Mapping[str, Any]:
    """The parameters of a probe as it stands; none are known of one that is not registered."""
    try:
        return load_entry("probe", probe)().parameters()
    except UnknownName:
        return {}


def split_settings(settings: Sequence[str], probes: Sequence[str]) -> dict[str, dict[str, str]]:
    """`PROBE.field=value` (bare `field=value` with a single probe) as one mapping a probe."""
    found: dict[str, dict[str, str]] = {name: {} for name in probes}
    for setting in settings:
        left, equals, value = setting.partition("=")
        probe, dot, key = left.partition(".")
        if not dot and len(probes) == 1:
            probe, key = probes[0], left
        if not equals or not key or not value:
            raise UsageError(
                asked=f"--set {setting}",
                found="it is not of the form PROBE.field=value",
                fix="For example --set manifold.scaling=zscored.",
            )
        if probe not in found:
            raise UsageError(
                asked=f"--set {setting}",
                found=f"the probe {probe!r} is not part of this run ({', '.join(probes)})",
                fix=f"Add --probe {probe}, or drop the setting.",
            )
        found[probe][key] = value
    return found


def _read(where: str, value: Any, hint: Any) -> Any:
    """A value as its field's type: texts from the command line are parsed, others must fit."""
    if get_origin(hint) is tuple:
        entry = get_args(hint)[0]
        separator = ";" if get_origin(entry) is tuple else ","
        return tuple(_read(where, part, entry) for part in _parts(where, value, separator))
    kinds = (hint,) if get_origin(hint) is Literal else get_args(hint) or (hint,)
    options = [option for kind in kinds for option in (get_args(kind) or (kind,))]
    options.sort(key=lambda option: option is not type(None))
    for option in options:
        try:
            return _fit(value, option)
        except (TypeError, ValueError):
            continue
    shown = ", ".join("none" if o is type(None) else str(getattr(o, "__name__", o)) for o in options)
    raise UsageError(asked=f"{where} = {value!r}", found="the value does not fit this field", fix=f"It takes: {shown}.")


def _fit(value: Any, option: Any) -> Any:
    """`value` as one alternative of a type (a class or a literal); `ValueError` where it does not fit."""
    if option is type(None) and value in (None, "none"):
        return None
    if option is bool and value in (True, False, "true", "false"):
        return value in (True, "true")
    if option is int and not isinstance(value, bool) and int(value) == float(value):
        return int(value)
    if option is float and not isinstance(value, bool):
        return float(value)
    if isinstance(option, type) and option not in (bool, int, float) and isinstance(value, option):
        return value
    if not isinstance(option, type) and value == option:
        return option
    raise ValueError(value)


def _parts(where: str, value: Any, separator: str) -> Sequence[Any]:
    """What a tuple holds: of a text its parts between commas, nothing of `none`, or the entries of a JSON list.

    A tuple of tuples has semicolons between these.
    """
    if isinstance(value, list | tuple):
        return value
    try:
        if isinstance(value, str):
            listed = [part.strip() for part in value.split(separator)]
            return json.loads(value) if value.startswith("[") else [] if value == "none" else listed
    except ValueError:
        pass  # a list that is not JSON is refused like any other value
    raise UsageError(
        asked=f"{where} = {value!r}",
        found="the value does not fit this field",
        fix="It takes values separated by commas, `none` for no value, or a JSON list.",
    )


def _plain(value: Any) -> Any:
    return json.loads(json.dumps(value))
