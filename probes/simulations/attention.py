"""Simulated queries and keys for `attention_entropy` and `qk_alignment`, read as in a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.certificates.simulations import Grouping, Known, Simulation, Trials, grouped, noise, nothing, of_model
from interp.findings import Findings
from interp.probe import Probe
from interp.testing import Shape, synthetic_capture

from .prompts import noise_of

if TYPE_CHECKING:
    from interp.hooks.pattern import AttentionCall

_N, _LAYERS, _HEADS, _KEYS, _D = 60, 6, 4, 12, 8
_CLOSING, _STEP = 3, 0.25
_SMALL: Mapping[str, Any] = {"n_bootstrap": 299, "n_permutations": 199}


@dataclass(frozen=True)
class Heads:
    """Heads: their sharpness (the share that a layer has in common, or a walk over layers) and their inputs."""

    alike: float = 0.0
    walks: bool = False
    sink: float = 0.0
    heavy: bool = False
    clusters: Grouping = "alone"
    """Prompts of one cluster share half of the variance of their queries."""
    closing: bool = False
    """Prompts of unequal length end in the same tokens, which determine all queries."""

    def sharpness(self, rng: np.random.Generator) -> np.ndarray:
        """`[layer, head]`"""
        if self.walks:
            return np.exp(np.cumsum(0.25 * rng.standard_normal((_LAYERS, 1)), axis=0) + np.zeros(_HEADS))
        own, common = rng.standard_normal((_LAYERS, _HEADS)), rng.standard_normal((_LAYERS, 1))
        return np.exp(0.4 * ((1 - self.alike) ** 0.5 * own + self.alike**0.5 * common))

    def calls(
        self, rng: np.random.Generator, sharp: np.ndarray, match: float, cluster: np.ndarray, length: np.ndarray
    ) -> "list[list[AttentionCall]]":
        """By length and layer: queries of the last position, which match one of the keys by `match`."""
        import torch

        from interp.hooks.pattern import AttentionCall

        found: list[list[AttentionCall]] = [[] for _ in np.unique(length)]
        scaling, n = _D**-0.5, len(cluster)
        matched = rng.integers(1, length - _CLOSING * self.closing)
        for layer in range(_LAYERS):
            k = noise(rng, (n, _HEADS, _KEYS, _D), self.heavy)
            q = noise_of(cluster, rng, 0.5, heavy=self.heavy)(_HEADS, _D)
            if self.closing:
                q[:] = q[0]
                for i in range(n):
                    k[i, :, length[i] - _CLOSING : length[i]] = k[0, :, :_CLOSING]
                    k[i, :, length[i] - 1] += q[0]
            q += match * k[np.arange(n), :, matched]
            q *= sharp[layer][:, None]
            k, q = np.concatenate([k, np.zeros_like(k[..., :1])], -1), np.concatenate([q, np.ones_like(q[..., :1])], -1)
            k[:, :, 0, -1] = self.sink / scaling
            for calls, n_keys in zip(found, np.unique(length), strict=True):
                mine = length == n_keys
                queries = np.zeros((mine.sum(), _HEADS, n_keys, _D + 1))
                queries[:, :, -1] = q[mine]
                queried, keys = torch.from_numpy(queries).float(), torch.from_numpy(k[mine, :, :n_keys]).float()
                calls.append(AttentionCall(layer, queried, keys, keys, scaling))
        return found


HEADS: Mapping[str, Heads] = {
    "as assumed": Heads(), "heads of a layer alike, .5": Heads(alike=0.5), "layers walk at random": Heads(walks=True),
    "heavy tails": Heads(heavy=True), "sink of half the mass": Heads(sink=3.0),
    "five prompts a document": Heads(clusters="fives"), "templates of unequal size": Heads(clusters="templates"),
    "closing template, unequal lengths": Heads(closing=True),
}  # fmt: skip


def attention_entropy() -> Trials:
    return _trials("attention_entropy", "content_sharpening", {"positions": "scored"})


def qk_alignment() -> Trials:
    return _trials("qk_alignment", "logit", {})


def _trials(probe: str, number: str, more: Mapping[str, Any]) -> Trials:
    known = (
        Known("program:shift_by_one", number, ("within",), "its head selects by position alone"),
        Known("program:lookup", number, ("above",), "its second layer selects keys by content"),
        Known("tunnel:recall-gpt-neox", number, ("above",), "an answer can only be found by the content of a key"),
    )
    planted = tuple(f"queries hold {_STEP * k:g} of a key" for k in (1, 2, 3))
    simulations = (
        Simulation(probe, name, partial(_rows, heads), (number,), (), planted, "60 prompts or more", {**_SMALL, **more},
              nothing(number))
        for name, heads in HEADS.items()
    )  # fmt: skip
    return Trials(tuple(simulations), known)


def _rows(heads: Heads, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    cluster = grouped(heads.clusters, _N if heads.clusters == "alone" else _N // 2, rng)
    length = np.full(len(cluster), _KEYS)
    if heads.closing:
        length = np.sort(rng.integers(8, _KEYS + 1, len(cluster)))
    by_length = heads.calls(rng, heads.sharpness(of_model(seed)), _STEP * size, cluster, length)
    sites = [need.site for need in made.needs if need.described.source == "pattern" and need.at == "scored"]
    rows = {site: np.concatenate([_read(calls, site) for calls in by_length], axis=1) for site in dict.fromkeys(sites)}
    shape = Shape(len(cluster), n_layers=_LAYERS, n_heads=_HEADS, n_keys=_KEYS)
    columns = {"length": length, "position": length - 1, "cluster": cluster}
    return made.analyse(synthetic_capture(made.needs, shape, planted=rows, columns=columns, seed=seed), {})


def _read(calls: "Sequence[AttentionCall]", site: str) -> np.ndarray:
    """The shuffled keys are those of the previous prompt of the same length; the first has none."""
    import torch

    from interp.hooks.pattern_sites import NULL_SITES, KeyDonors, PatternReader

    found = []
    for call in calls:
        n_keys = call.k.shape[2]
        if site in NULL_SITES:
            donors, n = KeyDonors(), len(call.k)
            donors.begin(np.full(n, n_keys), np.arange(n))
            call = donors.swapped(call)
        at = torch.full((1, 1), n_keys - 1)
        found.append(PatternReader(call, at, _KEYS, _KEYS).read(site)[:, 0].numpy())
    return np.stack(found)
