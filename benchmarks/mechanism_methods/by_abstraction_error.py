"""Causal Abstraction Error (arXiv 2607.00267, its authors' package): how far a high-level model is from commuting.

The high-level model is sequence -> variable -> answer, at the last position. The error (CAE down, exact match) scores a
given abstraction, so directions are those of least error among class means, a logistic regression and random ones, and
the depth is the first at which class means come at least half the way from the largest error to the least. A head is
used, and a direction matters, if declaring it inert raises the error by 1.96 of the package's standard errors: the
package overwrites it with Gaussian noise of deviation 1.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from causal_abstraction import (
    CausalGraph,
    CoarseGrainingMap,
    EvaluationConfig,
    EvaluationEngine,
    LowLevelModel,
    MicroVariableSchema,
    StandardTasks,
    SystemState,
    TopDownSampler,
    ValueMap,
    Variable,
)
from jaxtyping import Float, Int

from .by_nnsight import ByNnsight
from .by_probing import ByProbing
from .case import Case, first_above_half, orthonormal

N_SAMPLES, BATCH = 600, 60
Overwrite = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""Maps the input of a module and the coordinates `[sequence, k]` for the last position to its new input."""


class ByAbstractionError:
    def used_heads(self, case: Case) -> set[tuple[int, int]]:
        size = case.model.info.d_head

        def overwrite(head: int) -> Overwrite:
            def written(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
                x = x.clone()
                x[:, :, head * size : (head + 1) * size] = values[:, None]
                return x

            return written

        return {
            (layer, head) for layer, head in case.heads
            if _leaks(case, case.module.get_submodule(f"layers.{layer}.attn.o_proj"), overwrite(head), size)
        }  # fmt: skip

    def depth_of(self, case: Case, variable: str) -> int:
        errors = [_error(case, variable, depth, ByNnsight().directions(case, variable, depth))
                  for depth in range(case.n_layers + 1)]  # fmt: skip
        return first_above_half(max(errors) - np.array(errors))

    def directions(self, case: Case, variable: str, depth: int) -> Float[np.ndarray, "axis d_model"]:
        means = ByNnsight().directions(case, variable, depth)
        random = orthonormal(np.random.default_rng(case.noise.seed).standard_normal(means.shape))
        candidates = (means, orthonormal(ByProbing().directions(case, variable, depth)), random)
        return min(candidates, key=lambda frame: _error(case, variable, depth, frame))

    def matters(self, case: Case, direction: Float[np.ndarray, " d_model"], depth: int) -> bool:
        return _leaks(case, case.at(depth), _along(direction[None] / np.linalg.norm(direction)), 1)


class _Program(LowLevelModel):
    """The program as the package's low-level model: a sequence by its number, and overwritten coordinates."""

    def __init__(self, case: Case, module: torch.nn.Module, overwrite: Overwrite) -> None:
        self.case, self.module, self.overwrite = case, module, overwrite

    def forward_with_interventions(self, input_state: Any, interventions: Mapping[str, np.ndarray]) -> Any:
        sequence = np.asarray(interventions["sequence"]).reshape(-1).astype(int)
        inside = [np.asarray(v, dtype=np.float32).reshape(len(sequence), -1)
                  for name, v in sorted(interventions.items()) if name != "sequence"]  # fmt: skip
        hooks = []
        if inside:
            values = torch.from_numpy(np.concatenate(inside, axis=1))
            hooks = [
                self.module.register_forward_pre_hook(lambda _, args: (self.overwrite(args[0], values), *args[1:]))
            ]
        with torch.inference_mode():
            logits = self.case.module(self.case.tokens[sequence]).logits[:, self.case.scored[-1]]
        for hook in hooks:
            hook.remove()
        answer = logits[:, self.case.outcomes].argmax(-1).numpy().astype(float)
        return SystemState(values={"sequence": sequence[:, None].astype(float), "answer": answer[:, None]})


class _Values(ValueMap):
    """Numbers map to themselves; a value of the variable to the mean of its coordinates."""

    def __init__(self, cells: CoarseGrainingMap, centres: Float[np.ndarray, "value axis"] | None) -> None:
        super().__init__(cells, {})
        self.centres = centres

    def abstract(self, name: str, values: np.ndarray) -> int:
        return int(np.asarray(values).reshape(-1)[0])

    def ground(self, name: str, label: Any, rng: Any = None) -> np.ndarray:
        return self.centres[int(label)] if name == "variable" and self.centres is not None else np.array([float(label)])


def _error(case: Case, variable: str, depth: int, frame: Float[np.ndarray, "axis d_model"]) -> float:
    """CAE of the abstraction with the variable along these directions."""
    if not len(frame):
        return 1.0
    values, own = np.unique(case.labels(variable)[:, -1], return_inverse=True)
    coordinates = case.scored_stream(depth)[:, -1] @ frame.T
    centres = np.stack([coordinates[own == i].mean(axis=0) for i in range(len(values))])
    answers = _answers(case, variable, own)
    high = _high_level(len(own))
    high.add_variable("variable", lambda sequence: int(own[int(sequence)]), ["sequence"],
                      distribution={i: 1 / len(values) for i in range(len(values))})  # fmt: skip
    high.add_variable("answer", lambda sequence, variable: int(answers[int(sequence), int(variable)]),
                      ["sequence", "variable"])  # fmt: skip
    schema = MicroVariableSchema([Variable("sequence"), Variable("inside", (len(frame),)), Variable("answer")])
    cells = CoarseGrainingMap(schema, {"sequence": ["sequence"], "variable": ["inside"], "answer": ["answer"]})
    low = _Program(case, case.at(depth), _along(frame))
    return _scores(case, high, low, _Values(cells, centres), ["variable"])["CAE_down_nf"][0]


def _leaks(case: Case, module: torch.nn.Module, overwrite: Overwrite, size: int) -> bool:
    """Whether noise in declared inert coordinates raises the error."""
    answers = case.answers[:, -1]
    high = _high_level(len(answers))
    high.add_variable("answer", lambda sequence: int(answers[int(sequence)]), ["sequence"])
    inert = [Variable(f"inert_{i:03}") for i in range(size)]
    schema = MicroVariableSchema([Variable("sequence"), Variable("answer"), *inert])
    cells = CoarseGrainingMap(schema, {"sequence": ["sequence"], "answer": ["answer"]})
    scores = _scores(case, high, _Program(case, module, overwrite), _Values(cells, None), ["sequence"])
    (quiet, quiet_se), (noisy, noisy_se) = scores["CAE_down_nf"], scores["CAE_down"]
    return noisy - quiet > 1.96 * np.hypot(quiet_se, noisy_se)


def _high_level(n: int) -> CausalGraph:
    graph = CausalGraph()
    graph.add_variable("sequence", lambda: None, [], distribution=dict.fromkeys(range(n), 1 / n))
    return graph


def _scores(
    case: Case, high: CausalGraph, low: LowLevelModel, values: ValueMap, domain: list[str]
) -> dict[str, tuple[float, float]]:
    """Error and standard error, without and with a test of the declared inert coordinates, if any."""
    config = EvaluationConfig(
        metric="hard", seed=case.noise.seed, phi_noise_std=1.0, phi_selection_prob=1.0, logging_level=logging.ERROR
    )
    engine = EvaluationEngine(high, low, values, values.cg_map, config)
    sampler = TopDownSampler(values)
    tasks = [StandardTasks.score(engine.builder, name="CAE_down_nf", sampler=sampler, score_vars=["answer"])]
    if values.cg_map.phi_variables:
        faithful = StandardTasks.score(
            engine.builder, name="CAE_down", include_faithfulness=True, sampler=sampler, score_vars=["answer"]
        )
        tasks.append(faithful)
    found = engine.run_tasks(tasks, N_SAMPLES, BATCH, intervention_domain=domain)
    return {name: (float(result.score), float(result.score_se)) for name, result in found.items()}


def _answers(case: Case, variable: str, own: Int[np.ndarray, " sequence"]) -> Int[np.ndarray, "sequence value"]:
    """What the program answers at the last position of each sequence for each value of the variable."""
    mechanism, tokens = case.model.mechanism, case.sequences.tokens
    last, depth = case.scored[-1:].numpy(), case.model.mechanism.first_depth(variable)
    donors = [np.repeat(tokens[own == i][:1], len(tokens), axis=0) for i in range(own.max() + 1)]
    return np.stack([mechanism.swapped(variable, depth, tokens, theirs, last)[:, 0] for theirs in donors], axis=1)


def _along(frame: Float[np.ndarray, "axis d_model"]) -> Overwrite:
    rows = torch.from_numpy(np.asarray(frame, dtype=np.float32))

    def written(x: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        x[:, -1] += (values - x[:, -1] @ rows.T) @ rows
        return x

    return written
