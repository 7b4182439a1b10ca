"""The pass: one forward pass a prompt, every need of every probe served from it, folded as it streams by."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from interp.attention import Listener, listening
from interp.batches import Batch, BatchRows, RowIndex, cut_batches, row_index
from interp.capture import Capture
from interp.errors import ModelError
from interp.families import iterate_weights
from interp.folds import FoldState, Rows
from interp.hooks import block_hooks
from interp.information import BITS_PER_NAT
from interp.lens import Lens
from interp.model import Model
from interp.need import Need
from interp.other_keys import OtherKeys
from interp.pattern import AttentionCall
from interp.pattern_sites import NULL_SITES, PatternReader, kept_keys
from interp.prompt import PromptSet
from interp.table import LABEL, Table

TOKENS_PER_BATCH = 2048
_LOGITS_AT_ONCE = 1 << 23

Progress = Callable[[int, int], None]
"""Called with the prompts done and the prompts in all after every batch."""

_ATTRIBUTED = {"attn_logit": "attn_out", "mlp_logit": "mlp_out"}

_DECODED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "lens_log_prob": lambda decoded, final: decoded,
    "lens_entropy": lambda decoded, final: entropy_nats(decoded),
    "lens_kl": lambda decoded, final: (final.exp() * (final - decoded)).sum(dim=-1),
}
"""Lens sites in nats, from log-probabilities decoded at one depth and the final ones."""


def capture(
    model: Model,
    prompts: PromptSet,
    ids: Sequence[Int[np.ndarray, " _pos"]],
    needs: Iterable[Need],
    *,
    tokens_per_batch: int = TOKENS_PER_BATCH,
    listeners: Sequence[Listener] = (),
    progress: Progress | None = None,
    seed: int = 0,
) -> Capture:
    """Run the prompts, given as token ids, through the model once and return what `needs` ask for.

    `listeners` act before anything is read (an edit, say). Raises `ModelError` where the model yields NaN.
    """
    needs = tuple(dict.fromkeys(needs))
    collector = _Collector(model, prompts, [len(x) for x in ids], needs)
    done = 0
    with torch.inference_mode(), listening(model, *listeners, collector), collector.hooks():
        for batch in cut_batches(ids, tokens_per_batch, model.input_device):
            collector.take(batch)
            done += len(batch.prompts)
            if progress is not None:
                progress(done, len(ids))
    arrays = {need: collector.folded(need) for need in needs if need.described.source != "weights"}
    for need in needs:
        if need.described.source == "weights":
            weights = iterate_weights(model.module, model.family, need.site)  # pyright: ignore[reportArgumentType]
            arrays[need] = {"rows": np.stack([w.detach().float().cpu().numpy() for w in weights])}
    return Capture(
        model=model.info,
        prompts=prompts,
        tables={at: _row_table(prompts, ids, index, collector.entropy(at)) for at, index in collector.index.items()},
        arrays=arrays,
        seed=seed,
        posterior=prompts.posterior,
        belief=prompts.belief,
    )


class _Collector(Listener):
    """Takes the rows of every need from each batch and folds them, one state a need and layer."""

    def __init__(self, model: Model, prompts: PromptSet, lengths: list[int], needs: tuple[Need, ...]) -> None:
        self.model = model
        live = [n for n in needs if n.described.source != "weights"]
        self.index = {
            at: row_index(prompts, np.array(lengths), at) for at in dict.fromkeys(["scored", *(n.at for n in live)])
        }
        self.by_source: dict[str, list[Need]] = {}
        for need in live:
            self.by_source.setdefault(need.described.source, []).append(need)
        self.states: dict[tuple[Need, int], FoldState] = {}
        self.order: dict[str, list[np.ndarray]] = {at: [] for at in self.index}
        self.rows: dict[str, BatchRows] = {}
        self.next_entropy: list[np.ndarray] = []
        self.lens = Lens(model) if "lens" in self.by_source else None
        self.stream: dict[tuple[str, int], torch.Tensor] = {}
        self.lengths = np.array(lengths)
        self.n_kept_keys = kept_keys(prompts, lengths)
        self.outcome_ids = prompts.outcome_ids if prompts.outcome_ids is not None else np.empty(0, dtype=np.int64)
        self.other_keys = OtherKeys()

    @contextmanager
    def hooks(self):
        """Forward hooks for what the seam does not see, and for logits at the scored rows alone."""
        sites = {need.site for need in self.by_source.get("block", ())}
        if self.lens is not None:
            sites |= {"resid", "attn_out", "mlp_out"}
        head: Any = self.model.module.get_output_embeddings()
        handle = head.register_forward_pre_hook(self._keep_scored_rows)
        try:
            with block_hooks(self.model, sites, self._block):
                yield
        finally:
            handle.remove()

    def take(self, batch: Batch) -> None:
        """One forward pass of one batch."""
        self.rows = {at: batch.rows(index) for at, index in self.index.items()}
        for at, rows in self.rows.items():
            self.order[at].append(rows.row)
        self.other_keys.next_batch(self.lengths[batch.prompts])
        logits = self.model.module(input_ids=batch.ids, use_cache=False).logits[0]
        self._next_token(logits)

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        for need in self.by_source.get("seam", ()):
            rows = self.rows[need.at]
            if need.site == "z":
                self._fold(need, call.layer, z[rows.item, rows.position])
            else:
                self._fold(need, call.layer, getattr(call, need.site)[rows.item, :, rows.position])
        wanted = self.by_source.get("pattern", ())
        other = self.other_keys.swapped(call) if any(need.site in NULL_SITES for need in wanted) else None
        for at in dict.fromkeys(need.at for need in wanted):
            rows = self.rows[at]
            reader = PatternReader(call, rows.padded, other, self.n_kept_keys)
            for need in wanted:
                if need.at == at:
                    self._fold(need, call.layer, reader.read(need.site)[rows.item, rows.slot])
        return z

    def _block(self, site: str, layer: int, tensor: torch.Tensor) -> None:
        if self.lens is not None:
            scored = self.rows["scored"]
            self.stream[site, layer] = tensor[scored.item, scored.position]
        for need in self.by_source.get("block", ()):
            if need.site == site:
                rows = self.rows[need.at]
                self._fold(need, layer, tensor[rows.item, rows.position])

    def _keep_scored_rows(self, head: torch.nn.Module, args: tuple[Any, ...]) -> tuple[torch.Tensor, ...]:
        rows = self.rows["scored"]
        return (args[0][rows.item, rows.position][None],)

    def _next_token(self, logits: torch.Tensor) -> None:
        step = max(1, _LOGITS_AT_ONCE // logits.shape[-1])
        for start in range(0, len(logits), step):
            log_p = torch.log_softmax(logits[start : start + step].float(), dim=-1)
            entropy = entropy_nats(log_p) * BITS_PER_NAT
            if not torch.isfinite(entropy).all():
                raise ModelError(
                    asked=f"the next-token distribution of {self.model.name}",
                    found="the logits are not finite",
                    fix=f"Load the model in float32 (it was read in {self.model.info.dtype}), or check its weights.",
                )
            self.next_entropy.append(entropy.double().cpu().numpy())
            for need in self.by_source.get("output", ()):
                named = self._named(start, len(log_p)) if need.site == "outcome_log_prob" else None
                shown = log_p if named is None else log_p.gather(1, named)
                self._fold(need, 0, shown * BITS_PER_NAT, start)
            if self.lens is not None:
                self._read_stream(self.lens, log_p, start)

    def _named(self, start: int, n: int) -> torch.Tensor:
        """The outcomes of `n` scored rows of the batch from `start` on, `[row, outcome]`."""
        ids = self.outcome_ids
        prompt = self.rows["scored"].prompt[start : start + n]
        named = ids[prompt] if ids.ndim == 2 else np.broadcast_to(ids, (n, len(ids)))
        return torch.tensor(named, device=self.model.input_device)

    def _read_stream(self, lens: Lens, final: torch.Tensor, start: int) -> None:
        """Lens sites of the rows from `start` on, whose final log-probabilities (nats) are `final`."""
        stream = {key: x[start : start + len(final)] for key, x in self.stream.items()}
        n_layers = self.model.info.n_layers
        direction = lens.direction(stream["resid", n_layers], final.argmax(dim=-1))
        for need in self.by_source["lens"]:
            if need.site in _ATTRIBUTED:
                for layer in range(n_layers):
                    part = stream[_ATTRIBUTED[need.site], layer].float()
                    self._fold(need, layer, (part * direction).sum(dim=-1), start)
        decoding = [need for need in self.by_source["lens"] if need.site in _DECODED]
        if not decoding:
            return
        # Several depths share one multiplication: with few rows, reading the head's weights is what costs.
        n_rows, vocab = final.shape
        together = max(1, _LOGITS_AT_ONCE // (n_rows * vocab))
        for depths in torch.arange(n_layers + 1).split(together):
            x = torch.cat([stream["resid", int(depth)] for depth in depths])
            log_q = torch.log_softmax(lens.logits(x), dim=-1).unflatten(0, (-1, n_rows))
            for depth, decoded in zip(depths.tolist(), log_q, strict=True):
                for need in decoding:
                    self._fold(need, depth, _DECODED[need.site](decoded, final) * BITS_PER_NAT, start)

    def _fold(self, need: Need, layer: int, rows: torch.Tensor, start: int = 0) -> None:
        state = self.states.setdefault((need, layer), need.fold.start())
        state.add(rows.float().cpu().numpy(), self.rows[need.at].prompt[start : start + len(rows)])

    def entropy(self, at: str) -> np.ndarray | None:
        """Next-token entropy in bits of the scored rows, in their order."""
        return self._in_order("scored", np.concatenate(self.next_entropy)) if at == "scored" else None

    def _in_order(self, at: str, rows: np.ndarray, axis: int = 0) -> np.ndarray:
        return np.take(rows, np.argsort(np.concatenate(self.order[at])), axis=axis)

    def folded(self, need: Need) -> Mapping[str, np.ndarray]:
        """The fold's arrays with the layers in front, rows in the order of the prompts."""
        n_layers = {"layer": self.model.info.n_layers, "depth": self.model.info.n_layers + 1, "once": 1}
        layers = [self.states[need, layer].result() for layer in range(n_layers[need.described.layers])]
        stacked = {name: np.stack([folded[name] for folded in layers]) for name in layers[0]}
        if isinstance(need.fold, Rows):
            stacked["rows"] = self._in_order(need.at, stacked["rows"], axis=1)
        return {k: a[0] for k, a in stacked.items()} if need.described.layers == "once" else stacked


def entropy_nats(log_p: torch.Tensor) -> torch.Tensor:
    """Entropy along the last axis of log-probabilities; an outcome of probability zero contributes nothing."""
    return -(log_p.exp() * log_p.clamp_min(-1e30)).sum(dim=-1)


def _row_table(prompts: PromptSet, ids: Sequence[np.ndarray], index: RowIndex, entropy: np.ndarray | None) -> Table:
    """One table row for every captured (prompt, position) pair, with the columns of its prompt."""
    tokens = np.array([ids[p][i] for p, i in zip(index.prompt, index.position, strict=True)], dtype=np.int64)
    columns: dict[str, np.ndarray] = {
        "prompt": index.prompt,
        "position": index.position,
        "length": np.array([len(x) for x in ids])[index.prompt],
        "token": tokens,
    }
    units = {"prompt": "index", "position": "tokens", "length": "tokens", "token": "index"}
    if entropy is not None:
        columns["next_entropy_bits"], units["next_entropy_bits"] = entropy, "bits"
        columns["drawn"], units["drawn"] = np.ones(len(index), dtype=bool), LABEL
        columns["stratum"], units["stratum"] = np.zeros(len(index), dtype=np.int64), LABEL
    for name in prompts.prompts[0].columns:
        values = np.array([p.columns[name] for p in prompts])
        columns[name], units[name] = values[index.prompt], prompts.units[name]
    if entropy is not None:
        for name in prompts.prompts[0].scored_columns:
            values = np.concatenate([np.asarray(p.scored_columns[name]) for p in prompts])
            columns[name], units[name] = values, prompts.units[name]
    return Table(columns, units)
