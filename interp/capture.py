"""What one model did on one prompt set: the only thing a probe ever sees. Numpy; torch ends here."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Float, Int

from interp.folds import PromptMean, Rows
from interp.need import Need
from interp.prompt import PromptSet
from interp.table import Table
from interp.words import html_table


@dataclass(frozen=True)
class ModelInfo:
    """What is known of a model without its weights. `d_head` is the size of keys, queries and values of one head.

    A model without attention has 0 heads of size 0, and the attention kernel `none`.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> model.info.n_layers, model.info.n_heads, model.info.d_head
    (3, 4, 16)
    """

    name: str
    source: str
    family: str
    n_layers: int
    n_heads: int
    n_kv_heads: int
    d_head: int
    d_model: int
    vocab_size: int
    n_parameters: int
    dtype: str
    device: str
    attention_kernel: str
    revision: str | None = None
    n_rotary: int | None = None
    window: int | None = None
    parallel_blocks: bool = False
    max_positions: int | None = None
    quantisation: str | None = None
    stored_as: str | None = None
    """How its file rounds the weights, where they are plain numbers once read (GGUF)."""
    tensor_kinds: Mapping[str, str] | None = None
    """Kind and bits of each tensor of such a file."""


class Mechanism(ABC):
    """What is known of how a network computes its answers. Depths are those of the residual stream."""

    @property
    @abstractmethod
    def directions(self) -> Mapping[str, Float[np.ndarray, "axis feature"]]:
        """How the residual stream moves with each variable that it holds."""

    @abstractmethod
    def variable(self, column: str) -> str | None:
        """The variable that a column of the prompts holds; None where it holds none."""

    @abstractmethod
    def first_depth(self, variable: str) -> int:
        """The first depth at which the variable stands in the stream."""

    @abstractmethod
    def is_read(self, variable: str, depth: int) -> bool:
        """Whether something behind this depth reads the variable."""

    @abstractmethod
    def swapped(
        self, variable: str, depth: int, tokens: Int[np.ndarray, "prompt pos"], donors: Int[np.ndarray, "prompt pos"],
        scored: Int[np.ndarray, " scored"],
    ) -> Int[np.ndarray, "prompt scored"]:  # fmt: skip
        """The exact answers (outcomes, by number) with the donors' values of the variable at the scored positions.

        What stands in the stream at this depth stays as it is, the variable apart; what comes later follows from it. −1
        where nothing is defined for such values.
        """


@dataclass(frozen=True)
class Capture:
    """Arrays by need, and one table row for every captured (prompt, position) pair.

    `rows` is the table of the scored positions: `prompt` (index), `position`, `length`, `token`, `next_entropy_bits`,
    `drawn` (in the draw that the headline is measured on) and every column of the prompt set. An array of a `Rows`
    need is `[layer, row, ...]`, aligned with `rows_at(need.at)`; of a `PromptMean` need `[layer, prompt, ...]`. Where
    the exact posterior is known, `posterior` `[row, outcome]` is over the token ids `prompts.outcome_ids`, and `belief`
    `[row, component]` is the exact belief over the latent, where that is more than the posterior. Where only some
    `layers` were asked for (negative ones count from the end), the first axis of the arrays holds these, in their
    order, and the rows have `next_entropy_bits` only if a need reads the outputs: passes end where all is read. Weights
    are read from the model, which the capture keeps, each time they are asked for.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> prompts = interp.sampled_prompts(model.task, 8)
    >>> capture = interp.collect(model, prompts, ["v"])
    >>> capture[interp.Need("v")].ndim  # [layer, row, kv_head, d_head]
    4
    >>> len(capture.rows["position"]) == capture[interp.Need("v")].shape[1]
    True
    """

    model: ModelInfo
    prompts: PromptSet
    tables: Mapping[str, Table]
    arrays: Mapping[Need, Mapping[str, np.ndarray]]
    seed: int = 0
    posterior: np.ndarray | None = None
    belief: np.ndarray | None = None
    layers: tuple[int, ...] | None = None
    mechanism: Mechanism | None = None
    """How the model computes, where that is known."""

    @property
    def rows(self) -> Table:
        """The table of the scored positions."""
        return self.tables["scored"]

    def rows_at(self, at: str) -> Table:
        """The table of the rows captured at `scored`, `last`, `all` or a column's positions."""
        return self.tables[at]

    def _repr_html_(self) -> str:
        rows = [
            (need.site, type(need.fold).__name__, need.at, "; ".join(f"{x} {list(a.shape)}" for x, a in folded.items()))
            for need, folded in self.arrays.items()
        ]
        of = f"{len(self.prompts.prompts):,} {self.prompts.unit}s, {self.rows.n_rows:,} rows"
        title = f"{self.model.name} on {self.prompts.name}: {of}"
        return html_table(title, ("site", "fold", "at", "arrays"), rows, f"Columns: {', '.join(self.rows.columns)}.")

    def __getitem__(self, need: Need | str) -> np.ndarray:
        """The rows of a need (or the array of a weight), or of the only need of a site that is named.

        An absent one is a `KeyError`, never zeros.
        """
        return self.folded(self._need_of(need) if isinstance(need, str) else need)["rows"]

    def folded(self, need: Need) -> Mapping[str, np.ndarray]:
        """Everything a fold yields, by name (`count`, `mean`, `variance`, `covariance`, `rows`)."""
        if need not in self.arrays:
            raise KeyError(f"{need} was not captured; there are {', '.join(map(str, self.arrays))}")
        return self.arrays[need]

    def _need_of(self, site: str) -> Need:
        """The one need of a site; it has to be written out where there are several."""
        of_site = [need for need in self.arrays if need.site == site]
        if len(of_site) == 1:
            return of_site[0]
        if not of_site:
            raise KeyError(f"{site!r} was not captured; there are {', '.join(map(str, self.arrays))}")
        raise KeyError(f"{site!r} was captured in {len(of_site)} ways, name one: {', '.join(map(str, of_site))}")

    @property
    def outcomes(self) -> np.ndarray | None:
        """The token ids that each row's posterior is over, `[row, outcome]`; None where there is no posterior."""
        ids = self.prompts.outcome_ids
        if ids is None or self.posterior is None:
            return None
        return ids[self.rows["prompt"]] if ids.ndim == 2 else np.broadcast_to(ids, self.posterior.shape)

    @property
    def drawn(self) -> "Capture":
        """The capture restricted to the drawn prompts (all of them where nothing was drawn)."""
        return self.where(self.rows["drawn"].astype(bool))

    def where(self, keep: np.ndarray) -> "Capture":
        """The capture restricted to the scored rows that a boolean mask picks.

        Keeps the row arrays at scored positions and the weights; means and moments over other rows are left out,
        since they cannot be restricted afterwards.
        """
        arrays: dict[Need, Mapping[str, np.ndarray]] = {}
        for need, folded in self.arrays.items():
            if need.described.source == "weights":
                arrays[need] = folded
            elif need.at == "scored" and isinstance(need.fold, Rows):
                axis = 0 if need.described.layers == "once" else 1
                arrays[need] = {"rows": np.compress(keep, folded["rows"], axis=axis)}
            elif isinstance(need.fold, PromptMean) and self.prompts.is_text:
                arrays[need] = {"rows": np.compress(keep, folded["rows"], axis=1)}
        exact = {name: None if x is None else x[keep] for name, x in self._exact.items()}
        return replace(self, tables={"scored": self.rows.where(keep)}, arrays=arrays, **exact)

    @property
    def _exact(self) -> dict[str, np.ndarray | None]:
        return {"posterior": self.posterior, "belief": self.belief}
