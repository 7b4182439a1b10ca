"""Worlds of attention rows, made of queries and keys and read as in a model: `attention_entropy` and `qk_alignment`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from interp.certifying.worlds import Known, Trials, World, noise, of_model
from interp.findings import Findings
from interp.probe import Probe
from interp.testing import Shape, synthetic_capture

if TYPE_CHECKING:
    from interp.seam.pattern import AttentionCall

_N, _LAYERS, _HEADS, _KEYS, _D = 60, 6, 4, 12, 8
_STEP = 0.25
_SMALL: Mapping[str, Any] = {"n_bootstrap": 299, "n_permutations": 199}


@dataclass(frozen=True)
class Heads:
    """How sharp heads are: the share that those of a layer have in common, a walk over layers; and what they read."""

    alike: float = 0.0
    walks: bool = False
    sink: float = 0.0
    heavy: bool = False
    documents: bool = False

    @property
    def n(self) -> int:
        """Prompts of a world: of documents more, for a number needs twenty clusters."""
        return 150 if self.documents else _N

    @property
    def clusters(self) -> np.ndarray:
        return np.arange(self.n) // (5 if self.documents else 1)

    def sharpness(self, rng: np.random.Generator) -> np.ndarray:
        """`[layer, head]`"""
        if self.walks:
            return np.exp(np.cumsum(0.25 * rng.standard_normal((_LAYERS, 1)), axis=0) + np.zeros(_HEADS))
        own, common = rng.standard_normal((_LAYERS, _HEADS)), rng.standard_normal((_LAYERS, 1))
        return np.exp(0.4 * ((1 - self.alike) ** 0.5 * own + self.alike**0.5 * common))

    def calls(self, rng: np.random.Generator, sharp: np.ndarray, match: float) -> "list[AttentionCall]":
        """Queries of the last position over twelve keys, one of which they match by `match`."""
        import torch

        from interp.seam.pattern import AttentionCall

        found = []
        scaling, n = _D**-0.5, self.n
        matched = rng.integers(1, _KEYS, n)
        for layer in range(_LAYERS):
            k = noise(rng, (n, _HEADS, _KEYS, _D), self.heavy)
            q = noise(rng, (n, _HEADS, _D), self.heavy)
            if self.documents:  # five prompts of one document share most of what they ask for
                q = 0.5**0.5 * (q + rng.standard_normal((n // 5, _HEADS, _D))[self.clusters])
            q += match * k[np.arange(n), :, matched]
            q *= sharp[layer][:, None]
            k, q = np.concatenate([k, np.zeros_like(k[..., :1])], -1), np.concatenate([q, np.ones_like(q[..., :1])], -1)
            k[:, :, 0, -1] = self.sink / scaling
            queries = np.zeros((n, _HEADS, _KEYS, _D + 1))
            queries[:, :, -1] = q
            queried, keys = torch.from_numpy(queries).float(), torch.from_numpy(k).float()
            found.append(AttentionCall(layer, queried, keys, keys, scaling))
        return found


HEADS: Mapping[str, Heads] = {
    "as assumed": Heads(), "heads of a layer alike, .2": Heads(alike=0.2),
    "heads of a layer alike, .5": Heads(alike=0.5), "layers walk at random": Heads(walks=True),
    "heavy tails": Heads(heavy=True), "sink of half the mass": Heads(sink=3.0),
    "five prompts a document": Heads(documents=True),
}  # fmt: skip


_BY_POSITION = "its head selects by position alone"
_BY_CONTENT = "its second layer selects keys by content"
_RECALL = "an answer can only be found by the content of a key"


def attention_entropy() -> Trials:
    return _trials("attention_entropy", "content_sharpening", {"positions": "scored"})


def qk_alignment() -> Trials:
    return _trials("qk_alignment", "logit", {})


def _trials(probe: str, number: str, more: Mapping[str, Any]) -> Trials:
    known = (
        Known("program:shift_by_one", number, ("within",), _BY_POSITION),
        Known("program:lookup", number, ("above",), _BY_CONTENT),
        Known("tunnel:recall-gpt-neox", number, ("above",), _RECALL),
    )
    return Trials(_worlds(probe, number, more), known)


def _worlds(probe: str, number: str, more: Mapping[str, Any]) -> tuple[World, ...]:
    planted = tuple(f"queries hold {_STEP * k:g} of a key" for k in (1, 2, 3))
    return tuple(
        World(
            probe,
            name,
            partial(_rows, heads),
            (number,),
            effects=planted,
            n=f"{heads.n} prompts",
            small={**_SMALL, **more},
        )
        for name, heads in HEADS.items()
    )


def _rows(heads: Heads, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    calls = heads.calls(rng, heads.sharpness(of_model(seed)), _STEP * size)
    sites = [need.site for need in made.needs if need.described.source == "pattern" and need.at == "scored"]
    rows = {site: _read(calls, site) for site in dict.fromkeys(sites)}
    shape = Shape(heads.n, n_layers=_LAYERS, n_heads=_HEADS, n_keys=_KEYS)
    columns = {
        "length": np.full(heads.n, _KEYS), "position": np.full(heads.n, _KEYS - 1), "cluster": heads.clusters,
    }  # fmt: skip
    return made.analyse(synthetic_capture(made.needs, shape, planted=rows, columns=columns, seed=seed), {})


def _read(calls: "Sequence[AttentionCall]", site: str) -> np.ndarray:
    import torch

    from interp.seam.pattern import DonorKeys
    from interp.seam.pattern_sites import NULL_SITES, PatternReader

    found = []
    for call in calls:
        if site in NULL_SITES:
            call = replace(call, donor=DonorKeys(call.k[-1]))
        at = torch.full((1, 1), _KEYS - 1)
        found.append(PatternReader(call, at, _KEYS, _KEYS).read(site)[:, 0].numpy())
    return np.stack(found)
