"""Findings layer by layer: one scalar for every layer, and the table they make together."""

from collections.abc import Mapping, Sequence

import numpy as np

from interp.findings import Scalar
from interp.table import Table

Profile = Sequence[Scalar]
"""One statistic at every layer, in order."""


def profile_table(profiles: Mapping[str, Profile], n_distinct_rows: Sequence[int], caption: str) -> Table:
    """One row a layer; for every statistic its value, interval, null with band, and p where it was tested."""
    columns: dict[str, np.ndarray] = {
        "layer": np.arange(len(n_distinct_rows)),
        "n_distinct_rows": np.array(n_distinct_rows),
    }
    units = {"layer": "layer", "n_distinct_rows": "rows"}
    for name, profile in profiles.items():
        found = {
            name: [s.value for s in profile],
            f"{name}_low": [s.interval[0] if s.interval else np.nan for s in profile],
            f"{name}_high": [s.interval[1] if s.interval else np.nan for s in profile],
            f"{name}_null": [s.null.value if s.null else np.nan for s in profile],
            f"{name}_null_low": [s.null.band[0] if s.null else np.nan for s in profile],
            f"{name}_null_high": [s.null.band[1] if s.null else np.nan for s in profile],
        }
        units |= dict.fromkeys(found, profile[0].unit)
        if any(s.p is not None for s in profile):
            found[f"{name}_p"] = [np.nan if s.p is None else s.p for s in profile]
            units[f"{name}_p"] = "probability"
        columns |= {key: np.array(values, dtype=np.float64) for key, values in found.items()}
    return Table(columns, units, caption)
