"""One run: load, check, capture once for all probes, draw, analyse, record, render."""

import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from interp.capture import Capture
from interp.environment import environment
from interp.errors import UsageError
from interp.findings import Findings
from interp.forward import capture
from interp.loading.untrained import beside_untrained, untrained_twin
from interp.model import Model
from interp.models import load
from interp.observe import Prompts, as_tokens
from interp.probe import Probe
from interp.progress import reporting
from interp.prompt import PromptSet
from interp.prompting.files import resolve_prompts
from interp.prompting.tokens import Tokenised
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.record import RunRecord
from interp.spec import PER_QUINTILE, RunSpec, make_probe
from interp.statistics.draw import entropy_quintiles
from interp.table import LABEL
from interp.window import AttentionWindow

DEFAULT_MODEL = "tunnel:bijection-gpt-neox"
DEFAULT_PROBES = ("manifold",)
DEFAULT_PROMPTS = "mixed"
DEFAULT_OUT = "runs"


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
    out: str | Path | None = DEFAULT_OUT,
    report: bool = True,
    quiet: bool = False,
) -> RunRecord:
    """Measure `model` with `probes` on `prompts` and leave a record and its page under `out`.

    `model` is a name (see `interp.load`) or a loaded model; `probes` are names or configured probes, with `settings`
    as `{probe: {field: value}}`; `prompts` a registered set, a file, texts or a `PromptSet` (a wind tunnel samples
    itself). Everything else is described at `interp.spec.RunSpec`. `out=None` writes nothing. Returns the record:
    `record.findings["manifold"]`.
    """
    settings = settings or {}
    chosen = [p if isinstance(p, Probe) else make_probe(p, settings.get(p, {})) for p in probes]
    if not chosen:
        raise UsageError(asked="a run", found="no probe is named", fix="Name at least one; `interp list probes`.")
    clock = _Clock()
    with clock("load"):
        loaded = model if isinstance(model, Model) else load(
            model, revision=revision, dtype=dtype, device=device, device_map=device_map
        )  # fmt: skip
    pool = prompts_for(loaded, prompts, n_pool, seed, text_column)
    spec = RunSpec(
        model=loaded.name,
        probes={p.name: p.parameters() for p in chosen},
        prompts=_name_of(prompts, pool),
        revision=revision,
        dtype=dtype,
        n_pool=n_pool,
        per_quintile=per_quintile if pool.is_text else None,
        window=window,
        seed=seed,
        text_column=text_column,
        bos=bos,
        attention_window=attention_window,
        null=null,
    )
    needs = [need for probe in chosen for need in probe.needs]
    tokens = as_tokens(loaded, pool, needs, window, bos)

    def measure(which: Model, suffix: str) -> tuple[dict[str, Findings], dict[str, Any] | None]:
        """One pass over the pool, the draw by the model's own entropies, and every probe on it."""
        listeners = [] if attention_window is None else [AttentionWindow(attention_window)]
        with clock(f"capture{suffix}"), reporting(f"reading {which.name}", quiet) as progress:
            base = capture(which, pool, tokens.ids, needs, listeners=listeners, progress=progress, seed=seed)
        if attention_window is not None:
            base = replace(base, model=replace(base.model, window=attention_window))
        base, draw = _draw(base, spec.per_quintile, seed)
        findings = {}
        for probe in chosen:
            with clock(f"probe {probe.name}{suffix}"):
                findings[probe.name] = probe.analyse(base, {})
        return findings, draw

    findings, draw = measure(loaded, "")
    if null == "untrained":
        with clock("load untrained"):
            twin, label = untrained_twin(loaded, seed)
        beside, _ = measure(twin, " untrained")
        findings = {name: beside_untrained(found, beside[name], label) for name, found in findings.items()}
    record = RunRecord(
        status="done",
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        spec=spec.to_json() | {"command": spec.command},
        spec_hash=spec.hash,
        model=asdict(loaded.info),
        prompts=_describe(pool, tokens, draw),
        environment=environment(),
        selfcheck=tuple(asdict(c) for c in loaded.checks),
        timings=clock.seconds,
        findings=findings,
        parameters={p.name: p.parameters() for p in chosen},
    )
    if out is not None:
        record = record.write(_folder(Path(out), loaded.name))
        if report:
            record.show()
    return record


def _name_of(prompts: Prompts | None, pool: PromptSet) -> str | None:
    """What finds the prompts again: a name or a path; `memory:` marks those that only Python could give."""
    if isinstance(prompts, str | Path):
        return str(prompts)
    if prompts is None:
        return pool.name if pool.is_text else None
    return f"memory:{pool.name}"


class _Clock:
    """Seconds spent in named parts."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, part: str):
        began = time.perf_counter()
        yield
        self.seconds[part] = round(time.perf_counter() - began, 4)


def prompts_for(
    model: Model,
    prompts: Prompts | None,
    n_pool: int | None,
    seed: int,
    text_column: str,
) -> PromptSet:
    """The prompts of a run; texts on a tunnel and a tunnel's sequences on a text model are refused."""
    if model.task is not None and prompts is None:
        return sampled_prompts(model.task, n_pool or 500, seed)
    if isinstance(prompts, str) and prompts.startswith("memory:"):
        raise UsageError(
            asked=f"the prompts {prompts!r}",
            found="they were given in Python and are not kept in the record",
            fix="Repeat the run in Python, or put the prompts in a file.",
        )
    chosen = resolve_prompts(
        prompts or DEFAULT_PROMPTS, n_pool=n_pool, seed=seed, text_column=text_column, tokenizer=model.tokenizer
    )
    if model.task is not None and chosen.is_text:
        raise UsageError(
            asked=f"the prompts {chosen.name!r} on {model.name}",
            found="a wind tunnel has no text: its vocabulary are the symbols of its task",
            fix="Leave out --prompts: the tunnel draws its own sequences (--n-pool says how many).",
        )
    if model.task is None and chosen.unit == "sequence":
        raise UsageError(
            asked=f"the sequences {chosen.name!r} on {model.name}",
            found="these are a wind tunnel's symbols, which mean nothing to a language model",
            fix="Use a text set (`interp list prompts`) or your own file.",
        )
    return chosen


def _draw(base: Capture, per_quintile: int | None, seed: int) -> tuple[Capture, dict[str, Any] | None]:
    """Mark the drawn rows: prompts from every fifth of the model's own next-token entropies, after the capture."""
    if per_quintile is None:
        return base, None
    entropy = base.rows["next_entropy_bits"]
    drawn = entropy_quintiles(entropy, per_quintile, np.random.default_rng(seed))
    mask = np.zeros(len(entropy), dtype=bool)
    mask[drawn.index] = True
    rows = base.rows.with_column("drawn", mask, LABEL).with_column("stratum", drawn.stratum, LABEL)
    described = {"per_quintile": per_quintile, "n_drawn": len(drawn.index), "note": drawn.note}
    return replace(base, tables={**base.tables, "scored": rows}), described


def _describe(pool: PromptSet, tokens: Tokenised, draw: dict[str, Any] | None) -> dict[str, Any]:
    return {
        "name": pool.name, "source": pool.source, "unit": pool.unit, "n": len(pool), "hash": pool.content_hash,
        "draw": draw, "seed": pool.seed, "window": tokens.window, "n_truncated": tokens.n_truncated,
        "has_bos": tokens.has_bos, "notes": list(tokens.notes),
    }  # fmt: skip


def _folder(out: Path, model: str) -> Path:
    """`<out>/<model>-<time>`, with a counter where two runs end in the same second."""
    plain = "".join(c if c.isalnum() or c in "-_.@" else "-" for c in model.rstrip("/").split("/")[-1])
    stem = f"{plain}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    counter = 1
    folder = out / stem
    while folder.exists():
        counter += 1
        folder = out / f"{stem}-{counter}"
    return folder
