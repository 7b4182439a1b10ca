"""Numbers that the package gives on small data, in short, as `numbers.csv` holds them: every number of every probe,
and what tasks, programs, training, edits, lenses and maps compute.

    python -m tests.held_numbers CASE ...          # where numbers are new or meant to move: writes them; read the diff
    python -m tests.held_numbers --widen CASE ...  # the same code on another machine: keeps numbers, gives them room

`all` stands for every case, and without any the cases are listed.

Probes read noise, trained networks on their tasks, with every edit, and texts. Of each array a row says how many finite
numbers it has, their sum weighted by place, their norm, and by how much these two move where torch and BLAS compute as
on other processors; a row of n = -1 holds the name alone, as processors differ in which numbers are finite.
"""

import csv
import inspect
import json
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from interp.probes.components import Components
from interp.wind_tunnels.evaluation.checkpoint import evaluate_longer, evaluate_model
from interp.wind_tunnels.networks.networks import Network
from interp.wind_tunnels.tasks.bijection import Bijection
from interp.wind_tunnels.training.loop import Recipe, train
from interp.wind_tunnels.training.plan import TrainingPlan

import interp
from interp.capture import Capture
from interp.certificates.simulations import Simulation, trials_of
from interp.findings import Findings
from interp.loading.sources import shipped_programs
from interp.need import Need
from interp.probe import Probe, Readout
from interp.registry import entries, load_entry
from interp.sites import SITES
from interp.table import Table
from tests.paths import ROOT, SHARED
from tests.probes.test_degenerate import READ_UNEDITED, noise, small
from tests.tiny_models import FAMILIES, alike_prompts, tiny_model

NUMBERS = ROOT / "tests" / "numbers.csv"
_CLOSE = 2e-5  # of the norm
STORIES = SHARED / "models" / "stories260K"
LESS = {
    "n_prompts": 12, "n_sula": 0, "n_exchanged": 24, "n_random": 3, "n_sets": 2, "n_screened": 3, "n_draws": 2,
    "n_sampled": 4, "n_controls": 19,
}  # fmt: skip
OBSERVING = ("attention_entropy", "belief", "components", "manifold", "orthogonality", "qk_alignment", "value_axis")
PROCESSORS: tuple[Mapping[str, str], ...] = (
    {},
    {"ATEN_CPU_CAPABILITY": "default", "OPENBLAS_CORETYPE": "Haswell", "MKL_ENABLE_INSTRUCTIONS": "AVX2"},
    {"ATEN_CPU_CAPABILITY": "avx2", "OPENBLAS_CORETYPE": "Nehalem", "MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
)

NOT_ITS_OWN = (
    "router_log_prob", "router_weight", "learnt_sink_mass", "pattern_entropy_with_learnt_sink", "next_kl", "edit_size",
    "readout_gram", "next_loss",
)  # fmt: skip
"""Sites that small models of the four families have only with experts, sinks, edits, a lens or a text."""

Arrays = Iterator[tuple[str, np.ndarray]]
Sums = tuple[int, float, float]
UNSURE: Sums = (-1, 0.0, 0.0)
"""Stands for a number of which other processors have more or fewer finite ones."""


def probes_on_noise() -> Arrays:
    for name in READ_UNEDITED:
        yield from _of_findings(small(name).analyse(noise(small(name)), {}))


def probes_on(model: str, *probes: str | Probe, n_pool: int) -> Arrays:
    chosen = [_smaller(probe) if isinstance(probe, str) else probe for probe in probes]
    record = interp.run(model, probes=chosen, n_pool=n_pool, out=None, quiet=True)
    for name in sorted(record.findings):
        yield from _of_findings(record.findings[name])


def _smaller(name: str) -> Probe:
    probe = small(name)
    return replace(probe, **{key: value for key, value in LESS.items() if key in probe.parameters()})


def simulations() -> Arrays:
    """What simulations give to probes, or what is found in them. Where one changes, its probe is certified again."""
    for name in entries("simulations"):
        trials, probe = trials_of(name), load_entry("probe", name)()
        for kind in () if trials is None else trials.simulations:
            yield from _drawn(f"{name}.{kind.name}", kind, probe)
            yield from _plain(f"{name}.{kind.name}.truth", kind.truth(3, 1.0))


def _drawn(name: str, kind: Simulation, probe: Probe) -> Arrays:
    given: list[Any] = []

    def keep(self: Probe, base: Capture, under: Mapping[str, Readout]) -> Findings:
        given.extend([base.arrays, base.rows, base.posterior, base.belief, base.prompts.outcome_ids, under])
        return Findings(probe.name)

    spy = type("Spy", (type(probe),), {"analyse": keep})(**probe.parameters())
    found = kind.findings(spy, 3, 1.0)
    numbers = [values.astype(float).ravel() for _, values in (_plain("", given) if given else _of_findings(found))]
    yield name, np.concatenate(numbers)


def tasks() -> Arrays:
    """What is drawn from each task with its defaults, and what is known of it."""
    for name in entries("tunnel"):
        drawn = load_entry("tunnel", name)().sample(np.random.default_rng(0), 6)
        for field in fields(drawn):
            yield from _plain(f"{name}.{field.name}", getattr(drawn, field.name))


def programs() -> Arrays:
    """The logits of each compiled program."""
    for name in shipped_programs():
        model = interp.load(f"program:{name}", check=False)
        tokens = model.task.sample(np.random.default_rng(0), 4).tokens
        with torch.inference_mode():
            yield name, model.module(torch.from_numpy(tokens)).logits.numpy()


def training() -> Arrays:
    """A few steps of two architectures, and the evaluation of what comes of them, also on longer sequences."""
    task = Bijection(V=6, L=4)
    for arch in ("gpt-neox", "llama"):
        recipe = Recipe(n_steps=8, batch=16, n_copies=4, n_warmup=3)
        model = train(TrainingPlan(task, Network(arch=arch, n_layers=2, n_heads=2, d_model=16), recipe)).model
        yield from ((f"{arch}.{name}", weight.numpy()) for name, weight in model.state_dict().items())
        yield from _plain(f"{arch}.Evaluation", vars(evaluate_model(model, task, n=40)))
        yield from _plain(f"{arch}.longer", vars(evaluate_longer(model, task, 5, n=40)))


def reading() -> Arrays:
    """Every site that each of four families has, at every position, as rows and reduced."""
    for family in FAMILIES:
        model, (prompts, _) = tiny_model(family), alike_prompts()
        sites = [site for site in SITES if site not in NOT_ITS_OWN]
        everywhere = [site for site in sites if SITES[site].source in ("attention", "block", "pattern")]
        yield from _of_capture(family, interp.collect(model, prompts, sites))
        yield from _of_capture(f"{family}.all", interp.collect(model, prompts, [Need(s, at="all") for s in everywhere]))
        needs = [Need(site, interp.PromptMean(), at="all") for site in ("k", "resid", "pattern_entropy")]
        yield from _of_capture(f"{family}.PromptMean", interp.collect(model, prompts, needs))


def edited() -> Arrays:
    """What a network predicts under each kind of edit."""
    model = interp.load("tunnel:bijection-gpt-neox", check=False)
    prompts = interp.sampled_prompts(model.task, 10)
    axes = np.linalg.qr(np.random.default_rng(0).standard_normal((model.info.d_model, 2)))[0].T
    sigma = 1 + np.random.default_rng(1).random(model.info.d_model)
    edits = [
        interp.RemoveAxis(layer=1, axis=axes),
        interp.RemoveAxis(layer=1, axis=axes, metric="z-scored", sigma=sigma),
        interp.KeepAxis(layer=-1, axis=axes, dose=0.5),
        interp.ShiftAxis(layer=0, axis=axes[0], deviations=1.0, score_sigma=2.0),
        interp.RotateAxes(layer=(0, 1), axis=axes, rotation=np.array([[0.0, -1.0], [1.0, 0.0]])),
        interp.ReplaceCoordinates(layer=1, axis=axes[:1], values=np.array([2.0]), at="last"),
        *(interp.AblateHeads(layer=1, heads=(0, 2), by=by) for by in ("zero", "mean", "resample")),
        interp.BypassLayer(layer=1),
        interp.AttentionOff(layer=2, dose=0.5),
        interp.FeedForwardOff(layer=0, at="scored"),
    ]  # fmt: skip
    for i, edit in enumerate(edits):
        found = interp.collect(model, prompts, ["resid", "outcome_log_prob"], edits=[edit])
        yield from _of_capture(f"{i}.{type(edit).__name__}", found)


def comparison() -> Arrays:
    """Two runs held against each other."""
    with tempfile.TemporaryDirectory() as folder:
        runs = [interp.run(f"tunnel:bijection-{arch}", probes=[small("components"), small("orthogonality")], n_pool=40,
                           out=folder, quiet=True) for arch in ("gpt-neox", "llama")]  # fmt: skip
        found = interp.compare(runs, out=None).findings["comparison"]
        tables = {name: table for name, table in found.tables.items() if name != "settings"}  # it holds times and paths
        yield from _of_findings(replace(found, tables=tables))


def maps() -> Arrays:
    """Attribution, patching, lenses and continuations of a trained network."""
    model = interp.load("tunnel:bijection-gpt-neox", check=False)
    prompts = interp.sampled_prompts(model.task, 8)
    yield from _plain("attribution", vars(interp.logit_attribution(model, prompts, n_null=10)))
    first, second = (list(prompt.token_ids)[:7] for prompt in prompts.prompts[:2])
    yield from _plain("patching", vars(interp.patching_map(model, first, second, n_null=5)))
    for kind in ("jacobian", "tuned"):
        lens = interp.fit_lens(model, prompts, kind, quiet=True)
        yield from _plain(kind, vars(lens))
        needs = ["outcome_log_prob", "lens_log_prob", "lens_kl"]
        for layers in ((1, 2), (2,)):
            skipped = [interp.BypassLayer(layer=layers, lens=True)]
            yield from _of_capture(f"{kind}.{layers[0]}", interp.collect(lens.on(model), prompts, needs, edits=skipped))
    words = interp.generate(model, prompts, n_tokens=4, temperature=1.0, edits=[interp.AttentionOff(layer=1)])
    yield from _plain("words", [each.edited_ids for each in words])


def defaults() -> Arrays:
    """Numbers that stand where nobody asks for others: of studies, of simulations, and of all that `interp` shows."""
    shown = {name: getattr(interp, name) for name in interp.__all__}
    for kind in ("study", "simulations"):
        shown |= {f"{kind} {name}": load_entry(kind, name) for name in entries(kind)}
    for name, held in shown.items():
        if inspect.isfunction(held) or is_dataclass(held):
            for parameter in inspect.signature(held).parameters.values():
                yield from _plain(f"{name}.{parameter.name}", parameter.default)


CASES: dict[str, Callable[[], Arrays]] = {
    "defaults": defaults,
    "noise": probes_on_noise,
    "bijection": partial(probes_on, "tunnel:bijection-gpt-neox", *set(entries("probe")) - {"workspace"}, n_pool=60),
    "hidden states": partial(probes_on, "tunnel:hmm-llama", *OBSERVING, n_pool=40),
    "experts": partial(probes_on, "tunnel:mixture-mixtral", Components(n_permutations=24, experts=True), n_pool=30),
    "texts": partial(probes_on, str(STORIES), *OBSERVING, "heads", "depth_use", n_pool=60),
    "evidence": partial(probes_on, str(STORIES), "sula", n_pool=60),
    "simulations": simulations,
    "tasks": tasks,
    "programs": programs,
    "training": training,
    "reading": reading,
    "edited": edited,
    "comparison": comparison,
    "maps": maps,
}


def sums(case: str) -> dict[str, Sums]:
    """What is computed now."""
    return {name: _sums(values.astype(float).ravel()) for name, values in CASES[case]()}


def _of_findings(found: Findings) -> Arrays:
    """Every part of every scalar, tables with their words, and arrays."""
    for name, scalar in found.scalars.items():
        null = () if scalar.null is None else (scalar.null.value, *scalar.null.band)
        parts = (scalar.value, *(scalar.interval or ()), *null)
        controls = found.controls.get(name, ())
        about = (
            found.headline.index(name) + 1 if name in found.headline else 0, scalar.n, scalar.n_clusters,
            scalar.n_distinct_rows, scalar.underpowered, scalar.enough, scalar.reference, scalar.p_least,
            len(controls), sum(control.essential for control in controls),
        )  # fmt: skip
        for of, numbers in ((name, parts), (f"{name}.p", (scalar.p,)), (f"{name}.about", about)):
            yield f"{found.probe}.{of}", np.array([np.nan if x is None else x for x in numbers], dtype=float)
    yield from _plain(found.probe, found.tables)
    yield from _plain(f"{found.probe}.arrays", found.arrays)


def _of_capture(name: str, capture: Capture) -> Arrays:
    for need, reduced in capture.arrays.items():
        yield from _plain(f"{name}.{need.site}", reduced)


def _plain(name: str, held: Any) -> Arrays:
    """The arrays in whatever holds them, words as numbers."""
    if isinstance(held, torch.Tensor):
        held = held.detach().numpy()
    if isinstance(held, int | float) or (
        isinstance(held, list | tuple) and all(isinstance(x, int | float) for x in held)
    ):
        held = np.array(held)
    if isinstance(held, Table):
        held = held.columns
    if isinstance(held, np.ndarray) and held.dtype.kind in "iufb":
        yield name, held
    elif isinstance(held, np.ndarray):
        yield name, np.array([zlib.crc32(str(word).encode()) / 2**32 for word in held.ravel()])
    elif isinstance(held, Mapping):
        for key, part in held.items():
            yield from _plain(f"{name}.{key}", part)
    elif isinstance(held, list | tuple):
        for i, part in enumerate(held):
            yield from _plain(f"{name}.{i}", part)


def _sums(values: np.ndarray) -> Sums:
    kept = np.isfinite(values)
    by_place = values[kept] @ np.linspace(1.0, 2.0, len(values))[kept]
    return int(kept.sum()), float(f"{by_place:.6g}"), float(f"{np.linalg.norm(values[kept]):.6g}")


Written = dict[str, tuple[Sums, float]]


def written(case: str) -> Written:
    """What was measured when the file was written, and by how much it moves from processor to processor."""
    with NUMBERS.open(newline="", encoding="utf-8") as file:
        return {name: ((int(n), float(by_place), float(norm)), float(moves))
                for of, name, n, by_place, norm, moves in csv.reader(file) if of == case}  # fmt: skip


def measured(case: str) -> Written:
    """The same now, in a process a processor: as it was written where it is close, else anew."""
    command = [sys.executable, "-m", "tests.held_numbers", "--here", case]
    here, *others = [
        json.loads(subprocess.check_output(command, env=os.environ | processor, cwd=ROOT)) for processor in PROCESSORS
    ]
    now = {name: (numbers, float(np.abs(np.subtract([other[name] for other in others], numbers)).max()))
           if all(other[name][0] == numbers[0] for other in others) else (UNSURE, 0.0)
           for name, numbers in here.items()}  # fmt: skip
    was = written(case)
    return {name: was[name] if name in was and is_close(*was[name], anew[0]) else anew for name, anew in now.items()}


def is_close(was: Sums, moves: float, now: Sums) -> bool:
    """To what float32 and the six digits of the file leave, and to four times what a processor changes."""
    (n, by_place, norm), far = was, np.abs(np.subtract(was, now))
    return n == now[0] and bool((far <= _CLOSE * norm + 1e-6 * np.abs([n, by_place, norm]) + 4 * moves).all())


def widened(case: str) -> Written:
    """What was written, each number with room for what this machine, another one, computes."""
    was, now = written(case), sums(case)
    return {name: (numbers, max(moves, float(np.abs(np.subtract(numbers, now[name])).max())))
            if numbers != UNSURE else (numbers, moves) for name, (numbers, moves) in was.items()}  # fmt: skip


def write(cases: Sequence[str], how: Callable[[str], Written] = measured) -> None:
    """Measure these cases; the others stay."""
    if not cases or not set(cases) <= {"all", *CASES}:
        sys.exit(f"{cases} names no cases: name some of {', '.join(map(repr, CASES))}, or all")
    found = {case: how(case) if {case, "all"} & set(cases) else written(case) for case in CASES}
    with NUMBERS.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        for case, numbers in found.items():
            rows.writerows([case, name, *values, f"{moves:.2g}"] for name, (values, moves) in numbers.items())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--here"]:
        print(json.dumps(sums(sys.argv[2])))
    elif sys.argv[1:2] == ["--widen"]:
        write(sys.argv[2:], widened)
    else:
        write(sys.argv[1:])
