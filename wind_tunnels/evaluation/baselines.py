"""What can be had without inference over the whole sequence: the floor that every error is compared with.

`constant` answers one fixed distribution (the mean posterior, best by KL) or entropy (the median, best by absolute
error); `position` one for every position. Both are fitted on the sequences they are judged on, which flatters them.
"""

from collections.abc import Mapping

import numpy as np
from jaxtyping import Float

from interp.information import entropy_bits, kl_bits
from interp.table import LABEL, Table
from interp.tunnel import Sequences


def baseline_kl(sequences: Sequences) -> dict[str, Float[np.ndarray, "sequence scored"]]:
    """KL(posterior || predictor) in bits of every baseline at every scored position."""
    p = sequences.posterior
    n_outcomes = p.shape[-1]
    answers = {
        "uniform": np.full(n_outcomes, 1.0 / n_outcomes),
        "constant": p.mean(axis=(0, 1)),
        "position": p.mean(axis=0),
    }
    blind = {name: kl_bits(p, np.broadcast_to(answer, p.shape)) for name, answer in answers.items()}
    return blind | {f"window-{w}": kl_bits(p, answer) for w, answer in sequences.windows.items()}


def baselines(sequences: Sequences) -> Table:
    """Entropy error and KL of every baseline; each blind entry is the best of its kind by its own measure."""
    bayes_bits = entropy_bits(sequences.posterior)
    entropies = {
        "uniform": np.log2(sequences.posterior.shape[-1]),
        "constant": np.median(bayes_bits),
        "position": np.median(bayes_bits, axis=0),
        **{f"window-{w}": entropy_bits(answer) for w, answer in sequences.windows.items()},
    }
    rows = [
        {
            "predictor": name,
            "mae_per_sequence_bits": np.abs(entropies[name] - bayes_bits).mean(),
            "kl_bits": kl.mean(),
        }
        for name, kl in baseline_kl(sequences).items()
    ]
    units: Mapping[str, str] = {"predictor": LABEL, "mae_per_sequence_bits": "bits", "kl_bits": "bits"}
    return Table.from_rows(rows, units, "No-skill predictors and window readers on the same sequences.")


def by_predictor(baselines: Table) -> dict[str, dict[str, float]]:
    """The table as a card keeps it; `<slice>.<predictor>` for slices after the primary one."""
    slices = baselines["slice"].tolist() if "slice" in baselines else [""] * baselines.n_rows
    parts = zip(slices, baselines["predictor"].tolist(), strict=True)
    names = [name if part == slices[0] else f"{part}.{name}" for part, name in parts]
    figures = ("mae_per_sequence_bits", "kl_bits")
    return {name: {figure: float(baselines[figure][row]) for figure in figures} for row, name in enumerate(names)}
