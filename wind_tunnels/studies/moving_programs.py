"""Programs x[t + 1] = a x[t] + b mod p, run forwards and backwards, and as prompts."""

import numpy as np
from jaxtyping import Float, Int

from interp.prompt import Prompt, PromptSet
from interp.tunnel import Task

from .over_seeds import CheckedStudy

Programs = Int[np.ndarray, "a_and_b program"]
Values = Int[np.ndarray, "program value"]


def modulus(task: Task, study: CheckedStudy) -> int:
    """The p of a task; `UsageError` for one whose sequences are no programs over integers modulo 5 or more."""
    p = getattr(task, "p", 0)
    if p < 5 or getattr(task, "symbols", "") != "integers":
        found = f"it reads programs over integers modulo 5 or more, and the task {task.name} has none"
        raise study.refusal(found, "Name networks that were trained on recurrence with symbols=integers.")
    return p


def moving_programs(rng: np.random.Generator, n: int, p: int) -> tuple[Programs, Programs]:
    """Programs with a ≥ 2, and for each of them one with another a ≥ 2."""
    a, b = rng.integers(2, p, n), rng.integers(p, size=n)
    other = 2 + (a - 2 + rng.integers(1, p - 2, n)) % (p - 2)
    return np.stack([a, b]), np.stack([other, rng.integers(p, size=n)])


def onward(program: Programs, value: Int[np.ndarray, " program"], p: int) -> Int[np.ndarray, " program"]:
    """The value after this one."""
    return (program[0] * value + program[1]) % p


def run(program: Programs, rng: np.random.Generator, n: int, p: int) -> Values:
    """The first `n` values of each program, from a random value that is no fixed point."""
    values = [rng.integers(p, size=program.shape[1])]
    values[0] = (values[0] + (onward(program, values[0], p) == values[0])) % p  # a ≥ 2 has one fixed point
    for _ in range(n - 1):
        values.append(onward(program, values[-1], p))
    return np.stack(values, axis=1)


def ending_in(program: Programs, last: Int[np.ndarray, " program"], n: int, p: int) -> Values:
    """The `n` values of each program that end in `last`."""
    inverse = np.array([0, *(pow(a, -1, p) for a in range(1, p))])[program[0]]
    values = [last]
    for _ in range(n - 1):
        values.append(inverse * (values[-1] - program[1]) % p)
    return np.stack(values[::-1], axis=1)


def prompts_of(values: Values, p: int) -> PromptSet:
    """Prompts of START and these values, scored at the last."""
    return PromptSet("programs", [Prompt(token_ids=(p, *row), scored=(len(row),)) for row in values.tolist()])


def predicted_values(log_prob: Float[np.ndarray, "row vocab"], p: int) -> Int[np.ndarray, " row"]:
    """The most probable value of each row."""
    return log_prob[:, :p].argmax(axis=1)
