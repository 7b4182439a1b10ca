"""The prompts of a wind tunnel: it samples itself, rows at all scored positions, the sequence is the unit."""

import numpy as np

from interp.prompt import Prompt, PromptSet
from interp.table import LABEL
from interp.tunnel import Task

N_SEQUENCES = 500


def sampled_prompts(task: Task, n: int = N_SEQUENCES, seed: int = 0) -> PromptSet:
    """`n` fresh sequences of a task with the columns it knows at every scored position."""
    drawn = task.sample(np.random.default_rng(seed), n)
    scored = tuple(int(p) for p in drawn.scored)
    columns = dict(drawn.columns)
    if drawn.scored_slice is not None:
        columns["slice"] = np.broadcast_to(drawn.scored_slice, drawn.targets.shape)
    prompts = [
        Prompt(
            token_ids=tuple(drawn.tokens[i].tolist()),
            columns={"domain": str(drawn.domain[i])},
            scored=scored,
            scored_columns={name: tuple(column[i].tolist()) for name, column in columns.items()},
        )
        for i in range(n)
    ]
    units = {**task.units, "domain": LABEL, "slice": LABEL}
    return PromptSet(
        name=f"tunnel:{task.name}",
        prompts=prompts,
        units={name: units.get(name, "1") for name in {*columns, "domain"}},
        source=f"{n} sequences drawn from the task {task.name}, scored at {len(scored)} positions each",
        unit="sequence",
        seed=seed,
        posterior=drawn.posterior.reshape(n * len(scored), -1),
        outcome_ids=drawn.slice_ids,
        belief=None if drawn.belief is None else drawn.belief.reshape(n * len(scored), -1),
    )
