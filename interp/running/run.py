"""A run: load, check, capture once for all probes, draw, analyse, record, render."""

import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from interp.capture import Capture
from interp.edit import Edit
from interp.editing.conditions import capture_edited, read_conditions
from interp.editing.edit_files import resolve_edits
from interp.editing.editor import refuse_applied, refuse_misfits
from interp.editing.proof import merged
from interp.editing.screen import read_screen
from interp.edits import PatternsOf
from interp.errors import UsageError
from interp.findings import Findings
from interp.hooks.window import windowed
from interp.lens.files import name_of_lens, with_lens
from interp.loading.aliases import MEMORY
from interp.loading.identity import files_identity
from interp.loading.load import load_as_asked, same_placement, with_donors
from interp.loading.untrained import beside_untrained, untrained_copy
from interp.model import Check, Model
from interp.need import Need
from interp.options import RunOptions, by_keyword
from interp.probe import Chosen, Probe, Readout
from interp.prompt import Run
from interp.prompting.pools import PromptPool, draw, other_prompts, pools_for, read_apart
from interp.reading.batches import at_most
from interp.records.probe_code import code_hash
from interp.records.record import RunRecord, waiting_for_lock, written
from interp.records.unfinished import PARTIAL, Unfinished, refuse_unwritable
from interp.running.checkpoints import Checkpoint, Followed, checkpoints_of, refuse_other_shape, step_of
from interp.running.choose_probes import analysed, choose_probes, readable_probes
from interp.running.show_tokens import refuse_unknown_prompt, token_strip
from interp.running.spec import RunSpec
from interp.system.environment import environment
from interp.system.processes import here, joined
from interp.system.progress import Report, announce, no_report, reporting, stage
from interp.system.threads import blas_on_one_thread
from interp.table import LABEL


@by_keyword(RunOptions)
def run(options: RunOptions) -> RunRecord:
    """Measure a model with probes on prompts, and write a record and its page.

    The same call resumes an interrupted run. Processes that a launcher has started (`accelerate launch`, `torchrun`)
    share the prompts if all of them call this; the first writes the record, which all return. If another process is at
    the same run in the same folder, this one waits for its result.

    Returns:
        The record: `record["manifold"]` holds what this probe found.

    Raises:
        UsageError: A name, setting or combination does not fit.
        ModelError: The model cannot be found, read or trusted.
        PromptError: There are too few prompts, or they do not fit the model.
        RecordError: The record cannot be written.

    Examples:
        >>> record = interp.run("tunnel:bijection-gpt-neox", probes="orthogonality", n_pool=20, out=None, quiet=True)
        >>> sorted(record.findings)
        ['orthogonality']
    """
    return run_as_asked(options)


@joined()
def run_as_asked(options: RunOptions) -> RunRecord:
    """`run` with its options as one object."""
    ranks = here()
    out = None if options.out is None else Path(options.out)
    chosen = choose_probes(options.probes, options.settings)  # wrong ones are refused before anything is loaded
    edits = resolve_edits(options.edits)
    options = replace(options, edits=edits, quiet=options.quiet or not ranks.is_first)
    if out is not None and ranks.is_first:
        refuse_unwritable(out)
    clock = _Clock()
    announce(f"loading and checking {getattr(options.model, 'name', options.model)}", options.quiet)
    with clock("load"):
        files = files_identity(options)  # first, as files may be replaced while they are loaded
        loaded = with_lens(load_as_asked(options), options.lens)
        edits = with_donors(edits, loaded.info)
    spec, pools = specify(loaded, options, chosen)
    probes = [probe for pool in pools for probe in pool.probes]
    folder = None if out is None or not ranks.is_alone else out / PARTIAL / spec.hash
    unfinished = Unfinished(folder, spec.hash, began=clock.began)
    session = _Session(spec, edits, clock, unfinished, chosen, codes_of(pools))
    session.refuse_misuse(loaded, probes)
    refuse_unknown_prompt(pools[0].prompts, options.show_tokens)
    followed = checkpoints_of(loaded, probes, spec.checkpoints)
    if not ranks.is_alone:
        ranks.agree("what was asked", spec.hash)
        ranks.agree("the fingerprint of the weights", loaded.fingerprint)
        ranks.agree("the content of the prompts", " ".join(pool.prompts.content_hash for pool in pools))
    lock = nullcontext()
    if out is not None and ranks.is_alone:

        def is_same(record: RunRecord) -> bool:
            of = (record.model.get("fingerprint"), record.model.get("lens"))
            is_of_model = of == (loaded.fingerprint, loaded.info.lens)
            return is_of_model and is_of_prompts(record, pools) and not options.show_tokens

        lock = waiting_for_lock(out, spec.hash, f"measuring the same of {loaded.name}", is_same)
    with at_most(options.batch_size), lock as theirs:
        if theirs is not None:
            if options.report:
                theirs.show()
            return theirs
        findings, drawn = session.measure(loaded, pools, "")
        if spec.null == "untrained":
            copies, labels = [], []
            for i in range(spec.n_untrained):  # one in memory at a time
                with clock(f"load untrained {i}"):
                    copy, label = untrained_copy(loaded, spec.seed + i)
                with stage(f"untrained copy {i + 1} of {spec.n_untrained}"):
                    copies.append(session.measure(copy, pools, f" untrained {i}")[0])
                labels.append(label)
                del copy
            findings = {
                name: beside_untrained(found, [t[name] for t in copies], labels)
                for name, found in findings.items() if name not in chosen.refused
            }  # fmt: skip
        shown = []
        for i in options.show_tokens:
            with clock(f"tokens of prompt {i}"), windowed(loaded, spec.attention_window):
                shown.append(token_strip(loaded, pools[0].prompts[[i]], pools[0].ids[i], edits=edits))
        info, own_checks = loaded.info, loaded.checks
        described = asdict(info) | {"fingerprint": loaded.fingerprint} | ({"card": loaded.card} if loaded.card else {})
        described |= {"files": files} if files else {}
        if followed:
            own_step, fingerprint = step_of(loaded), loaded.fingerprint
            end = loaded if any(part.exchange_needs for part in session.followed) else None
            del loaded  # one model in memory at a time, unless patterns are exchanged with the end
            curves, described["checkpoints"] = session.follow(followed, own_step, fingerprint, end)
            findings |= curves
        findings = {name: findings[name] for name in spec.probes if name in findings}
        if ranks.is_first and not findings:
            raise chosen.refused[probes[0].name]
        done = replace(spec, probes=tuple(findings), settings={name: spec.settings[name] for name in findings})
        processes = {} if ranks.is_alone else {"processes": ranks.size}
        read, *others = [pool.describe(draw, findings) for pool, draw in zip(pools, drawn, strict=True)]
        read["notes"] += chosen.notes
        record = RunRecord(
            spec=done.to_json(),
            spec_hash=spec.hash,  # by which the same call finds the record, also if it left out a probe
            model=described,
            prompts=read | ({"others": others} if others else {}),
            environment=environment() | {"probe_code": session.codes} | processes,
            selfcheck=tuple(asdict(c) for c in (*own_checks, *merged(session.checks))),
            timings=clock.seconds,
            findings=findings,
            shown=tuple(shown),
        )
        for note in chosen.notes:
            announce(note, options.quiet)
        if out is not None and ranks.is_first:
            record = written(record, out, info.name)
        session.unfinished.remove()
    if record.path is not None and options.report:
        record.show()
    return ranks.of_first(record)


def is_of_prompts(record: RunRecord, pools: Sequence[PromptPool]) -> bool:
    """Whether a record has these prompts: a file may have changed under its name."""
    read = [record.prompts, *record.prompts.get("others", ())]
    return [prompts.get("hash") for prompts in read] == [pool.prompts.content_hash for pool in pools]


def codes_of(pools: Sequence[PromptPool]) -> dict[str, str]:
    """The hash of the code of every probe, by name."""
    return {probe.name: code_hash(probe) for pool in pools for probe in pool.probes}


def specify(model: Model, options: RunOptions, chosen: Chosen) -> tuple[RunSpec, tuple[PromptPool, ...]]:
    """The specification of a run, and its prompts as the model reads them; the model needs no weights."""
    probes = readable_probes(model, chosen, options.checkpoints)
    pools = pools_for(model, probes, options, chosen)
    served = {probe.name for pool in pools for probe in pool.probes}
    probes = tuple(probe for probe in probes if probe.name in served)
    prompts, first = options.prompts, pools[0].prompts
    if isinstance(prompts, Path):
        prompts = str(prompts)
    elif prompts is None:  # probes with their own sets and wind tunnels need no name
        prompts = first.name if first.is_text and not any(probe.own_prompts for probe in probes) else None
    elif not isinstance(prompts, str):
        prompts = f"{MEMORY}{first.name}"
    found: dict[str, Any] = {
        "model": model.name,
        "adapter": options.adapter or model.info.adapter,
        "probes": tuple(p.name for p in probes),
        "settings": {p.name: p.parameters() for p in probes},
        "prompts": prompts,
        "per_quintile": options.per_quintile if first.is_text else None,
        "edits": tuple(edit.to_json() for edit in resolve_edits(options.edits)),
        "lens": name_of_lens(options.lens),
        "checkpoints": tuple(c.name for c in checkpoints_of(model, probes, options.checkpoints)),
    }
    return RunSpec(**vars(options) | found), pools


@dataclass
class _Session:
    """State that all readings of a run share; `checks` are those of its edits.

    `chosen` keeps the refusals of probes at their conditions and analyses.
    """

    spec: RunSpec
    edits: tuple[Edit, ...]
    clock: "_Clock"
    unfinished: Unfinished
    chosen: Chosen
    codes: Mapping[str, str] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    followed: list[Followed] = field(default_factory=list)

    def refuse_misuse(self, model: Model, probes: Sequence[Probe]) -> None:
        """Raise `UsageError` if edits do not fit the model, or a probe edits it or follows its training."""
        edits, null = self.edits, self.spec.null
        refuse_applied(model, "a run")
        following = [probe.name for probe in probes if probe.follows_checkpoints]
        changed = "--edit" if edits else f"--null {null}" if null else "--adapter" if model.info.adapter else ""
        if following and changed:
            raise UsageError(
                asked=f"{', '.join(following)} with {changed}",
                found="it follows the training of the unedited model from its first checkpoint",
                fix="Leave it out: the first checkpoint is the untrained model." if null else f"Leave out {changed}.",
            )
        if not edits:
            return
        refuse_misfits(edits, model)
        causal = [probe.name for probe in probes if probe.edits_model]
        if causal:
            raise UsageError(
                asked=f"{', '.join(causal)} on an edited model",
                found="this probe makes its own edits and compares them with the unedited model",
                fix="Leave out --edit, or the probe.",
            )

    def measure(
        self, model: Model, pools: Sequence[PromptPool], suffix: str
    ) -> tuple[dict[str, Findings], list[dict[str, Any] | None]]:
        """One pass over every pool, the draw by the model's entropies, and the findings of the probes.

        If few prompts are drawn, these are read again for probes that read no others. Of several processes only the
        first analyses.
        """
        found: dict[str, Findings] = {}
        drawn = []
        for i, pool in enumerate(pools):
            part = suffix if i == 0 else f"{suffix} {pool.prompts.name}"
            at_once = [probe for probe in pool.probes if not probe.follows_checkpoints]
            apart = read_apart(at_once, pool.prompts, self.spec)
            needs = [need for probe in at_once if probe not in apart for need in probe.needs]
            what = f"reading {model.name.removeprefix(MEMORY)}, prompts {pool.prompts.name}"
            with self.clock(f"capture{part}"), reporting(what, self.spec.quiet) as progress:
                base = self._read(model, pool, needs, progress, f"capture{part}")
            base, described = draw(base, self.spec.per_quintile)
            drawn.append(described)
            following = tuple(probe for probe in pool.probes if probe.follows_checkpoints)
            of_drawn = base
            if following:
                with self.clock("capture of the end"):
                    self.followed.append(Followed(following, *self._read_drawn(model, pool, base, following)))
            if apart:
                with self.clock(f"capture of the drawn{part}"):
                    _, of_drawn = self._read_drawn(model, pool, base, apart)
            under: dict[str, Mapping[str, Readout]] = {}
            for probe in at_once:
                with self.chosen.leaving_out(probe):
                    under[probe.name] = self._conditions(model, pool, probe, base, suffix)
            at_once = [probe for probe in at_once if probe.name in under]
            with reporting("analyses", self.spec.quiet) as progress:
                for n_done, probe in enumerate(at_once if here().is_first else ()):
                    progress(n_done, len(at_once))
                    read = of_drawn if probe in apart else base
                    with self.clock(f"probe {probe.name}{suffix}"), self.chosen.leaving_out(probe):
                        found[probe.name] = analysed(probe, read, under[probe.name])
                    progress(n_done + 1, len(at_once))
        return found, drawn

    def _read(
        self, model: Model, run: Run, needs: Sequence[Need], progress: Report = no_report, name: str = "",
        donor: Model | None = None, strata: np.ndarray | None = None,
    ) -> Capture:  # fmt: skip
        """A pass over the prompts with the edits of the run, or with the patterns of a donor, checked once.

        `strata` are those of drawn prompts, for the bootstrap.
        """
        window, edits = self.spec.attention_window, self.edits if donor is None else (PatternsOf(donor=donor),)
        is_proved = any(check.name == "edit donor" for check in self.checks)
        checks = None if donor is not None and is_proved else self.checks
        with windowed(model, window):
            found = capture_edited(
                model, run.prompts, run.ids, needs, edits, checks=checks, progress=progress,
                unfinished=self.unfinished, name=name or f"capture of {model.name} on {run.prompts.name}",
            )  # fmt: skip
        info = found.model if window is None else replace(found.model, window=window)
        tables = found.tables
        if strata is not None:
            tables = {**tables, "scored": found.rows.with_column("stratum", strata, LABEL)}
        return replace(found, model=info, tables=tables, seed=self.spec.seed)

    def _read_drawn(self, model: Model, run: Run, base: Capture, probes: Sequence[Probe]) -> tuple[Run, Capture]:
        """The drawn prompts of a run, and a capture of them with the needs of the probes."""
        rows = base.rows.where(base.rows["drawn"].astype(bool))
        chosen = run.take(np.unique(rows["prompt"]))
        needs = tuple(dict.fromkeys(need for probe in probes for need in probe.needs))
        return chosen, self._read(model, chosen, needs, strata=rows["stratum"])

    def follow(
        self, checkpoints: Sequence[Checkpoint], own_step: int | None, fingerprint: str, end: Model | None
    ) -> tuple[dict[str, Findings], list[dict[str, Any]]]:
        """The findings of the probes that follow checkpoints, and these: name, step, revision, fingerprint.

        `own_step` and `fingerprint` are those of the end. Its weights under another name (Pythia's `main` is its last
        step) are not read twice; without a step it is not a point of the curve. Attention patterns are exchanged
        between the `end`, if given, and each checkpoint.
        """
        final, known = self.followed[0].final.model, []
        where: dict[str, Any] = {"dtype": final.dtype} if self.spec.device_map is not None else same_placement(final)
        with self.clock("checkpoints"), reporting("checkpoints", self.spec.quiet) as progress:
            for i, each in enumerate(checkpoints):
                with self.clock(f"load {each.model}{f'@{each.revision}' if each.revision else ''}"):
                    model = load_as_asked(replace(self.spec, model=each.model, revision=each.revision, **where))
                refuse_other_shape(model.info, final, each)
                known.append((each.name, each.step, model.info.revision, model.fingerprint))
                if model.fingerprint == fingerprint and each is checkpoints[-1] and own_step is None:
                    own_step = each.step
                else:
                    for part in self.followed:
                        self._take(part, model, each.step, end)
                del model  # before the next one is loaded
                progress(i + 1, len(checkpoints))
            if own_step is not None:
                for part in self.followed:
                    part.take(own_step, part.final, (part.final, part.final))  # an exchange with itself changes nothing
            if own_step not in [step for _, step, _, _ in known]:
                known.append((final.name, own_step, final.revision, fingerprint))
        here().agree("the fingerprints of the checkpoints", " ".join(of for *_, of in known))
        found: dict[str, Findings] = {}
        for part in self.followed if here().is_first else ():
            for probe in part.probes:
                with self.clock(f"probe {probe.name}"), self.chosen.leaving_out(probe):
                    found[probe.name] = analysed(probe, part.final, part.under[probe.name])
        return found, [dict(zip(("name", "step", "revision", "fingerprint"), each, strict=True)) for each in known]

    def _take(self, part: Followed, model: Model, step: int, end: Model | None) -> None:
        """Read a checkpoint, and exchange its attention patterns with those of the end."""
        exchanged, wanted = None, part.exchange_needs
        if end is not None and wanted:
            with self.clock(f"exchange with {model.name}"):
                run = part.run.take(part.exchanged_prompts)
                exchanged = self._read(end, run, wanted, donor=model), self._read(model, run, wanted, donor=end)
        read = self._read(model, part.run, tuple(part.final.arrays), strata=part.final.rows["stratum"])
        part.take(step, read, exchanged)

    def _conditions(self, model: Model, whole: Run, probe: Probe, base: Capture, suffix: str) -> Mapping[str, Readout]:
        """The readouts of the probe's conditions, with its estimates of ablations by gradients."""
        if not probe.edits_model:
            return {}

        def resolve(name: str, n_pool: int | None) -> Run:
            return other_prompts(model, name, replace(self.spec, n_pool=n_pool or self.spec.n_pool))

        bar = reporting(f"conditions of {probe.name}", self.spec.quiet)
        window = windowed(model, self.spec.attention_window)
        with self.clock(f"conditions {probe.name}{suffix}"), bar as progress, blas_on_one_thread(), window:
            read = partial(
                read_conditions, model, whole, resolve=resolve, checks=self.checks, progress=progress,
                unfinished=self.unfinished, seed=self.spec.seed, code=self.codes[probe.name],
            )  # fmt: skip
            name, screen = f"conditions of {probe.name}{suffix}", probe.screening(base)
            found = {} if screen is None else read_screen(model, whole, screen)
            found = found | read(probe.conditions(base), name=name)
            while further := [c for c in probe.further_conditions(base, found) if c.name not in found]:
                name = f"further {name}"
                found |= read(further, name=name)
            return found


class _Clock:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.began = time.monotonic()

    @contextmanager
    def __call__(self, part: str):
        began = time.perf_counter()
        yield
        self.seconds[part] = round(time.perf_counter() - began, 4)
