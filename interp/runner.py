"""One run: load, check, capture once for all probes, draw, analyse, record, render."""

import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal

from interp.capture import Capture
from interp.conditions import Run, capture_edited, read_conditions
from interp.editing.editor import refuse_misfits
from interp.editing.files import Edits, resolve_edits
from interp.editing.proof import merged
from interp.edits import Edit
from interp.environment import environment
from interp.errors import UsageError
from interp.findings import Findings
from interp.forward import capture
from interp.loading.untrained import beside_untrained, untrained_twin
from interp.model import Check, Model
from interp.models import load
from interp.observe import Prompts, as_tokens
from interp.pools import Pool, Reading, draw, name_of, pools_for, prompts_for
from interp.probe import Probe, Readout
from interp.progress import reporting
from interp.ranks import here, together
from interp.readable import choose_probes, readable_probes
from interp.record import RunRecord, new_folder
from interp.spec import PER_QUINTILE, RunSpec
from interp.window import AttentionWindow

DEFAULT_MODEL = "tunnel:bijection-gpt-neox"
DEFAULT_PROBES = ("manifold",)
DEFAULT_OUT = "runs"


@together
def run(
    model: Model | str = DEFAULT_MODEL,
    *,
    probes: Sequence[str | Probe] = DEFAULT_PROBES,
    prompts: Prompts | None = None,
    settings: Mapping[str, Mapping[str, Any]] | None = None,
    revision: str | None = None,
    dtype: str | None = None,
    device: str | None = None,
    device_map: str | None = None,
    n_pool: int | None = None,
    per_quintile: int | None = PER_QUINTILE,
    window: int | None = None,
    seed: int = 0,
    text_column: str = "text",
    bos: bool = True,
    attention_window: int | None = None,
    null: Literal["untrained"] | None = None,
    edits: Edits = (),
    out: str | Path | None = DEFAULT_OUT,
    report: bool = True,
    allow_quantised: bool = False,
    quiet: bool = False,
) -> RunRecord:
    """Measure `model` with `probes` on `prompts` and leave a record and its page under `out`.

    `model` is a name (see `interp.load`) or a loaded model; `probes` are names (`all`: every observational one that
    the model can be asked) or configured probes, with `settings` as `{probe: {field: value}}`; `prompts` a registered
    set, a file, texts or a `PromptSet` (a wind tunnel samples itself; a probe with prompts of its own is read on them);
    `edits` change the model for the whole run, or name the file that holds them. Everything else is described at
    `interp.spec.RunSpec`. `out=None` writes nothing. Returns the record: `record.findings["manifold"]`.

    Processes that a launcher has started (`accelerate launch`, `torchrun`) share the prompts where all of them call
    this; the first one writes the record, which all return.
    """
    ranks = here()
    quiet = quiet or not ranks.is_first
    asked = choose_probes(probes, settings or {})
    given = resolve_edits(edits)
    clock = _Clock()
    with clock("load"):
        loaded = model if isinstance(model, Model) else load(
            model, revision=revision, dtype=dtype, device=device, device_map=device_map,
            allow_quantised=allow_quantised,
        )  # fmt: skip
    chosen = readable_probes(loaded, asked)
    reading = Reading(n_pool, seed, text_column, window, bos)
    pools = pools_for(loaded, prompts, chosen, reading)
    _refuse_misuse(given, chosen, loaded)
    spec = RunSpec(
        model=loaded.name,
        probes={p.name: p.parameters() for p in chosen},
        prompts=name_of(prompts, pools),
        revision=revision,
        dtype=dtype,
        n_pool=n_pool,
        per_quintile=per_quintile if pools[0].prompts.is_text else None,
        window=window,
        seed=seed,
        text_column=text_column,
        bos=bos,
        attention_window=attention_window,
        null=null,
        edits=tuple(edit.to_json() for edit in given),
    )
    if not ranks.is_alone:
        ranks.agree("what was asked", spec.hash)
        ranks.agree("the fingerprint of the weights", loaded.info.fingerprint)
        ranks.agree("the content of the prompts", " ".join(pool.prompts.content_hash for pool in pools))
    session = _Session(spec, given, reading, clock, quiet)
    findings, drawn = session.measure(loaded, pools, "")
    if null == "untrained":
        with clock("load untrained"):
            twin, label = untrained_twin(loaded, seed)
        beside, _ = session.measure(twin, pools, " untrained")
        findings = {name: beside_untrained(found, beside[name], label) for name, found in findings.items()}
    record = RunRecord(
        status="done",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        spec=spec.to_json() | {"command": spec.command},
        spec_hash=spec.hash,
        model=asdict(loaded.info),
        prompts=_described(pools, drawn),
        environment=environment() | ({} if ranks.is_alone else {"processes": ranks.size}),
        selfcheck=tuple(asdict(c) for c in (*loaded.checks, *merged(session.checks))),
        timings=clock.seconds,
        findings=findings,
        parameters={p.name: p.parameters() for p in chosen},
    )
    if out is not None and ranks.is_first:
        record = record.write(new_folder(Path(out), loaded.name))
        if report:
            record.show()
    return ranks.of_first(record)


@dataclass
class _Session:
    """What all readings of a run share; `checks` collects the proofs of its edits."""

    spec: RunSpec
    edits: tuple[Edit, ...]
    reading: Reading
    clock: "_Clock"
    quiet: bool
    checks: list[Check] = field(default_factory=list)

    def measure(
        self, model: Model, pools: Sequence[Pool], suffix: str
    ) -> tuple[dict[str, Findings], list[dict[str, Any] | None]]:
        """One pass over every pool, the draw by the model's own entropies, and the probes of each on it.

        Of several processes the first alone analyses, and the others find nothing.
        """
        found: dict[str, Findings] = {}
        drawn = []
        for i, pool in enumerate(pools):
            base = self._capture(model, pool, suffix if i == 0 else f"{suffix} {pool.prompts.name}")
            base, described = draw(base, self.spec.per_quintile, self.spec.seed)
            drawn.append(described)
            under = {probe.name: self._conditions(model, pool, probe, base, suffix) for probe in pool.probes}
            for probe in pool.probes if here().is_first else ():
                with self.clock(f"probe {probe.name}{suffix}"):
                    found[probe.name] = probe.analyse(base, under[probe.name])
        return {name: found[name] for name in self.spec.probes if name in found}, drawn

    @property
    def listeners(self) -> list[AttentionWindow]:
        return [] if self.spec.attention_window is None else [AttentionWindow(self.spec.attention_window)]

    def _capture(self, model: Model, pool: Pool, suffix: str) -> Capture:
        needs = [need for probe in pool.probes for need in probe.needs]
        ids, seed = pool.tokens.ids, self.spec.seed
        with self.clock(f"capture{suffix}"), reporting(f"reading {model.name}", self.quiet) as progress:
            if self.edits:
                base = capture_edited(
                    model, pool.prompts, ids, needs, self.edits, listeners=self.listeners, checks=self.checks,
                    progress=progress, seed=seed,
                )  # fmt: skip
            else:
                base = capture(model, pool.prompts, ids, needs, listeners=self.listeners, progress=progress, seed=seed)
        if self.spec.attention_window is not None:
            base = replace(base, model=replace(base.model, window=self.spec.attention_window))
        return base

    def _conditions(self, model: Model, pool: Pool, probe: Probe, base: Capture, suffix: str) -> Mapping[str, Readout]:
        """What the probe's conditions read; edits that it asks for are proved first."""
        if type(probe).conditions is Probe.conditions:
            return {}

        def resolve(name: str, n_pool: int | None) -> Run:
            reading = self.reading
            prompts = prompts_for(model, name, n_pool or reading.n_pool, reading.seed, reading.text_column)
            return Run(prompts, as_tokens(model, prompts, (), reading.window, reading.bos).ids)

        heard = reporting(f"conditions of {probe.name}", self.quiet)
        with self.clock(f"conditions {probe.name}{suffix}"), heard as progress:
            read = partial(
                read_conditions, model, Run(pool.prompts, pool.tokens.ids), resolve=resolve, listeners=self.listeners,
                checks=self.checks, progress=progress, seed=self.spec.seed,
            )  # fmt: skip
            found = read(probe.conditions(base))
            return found | read(probe.further_conditions(base, found))


def _refuse_misuse(edits: tuple[Edit, ...], probes: Sequence[Probe], model: Model) -> None:
    """Raise `UsageError` where the edits of a run do not fit the model, or a probe makes its own."""
    if not edits:
        return
    refuse_misfits(edits, model)
    causal = [probe.name for probe in probes if type(probe).conditions is not Probe.conditions]
    if causal:
        raise UsageError(
            asked=f"{', '.join(causal)} on an edited model",
            found="this probe makes edits of its own and compares them with the model as it is",
            fix="Leave out --edit, or the probe.",
        )


def _described(pools: Sequence[Pool], drawn: Sequence[dict[str, Any] | None]) -> dict[str, Any]:
    """The first set; the others, where probes were read on sets of their own, under `others`."""
    first, *others = [pool.describe(draw) for pool, draw in zip(pools, drawn, strict=True)]
    return {**first, "others": others} if others else first


class _Clock:
    """Seconds spent in named parts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str):
        began = time.perf_counter()
        yield
        self.seconds[part] = round(time.perf_counter() - began, 4)
