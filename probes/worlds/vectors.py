"""Worlds of updates and keys: `components` and `orthogonality`."""

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
    kinds = {"as assumed": (False, False), "layers walk at random": (True, False), "heavy tails": (False, True)}
    worlds = tuple(
        World("components", name, partial(_updates, walks, heavy), ("attention_share",), effects=effects,
              n="60 prompts", small={"n_permutations": 99, "n_bootstrap": 299})
        for name, (walks, heavy) in kinds.items()
    )  # fmt: skip
    return Trials(worlds)


def _updates(walks: bool, heavy: bool, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    shape = Shape(60, n_layers=6, d_model=12)
    attention, feed_forward = noise(rng, (2, 6, 60, 12), heavy)
    attention += 0.2 * size * np.random.default_rng(1).standard_normal(12)
    steps = np.concatenate([noise(rng, (1, 60, 12), heavy), attention + feed_forward])
    rows = {"resid": np.cumsum(steps, axis=0), "attn_out": attention, "mlp_out": feed_forward}
    drift = np.cumsum(of_model(seed).standard_normal(7)) if walks else np.zeros(7)
    rows["lens_kl"] = 5 + drift[:, None] + noise(rng, (7, 60), heavy)
    return made.analyse(synthetic_capture(made.needs, shape, planted=rows, seed=seed), {})


def orthogonality() -> Trials:
    numbers = ("wk_columns", "w_qk_effective_rank", "token_keys", "head_keys")
    effects = tuple(f"keys share {0.15 * k:.2f} of the noise" for k in (1, 2, 3))
    worlds = tuple(
        World("orthogonality", name, partial(_keys, heavy), numbers, numbers[:2], effects, "40 tokens",
              {"n_null": 40, "n_bootstrap": 299})
        for name, heavy in {"as assumed": False, "heavy tails": True}.items()
    )  # fmt: skip
    return Trials(worlds)


def _keys(heavy: bool, made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    n, shape = 40, Shape(40, n_layers=2, n_heads=4, n_kv_heads=4, d_head=8, d_model=32, vocab_size=400)
    shared = np.random.default_rng(2)
    rows = {
        site: noise(rng, size_, heavy) + 0.15 * size * shared.standard_normal((*size_[:1], 1, *size_[2:]))
        for site, size_ in {"k_pre": (2, n, 4, 8), "k": (2, n, 4, 8), "resid": (3, n, 32)}.items()
    }
    columns = {"token": np.arange(n), "position": np.full(n, 5)}
    made_up = synthetic_capture(made.needs, shape, planted=rows, columns=columns, seed=seed)
    frame = [Prompt(text=f"the word is w{i}") for i in range(n)]
    return made.analyse(replace(made_up, prompts=replace(made_up.prompts, prompts=frame)), {})
