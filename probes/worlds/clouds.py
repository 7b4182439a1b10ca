"""Worlds of texts for `value_axis` and `manifold`: what tokens and lengths tell is no finding."""

from functools import partial

import numpy as np

from interp.certifying.texts import TEXTS, effects, found_in_texts
from interp.certifying.worlds import Known, Trials, World
from interp.findings import Findings
from interp.probe import Probe
from interp.testing import Shape, synthetic_capture

_AXIS, _PLANE = 0.35, 0.25
"""Steps of the planted effect: `interp.certifying.texts.draw`."""


def value_axis() -> Trials:
    small = {"n_permutations": 99, "n_splits": 10, "n_null": 60, "sites": ("v",)}
    numbers = ("r2", "r2_beyond_token", "best_layer_r2", "pc1_correlation")
    worlds = tuple(
        World("value_axis", name, partial(found_in_texts, text, _AXIS, 240), numbers, effects=effects(_AXIS),
              n="240 prompts", small=small)
        for name, text in TEXTS.items()
    )  # fmt: skip
    return Trials(
        worlds,
        (
            Known("tunnel:bijection-gpt-neox", "r2_beyond_token", ("above",), _TUNNEL),
            Known(
                "program:evidence",
                "r2_beyond_token",
                ("above",),
                "its last layer writes the variable evidence_1, the target",
                {"target": "evidence_1", "sites": ("resid",)},
                300,
            ),
            Known("program:lookup", "best_layer_r2", ("within", "unjudged"), _CERTAIN),
        ),
    )


_CERTAIN = "answers of a program are certain: there is no uncertainty to be told"
_TUNNEL = "the network predicts the exact posterior, whose entropy varies"


def manifold() -> Trials:
    small = {"n_permutations": 99, "n_null": 40, "n_bootstrap": 299, "n_splits": 2}
    numbers = ("entropy_correlation", "curve_order", "best_layer_entropy_correlation")
    worlds = tuple(
        World("manifold", name, partial(found_in_texts, text, _PLANE, 150),
              numbers if text.unequal else (*numbers, "collapse"),  # small domains are not compared
              ("collapse",), effects(_PLANE), "150 prompts", small)
        for name, text in TEXTS.items()
    )  # fmt: skip
    wide = tuple(f"one domain {1 + 0.6 * k:.1f} times as wide" for k in (1, 2, 3))
    domains = World("manifold", "one domain on a plane", _domains, ("collapse",), (), wide, "150 prompts",
                    small | {"n_bootstrap": 99})  # fmt: skip
    known = (Known("program:lookup", "best_layer_entropy_correlation", ("within", "unjudged"), _CERTAIN),)
    return Trials((*worlds, domains), known)


def _domains(made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Prompts of one domain spread along two directions more than the others do."""
    n, tokens = 150, 20
    domain = rng.choice(["code", "news", "poems"], n)
    points = rng.standard_normal((n, 32))
    points[:, :2] *= np.where(domain == "code", 1 + 0.6 * size, 1)[:, None]
    columns = {"next_entropy_bits": 6 + rng.standard_normal(n), "domain": domain, "token": rng.integers(0, tokens, n)}
    columns |= {"length": np.full(n, 20), "position": np.full(n, 19)}
    layers = np.stack([rng.standard_normal((n, 32)), points]).reshape(2, n, 2, 16)
    shape = Shape(n, n_layers=2, d_head=16, vocab_size=tokens)
    return made.analyse(synthetic_capture(made.needs, shape, planted={"v": layers}, columns=columns, seed=seed), {})
