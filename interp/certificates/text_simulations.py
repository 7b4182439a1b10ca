"""Simulated texts for any probe: activations encode the last token; tokens, lengths and classes predict entropies.

Nothing else in the activations predicts the entropy, unless it is planted.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from interp.capture import Capture
from interp.findings import Findings
from interp.need import Need
from interp.probe import Probe
from interp.statistics.entropy_draw import N_STRATA, entropy_quintiles
from interp.testing import Shape, synthetic_capture

from .simulations import Grouping, Simulation, Trials, grouped, in_common, noise, of_model

_SHAPE = Shape(n_layers=2, n_heads=2, n_kv_heads=2, d_head=16, d_model=32, vocab_size=41)
SMALL: Mapping[str, Any] = {"n_permutations": 99, "n_null": 60, "n_bootstrap": 299, "n_splits": 10}


@dataclass(frozen=True)
class Text:
    """Properties of prompts. Shares are of the variance of the entropy; activations always encode their token."""

    token_tells: float = 0.0
    """The token predicts the spread of entropies too."""
    class_is_pc1: bool = False
    length_tells: float = 0.0
    bent: bool = False
    """The distance of the length from its mean predicts half of the entropy and of the second coordinate."""
    previous_tells: float = 0.0
    """The share that the token before the last predicts; it has twelve values, which activations encode."""
    few_tokens: bool = False
    heavy: bool = False
    unequal: bool = False
    clusters: Grouping = "alone"
    one_domain: bool = False
    """Four templates make one domain, a fifth of the prompts."""
    alike: float = 0.0
    """The share of every variance that is common to a cluster."""
    by_fifths: bool = False
    """A third of a pool is drawn, equally from every fifth of its entropies."""

    def n_of(self, n: int) -> int:
        """The number of prompts in a simulation of `n` clusters."""
        return n * {"alone": 1, "fives": 5, "templates": 3}[self.clusters] + self.one_domain * n // 4


TEXTS: Mapping[str, Text] = {
    "as assumed": Text(), "token tells 30 % of the entropy, and its spread": Text(token_tells=0.3),
    "first axis is the token's class": Text(class_is_pc1=True),
    "length tells 30 % of the entropy": Text(length_tells=0.3), "length bends the entropy": Text(bent=True),
    "the token before tells 30 % of the entropy": Text(previous_tells=0.3), "heavy tails": Text(heavy=True),
    "domains of 80, 10 and 10 %": Text(unequal=True),
    "five near-copies of each prompt": Text(clusters="fives", alike=0.95),
    "five texts of each author": Text(clusters="fives", alike=0.4),
    "templates of unequal size": Text(clusters="templates", alike=0.7),
    "templates of few tokens": Text(clusters="templates", alike=0.7, few_tokens=True, previous_tells=0.3),
    "four templates make one domain": Text(one_domain=True, alike=0.7),
    "drawn from each fifth of the entropies": Text(by_fifths=True),
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """Points of the last layer, 32 coordinates each, the columns of their rows, and the tokens before the last ones."""

    points: np.ndarray
    own: np.ndarray
    columns: Mapping[str, np.ndarray]
    previous: np.ndarray

    @property
    def entropy(self) -> np.ndarray:
        return self.columns["next_entropy_bits"]


def draw(text: Text, step: float, n: int, rng: np.random.Generator, seed: int, size: float) -> Drawn:
    """One simulation; in the planted effect the third coordinate predicts the entropy: see `effects`."""
    if text.by_fifths:
        return _drawn_by_fifths(draw(replace(text, by_fifths=False), step, 3 * n, rng, seed, size), n, rng)
    cluster = grouped(text.clusters, n, rng)
    if text.one_domain:
        cluster = np.append(cluster, n + np.arange(n // 4) % 4)
    n = len(cluster)

    def alike(draw: Callable[[int], np.ndarray]) -> np.ndarray:
        return in_common(draw, cluster, text.alike)

    # common and rare tokens, as in texts; prompts of one template have the same last token and similar lengths
    tokens = np.minimum(rng.geometric(0.1, n), 40)[cluster]
    previous = rng.integers(0, 12, n)[cluster]
    if text.few_tokens:
        tokens, previous = tokens % 5, previous % 4
    embedding, level = of_model(seed).standard_normal((41, 32)), of_model(seed + 1).standard_normal(41)
    points = 0.7 * embedding[tokens] + alike(lambda k: noise(rng, (k, 32), text.heavy))
    length = rng.integers(8, 40, n)[cluster]
    long = (length - length.mean()) / length.std()
    if text.bent:
        long = (np.abs(long) - np.abs(long).mean()) / np.abs(long).std()
    predicted = 0.5**0.5 * long * text.bent + text.token_tells**0.5 * level[tokens] + text.length_tells**0.5 * long
    if text.class_is_pc1:
        kind = np.sign(tokens % 2 - 0.5)
        points[:, 0] += 4 * kind
        predicted += 0.5**0.5 * kind
    if text.previous_tells:
        points += 0.7 * embedding[-1 - previous]
        predicted += text.previous_tells**0.5 * level[-1 - previous]
    points[:, 1] += 2 * long
    own = 3 * alike(rng.standard_normal)
    points[:, 2] += own
    shares = text.token_tells + text.length_tells + text.previous_tells + 0.5 * text.class_is_pc1 + 0.5 * text.bent
    spread = np.exp(0.5 * level[tokens] * (text.token_tells > 0))
    rest = alike(lambda k: noise(rng, (k,), text.heavy))
    domain = rng.choice(["code", "news", "poems"], n, p=[0.8, 0.1, 0.1] if text.unequal else None)[cluster]
    if text.one_domain:
        domain[domain == "code"] = "news"
        domain[-(n // 5) :] = "code"
    columns = {
        "next_entropy_bits": 6 + predicted + max(0.05, 1 - shares) ** 0.5 * spread * (step * size * own / 3 + rest),
        "domain": domain, "cluster": cluster, "token": tokens, "length": length, "position": length - 1,
    }  # fmt: skip
    return Drawn(points, own, columns, previous)


def _drawn_by_fifths(pool: Drawn, n: int, rng: np.random.Generator) -> Drawn:
    """`n` prompts of a pool, drawn as in a run."""
    drawn = entropy_quintiles(pool.entropy, n // N_STRATA, rng)
    columns = {**pool.columns, "stratum": drawn.stratum}
    kept = {name: column[drawn.index] for name, column in columns.items()}
    return Drawn(pool.points[drawn.index], pool.own[drawn.index], kept, pool.previous[drawn.index])


def effects(step: float) -> tuple[str, ...]:
    """The planted effects in words: the share of the remaining entropy that one direction predicts."""
    return tuple(f"R² = {(step * k) ** 2 / (1 + (step * k) ** 2):.2f}" for k in (1, 2, 3))


def found_in_texts(
    text: Text, step: float, n: int, probe: Probe, rng: np.random.Generator, seed: int, size: float
) -> Findings:
    """The findings of a probe if the values of the last of two layers are these points."""
    drawn = draw(text, step, n, rng, seed, size)
    layers = np.stack([rng.standard_normal(drawn.points.shape), drawn.points])
    return probe.analyse(text_capture(probe.needs, drawn, {"v": layers.reshape(2, -1, 2, 16)}, seed), {})


def text_capture(needs: tuple[Need, ...], drawn: Drawn, planted: Mapping[str, np.ndarray], seed: int) -> Capture:
    """A capture of noise with these activations, columns and tokens."""
    shape = replace(_SHAPE, n_prompts=len(drawn.points))
    made = synthetic_capture(needs, shape, planted=planted, columns=drawn.columns, seed=seed)
    before = made.tables.get("before_last")
    if before is None:
        return made
    return replace(made, tables={**made.tables, "before_last": before.with_column("token", drawn.previous, "index")})


N_ANY, STEP_ANY = 240, 0.5


def any_trials(probe: Probe) -> Trials:
    """The simulations of texts for any probe: every site of activations that it reads has the points.

    Both a direction and the length of the activations predict the entropy in the planted effect. The headline numbers
    with a p are tested.
    """
    simulations = (
        Simulation(
            probe.name,
            name,
            partial(_anywhere, text),
            effects=effects(STEP_ANY),
            n=f"{text.n_of(N_ANY)} prompts",
            small=SMALL,
        )
        for name, text in TEXTS.items()
    )
    return Trials(tuple(simulations))


def _anywhere(text: Text, probe: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    drawn = draw(text, STEP_ANY, N_ANY, rng, seed, size)
    points = drawn.points * np.exp(STEP_ANY * size * drawn.own / 12)[:, None]
    planted = {}
    for need in probe.needs:
        site = need.described
        sizes = tuple(_SHAPE.axis(axis) for axis in site.axes)
        holds = site.unit == "activation" and site.source != "weights" and np.prod(sizes) == points.shape[1]
        if need.at == "scored" and holds and _SHAPE.leading(site):
            (n_places,) = _SHAPE.leading(site)
            before = rng.standard_normal((n_places - 1, *points.shape))
            planted[site.name] = np.concatenate([before, points[None]]).reshape(n_places, len(points), *sizes)
    return probe.analyse(text_capture(probe.needs, drawn, planted, seed), {})
