"""Hidden Markov chains by brute force: every path of states, weighed by the rule of the process alone."""

from itertools import product

import numpy as np


def by_all_paths(initial, transition, emission, symbols) -> tuple[np.ndarray, np.ndarray]:
    """p(s_t | o_1 .. o_t) and p(o_{t+1} | o_1 .. o_t) for the last t of a short list of symbols; none gives p(o_1)."""
    n_states, n_symbols = emission.shape
    state, following = np.zeros(n_states), np.zeros(n_symbols)
    for path in product(range(n_states), repeat=len(symbols) + 1):
        weight = initial[path[0]]
        for step, symbol in enumerate(symbols):
            weight = weight * emission[path[step], symbol] * transition[path[step], path[step + 1]]
        if symbols:
            state[path[len(symbols) - 1]] += weight
        following += weight * emission[path[-1]]
    total = following.sum()
    return state / total, following / total
