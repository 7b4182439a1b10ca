"""Simulations of texts for `value_axis` and `manifold`: effects of tokens and lengths are no finding."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

import numpy as np
from scipy import stats
from sklearn.linear_model import Ridge

from interp.certificates.simulations import N_MODELS, Known, Simulation, Trials, nothing
from interp.certificates.text_simulations import TEXTS, Drawn, Text, draw, effects, found_in_texts
from interp.findings import Findings
from interp.probe import Probe
from interp.prompt import PromptSet
from interp.prompting.tunnel_sequences import sampled_prompts
from interp.registry import load_entry
from interp.statistics.spectra import principal_axes
from interp.testing import Shape, synthetic_capture

_AXIS, _PLANE = 0.35, 0.25
"""Steps of the planted effect: `interp.certificates.text_simulations.draw`."""

_N_FITS, _PENALTIES = 24, np.logspace(0, 4, 13)
"""The number of readouts whose mean is the truth, and their candidate penalties."""

_CERTAIN = "answers of a program are certain: there is no uncertainty to be told"


def value_axis() -> Trials:
    small = {"n_permutations": 99, "sites": ("v",)}
    simulations = tuple(
        Simulation("value_axis", name, partial(found_in_texts, text, _AXIS, 240), _simulated_numbers(text),
              effects=effects(_AXIS), n=f"{text.n_of(240)} prompts", small=small,
              truth=lambda seed, size, text=text: _axes(text, seed % N_MODELS, size))
        for name, text in TEXTS.items()
        if not text.by_fifths  # half splits ignore them
    )  # fmt: skip
    evidence = Known(
        "program:evidence", "r2_beyond_token", ("above",), "its last layer writes the variable evidence_1, the target",
        {"target": "evidence_1", "sites": ("resid",)}, 300,
    )  # fmt: skip
    why = "the network predicts the exact posterior, whose entropy is graded: noisy evidence for every sequence"
    graded = [Known(f"tunnel:{name}-gpt-neox", "r2_beyond_token", ("above",), why) for name in ("hmm-fixed", "mess3")]
    bijection, varies = "tunnel:bijection-gpt-neox", "the network predicts the exact posterior, whose entropy varies"
    falls = "among keys not shown before, exact entropy falls with every pair shown"
    return Trials(
        simulations, (
            Known(bijection, "r2_beyond_token", ("above",), varies), *graded,
            Known(bijection, "r2", ("above",), falls, prompts=_unseen_keys, on="unseen keys"),
            evidence, Known("program:lookup", "best_layer_r2", ("within",), _CERTAIN),
        )
    )  # fmt: skip


def _unseen_keys(n: int) -> PromptSet:
    """Sequences of the bijection, scored where the key was not shown before."""
    whole = sampled_prompts(load_entry("tunnel", "bijection")(), n)
    assert whole.posterior is not None and whole.belief is not None
    prompts, is_kept = [], [not is_repeat for prompt in whole for is_repeat in prompt.scored_columns["is_repeat"]]
    for prompt in whole:
        assert prompt.scored is not None
        here = [i for i, is_repeat in enumerate(prompt.scored_columns["is_repeat"]) if not is_repeat]
        columns = {name: tuple(values[i] for i in here) for name, values in prompt.scored_columns.items()}
        prompts.append(replace(prompt, scored=tuple(prompt.scored[i] for i in here), scored_columns=columns))
    return replace(whole, prompts=prompts, posterior=whole.posterior[is_kept], belief=whole.belief[is_kept])


def _simulated_numbers(text: Text) -> tuple[str, ...]:
    """The numbers on which such texts have an influence."""
    beyond = () if text.class_is_pc1 or text.length_tells else ("r2_beyond_token",)
    kept = () if text.unequal else ("r2",)
    # what a cluster shares is removed, so its amount and tokens have no influence
    is_own = text.clusters != "alone" and text.alike > 0.5 and not text.few_tokens
    within = ("r2_within_clusters",) if is_own else ()
    return (*kept, *beyond, *within, "best_layer_r2", "pc1_correlation")


def _many(text: Text, step: float, n: int, model: int, size: float) -> Drawn:
    """A hundred times the prompts of a simulation, of the same model, without clusters."""
    alone = replace(text, clusters="alone", one_domain=False, by_fifths=False)
    return draw(alone, step, 100 * n, np.random.default_rng([11, model]), model, size)


@cache
def _axes(text: Text, model: int, size: float) -> Mapping[str, float]:
    """The share of very many entropies that ridge readouts of half of such prompts explain."""
    many = _many(text, _AXIS, 240, model, size)
    fitted = [draw(text, _AXIS, 240, np.random.default_rng([12, model, i]), model, size) for i in range(_N_FITS)]
    halves = [(drawn, _half(drawn, np.random.default_rng([13, model, i]))) for i, drawn in enumerate(fitted)]
    r2 = _explained([(drawn.points[kept], drawn.entropy[kept]) for drawn, kept in halves], (many.points, many.entropy))
    rho = _rho(many)
    found = {"r2": r2, "best_layer_r2": r2, "pc1_correlation": rho}
    if text.previous_tells:  # only the control removes it
        return found
    beyond = _explained([_beyond(*half) for half in halves], _beyond(many, np.full(len(many.points), True)))
    return found | {"r2_beyond_token": beyond}


def _half(drawn: Drawn, rng: np.random.Generator) -> np.ndarray:
    """The rows of a random half of the clusters."""
    clusters = np.unique(drawn.columns["cluster"])
    return np.isin(drawn.columns["cluster"], rng.permutation(clusters)[: len(clusters) // 2])


def _beyond(drawn: Drawn, kept: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points and entropies of some rows without the effects of token and length."""
    tokens, long = drawn.columns["token"][kept], drawn.columns["length"][kept, None] / 40.0
    nuisances = np.hstack([long, long**2, long**3, np.abs(long - long.mean())])
    both = np.column_stack([nuisances, drawn.points[kept], drawn.entropy[kept]])
    of_token = tokens[:, None] == np.unique(tokens)
    both -= of_token @ (of_token.T @ both / of_token.sum(axis=0)[:, None])
    nuisances, both = both[:, :4], both[:, 4:]
    both -= nuisances @ np.linalg.lstsq(nuisances, both, rcond=None)[0]
    return both[:, :-1], both[:, -1]


def _explained(halves: Sequence[tuple[np.ndarray, np.ndarray]], many: tuple[np.ndarray, np.ndarray]) -> float:
    """The mean share of variance of the many that ridge readouts explain, with the best penalty for the many."""
    points, entropy = many
    fits = [[Ridge(penalty).fit(*half) for penalty in _PENALTIES] for half in halves]
    left = [[np.mean((entropy - fit.predict(points)) ** 2) for fit in of_half] for of_half in fits]
    return float(1 - np.mean(left, axis=0).min() / entropy.var())


def _rho(many: Drawn) -> float:
    """The absolute rank correlation of the entropy with the first principal axis."""
    first = principal_axes(many.points - many.points.mean(axis=0), 1).scores[:, 0]
    return abs(float(stats.spearmanr(first, many.entropy)[0]))


@cache
def _planes(text: Text, model: int, size: float) -> Mapping[str, float]:
    """The correlation of very many entropies with the first axis, and no collapse of domains."""
    many = _many(text, _PLANE, 150, model, size)
    rho = _rho(many)
    return {"entropy_correlation": rho, "best_layer_entropy_correlation": rho, "collapse": 0.0}


def manifold() -> Trials:
    small = {"n_permutations": 99, "n_null": 40, "n_bootstrap": 299, "n_splits": 2}
    numbers = ("entropy_correlation",)  # the one that is resampled within the sampled fifths
    others = ("curve_order", "best_layer_entropy_correlation")
    simulations = tuple(
        Simulation("manifold", name, partial(found_in_texts, text, _PLANE, 150),
              # small domains are not compared
              numbers + others * (not text.by_fifths) + ("collapse",) * (not (text.unequal or text.by_fifths)),
              ("collapse",), effects(_PLANE), f"{text.n_of(150)} prompts", small,
              lambda seed, size, text=text: _planes(text, seed % N_MODELS, size))
        for name, text in TEXTS.items()
    )  # fmt: skip
    wide = tuple(f"one domain {1 + 0.6 * k:.1f} times as wide" for k in (1, 2, 3))
    plane = Simulation("manifold", "one domain on a plane", _domains, ("collapse",), (), wide, "150 prompts",
                  small | {"n_bootstrap": 99}, nothing("collapse"))  # fmt: skip
    known = (
        Known("program:lookup", "best_layer_entropy_correlation", ("within",), _CERTAIN),
        Known("tunnel:bijection-gpt-neox", "entropy_correlation", ("within",), "position drives both"),
    )
    return Trials((*simulations, plane), known)


def _domains(made: Probe, rng: np.random.Generator, seed: int, size: float) -> Findings:
    """Prompts of one domain vary more along two directions than the others."""
    n, tokens = 150, 20
    domain = rng.choice(["code", "news", "poems"], n)
    points = rng.standard_normal((n, 32))
    points[:, :2] *= np.where(domain == "code", 1 + 0.6 * size, 1)[:, None]
    columns = {"next_entropy_bits": 6 + rng.standard_normal(n), "domain": domain, "token": rng.integers(0, tokens, n)}
    columns |= {"length": np.full(n, 20), "position": np.full(n, 19)}
    layers = np.stack([rng.standard_normal((n, 32)), points]).reshape(2, n, 2, 16)
    shape = Shape(n, n_layers=2, d_head=16, vocab_size=tokens)
    return made.analyse(synthetic_capture(made.needs, shape, planted={"v": layers}, columns=columns, seed=seed), {})
