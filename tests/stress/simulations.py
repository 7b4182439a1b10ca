"""Simulations of every observational probe: one with planted truth, one with nothing to find. Used by test_simulations.

    python -m tests.stress.simulations        # measures all again (ten minutes), for the table of the site

In a null simulation a p-value should be uniform, and a value without p should lie in the 95 % band of its null. In a
planted simulation a 95 % interval should hold the truth: the planted value where it is known in closed form, else the
expected value at this number of prompts, which is the mean over all the simulations.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from interp.prompts.evidence import draw_problems, evidence_columns, posterior
from scipy import stats

from interp.findings import Findings
from interp.prompt import Prompt
from interp.registry import load_entry
from interp.testing import Shape, synthetic_capture

N_SIMULATIONS = 500
RATES = Path(__file__).with_name("simulations.json")

Simulation = Callable[[np.random.Generator, int], Findings]


@dataclass(frozen=True)
class Recipe:
    """How the simulations of a probe are made; `truth` holds what was planted in closed form.

    `covered` are the numbers whose intervals are checked, `called` those with a p, `placed` those with a band alone,
    `over` the tables' columns of p that are corrected over layers, heads or places: the table, the column, and labels
    that the rows bear.
    """

    planted: Simulation
    null: Simulation
    covered: tuple[str, ...]
    called: tuple[str, ...]
    placed: tuple[str, ...] = ()
    over: tuple[str, ...] = ()
    truth: Mapping[str, float] = field(default_factory=dict)


# --- attention entropy and query-key alignment: means over prompts ---------------------------------------------------

CURVE = np.array([3.2, 2.6, 1.6, 1.2])
GAIN = 0.3


def _entropies(rng: np.random.Generator, seed: int, curve: np.ndarray, gain: float, sink: float) -> Findings:
    probe = load_entry("probe", "attention_entropy")(positions="scored", n_permutations=99, n_bootstrap=399, seed=seed)
    n, prompt = 60, 0.3 * rng.standard_normal((60, 1))
    own = curve[:, None, None] + prompt + 0.3 * rng.standard_normal((4, n, 4))
    other = own + gain + 0.2 * rng.standard_normal((n, 1)) + 0.3 * rng.standard_normal((4, n, 4))
    rows = {
        "pattern_entropy": own,
        "pattern_entropy_null": other,
        "sink_mass": rng.beta(4 * sink, 4 - 4 * sink, own.shape),
    }
    rows["pattern_entropy_uniform"] = np.full(own.shape, 2.0)
    return probe.analyse(synthetic_capture(probe.needs, Shape(n, n_layers=4), planted=rows, seed=seed), {})


def _contrasts(rng: np.random.Generator, seed: int, gain: float, slope: float) -> Findings:
    probe = load_entry("probe", "qk_alignment")(n_permutations=99, n_bootstrap=399, seed=seed)
    shape = Shape(60, n_layers=6)
    prompt = 0.5 * rng.standard_normal((60, 1))
    rows = {"qk_logit": 5 + gain + prompt + rng.standard_normal((6, 60, 4))}
    rows["qk_logit_null"] = 5 + 0.5 * rng.standard_normal((60, 1)) + rng.standard_normal((6, 60, 4))
    rows["pattern_max"] = 0.5 + slope * np.arange(6)[:, None, None] + 0.1 * rng.standard_normal((6, 60, 4))
    return probe.analyse(synthetic_capture(probe.needs, shape, planted=rows, seed=seed), {})


# --- components ------------------------------------------------------------------------------------------------------


def _updates(rng: np.random.Generator, seed: int, written: float, falls: float) -> Findings:
    probe = load_entry("probe", "components")(n_permutations=99, n_bootstrap=399, seed=seed)
    shape = Shape(60, n_layers=6, d_model=12)
    direction = np.random.default_rng(1).standard_normal(12)
    attention, feed_forward = rng.standard_normal((2, 6, 60, 12))
    attention += written * rng.uniform(0.5, 1.5, (60, 1)) * direction
    steps = np.concatenate([rng.standard_normal((1, 60, 12)), attention + feed_forward])
    rows = {"resid": np.cumsum(steps, axis=0), "attn_out": attention, "mlp_out": feed_forward}
    rows["lens_kl"] = 5 - falls * np.arange(7)[:, None] + rng.standard_normal((7, 60))
    return probe.analyse(synthetic_capture(probe.needs, shape, planted=rows, seed=seed), {})


# --- orthogonality ---------------------------------------------------------------------------------------------------


def _keys(rng: np.random.Generator, seed: int, common: float) -> Findings:
    probe = load_entry("probe", "orthogonality")(n_null=40, n_bootstrap=399, seed=seed)
    n, shape = 40, Shape(40, n_layers=2, n_heads=4, n_kv_heads=4, d_head=8, d_model=32, vocab_size=400)
    of_model = np.random.default_rng(2)
    rows = {
        "k_pre": rng.standard_normal((2, n, 4, 8)) + common * of_model.standard_normal((2, 1, 4, 8)),
        "k": rng.standard_normal((2, n, 4, 8)) + common * of_model.standard_normal((2, 1, 4, 8)),
        "resid": rng.standard_normal((3, n, 32)) + common * of_model.standard_normal((3, 1, 32)),
    }
    columns = {"token": np.arange(n), "position": np.full(n, 5)}
    capture = synthetic_capture(probe.needs, shape, planted=rows, columns=columns, seed=seed)
    frame = [Prompt(text=f"the word is w{i}") for i in range(n)]
    return probe.analyse(replace(capture, prompts=replace(capture.prompts, prompts=frame)), {})


# --- manifold and value axis: clouds ---------------------------------------------------------------------------------


def _cloud(rng: np.random.Generator, seed: int, deviations: tuple[float, float], follows: float) -> Findings:
    probe = load_entry("probe", "manifold")(n_permutations=99, n_null=40, n_bootstrap=399, n_splits=2, seed=seed)
    shape = Shape(75, n_layers=2)
    points = rng.standard_normal((2, 75, 16))
    points[..., :2] *= deviations
    noise = rng.standard_normal(75)
    entropy = 5 + follows * points[-1, :, 0] / deviations[0] + (1 - follows**2) ** 0.5 * noise
    columns = {"next_entropy_bits": entropy}
    capture = synthetic_capture(
        probe.needs, shape, planted={"v": points.reshape(2, 75, 2, 8)}, columns=columns, seed=seed
    )
    return probe.analyse(capture, {})


def _axis(rng: np.random.Generator, seed: int, n: int, told: float) -> Findings:
    probe = load_entry("probe", "value_axis")(sites=("v",), n_permutations=99, layer=0, seed=seed)
    shape = Shape(n, n_layers=2)
    points, domain = rng.standard_normal((2, n, 16)), rng.choice(["code", "news"], n)
    points[0, :, 0] *= 2
    entropy = 5 + told * (points[0, :, 0] / 2 + points[0, :, 1]) + rng.standard_normal(n)
    columns = {"next_entropy_bits": entropy, "domain": domain, "token": rng.integers(0, 20, n)}
    capture = synthetic_capture(
        probe.needs, shape, planted={"v": points.reshape(2, n, 2, 8)}, columns=columns, seed=seed
    )
    return probe.analyse(capture, {})


# --- belief and sula -------------------------------------------------------------------------------------------------


def _belief(rng: np.random.Generator, seed: int, n: int, told: float) -> Findings:
    small = {"interchange": False, "n_permutations": 49, "n_bootstrap": 399}
    probe = load_entry("probe", "belief")(sites=("resid",), seed=seed, **small)
    image = np.random.default_rng(3).standard_normal((3, 8))
    belief = rng.dirichlet(np.ones(3), n)
    points = told * belief @ (image - image.mean(axis=0)) + 0.3 * rng.standard_normal((n, 8))
    rows = {"resid": np.stack([rng.standard_normal((n, 8)), points])}
    shape = Shape(n, n_layers=1, d_model=8)
    columns = {"length": np.full(n, 9), "position": np.full(n, 8)}
    capture = synthetic_capture(probe.needs, shape, planted=rows, posterior=belief, columns=columns, seed=seed)
    return probe.analyse(capture, {})


def _reader(rng: np.random.Generator, seed: int, slope: float, moves: float) -> Findings:
    probe = load_entry("probe", "sula")(n_permutations=99, n_bootstrap=399, layer=0, seed=seed)
    problems = draw_problems((0, 1, 2, 4, 8), 30, 0.9, rng)
    n, known = len(problems), evidence_columns(problems.shown, 0.9)
    exact = posterior(known["log_odds_bits"])
    word = np.where(problems.swapped, -0.5, 0.5)
    answered = posterior(slope * known["log_odds_bits"] + word + rng.standard_normal(n))
    mass = rng.beta(2, 6, (n, 1))
    entropy = stats.entropy(exact, axis=1, base=2)
    points = 0.3 * rng.standard_normal((1, n, 16))
    points[0, :, 0] += moves * entropy + rng.standard_normal(n)
    columns = known | {"condition": np.full(n, "main"), "problem": np.arange(n)}
    capture = synthetic_capture(
        probe.needs, Shape(n, n_layers=1), columns=columns, posterior=exact, seed=seed,
        planted={"outcome_log_prob": np.log2(answered * mass), "v": points.reshape(1, n, 2, 8)},
        outcome_ids=np.where(problems.swapped[:, None], [[7, 3]], [[3, 7]]),
    )  # fmt: skip
    return probe.analyse(capture, {})


_SPAN = CURVE[0]
RECIPES: dict[str, Recipe] = {
    "attention_entropy": Recipe(
        planted=lambda rng, seed: _entropies(rng, seed, CURVE, GAIN, 0.4),
        null=lambda rng, seed: _entropies(rng, seed, np.full(4, 2.0), 0.0, 0.25),
        covered=("reduction", "area", "largest_drop", "content_sharpening", "sink_mass"),
        called=("content_sharpening",),
        over=("by_layer sharpening_p", "by_head sharpening_p"),
        truth={
            "reduction": 1 - CURVE[-1] / _SPAN, "area": float(np.trapezoid(CURVE) / 3 / _SPAN), "largest_drop": 1.0,
            "content_sharpening": GAIN, "sink_mass": 0.4,
        },
    ),
    "belief": Recipe(
        planted=lambda rng, seed: _belief(rng, seed, 300, 1.0),
        null=lambda rng, seed: _belief(rng, seed, 60, 0.0),
        covered=("r2", "r2_beyond_position", "tvd", "silhouette", "selectivity"),
        called=("r2", "r2_beyond_position", "silhouette"),
        placed=("selectivity", "tvd"),
    ),
    "components": Recipe(
        planted=lambda rng, seed: _updates(rng, seed, 0.5, 0.4),
        null=lambda rng, seed: _updates(rng, seed, 0.0, 0.0),
        covered=("attention_share", "feed_forward_share", "attn_logit", "lens_kl_trend"),
        called=("attention_share", "feed_forward_share"),
        truth={"attn_logit": 0.0},
    ),
    "manifold": Recipe(
        planted=lambda rng, seed: _cloud(rng, seed, (4.0, 2.5), 0.6),
        null=lambda rng, seed: _cloud(rng, seed, (1.0, 1.0), 0.0),
        covered=("pc1_share", "pc1_plus_pc2_share", "participation_ratio", "entropy_correlation", "curve_order"),
        called=("entropy_correlation", "curve_order"),
        placed=("pc1_plus_pc2_share", "participation_ratio"),
    ),
    "orthogonality": Recipe(
        planted=lambda rng, seed: _keys(rng, seed, 1.0),
        null=lambda rng, seed: _keys(rng, seed, 0.0),
        covered=("token_keys", "head_keys", "embedding_proxy"),
        called=("wk_columns", "w_qk_effective_rank", "token_keys", "head_keys", "embedding_proxy"),
    ),
    "qk_alignment": Recipe(
        planted=lambda rng, seed: _contrasts(rng, seed, 1.0, 0.02),
        null=lambda rng, seed: _contrasts(rng, seed, 0.0, 0.0),
        covered=("logit", "max_weight"),
        called=("logit",),
        over=("by_head logit_gain_p",),
        truth={"logit": 1.0, "max_weight": 0.05},
    ),
    "sula": Recipe(
        planted=lambda rng, seed: _reader(rng, seed, 0.6, 1.0),
        null=lambda rng, seed: _reader(rng, seed, 0.0, 0.0),
        covered=("slope", "skill", "kl_skill", "outcome_mass", "entropy_movement_within", "entropy_movement"),
        called=("slope", "skill", "kl_skill", "entropy_movement", "entropy_movement_within", "movement"),
        truth={"slope": 0.6, "outcome_mass": 0.25},
    ),
    "value_axis": Recipe(
        planted=lambda rng, seed: _axis(rng, seed, 240, 0.7),
        null=lambda rng, seed: _axis(rng, seed, 60, 0.0),
        covered=("r2", "r2_beyond_token", "pc1_r2", "correlation", "selectivity"),
        called=("r2", "r2_beyond_token", "pc1_r2", "correlation", "best_layer_r2_beyond_token"),
        placed=("selectivity",),
        over=("by_layer r2_p ridge kept", "by_layer r2_p ridge token"),
    ),
}  # fmt: skip


# --- what came out of them -------------------------------------------------------------------------------------------

LEVEL = 0.05

Rates = dict[str, dict[str, float]]


def rates(name: str, n_simulations: int = N_SIMULATIONS, first: int = 0) -> Rates:
    """By number: the shares of intervals with the truth and of p ≤ 0.05, or of values outside the band, and the excess.

    Excess of small p is Kolmogorov and Smirnov's one-sided distance from uniform p. Those by rank are at least as large
    as uniform ones, so steps of 1 / (permutations + 1) do not enter.
    """
    recipe, seeds = RECIPES[name], range(first, first + n_simulations)
    planted = [recipe.planted(np.random.default_rng([seed, 1]), seed) for seed in seeds]
    null = [recipe.null(np.random.default_rng([seed, 2]), seed) for seed in seeds]
    found: Rates = {number: {} for number in (*recipe.covered, *recipe.called, *recipe.placed)}
    for number in recipe.covered:
        found[number]["covered"] = _share(_covered(planted, number, recipe.truth.get(number)))
    tested = {number: np.array([each[number].p for each in null], dtype=float) for number in recipe.called}
    tested |= {f"any {place}": np.array([_smallest(each, place) for each in null]) for place in recipe.over}
    for number, p in tested.items():
        assert not np.isnan(p).any(), f"{name}.{number} has no p in some simulation"
        excess = stats.kstest(p, "uniform", alternative="greater").statistic
        found[number] = found.get(number, {}) | {"called": _share(p <= LEVEL), "excess": round(float(excess), 3)}
    for number in recipe.placed:
        found[number]["called"] = _share([not _is_in_band(each, number) for each in null])
    return found


def _share(which: Sequence[bool] | np.ndarray) -> float:
    return round(float(np.mean(which)), 3)


def _covered(simulations: list[Findings], number: str, truth: float | None) -> list[bool]:
    truth = float(np.mean([found[number].value for found in simulations])) if truth is None else truth
    intervals = [found[number].interval for found in simulations]
    return [bounds is not None and bounds[0] <= truth <= bounds[1] for bounds in intervals]


def _is_in_band(found: Findings, number: str) -> bool:
    null = found[number].null
    assert null is not None
    return null.band[0] <= found[number].value <= null.band[1]


def _smallest(found: Findings, place: str) -> float:
    name, column, *labels = place.split(" ")
    table = found.tables[name]
    kept = np.ones(table.n_rows, dtype=bool)
    for label in labels:
        kept &= np.any([values == label for values in table.columns.values() if values.dtype.kind == "U"], axis=0)
    return float(np.nanmin(table[column][kept]))


def band(rate: float, n: int = N_SIMULATIONS) -> tuple[float, float]:
    """The shares between which a true rate is seen 999 times in 1,000."""
    low, high = stats.binom.ppf([0.0005, 0.9995], n, rate) / n
    return float(low), float(high)


def measure_all() -> None:
    """Measure every probe and write the rates beside this file."""
    kept = json.loads(RATES.read_text())
    kept |= {"n_worlds": N_SIMULATIONS, "rates": {name: rates(name) for name in RECIPES}}
    RATES.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    measure_all()
