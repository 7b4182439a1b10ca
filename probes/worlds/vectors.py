"""Worlds of updates and keys: `components` and `orthogonality`."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from interp.certifying.worlds import Trials, World, noise, of_model
from interp.findings import Findings
from interp.probe import Probe
from interp.prompt import Prompt
from interp.testing import Shape, synthetic_capture


def components() -> Trials:
    effects = tuple(f"attention writes {0.2 * k:.1f} of the noise in one direction" for k in (1, 2, 3))
    kinds = {
        "as assumed": (False, False, 1), "layers walk at random": (True, False, 1), "heavy tails": (False, True, 1),
        "five near-copies of each prompt": (False, False, 5),
    }  # fmt: skip
    worlds = tuple(
        World("components", name, partial(_updates, *kind), ("attention_share",), effects=effects,
              n=f"{60 * kind[-1]} prompts", small={"n_permutations": 99, "n_bootstrap": 299})
        for name, kind in kinds.items()
    )  # fmt: skip
    divided = tuple(f"experts follow the domain by {k} of the noise" for k in (2, 4, 8))
    followed = {"the token alone": ("token", 1), "habits of each prompt": ("habit", 1),
                "habits of five near-copies": ("habit", 5)}  # fmt: skip
    routed = tuple(
        World("components", f"experts follow {name}", partial(_routed, *kind), (_BEYOND,), effects=divided,
              n=f"{150 * kind[-1]} sequences", small={"n_permutations": 99, "n_bootstrap": 20, "experts": True},
              is_covered=False)
        for name, kind in followed.items()
    )  # fmt: skip
    return Trials((*worlds, *routed))


_BEYOND = "expert_domain_information_beyond_token"


def _routed(kind: str, copies: int, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Two experts of four are chosen by the token, which differs between domains, or by a liking of the prompt."""
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
    walks: bool, heavy: bool, copies: int, made: Probe, rng: np.random.Generator, seed: int, size: float
) -> Findings:
    n, cluster = 60 * copies, np.repeat(np.arange(60), copies)
    shape = Shape(n, n_layers=6, d_model=12)

    def alike(*before: int) -> np.ndarray:
        """Noise of all prompts, which near-copies share but for a twentieth."""
        own = noise(rng, (*before, n, 12), heavy)
        return (
            own if copies == 1 else 0.05**0.5 * own + 0.95**0.5 * noise(rng, (*before, 60, 12), heavy)[..., cluster, :]
        )

    attention, feed_forward = alike(2, 6)
    attention += 0.2 * size * np.random.default_rng(1).standard_normal(12)
    steps = np.concatenate([alike(1), attention + feed_forward])
    rows = {"resid": np.cumsum(steps, axis=0), "attn_out": attention, "mlp_out": feed_forward}
    drift = np.cumsum(of_model(seed).standard_normal(7)) if walks else np.zeros(7)
    rows["lens_kl"] = 5 + drift[:, None] + noise(rng, (7, n), heavy)
    columns = {"cluster": cluster}
    return made.analyse(synthetic_capture(made.needs, shape, planted=rows, columns=columns, seed=seed), {})


_N_TOKENS = 40
_SIZES: Mapping[str, tuple[int, ...]] = {
    "k_pre": (2, _N_TOKENS, 4, 8), "k": (2, _N_TOKENS, 4, 8), "resid": (3, _N_TOKENS, 32)
}  # fmt: skip


def orthogonality() -> Trials:
    numbers, small = (
        ("wk_columns", "w_qk_effective_rank", "token_keys", "head_keys"),
        {"n_null": 40, "n_bootstrap": 299},
    )
    effects = tuple(f"keys of all tokens share {0.15 * k:.2f} of the noise" for k in (1, 2, 3))
    between = tuple(f"keys of all heads share {0.3 * k:.1f} of the noise" for k in (1, 2, 3))
    unplanted = (*numbers[:2], "head_keys")
    worlds = tuple(
        World("orthogonality", name, partial(_keys, heavy), numbers, unplanted, effects, "40 tokens", small)
        for name, heavy in {"as assumed": False, "heavy tails": True}.items()
    )
    heads = World(
        "orthogonality", "heads hear one key", _between_heads, ("head_keys",), (), between, "40 tokens", small
    )
    return Trials((*worlds, heads))


def _keys(heavy: bool, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Keys, and the residual stream, have a part in common that is the same for all tokens."""
    shared = np.random.default_rng(2)
    rows = {
        site: noise(rng, shape, heavy) + 0.15 * size * shared.standard_normal((*shape[:1], 1, *shape[2:]))
        for site, shape in _SIZES.items()
    }
    return _read(made, rows, seed)


def _between_heads(made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """The heads of a layer have a part of each token's key in common."""
    rows = {site: noise(rng, shape, False) for site, shape in _SIZES.items()}
    for site in ("k_pre", "k"):
        rows[site] = rows[site] + 0.3 * size * rng.standard_normal((2, _N_TOKENS, 1, 8))
    return _read(made, rows, seed)


def _read(made: Probe, rows: Mapping[str, np.ndarray], seed: int) -> Findings:
    n, shape = _N_TOKENS, Shape(_N_TOKENS, n_layers=2, n_heads=4, n_kv_heads=4, d_head=8, d_model=32, vocab_size=400)
    columns = {"token": np.arange(n), "position": np.full(n, 5)}
    made_up = synthetic_capture(made.needs, shape, planted=rows, columns=columns, seed=seed)
    frame = [Prompt(text=f"the word is w{i}") for i in range(n)]
    return made.analyse(replace(made_up, prompts=replace(made_up.prompts, prompts=frame)), {})
