"""The prompts of a wind tunnel: sequences sampled from its task, with rows at all scored positions.

`copied:5x2` are the questions that follow the first five observations of the same sequences, with these five shown
twice, for tasks whose posterior copies do not change.
"""

import re

import numpy as np

from interp.errors import UsageError
from interp.prompt import Prompt, PromptSet
from interp.settings import LARGEST_SEED, MOST, refuse_number
from interp.table import LABEL
from interp.tunnel import Sequences, Task

N_SEQUENCES = 500
COPIED = "copied:"
"""The prefix of the names of sequences with copied context."""


def copied_name(n_shown: int, n_copies: int) -> str:
    return f"{COPIED}{n_shown}x{n_copies}"


def sampled_prompts(task: Task, n: int = N_SEQUENCES, seed: int = 0) -> PromptSet:
    """Sample sequences of a wind-tunnel task, with what the task knows exactly at every scored position.

    Args:
        task: The task, such as `model.task` of a shipped tunnel.
        n: How many sequences, at least 1.
        seed: Seed of the sample, at least 0.

    Returns:
        The prompt set, with `posterior` `[row, outcome]` at all scored positions, sequence by sequence.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> len(interp.sampled_prompts(model.task, 8))
        8
    """
    refuse_number(f"sampled_prompts(n={n})", n, 1, MOST)
    refuse_number(f"sampled_prompts(seed={seed})", seed, 0, LARGEST_SEED)
    drawn = task.sample(np.random.default_rng(seed), n)
    source = f"{n} sequences drawn from the task {task.name}, scored at {len(drawn.scored)} positions each"
    return as_prompts(task, drawn, f"tunnel:{task.name}", source, seed)


def copied_prompts(task: Task, name: str, n: int = N_SEQUENCES, seed: int = 0) -> PromptSet:
    """The sequences of `sampled_prompts` with copied context; raises `UsageError` if the task has none."""
    found = re.fullmatch(rf"{COPIED}(\d+)x(\d+)", name)
    if found is None:
        raise UsageError(
            asked=f"the prompts {name!r}",
            found="it does not say how much is copied",
            fix="For example copied:5x2: five observations, shown twice.",
        )
    n_shown, n_copies = int(found[1]), int(found[2])
    drawn = task.with_copied_context(task.sample(np.random.default_rng(seed), n), n_shown, n_copies)
    source = f"{n} sequences drawn from the task {task.name}: {n_shown} observations shown {n_copies} times"
    return as_prompts(task, drawn, f"tunnel:{task.name} {name}", source, seed)


def as_prompts(task: Task, drawn: Sequences, name: str, source: str = "", seed: int = 0) -> PromptSet:
    """Sequences of a task as prompts, with their exact posteriors and beliefs."""
    n = len(drawn)
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
        name=name,
        prompts=prompts,
        units={name: units.get(name, "1") for name in {*columns, "domain"}},
        source=source,
        unit="sequence",
        seed=seed,
        posterior=drawn.posterior.reshape(n * len(scored), -1),
        outcome_ids=drawn.slice_ids,
        belief=None if drawn.belief is None else drawn.belief.reshape(n * len(scored), -1),
    )
