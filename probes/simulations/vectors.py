"""Simulations for `components` and `orthogonality`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from interp.certificates.simulations import Simulation, Trials, noise, nothing, of_model
from interp.findings import Findings
from interp.probe import Probe
from interp.prompt import Prompt
from interp.testing import Shape, synthetic_capture

from .prompts import KINDS, Prompts, noise_of


def components() -> Trials:
    effects = tuple(f"attention writes {0.2 * k:.1f} of the noise in one direction" for k in (1, 2, 3))
    equal_shares = {"attention_share": 6 / 13}  # six of thirteen equal parts
    walks, loud = "sizes walk over layers", "attention writes one loud dimension"
    simulations = tuple(
        Simulation("components", name, partial(_updates, kind, name == walks, name == loud), ("attention_share",),
              effects=effects, n="60 prompts or clusters", small={"n_permutations": 99, "n_bootstrap": 299},
              truth=(lambda seed, size: {} if size else equal_shares) if name in KINDS else nothing())
        for name, kind in {**KINDS, walks: Prompts(), loud: Prompts()}.items()
    )  # fmt: skip
    divided = tuple(f"experts follow the domain by {k} of the noise" for k in (2, 4, 8))
    followed = {"the token alone": ("token", 1), "habits of each prompt": ("habit", 1),
                "habits of five near-copies": ("habit", 5)}  # fmt: skip
    routed = tuple(
        Simulation("components", f"experts follow {name}", partial(_routed, *kind), (_BEYOND,), effects=divided,
              n=f"{150 * kind[-1]} sequences", small={"n_permutations": 99, "n_bootstrap": 20, "experts": True})
        for name, kind in followed.items()
    )  # fmt: skip
    return Trials((*simulations, *routed))


_BEYOND = "expert_domain_information_beyond_token"


def _routed(kind: str, copies: int, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Findings on two of four experts chosen by the token, which depends on the domain, or by a bias of the prompt."""
    n, n_scored = 150 * copies, 8
    cluster = np.arange(n) // copies
    domain = np.repeat(cluster % 2, n_scored)
    token = (rng.random(n * n_scored) ** np.where(domain, 2.0, 0.5) * 5).astype(int)
    scores = rng.gumbel(size=(2, n * n_scored, 4)) + 2.0 * 2 ** (size - 1) * (size > 0) * np.eye(4)[domain]
    if kind == "token":
        scores += 3.0 * of_model(seed).standard_normal((2, 5, 4))[:, token]
    else:
        scores += np.repeat(2.0 * rng.standard_normal((2, n, 4))[:, cluster], n_scored, axis=1)
    weight = np.where(scores >= np.sort(scores, axis=-1)[..., 2:3], np.exp(scores), 0.0)
    weight /= weight.sum(axis=-1, keepdims=True)
    columns = {"domain": np.array(["a", "b"])[domain], "token": token, "cluster": np.repeat(cluster, n_scored)}
    shape = Shape(n, n_scored=n_scored, n_layers=2, d_model=6)
    return made.analyse(synthetic_capture(made.needs, shape, planted={"router_weight": weight}, columns=columns,
                                          seed=seed), {})  # fmt: skip


def _updates(
    like: Prompts, walks: bool, is_loud: bool, made: Probe, rng: np.random.Generator, seed: int, size: float
) -> Findings:
    """Findings on updates whose size may walk over layers, and attention with perhaps one large dimension."""
    (cluster, drawn), n_layers, width = like.drawn(60, rng), 6, 12
    shape = Shape(len(cluster), n_layers=n_layers, d_model=width)
    attention, feed_forward = np.moveaxis(drawn(2, n_layers, width), 0, -2)
    if walks:
        attention *= np.exp(np.cumsum(0.3 * of_model(seed).standard_normal(n_layers)))[:, None, None]
    attention[..., 0] += 3.0 * is_loud
    attention += 0.2 * size * np.random.default_rng(1).standard_normal(width)
    steps = np.concatenate([np.moveaxis(drawn(1, width), 0, -2), attention + feed_forward])
    rows = {"resid": np.cumsum(steps, axis=0), "attn_out": attention, "mlp_out": feed_forward}
    columns = {"cluster": cluster}
    return made.analyse(synthetic_capture(made.needs, shape, planted=rows, columns=columns, seed=seed), {})


_N_TOKENS = 40
_SIZES: Mapping[str, tuple[int, ...]] = {"k_pre": (2, 4, 8), "resid": (3, 32)}
"""Sizes of what is read at each prompt, layers first."""
_WEIGHTS: Mapping[str, tuple[int, ...]] = {"W_Q": (2, 4, 32, 8), "W_K": (2, 4, 32, 8)}


def orthogonality() -> Trials:
    weights, keys = ("wk_columns", "w_qk_effective_rank"), ("token_keys", "head_keys")
    small = {"n_null": 40, "n_bootstrap": 299}
    effects = tuple(f"keys of all tokens share {0.15 * k:.2f} of the noise" for k in (1, 2, 3))
    between = tuple(f"keys of all heads share {0.3 * k:.1f} of the noise" for k in (1, 2, 3))
    unplanted = (*weights, "head_keys")
    simulations = [
        Simulation("orthogonality", name, partial(_keys, kind), numbers, unplanted, effects, "40 tokens", small)
        for name, kind, numbers in (
            ("as assumed", (False, 1, False), (*weights, *keys)),
            ("heavy tails", (True, 1, False), (weights[0], *keys)),  # such a matrix has fewer directions
            ("three prompts of each token", (False, 3, False), keys[:1]),
        )
    ]  # fmt: skip
    two = Simulation("orthogonality", "weights of two values", _two_values, weights, weights, (), "weights", small)
    simulations.append(two)
    heads = Simulation("orthogonality", "three prompts of each token, heads apart", partial(_keys, (False, 3, True)),
                  keys[1:], (), between, "40 tokens", small)  # fmt: skip
    return Trials((*simulations, heads))


def _keys(like: tuple[bool, int, bool], made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Findings on keys and streams with a part common to all tokens, or to all heads.

    `like`: heavy tails; the number of prompts per token; whether heads share the part.
    """
    heavy, n_prompts, heads_share = like
    token, rows = np.arange(_N_TOKENS).repeat(n_prompts), {}
    drawn = noise_of(token, rng, 0.5, heavy=heavy)
    for site, sizes in _SIZES.items():
        rows[site] = np.moveaxis(drawn(*sizes), 0, 1)
        if not heads_share:
            rows[site] += 0.15 * size * np.random.default_rng(2).standard_normal((sizes[0], 1, *sizes[1:]))
        elif site != "resid":
            rows[site] += 0.3 * size * rng.standard_normal((sizes[0], len(token), 1, sizes[-1]))
    rows |= {site: noise(rng, sizes, heavy) for site, sizes in _WEIGHTS.items()}
    return _read(made, rows, token, seed)


def _two_values(made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    rows = {site: rng.choice([-1.0, 1.0], sizes) for site, sizes in _WEIGHTS.items()}
    return _read(made, rows, np.arange(_N_TOKENS), seed)


def _read(made: Probe, rows: Mapping[str, np.ndarray], token: np.ndarray, seed: int) -> Findings:
    n = len(token)
    shape = Shape(n, n_layers=2, n_heads=4, n_kv_heads=4, d_head=8, d_model=32, vocab_size=400)
    columns = {"token": token, "position": np.full(n, 5), "cluster": token}
    made_up = synthetic_capture(made.needs, shape, planted=rows, columns=columns, seed=seed)
    frame = [Prompt(text=f"the word is w{i}") for i in token]
    return made.analyse(replace(made_up, prompts=replace(made_up.prompts, prompts=frame)), {})
