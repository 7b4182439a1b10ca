"""What one model did on one prompt set, as numpy arrays: all that a probe sees."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from interp.errors import Answering, Holding, RecordError, UnknownName, UsageError, named
from interp.formatting import counted, text_table
from interp.need import Need
from interp.prompt import PromptSet
from interp.reductions import REDUCTIONS, PromptMean, Rows
from interp.system.array_files import digest_of_file, write_array
from interp.system.digest import digest_of
from interp.system.plain_numbers import path as plain_path
from interp.system.whole_files import file_names, telling, writing
from interp.table import Table

_N_SHOWN = 7  # needs that a notebook prints as text

FORMAT = 2
"""Version of the folder that `Capture.save` writes."""

FOREIGN = "fitted on other weights or in another precision"
"""Marks a lens of another model in `ModelInfo.lens`."""


@dataclass(frozen=True, repr=False)
class ModelInfo(Answering):
    """Facts about a model, without its weights. `d_head` is the size of keys, queries and values of one head.

    `n_rotary` of these features are rotated; `window` and `max_positions` count tokens. A model without attention has 0
    heads of size 0, and the attention kernel `none`.

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
    adapter: str | None = None
    """What was merged into its weights."""
    n_experts: int = 0
    """Experts of each layer's feed-forward; 0 where a layer has none, or its router is not known."""
    text_part_of: str | None = None
    """The class of the multimodal model whose language model and head these are."""
    attention_layers: tuple[int, ...] | None = None
    """The layers that have attention, where not all have."""
    lens: str | None = None
    """Kind and digest of the lens of the residual stream, and whether it is `FOREIGN`; None: the logit lens."""

    @property
    def layers_with_attention(self) -> tuple[int, ...]:
        """The layers that have attention."""
        every = range(self.n_layers if self.n_heads else 0)
        return tuple(every) if self.attention_layers is None else self.attention_layers

    def refuse_without_attention(self, asked: str, layers: Sequence[int]) -> None:
        """Raise `UsageError`, with `asked` in its message, if one of these layers has no attention."""
        having = self.layers_with_attention
        without = [layer for layer in layers if layer not in having]
        if without:
            raise UsageError(
                asked=asked,
                found=f"layer {', '.join(map(str, without))} of {self.name} has no attention",
                fix=f"Layers with attention: {', '.join(map(str, having)) or 'none'}. The residual stream can be read "
                "and edited everywhere.",
            )


class Mechanism(ABC):
    """How a network computes its answers, where that is known. Depths are those of the residual stream."""

    @property
    @abstractmethod
    def directions(self) -> Mapping[str, Float[np.ndarray, "axis feature"]]:
        """How the residual stream moves with each variable that it holds."""

    @abstractmethod
    def variable(self, column: str) -> str | None:
        """The variable in a column of the prompts; None where there is none."""

    @abstractmethod
    def first_depth(self, variable: str) -> int:
        """The first depth at which the residual stream holds the variable."""

    @abstractmethod
    def is_read(self, variable: str, depth: int) -> bool:
        """Whether a later layer reads the variable."""

    @abstractmethod
    def swapped(
        self, variable: str, depth: int, tokens: Int[np.ndarray, "prompt pos"], donors: Int[np.ndarray, "prompt pos"],
        scored: Int[np.ndarray, " scored"],
    ) -> Int[np.ndarray, "prompt scored"]:  # fmt: skip
        """The exact answers (outcomes, by number) with the donors' values of the variable at the scored positions.

        All else in the residual stream at this depth stays; later depths follow from it. −1: undefined for such values.
        """


@dataclass(frozen=True, repr=False)
class Capture(Holding[Need | str, np.ndarray]):
    """Arrays by need, and one table row for every captured (prompt, position) pair.

    `capture["v"]` or `capture[Need(...)]` is an array; an absent one is an `UnknownName`. An array of a `Rows` need is
    `[layer, row, ...]`, aligned with `rows_at(need.at)`; of a `PromptMean` need `[layer, prompt, ...]`. `rows` is the
    table of the scored positions: `prompt` (index), `position`, `length`, `token`, `next_entropy_bits`, `drawn` (in the
    subsample that headlines are measured on) and every column of the prompt set. Where the exact posterior is known,
    `posterior` `[row, outcome]` is over the token ids `prompts.outcome_ids`; `belief` `[row, component]` is the exact
    belief over the latent, if that is more than the posterior. If only some `layers` were requested, the first axis
    holds these, in their order, and `rows` has `next_entropy_bits` only if a need reads the outputs. If not all layers
    have attention, arrays of attention hold `model.layers_with_attention`. Weights are copies. `provenance` says which
    tool read the model, and what it checked.

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
    provenance: Mapping[str, Any] = field(default_factory=dict)
    mechanism: Mechanism | None = None
    """How the model computes, where that is known; it is not saved."""

    _held = "arrays"

    @property
    def rows(self) -> Table:
        """The table of the scored positions."""
        return self.tables["scored"]

    def rows_at(self, at: str) -> Table:
        """The table of the rows at `scored`, `last`, `all` or a column; `UnknownName` if nothing was captured there."""
        return named("captured position", at, self.tables)

    def __repr__(self) -> str:
        title, head, rows, further = self._table()
        left_out = f"... and {len(rows) - _N_SHOWN} further needs. " if len(rows) > _N_SHOWN else ""
        return text_table(title, head, rows[:_N_SHOWN], left_out + further)

    def _table(self) -> tuple[str, tuple[str, ...], list[tuple[str, ...]], str]:
        rows: list[tuple[str, ...]] = [
            (need.site, need.kind, need.at, "; ".join(f"{name} {list(a.shape)}" for name, a in reduced.items()))
            for need, reduced in self.arrays.items()
        ]
        of = f"{counted(len(self.prompts), self.prompts.unit)}, {counted(self.rows.n_rows, 'row')}"
        title = f"{self.model.name} on {self.prompts.name}: {of}"
        tool = self.provenance.get("tool", "interp")
        origin = "" if tool == "interp" else f" Not ours: read by {tool}, without a self-check."
        return title, ("site", "reduction", "at", "arrays"), rows, f"Columns: {', '.join(self.rows.columns)}.{origin}"

    def __getitem__(self, need: Need | str, /) -> np.ndarray:
        """The rows of a need (or the array of a weight), or of the only need of a site that is named.

        An absent need is an `UnknownName`, which is a `KeyError`, never zeros.
        """
        return self.reduced(self._need_of(need) if isinstance(need, str) else need)["rows"]

    def __contains__(self, need: object) -> bool:
        return need in self.arrays or any(each.site == need for each in self.arrays)

    def reduced(self, need: Need) -> Mapping[str, np.ndarray]:
        """All arrays of a need, by name: `rows`, and what a probe's own reduction adds; else `UnknownName`."""
        return named("captured need", need, self.arrays)

    def _need_of(self, site: str) -> Need:
        of_site = [need for need in self.arrays if need.site == site]
        if len(of_site) == 1:
            return of_site[0]
        if not of_site:
            raise UnknownName("captured need", site, map(str, self.arrays))
        raise UsageError(
            asked=f"the rows of {site!r}",
            found=f"it was captured in {len(of_site)} ways",
            fix=f"Name one: {', '.join(map(str, of_site))}.",
        )

    @property
    def outcomes(self) -> np.ndarray | None:
        """The token ids that each row's posterior is over, `[row, outcome]`; None where there is no posterior."""
        is_known = self.prompts.outcome_ids is not None and self.posterior is not None
        return self.prompts.outcomes_of(self.rows["prompt"]) if is_known else None

    @property
    def drawn(self) -> "Capture":
        """The capture restricted to the drawn prompts (all if nothing was drawn)."""
        return self.where(self.rows["drawn"].astype(bool))

    def where(self, keep: np.ndarray) -> "Capture":
        """The capture restricted to the scored rows that a boolean mask `[row]` picks.

        It keeps rows at scored positions, prompt means of texts, and weights; nothing else can be restricted.
        """
        keep = np.asarray(keep)
        if keep.dtype != bool or keep.shape != (self.rows.n_rows,):
            found = f"its shape is {list(keep.shape)}, its dtype {keep.dtype}"
            fix = f"Give one boolean for each of the {counted(self.rows.n_rows, 'row')} in `rows`."
            raise UsageError(asked="a capture restricted by a mask", found=found, fix=fix)
        arrays: dict[Need, Mapping[str, np.ndarray]] = {}
        for need, reduced in self.arrays.items():
            if need.described.source == "weights":
                arrays[need] = reduced
            elif need.at == "scored" and isinstance(need.reduction, Rows):
                axis = 0 if need.described.layers == "once" else 1
                arrays[need] = {"rows": np.compress(keep, reduced["rows"], axis=axis)}
            elif isinstance(need.reduction, PromptMean) and self.prompts.is_text:
                arrays[need] = {"rows": np.compress(keep, reduced["rows"], axis=1)}
        exact = {name: None if x is None else x[keep] for name, x in self._exact.items()}
        return replace(self, tables={"scored": self.rows.where(keep)}, arrays=arrays, **exact)

    def save(self, path: str | Path) -> Path:
        """Write the capture as a folder that `interp.open_capture` reads, whole or not at all; returns the path.

        `capture.json` holds model, needs and provenance, `prompts.parquet` the prompts, `rows.*.parquet` the tables of
        rows, and every array is a safetensors file. Raises `RecordError` if the folder exists or cannot be written.
        """
        path = plain_path(path)
        asked = f"writing the capture to {path}"
        try:
            with telling(asked), writing(path) as folder:
                folder.mkdir()
                self._write(folder)
        except ValueError as error:  # of pyarrow too
            fix = "Columns hold numbers or texts of one kind, texts are valid Unicode, arrays are numbers."
            raise RecordError(asked=asked, found=str(error), fix=fix) from error
        return path

    def _write(self, folder: Path) -> None:
        needs = [self._write_need(i, need, folder) for i, need in enumerate(self.arrays)]
        exact = {f"rows.{name}": x for name, x in self._exact.items()}
        exact |= {name: getattr(self.prompts, name) for name in ("posterior", "belief", "outcome_ids")}
        known = {name: array for name, array in exact.items() if array is not None}
        for name, array in known.items():
            write_array(folder / f"{name}.safetensors", array)
        self.prompts.to_frame().to_parquet(folder / "prompts.parquet", index=False)
        rows = {at: f"rows.{file}.parquet" for at, file in file_names(self.tables).items()}
        for at, table in self.tables.items():
            table.to_frame().to_parquet(folder / rows[at], index=False)
        content: dict[str, Any] = {
            "model": asdict(self.model) | {"tensor_kinds": dict(self.model.tensor_kinds or {}) or None},
            "prompts": self.prompts.described(),
            "tables": {at: {"units": t.units, "caption": t.caption, "file": rows[at]} for at, t in self.tables.items()},
            "needs": needs,
            "exact": list(known),
            "seed": self.seed,
            "layers": self.layers,
            "provenance": self.provenance,
            "files": {file.name: digest_of_file(file) for file in sorted(folder.iterdir())},
        }
        content = json.loads(json.dumps(content))
        content = {"format": FORMAT, "digest": digest_of(content), **content}
        (folder / "capture.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def _write_need(self, i: int, need: Need, folder: Path) -> dict[str, Any]:
        if REDUCTIONS.get(need.kind) is not type(need.reduction):
            raise RecordError(
                asked=f"writing {need.site} to a file",
                found=f"its reduction {need.kind} is a probe's own, which no other program knows",
                fix=f"Capture it by one of {', '.join(REDUCTIONS)}.",
            )
        files = {}
        for name in self.arrays[need]:
            files[name] = f"{i}-{need.site}.{name}.safetensors"
            write_array(folder / files[name], self.arrays[need][name])
        how = asdict(need.reduction)  # pyrefly: ignore[bad-argument-type]
        described = {"site": need.site, "at": need.at, "fold": need.kind, "fold_fields": how, "arrays": files}
        return described | ({} if need.layers is None else {"layers": need.layers})

    @property
    def _exact(self) -> dict[str, np.ndarray | None]:
        return {"posterior": self.posterior, "belief": self.belief}
