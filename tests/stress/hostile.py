"""Worlds that break the assumptions of the nulls on purpose, with nothing to find; and effects of three sizes in them.

    python -m tests.stress.hostile [PROBE ...]     # measures again (half an hour for all) and prints the table

A number is *called* where the page would say that it stands out: p at most .05 and its essential controls agree. Where
the last token tells the entropy, the entropy can be read; but not beyond the token, which the number declares.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import torch
from interp.probes.causal.edits import Name
from interp.probes.dynamics.exchange import Exchange, exchange_scalars
from interp.probes.measures.prompt_means import Units
from interp.prompts.evidence import draw_problems, evidence_columns, posterior
from interp.wind_tunnels.tasks.bijection import Bijection
from scipy import signal

import interp
from interp.editing.conditions import Run, read_conditions
from interp.findings import Findings, Scalar
from interp.model import Model
from interp.prompt import Prompt
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.reading.forward import capture
from interp.registry import load_entry
from interp.seam.pattern import AttentionCall, DonorKeys
from interp.seam.pattern_sites import NULL_SITES, PatternReader
from interp.table import LABEL, Table
from interp.testing import Shape, synthetic_capture
from tests.probes.causal.test_planted import one_feature_tells, tokens

N_WORLDS, N_PLANTED = 200, 20
SIZES = (0.0, 1.0, 2.0, 3.0)
"""Sizes of a planted effect, in steps of the world's own; 0 is the null."""
N_MODELS = 5
"""Worlds share so many models in turn: an interval over prompts is to hold the value of its own model."""
RATES = Path(__file__).with_name("hostile.json")

Make = Callable[[np.random.Generator, int, float], Findings]


@dataclass(frozen=True)
class World:
    """One way to break assumptions, for one probe. Of the headline numbers in `null` nothing is there at size 0.

    Of those in `unplanted` nothing is there at any size.
    """

    probe: str
    name: str
    make: Make
    null: tuple[str, ...]
    unplanted: tuple[str, ...] = ()


# --- attention rows: made of queries and keys, read as in a model ----------------------------------------------------

_N, _LAYERS, _HEADS, _KEYS, _D = 60, 6, 4, 12, 8


@dataclass(frozen=True)
class Heads:
    """How sharp heads are: the share that those of a layer have in common, a walk over layers; and what they read."""

    alike: float = 0.0
    walks: bool = False
    sink: float = 0.0
    heavy: bool = False
    documents: bool = False

    def sharpness(self, rng: np.random.Generator) -> np.ndarray:
        """`[layer, head]`"""
        if self.walks:
            return np.exp(np.cumsum(0.25 * rng.standard_normal((_LAYERS, 1)), axis=0) + np.zeros(_HEADS))
        own, common = rng.standard_normal((_LAYERS, _HEADS)), rng.standard_normal((_LAYERS, 1))
        return np.exp(0.4 * ((1 - self.alike) ** 0.5 * own + self.alike**0.5 * common))

    def calls(self, rng: np.random.Generator, sharp: np.ndarray, match: float) -> list[AttentionCall]:
        """Queries of the last position over twelve keys, one of which they match by `match`."""
        found = []
        scaling = _D**-0.5
        matched = rng.integers(1, _KEYS, _N)
        for layer in range(_LAYERS):
            k = _noise(rng, (_N, _HEADS, _KEYS, _D), self.heavy)
            q = _noise(rng, (_N, _HEADS, _D), self.heavy)
            if self.documents:  # five prompts of one document share most of what they ask for
                q = 0.5**0.5 * (q + np.repeat(rng.standard_normal((_N // 5, _HEADS, _D)), 5, axis=0))
            q += match * k[np.arange(_N), :, matched]
            q *= sharp[layer][:, None]
            k, q = np.concatenate([k, np.zeros_like(k[..., :1])], -1), np.concatenate([q, np.ones_like(q[..., :1])], -1)
            k[:, :, 0, -1] = self.sink / scaling
            queries = np.zeros((_N, _HEADS, _KEYS, _D + 1))
            queries[:, :, -1] = q
            queried, keys = torch.from_numpy(queries).float(), torch.from_numpy(k).float()
            found.append(AttentionCall(layer, queried, keys, keys, scaling))
        return found


def _attention(probe: str, heads: Heads, step: float, rng: np.random.Generator, seed: int, size: float) -> Findings:
    small = {"n_bootstrap": 299, "n_permutations": 199}
    small |= {"positions": "scored"} if probe == "attention_entropy" else {}
    made = load_entry("probe", probe)(seed=seed, **small)
    calls = heads.calls(rng, heads.sharpness(_of_model(seed)), step * size)
    sites = [need.site for need in made.needs if need.described.source == "pattern" and need.at == "scored"]
    rows = {site: _read(calls, site) for site in dict.fromkeys(sites)}
    shape = Shape(_N, n_layers=_LAYERS, n_heads=_HEADS, n_keys=_KEYS)
    columns = {"length": np.full(_N, _KEYS), "position": np.full(_N, _KEYS - 1)}
    return made.analyse(synthetic_capture(made.needs, shape, planted=rows, columns=columns, seed=seed), {})


def _read(calls: Sequence[AttentionCall], site: str) -> np.ndarray:
    found = []
    for call in calls:
        if site in NULL_SITES:
            whole = torch.full((_N,), _KEYS)
            call = replace(call, donor=DonorKeys(call.k[-1], whole, _KEYS))
        at = torch.full((1, 1), _KEYS - 1)
        found.append(PatternReader(call, at, _KEYS, _KEYS).read(site)[:, 0].numpy())
    return np.stack(found)


# --- clouds: activations, entropies, tokens --------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """What prompts are like. Shares are of the variance of the entropy; activations always hold their token."""

    token_tells: float = 0.0
    class_is_pc1: bool = False
    length_tells: float = 0.0
    heavy: bool = False
    unequal: bool = False


def _cloud(probe: str, text: Text, step: float, n: int, rng: np.random.Generator, seed: int, size: float) -> Findings:
    tokens = np.minimum(rng.geometric(0.1, n), 40)  # common and rare ones, as in texts
    embedding, level = _of_model(seed).standard_normal((41, 32)), _of_model(seed + 1).standard_normal(41)
    points = 0.7 * embedding[tokens] + _noise(rng, (n, 32), text.heavy)
    length = rng.integers(8, 40, n)
    long = (length - length.mean()) / length.std()
    told = text.token_tells**0.5 * level[tokens] + text.length_tells**0.5 * long
    if text.class_is_pc1:
        kind = np.sign(tokens % 2 - 0.5)
        points[:, 0] += 4 * kind
        told += 0.5**0.5 * kind
    points[:, 1] += 2 * long
    own = 3 * rng.standard_normal(n)
    points[:, 2] += own
    left = max(0.05, 1 - text.token_tells - text.length_tells - 0.5 * text.class_is_pc1)
    rest = _noise(rng, (n,), text.heavy)
    entropy = 6 + told + left**0.5 * (step * size * own / 3 + rest)
    domain = rng.choice(["code", "news", "poems"], n, p=[0.8, 0.1, 0.1] if text.unequal else None)
    columns = {
        "next_entropy_bits": entropy,
        "domain": domain,
        "token": tokens,
        "length": length,
        "position": length - 1,
    }
    small = {
        "manifold": {"n_permutations": 99, "n_null": 40, "n_bootstrap": 299, "n_splits": 2},
        "value_axis": {"n_permutations": 99, "n_splits": 10, "n_null": 60, "sites": ("v",)},
    }
    made = load_entry("probe", probe)(seed=seed, **small[probe])
    layers = np.stack([rng.standard_normal((n, 32)), points])
    planted = {"v": layers.reshape(2, n, 2, 16)}
    shape = Shape(n, n_layers=2, d_head=16, vocab_size=41)
    return made.analyse(synthetic_capture(made.needs, shape, planted=planted, columns=columns, seed=seed), {})


def _domains(rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Prompts of one domain spread along two directions more than the others do."""
    n, tokens = 150, 20
    made = load_entry("probe", "manifold")(seed=seed, n_permutations=99, n_null=40, n_bootstrap=99, n_splits=2)
    domain = rng.choice(["code", "news", "poems"], n)
    points = rng.standard_normal((n, 32))
    points[:, :2] *= np.where(domain == "code", 1 + 0.6 * size, 1)[:, None]
    columns = {"next_entropy_bits": 6 + rng.standard_normal(n), "domain": domain, "token": rng.integers(0, tokens, n)}
    columns |= {"length": np.full(n, 20), "position": np.full(n, 19)}
    layers = np.stack([rng.standard_normal((n, 32)), points]).reshape(2, n, 2, 16)
    shape = Shape(n, n_layers=2, d_head=16, vocab_size=tokens)
    return made.analyse(synthetic_capture(made.needs, shape, planted={"v": layers}, columns=columns, seed=seed), {})


# --- belief, sula, components, orthogonality, edits ------------------------------------------------------------------


def _belief(serial: float, heavy: bool, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Rows of a sequence depend on one another, in the belief and in the activations, but not on each other."""
    n, n_scored = 210, 3
    small = {"interchange": False, "n_permutations": 49, "n_bootstrap": 199}
    made = load_entry("probe", "belief")(sites=("resid",), seed=seed, **small)

    def course(width: int) -> np.ndarray:
        noise = _noise(rng, (n, n_scored, width), heavy)
        return signal.lfilter([1.0], [1.0, -serial], noise, axis=1).reshape(n * n_scored, width)

    logits, points = course(3), course(8)
    belief = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    points += 0.2 * size * (belief @ np.random.default_rng(3).standard_normal((3, 8)))
    rows = {"resid": np.stack([rng.standard_normal((n * n_scored, 8)), points])}
    shape = Shape(n, n_scored=n_scored, n_layers=1, d_model=8)
    return made.analyse(synthetic_capture(made.needs, shape, planted=rows, posterior=belief, seed=seed), {})


def _reader(heavy: bool, by_problem: float, rng: np.random.Generator, seed: int, size: float) -> Findings:
    made = load_entry("probe", "sula")(n_permutations=199, n_bootstrap=299, layer=0, seed=seed)
    problems = draw_problems((0, 1, 2, 4, 8), 30, 0.9, rng)
    n, known = len(problems), evidence_columns(problems.shown, 0.9)
    word = np.where(problems.swapped, -0.5, 0.5)
    noise = _noise(rng, (n,), heavy) + by_problem * known["log_odds_bits"] * _noise(rng, (n,), heavy)
    answered = posterior(0.15 * size * known["log_odds_bits"] + word + noise)
    columns = known | {"condition": np.full(n, "main"), "problem": np.arange(n)}
    made_up = synthetic_capture(
        made.needs, Shape(n, n_layers=1), columns=columns, posterior=posterior(known["log_odds_bits"]), seed=seed,
        planted={"outcome_log_prob": np.log2(np.maximum(answered, 1e-12) * 0.25)},
        outcome_ids=np.where(problems.swapped[:, None], [[7, 3]], [[3, 7]]),
    )  # fmt: skip
    return made.analyse(made_up, {})


def _components(walks: bool, heavy: bool, rng: np.random.Generator, seed: int, size: float) -> Findings:
    made = load_entry("probe", "components")(n_permutations=99, n_bootstrap=299, seed=seed)
    shape = Shape(60, n_layers=6, d_model=12)
    attention, feed_forward = _noise(rng, (2, 6, 60, 12), heavy)
    attention += 0.2 * size * np.random.default_rng(1).standard_normal(12)
    steps = np.concatenate([_noise(rng, (1, 60, 12), heavy), attention + feed_forward])
    rows = {"resid": np.cumsum(steps, axis=0), "attn_out": attention, "mlp_out": feed_forward}
    drift = np.cumsum(_of_model(seed).standard_normal(7)) if walks else np.zeros(7)
    rows["lens_kl"] = 5 + drift[:, None] + _noise(rng, (7, 60), heavy)
    return made.analyse(synthetic_capture(made.needs, shape, planted=rows, seed=seed), {})


def _keys(heavy: bool, rng: np.random.Generator, seed: int, size: float) -> Findings:
    made = load_entry("probe", "orthogonality")(n_null=40, n_bootstrap=299, seed=seed)
    n, shape = 40, Shape(40, n_layers=2, n_heads=4, n_kv_heads=4, d_head=8, d_model=32, vocab_size=400)
    shared = np.random.default_rng(2)
    rows = {
        site: _noise(rng, size_, heavy) + 0.15 * size * shared.standard_normal((*size_[:1], 1, *size_[2:]))
        for site, size_ in {"k_pre": (2, n, 4, 8), "k": (2, n, 4, 8), "resid": (3, n, 32)}.items()
    }
    columns = {"token": np.arange(n), "position": np.full(n, 5)}
    made_up = synthetic_capture(made.needs, shape, planted=rows, columns=columns, seed=seed)
    frame = [Prompt(text=f"the word is w{i}") for i in range(n)]
    return made.analyse(replace(made_up, prompts=replace(made_up.prompts, prompts=frame)), {})


def _edited(probe: str, heavy: bool, alike: float, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Read-outs made up: every edit adds an error that is 0 on average, alike in all edits of a prompt."""
    small = {
        "heads": {"n_random": 3, "n_sets": 2, "n_donors": 2, "n_permutations": 199, "n_bootstrap": 199},
        "depth_use": {"n_permutations": 199, "n_bootstrap": 199},
    }
    made = load_entry("probe", probe)(seed=seed, **small[probe])
    shape = Shape(60, n_scored=4)
    base = synthetic_capture(made.needs, shape, seed=seed)
    common = _noise(rng, (len(base.prompts),), heavy)
    plain = 1 + 0.2 * rng.random(len(base.prompts))

    def read(condition) -> dict[str, np.ndarray]:
        chosen = condition.prompts if condition.prompts is not None else np.arange(len(base.prompts))
        own = _noise(rng, (len(chosen),), heavy)
        more = 0.05 * (alike**0.5 * common[chosen] + (1 - alike) ** 0.5 * own) if condition.edits else 0 * own
        more = more + (0.01 * size if condition.edits else 0)
        error = plain[chosen] + more
        read_out = dict.fromkeys(("posterior_kl", "entropy_error", "next_loss", "loss"), error)
        return read_out | {"next_kl": np.abs(more), "size": np.full(len(chosen), 0.5)}

    under = {c.name: read(c) for c in made.conditions(base)}
    under |= {c.name: read(c) for c in made.further_conditions(base, under)}
    return made.analyse(base, under)


def _course(alike: float, heavy: bool, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Errors of exchanged networks; patterns and the rest of a checkpoint lack as much, each on prompts of its own."""
    n = 40
    rows = Table({"prompt": np.arange(n), "stratum": np.zeros(n, dtype=int)}, {"prompt": "index", "stratum": LABEL})
    common = rng.lognormal(0, 0.5, n) if not heavy else np.exp(np.minimum(0.5 * rng.standard_t(3, n), 4))
    lacks = 0.05 * common * (alike + (1 - alike) * rng.lognormal(0, 0.7, (2, 3, n)))
    end = 0.01 * common
    patterns, network = end + lacks[0] * (1 - 0.1 * size), end + lacks[1]
    own = patterns + network - end
    units = Units.of(rows, "sequence", 299, rng)
    exchange = Exchange(np.array([0, 64, 512]), own, patterns, network, end, units)
    return Findings("dynamics", exchange_scalars(exchange, 199, rng), headline=("exchange_lead",))


@cache
def _tunnel() -> tuple[Model, Run]:
    prompts = sampled_prompts(Bijection(), n=130)
    ids = [np.array(prompt.token_ids) for prompt in prompts.prompts]
    return interp.load("tunnel:bijection-gpt-neox"), Run(prompts, ids)


@cache
def _one_feature() -> tuple[Model, Run]:
    """A model that hears of the other tokens through a single feature of the head outputs of its middle layer."""
    return one_feature_tells(2.0), tokens(last=3)


def _axis(of: Callable[[], tuple[Model, Run]], axis: str, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Removing an axis that was fitted to noise; the more `size`, the more to the entropies of the model."""
    model, run = of()
    small = {"n_prompts": 24, "n_controls": 19, "n_bootstrap": 40, "doses": (1.0,)}
    small |= {"site": "z", "layers": (("middle",),), "n_prompts": 40, "n_controls": 39} if of is _one_feature else {}
    made = load_entry("probe", "causal")(seed=seed, axis=axis, **small)
    base = capture(model, run.prompts, run.ids, made.needs)
    own = base.rows["next_entropy_bits"]
    entropy = rng.standard_normal(base.rows.n_rows) + 0.3 * size * (own - own.mean()) / own.std()
    columns = base.rows.columns | {"next_entropy_bits": entropy}
    base = replace(base, tables={**base.tables, "scored": replace(base.rows, columns=columns)})
    named = [(condition, Name.parse(condition.name)) for condition in made.conditions(base)]
    wanted = [
        condition for condition, name in named
        if (name.how, name.dose) == ("removed", 1) and name.subject.split()[0] in ("baseline", "axis", "control")
    ]  # fmt: skip
    return made.analyse(base, read_conditions(model, run, wanted))


def _of_model(seed: int) -> np.random.Generator:
    """What belongs to the model of a world, not to its prompts."""
    return np.random.default_rng([7, seed % N_MODELS])


def _noise(rng: np.random.Generator, size: tuple[int, ...], heavy: bool) -> np.ndarray:
    """Of variance 1; heavy tails are those of Student's t with three degrees of freedom."""
    return rng.standard_t(3, size) / 3**0.5 if heavy else rng.standard_normal(size)


# --- the worlds ------------------------------------------------------------------------------------------------------

_CONTENT = {"attention_entropy": ("content_sharpening",), "qk_alignment": ("logit",)}
_HEADS_WORLDS = {
    "as assumed": Heads(), "heads of a layer alike, .2": Heads(alike=0.2),
    "heads of a layer alike, .5": Heads(alike=0.5), "layers walk at random": Heads(walks=True),
    "heavy tails": Heads(heavy=True), "sink of half the mass": Heads(sink=3.0),
    "five prompts a document": Heads(documents=True),
}  # fmt: skip
_TEXT_WORLDS = {
    "as assumed": Text(), "token tells 10 % of the entropy": Text(token_tells=0.1),
    "token tells 30 % of the entropy": Text(token_tells=0.3),
    "first axis is the token's class": Text(class_is_pc1=True),
    "length tells 30 % of the entropy": Text(length_tells=0.3), "heavy tails": Text(heavy=True),
    "domains of 80, 10 and 10 %": Text(unequal=True),
}  # fmt: skip


def _worlds() -> tuple[World, ...]:
    found = [
        World(probe, name, partial(_attention, probe, heads, 0.25), numbers)
        for probe, numbers in _CONTENT.items() for name, heads in _HEADS_WORLDS.items()
    ]  # fmt: skip
    for name, text in _TEXT_WORLDS.items():
        axis = ("r2", "r2_beyond_token", "best_layer_r2", "pc1_correlation")
        found.append(World("value_axis", name, partial(_cloud, "value_axis", text, 0.35, 240), axis))
        plane = ["entropy_correlation", "curve_order", "best_layer_entropy_correlation"]
        plane += [] if text.unequal else ["collapse"]  # small domains are not compared
        found.append(World("manifold", name, partial(_cloud, "manifold", text, 0.25, 150), tuple(plane), ("collapse",)))
    found.append(World("manifold", "one domain on a plane", _domains, ("collapse",)))
    for name, (serial, heavy) in {
        "as assumed": (0.0, False), "rows of a sequence alike, .8": (0.8, False), "heavy tails": (0.0, True),
    }.items():  # fmt: skip
        found.append(World("belief", name, partial(_belief, serial, heavy), ("r2", "r2_beyond_position", "silhouette")))
    for name, (heavy, by_problem) in {
        "as assumed": (False, 0.0), "heavy tails": (True, 0.0), "noise grows with the evidence": (False, 0.5),
    }.items():  # fmt: skip
        answers = ("slope", "skill", "kl_skill", "movement", "entropy_movement", "entropy_movement_within")
        mine = answers[:1] + answers[3:] if by_problem else answers  # confidence that follows evidence is a skill
        found.append(World("sula", name, partial(_reader, heavy, by_problem), mine, answers[3:]))
    for name, (walks, heavy) in {
        "as assumed": (False, False), "layers walk at random": (True, False), "heavy tails": (False, True),
    }.items():  # fmt: skip
        found.append(World("components", name, partial(_components, walks, heavy), ("attention_share",)))
    for name, heavy in {"as assumed": False, "heavy tails": True}.items():
        keys = ("wk_columns", "w_qk_effective_rank", "token_keys", "head_keys")
        found.append(World("orthogonality", name, partial(_keys, heavy), keys, keys[:2]))
    for name, (heavy, alike) in {
        "as assumed": (False, 0.0), "heavy tails": (True, 0.0), "edits of a prompt alike, .8": (False, 0.8),
    }.items():  # fmt: skip
        heads = ("top_head_ratio", "bypass_ratio_min", "late_attention_off", "compounding")
        found.append(World("heads", name, partial(_edited, "heads", heavy, alike), heads))
        found.append(World("depth_use", name, partial(_edited, "depth_use", heavy, alike), ("last_layer",)))
    for name, (alike, heavy) in {
        "as assumed": (0.0, False), "heavy tails": (0.0, True), "errors of a sequence alike, .8": (0.8, False),
    }.items():  # fmt: skip
        found.append(World("dynamics", name, partial(_course, alike, heavy), ("exchange_lead",)))
    for axis in ("ridge", "encoding"):
        fitted = f"{axis} axis fitted to noise"
        read_outs = ("kl_beyond_controls", "entropy_moved_beyond_controls", "posterior_kl_beyond_controls")
        found.append(World("causal", f"{fitted}, shipped tunnel", partial(_axis, _tunnel, axis), read_outs, read_outs))
        found.append(World("causal", f"{fitted}, one feature tells", partial(_axis, _one_feature, axis), read_outs[:2]))
    return tuple(found)


WORLDS = _worlds()


# --- what came out of them -------------------------------------------------------------------------------------------


def measure(world: World, n_worlds: int = N_WORLDS, first: int = 0) -> dict[str, dict[str, float]]:
    """By number: the share of worlds that are called at each size, and the share of intervals that hold the mean.

    Of a planted size `N_PLANTED` of 200 worlds are made, and half as many of fewer.
    """
    found: dict[str, dict[str, float]] = {number: {} for number in world.null}
    for size in SIZES if set(world.null) - set(world.unplanted) else SIZES[:1]:
        n = n_worlds if size == 0.0 else N_PLANTED if n_worlds == N_WORLDS else N_PLANTED // 2
        made = [world.make(np.random.default_rng([seed, int(size)]), seed, size) for seed in range(first, first + n)]
        for number in world.null if size == 0.0 else [name for name in world.null if name not in world.unplanted]:
            shown = [(findings, _as_headline(findings, number)) for findings in made]
            called = [name in f.scalars and f.standing(name) in ("above", "below") for f, name in shown]
            found[number][f"called_{size:g}"] = round(float(np.mean(called)), 3)
            if size == 0.0:
                scalars = [f.scalars.get(name, Scalar.undefined("not given here")) for f, name in shown]
                values, bounds = np.array([s.value for s in scalars]), [s.interval for s in scalars]
                if any(bounds) and world.probe != "causal":  # each of whose worlds is about another axis
                    truths = [np.nanmean(values[model::N_MODELS]) for model in range(N_MODELS)]
                    held = [b[0] <= truths[i % N_MODELS] <= b[1] for i, b in enumerate(bounds) if b is not None]
                    found[number]["covered"] = round(float(np.mean(held)), 3)
    return found


def _as_headline(findings: Findings, number: str) -> str:
    """The name under which a number is the headline: without the first position where that is a sink."""
    twin = f"{number}_no_first"
    return twin if twin in findings.headline else number


def table(rates: Mapping[str, Mapping[str, Mapping[str, Mapping[str, float]]]]) -> str:
    """The rates as the lines of a table in Markdown."""
    lines = ["| Number | World | Called | Interval covers | Effects found |", "|---|---|---|---|---|"]
    for probe, worlds in rates.items():
        for world, numbers in worlds.items():
            for number, found in numbers.items():
                power = " ".join(_short(found[key]) for size in SIZES[1:] if (key := f"called_{size:g}") in found)
                covered = _short(found["covered"]) if "covered" in found else ""
                lines.append(f"| `{probe}.{number}` | {world} | {_short(found['called_0'])} | {covered} | {power} |")
    return "\n".join(lines)


def _short(x: float) -> str:
    return f"{x:.3f}".lstrip("0") if x < 1 else "1"


def _measured(i: int) -> dict[str, dict[str, float]]:
    torch.set_num_threads(1)
    return measure(WORLDS[i])


def measure_all(probes: Sequence[str]) -> None:
    """Measure the worlds of these probes (of all where none is named) and write the rates beside this file."""
    kept = json.loads(RATES.read_text())
    rates = kept["rates"] if probes else {}
    chosen = [i for i, world in enumerate(WORLDS) if not probes or world.probe in probes]
    for i in chosen:
        rates.pop(WORLDS[i].probe, None)
    with ProcessPoolExecutor(2) as workers:
        for i, found in zip(chosen, workers.map(_measured, chosen), strict=True):
            rates.setdefault(WORLDS[i].probe, {})[WORLDS[i].name] = found
            print(WORLDS[i].probe, WORLDS[i].name, found, flush=True)
            rates = {world.probe: rates[world.probe] for world in WORLDS if world.probe in rates}
            RATES.write_text(json.dumps(kept | {"n_worlds": N_WORLDS, "rates": rates}, indent=1) + "\n")
    print(table(rates))


if __name__ == "__main__":
    measure_all(sys.argv[1:])
