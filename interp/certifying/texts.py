"""Worlds like prompts of text: activations that hold the last token, entropies that tokens, lengths and classes tell.

Nothing else in the activations tells the entropy, unless it is planted. They need nothing but the needs of a probe, so
every probe can be tried on them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from interp.capture import Capture
from interp.findings import Findings
from interp.need import Need
from interp.probe import Probe
from interp.testing import Shape, synthetic_capture

from .worlds import Trials, World, noise, of_model

SHAPE = Shape(n_layers=2, d_head=16, n_kv_heads=2, n_heads=2, d_model=32, vocab_size=41)
SMALL: Mapping[str, Any] = {"n_permutations": 99, "n_null": 60, "n_bootstrap": 299, "n_splits": 10}


Clustering = Literal["none", "fives", "twenty", "one domain"]


@dataclass(frozen=True)
class Text:
    """What prompts are like. Shares are of the variance of the entropy; activations always hold their token."""

    token_tells: float = 0.0
    class_is_pc1: bool = False
    length_tells: float = 0.0
    bent: bool = False
    """Length tells half of the entropy, and of the second coordinate, by its distance from the mean."""
    heavy: bool = False
    unequal: bool = False
    clusters: Clustering = "none"
    alike: float = 0.0
    """The share of every variance that prompts of one cluster have in common."""


TEXTS: Mapping[str, Text] = {
    "as assumed": Text(), "token tells 10 % of the entropy": Text(token_tells=0.1),
    "token tells 30 % of the entropy": Text(token_tells=0.3),
    "first axis is the token's class": Text(class_is_pc1=True),
    "length tells 30 % of the entropy": Text(length_tells=0.3), "heavy tails": Text(heavy=True),
    "domains of 80, 10 and 10 %": Text(unequal=True),
    "five near-copies of each prompt": Text(clusters="fives", alike=0.95),
    "twenty templates of unequal size": Text(clusters="twenty", alike=0.7),
    "four templates make one domain": Text(clusters="one domain", alike=0.7),
    "length bends the entropy": Text(bent=True),
}  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """Points of the last layer, 32 coordinates each, and the columns of their rows."""

    points: np.ndarray
    own: np.ndarray
    columns: Mapping[str, np.ndarray]


def draw(text: Text, step: float, n: int, rng: np.random.Generator, seed: int, size: float) -> Drawn:
    """One world; the planted effect is in what the third coordinate tells of the entropy: see `effects`."""
    cluster = _clusters(text, n, rng)

    def alike(draw: Callable[[int], np.ndarray]) -> np.ndarray:
        """Draws of all prompts, of which those of a cluster have a share in common."""
        own = draw(n)
        return own if not text.alike else (1 - text.alike) ** 0.5 * own + text.alike**0.5 * draw(n)[cluster]

    # common and rare ones, as in texts; a template ends all its prompts alike, and makes them about as long
    tokens = np.minimum(rng.geometric(0.1, n), 40)[cluster]
    embedding, level = of_model(seed).standard_normal((41, 32)), of_model(seed + 1).standard_normal(41)
    points = 0.7 * embedding[tokens] + alike(lambda k: noise(rng, (k, 32), text.heavy))
    length = rng.integers(8, 40, n)[cluster]
    long = (length - length.mean()) / length.std()
    if text.bent:
        long = (np.abs(long) - np.abs(long).mean()) / np.abs(long).std()
    told = 0.5**0.5 * long * text.bent + text.token_tells**0.5 * level[tokens] + text.length_tells**0.5 * long
    if text.class_is_pc1:
        kind = np.sign(tokens % 2 - 0.5)
        points[:, 0] += 4 * kind
        told += 0.5**0.5 * kind
    points[:, 1] += 2 * long
    own = 3 * alike(rng.standard_normal)
    points[:, 2] += own
    left = max(0.05, 1 - text.token_tells - text.length_tells - 0.5 * text.class_is_pc1 - 0.5 * text.bent)
    rest = alike(lambda k: noise(rng, (k,), text.heavy))
    domain = rng.choice(["code", "news", "poems"], n, p=[0.8, 0.1, 0.1] if text.unequal else None)[cluster]
    if text.clusters == "one domain":
        domain[cluster < n // 3] = "code"
        domain[cluster >= n // 3] = rng.choice(["news", "poems"], n)[cluster[cluster >= n // 3]]
    columns = {
        "next_entropy_bits": 6 + told + left**0.5 * (step * size * own / 3 + rest),
        "domain": domain,
        "cluster": cluster,
        "token": tokens,
        "length": length,
        "position": length - 1,
    }
    return Drawn(points, own, columns)


def _clusters(text: Text, n: int, rng: np.random.Generator) -> np.ndarray:
    """The cluster of every prompt, named by one of its prompts."""
    if text.clusters == "fives":
        return np.arange(n) // 5 * 5
    if text.clusters == "twenty":
        return np.sort(rng.integers(0, 20, n))
    return np.where(np.arange(n) < n // 3, np.arange(n) % 4, np.arange(n)) if text.alike else np.arange(n)


def effects(step: float) -> tuple[str, ...]:
    """The planted effects in words: the share of the entropy, beyond what else tells it, that one direction holds."""
    return tuple(f"R² = {(step * k) ** 2 / (1 + (step * k) ** 2):.2f}" for k in (1, 2, 3))


def found_in_texts(
    text: Text, step: float, n: int, probe: Probe, rng: np.random.Generator, seed: int, size: float
) -> Findings:
    """What a probe finds where the values of the last of two layers are such points."""
    drawn = draw(text, step, n, rng, seed, size)
    layers = np.stack([rng.standard_normal((n, 32)), drawn.points])
    return probe.analyse(text_capture(probe.needs, drawn, {"v": layers.reshape(2, n, 2, 16)}, seed), {})


def text_capture(needs: tuple[Need, ...], drawn: Drawn, planted: Mapping[str, np.ndarray], seed: int) -> Capture:
    """A capture of noise but for these activations and columns."""
    shape = Shape(len(drawn.points), n_layers=2, d_head=16, vocab_size=41)
    return synthetic_capture(needs, shape, planted=planted, columns=drawn.columns, seed=seed)


N_ANY, STEP_ANY = 240, 0.5


def any_trials(probe: Probe) -> Trials:
    """The worlds of texts for any probe: every site of activations that it reads holds the points.

    The planted effect is twofold, since nobody knows what the probe looks for: a direction tells the entropy, and
    the length of the activations does. Judged are the headline numbers that have a p.
    """
    worlds = (
        World(probe.name, name, partial(_anywhere, text), effects=effects(STEP_ANY), n=f"{N_ANY} prompts", small=SMALL)
        for name, text in TEXTS.items()
    )
    return Trials(tuple(worlds))


def _anywhere(text: Text, probe: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    drawn = draw(text, STEP_ANY, N_ANY, rng, seed, size)
    points = drawn.points * np.exp(STEP_ANY * size * drawn.own / 12)[:, None]
    shape = Shape(N_ANY, n_layers=2, n_heads=2, n_kv_heads=2, d_head=16, vocab_size=41)
    planted = {}
    for need in probe.needs:
        site = need.described
        sizes = tuple(shape.axis(axis) for axis in site.axes)
        holds = site.unit == "activation" and site.source != "weights" and np.prod(sizes) == points.shape[1]
        if need.at == "scored" and holds and shape.leading(site):
            (n_places,) = shape.leading(site)
            before = rng.standard_normal((n_places - 1, *points.shape))
            planted[site.name] = np.concatenate([before, points[None]]).reshape(n_places, N_ANY, *sizes)
    made_up = synthetic_capture(probe.needs, shape, planted=planted, columns=drawn.columns, seed=seed)
    return probe.analyse(made_up, {})
