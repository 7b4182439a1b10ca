"""Takes the rows of every need from each batch of a forward pass and reduces them, layer by layer.

Several collectors may share a pass: each reads its own items of the batch.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, groupby

import numpy as np
import torch

from interp.errors import ModelError
from interp.hooks.attention import Listener
from interp.hooks.pattern import BLOCK, AttentionCall, can_be_stacked, stacked
from interp.hooks.pattern_sites import MAX_KEPT_KEYS, NULL_SITES, KeyDonors, PatternReader
from interp.information import BITS_PER_NAT
from interp.model import Model
from interp.need import Need
from interp.prompt import PromptSet
from interp.reading.batches import Batch, BatchRows, depth_of, layers_of, rows_of
from interp.reading.lens import Lens
from interp.records.unfinished import Name
from interp.reductions import Rows, RunningState
from interp.system.float64 import double
from interp.system.processes import Ranks

LOGITS_AT_ONCE = 1 << 21

IMPOSSIBLE = -1e30
"""The log-probability used for probability 0 in sums, as its product with 0 is 0."""

_ATTRIBUTED = {"attn_logit": "attn_out", "mlp_logit": "mlp_out"}

_DECODED_AT_ONCE = 256
"""Residual vectors decoded at once (at least those of one depth), for which the head's weights are read once."""

_WAITING_BYTES, _WAITING_SCORES = {True: 1 << 24, False: 1 << 28}, {True: 1 << 22, False: 1 << 26}
"""Limits of what layers that are reduced together hold, on the CPU and elsewhere: one operation and one copy for many
layers is faster."""

_ORDER, _ENTROPY = "order", "entropy"
Key = tuple[Need | str, int | str]
"""A need and a layer, or the order of rows or the entropy of the next token and the positions that these are of."""

OF_THE_END = frozenset({"lens_kl", *_ATTRIBUTED})
"""Sites of a layer that also depend on the last layer: an edit changes them in layers before it too."""


class Collector(Listener):
    """Takes the rows of every need from each batch and reduces them, one state a need and layer.

    `layers` are those that are read (None: all); `with_entropy` also keeps the entropy of the next token.
    `unedited` are the log2 probabilities of the next token without edits, `[scored row, vocab]`, for `next_kl`; without
    them nothing was edited. A pass that starts at `first_layer` takes the layers before it from `earlier`.
    """

    def __init__(
        self,
        model: Model,
        prompts: PromptSet,
        lengths: list[int],
        needs: tuple[Need, ...],
        *,
        layers: Sequence[int] | None = None,
        with_entropy: bool = True,
        unedited: np.ndarray | None = None,
        first_layer: int = 0,
        earlier: "Collector | None" = None,
    ) -> None:
        self.model, self.unedited, self.first_layer, self.earlier = model, unedited, first_layer, earlier
        live = [n for n in needs if n.described.source not in ("weights", "edit")]
        self.index = rows_of(prompts, np.array(lengths), live)
        self.by_source: dict[str, list[Need]] = {}
        for need in live:
            self.by_source.setdefault(need.described.source, []).append(need)
        self.only_layers = None if layers is None else tuple(layers)
        self.layers = {need: layers_of(need, layers, model.info) for need in live}
        self._here = {need: [i for i in of if i >= first_layer] for need, of in self.layers.items()}
        """The layers of each need that this pass reads, and not an earlier one."""
        depths = (depth_of(need, self.layers[need], model.info) for need in live)
        self.depth = model.info.n_layers + 1 if with_entropy else max(depths, default=0)
        """The depth of the residual stream at which everything is read; outputs come after the last."""
        self.states: dict[Key, RunningState] = {}
        self.rows: dict[str, BatchRows] = {}
        self._passing: dict[Key, RunningState] = {}
        self.lens = Lens(model) if {"lens", "text"} & set(self.by_source) else None
        self.stream: dict[tuple[str, int], torch.Tensor] = {}
        self.lengths = np.array(lengths)
        self.clusters = prompts.cluster_codes
        kinds = {_ORDER: Rows(), _ENTROPY: Rows()} | {need: need.reduction for need in live}
        self._start = {kind: reduction.starter(self.clusters) for kind, reduction in kinds.items()}
        self.n_kept_keys = max(lengths) if prompts.is_tunnel and max(lengths) <= MAX_KEPT_KEYS else 0
        self._outcomes = prompts.outcomes_of
        self.donors = KeyDonors()
        self._calls: list[tuple[AttentionCall, AttentionCall]] = []
        """Layers whose patterns are still to be read: with their own keys, and with shuffled keys."""
        self._waiting: dict[tuple[Need, int, torch.device], list[tuple[Sequence[int], torch.Tensor]]] = {}
        """By need, first row and device: layers, and the values read there `[layer, row, ...]`."""
        self._waiting_bytes = 0
        self.items = slice(0)

    @property
    def block_sites(self) -> set[str]:
        """The sites that forward hooks have to report."""
        sites = {need.site for need in self.by_source.get("block", ())}
        if "lens" in self.by_source:
            sites |= {"resid", *(_ATTRIBUTED[n.site] for n in self.by_source["lens"] if n.site in _ATTRIBUTED)}
        return sites

    @property
    def needs_donor(self) -> bool:
        """Whether the first prompt of a batch meets the keys of the last one of the batch before."""
        return any(need.site in NULL_SITES for need in self.by_source.get("pattern", ()))

    def begin(self, batch: Batch, start: int) -> None:
        """Announce the batch of the next pass, its items from `start` on; drop the rows of a pass without an `end`."""
        self._batch = batch
        self.items = slice(start, start + len(batch.ids))
        self._passing, self._calls, self._waiting, self._waiting_bytes = {}, [], {}, 0
        self.donors.begin(self.lengths[batch.prompts], self.clusters[batch.prompts])
        self.rows = {at: batch.rows(index) for at, index in self.index.items()}
        for at, rows in self.rows.items():
            self._add((_ORDER, at), rows.row, rows.prompt)

    def end(self) -> None:
        """Keep the rows of the announced pass."""
        self.donors.end()
        merge_states(self.states, self._passing)

    def _rows(self, at: str, device: torch.device) -> BatchRows:
        """The rows of the batch, as indices on this device: layers may lie on several."""
        self.rows[at] = self.rows[at].to(device)
        return self.rows[at]

    def after(self, call: AttentionCall, z: torch.Tensor) -> torch.Tensor:
        """One layer's attention, of the whole batch."""
        read, wanted = self._at_layer("attention", call.layer), self._at_layer("pattern", call.layer)
        if not (read or wanted):
            return z
        mine = call.of(self.items)
        for need in read:
            rows = self._rows(need.at, z.device)
            by_position = z[self.items] if need.site == "z" else getattr(mine, need.site).transpose(1, 2)
            self._reduce(need, [call.layer], by_position[rows.item, rows.position][None])  # [layer, row, head, d_head]
        if not wanted:
            return z
        swapped = self.donors.swapped(mine) if any(need.site in NULL_SITES for need in wanted) else mine
        if self._calls:
            before = self._calls[-1][0]
            if not can_be_stacked(before, mine) or wanted != self._at_layer("pattern", before.layer):
                self._read_patterns()
        self._calls.append((mine, swapped))
        n_rows = max(min(BLOCK, self.rows[need.at].padded.shape[1]) for need in wanted)
        n_scores = len(mine.q) * mine.q.shape[1] * n_rows * mine.k.shape[2]
        n_bytes = (mine.q.numel() + 2 * mine.k.numel()) * mine.q.element_size()
        n = len(self._calls) + 1
        on_cpu = z.device.type == "cpu"
        if n * n_scores > _WAITING_SCORES[on_cpu] or n * n_bytes > _WAITING_BYTES[on_cpu]:
            self._read_patterns()
        return z

    def _read_patterns(self) -> None:
        """Read and reduce the patterns of the layers in `_calls`, all at once."""
        calls, self._calls = self._calls, []
        if not calls:
            return
        mine, swapped = zip(*calls, strict=True)
        layers = [call.layer for call in mine]
        own = stacked(mine)
        null = own if swapped[0] is mine[0] else stacked(swapped)
        wanted = self._at_layer("pattern", layers[0])
        for at in dict.fromkeys(need.at for need in wanted):
            rows = self._rows(at, own.q.device)
            positions = rows.padded if len(rows.padded) == 1 else rows.padded.repeat(len(layers), 1)
            readers = [
                PatternReader(each, positions, self.n_kept_keys, int(self.lengths.max())) for each in (own, null)
            ]
            for need in wanted:
                if need.at == at:
                    read = readers[need.site in NULL_SITES].read(need.site).unflatten(0, (len(layers), -1))
                    self._reduce(need, layers, read[:, rows.item, rows.slot])  # [layer, row, head, ...]

    def _at_layer(self, source: str, layer: int) -> list[Need]:
        return [need for need in self.by_source.get(source, ()) if layer in self._here[need]]

    def block(self, site: str, layer: int, tensor: torch.Tensor) -> None:
        """A block site, of the whole batch."""
        if layer < self.first_layer:
            return
        tensor = tensor[self.items]
        if "lens" in self.by_source:
            scored = self._rows("scored", tensor.device)
            self.stream[site, layer] = tensor[scored.item, scored.position]  # [row, d_model]
        for need in self._at_layer("block", layer):
            if need.site == site:
                rows = self._rows(need.at, tensor.device)
                self._reduce(need, [layer], tensor[rows.item, rows.position][None])

    def scored_rows(self, normed: torch.Tensor) -> torch.Tensor:
        """The rows whose logits are computed, of the input of the output head `[batch, pos, d_model]`.

        The surprisal of the text is computed here, in parts: logits of all positions would not fit.
        """
        mine = normed[self.items]
        for need in self.by_source.get("text", ()):
            rows = self._rows(need.at, mine.device)
            followers = self._batch.followers(self.index[need.at]).to(mine.device)
            assert self.lens is not None
            surprise = self.lens.surprise(mine[rows.item, rows.position], followers)
            self._reduce(need, [0], surprise[None] * BITS_PER_NAT)
        rows = self._rows("scored", mine.device)
        return mine[rows.item, rows.position]

    def next_token(self, logits: torch.Tensor) -> None:
        """The logits of this collector's scored rows, `[row, vocab]`."""
        step = max(1, LOGITS_AT_ONCE // logits.shape[-1])
        for start in range(0, len(logits), step):
            log_p = torch.log_softmax(logits[start : start + step].float(), dim=-1)
            entropy = entropy_nats(log_p) * BITS_PER_NAT
            refuse_infinite(self.model, entropy)
            prompts = self.rows["scored"].prompt[start : start + len(log_p)]
            self._add((_ENTROPY, "scored"), double(entropy).cpu().numpy(), prompts)
            for need in self.by_source.get("output", ()):
                self._reduce(need, [0], self._output(need.site, log_p, start)[None], start)
            if "lens" in self.by_source:
                self._read_stream(log_p.clamp_min(IMPOSSIBLE), start)

    def _output(self, site: str, log_p: torch.Tensor, start: int) -> torch.Tensor:
        """An output site in bits, from natural log-probabilities of the scored rows of the batch from `start` on."""
        if site == "outcome_log_prob":
            named = self._outcomes(self.rows["scored"].prompt[start : start + len(log_p)])
            return log_p.gather(1, torch.tensor(named).to(log_p.device)) * BITS_PER_NAT
        if site == "next_kl":
            return self._moved(log_p * BITS_PER_NAT, start)
        return log_p * BITS_PER_NAT

    def _moved(self, log2_p: torch.Tensor, start: int) -> torch.Tensor:
        """KL(unedited || edited) of the next token in bits; 0 where nothing was edited."""
        if self.unedited is None:
            return log2_p.new_zeros(len(log2_p))
        before = torch.from_numpy(self.unedited[self.rows["scored"].row[start : start + len(log2_p)]]).to(log2_p.device)
        # Where the unedited probability is 0 the outcome contributes nothing, whatever the edited one is.
        terms = torch.where(before > -torch.inf, before.exp2() * (before - log2_p), 0.0)
        return terms.sum(dim=-1).clamp_min(0.0)

    def _read_stream(self, final: torch.Tensor, start: int) -> None:
        """Lens sites of the rows from `start` on, whose final log-probabilities (nats) are `final`."""
        assert self.lens is not None
        stream = {key: x[start : start + len(final)].to(final.device) for key, x in self.stream.items()}
        n_layers = self.model.info.n_layers
        attributed = [need for need in self.by_source["lens"] if need.site in _ATTRIBUTED]
        if attributed:
            direction = self.lens.direction(stream["resid", n_layers], final.argmax(dim=-1))
            for need in attributed:
                for layer in self._here[need]:
                    part = stream[_ATTRIBUTED[need.site], layer].float()  # [row, d_model]
                    # A difference, as the offset of a lens belongs to no part.
                    part = self._carried(part, layer + 1) - self._carried(torch.zeros_like(part[:1]), layer + 1)
                    self._reduce(need, [layer], (part * direction).sum(dim=-1)[None], start)  # [layer, row]
        decoding = [need for need in self.by_source["lens"] if need.site not in _ATTRIBUTED]
        wanted = [depth for depth in range(n_layers + 1) if any(depth in self._here[need] for need in decoding)]
        n_rows, vocab = final.shape
        keep = any(need.site == "lens_log_prob" and need.reduction.keeps(vocab) for need in decoding)
        together = max(1, LOGITS_AT_ONCE // final.numel() if keep else _DECODED_AT_ONCE // n_rows)
        for depths in (wanted[first : first + together] for first in range(0, len(wanted), together)):
            x = torch.stack([self._carried(stream["resid", depth], depth) for depth in depths])  # [depth, row, d_model]
            decoded = self.lens.decode(x, final, keep=keep)
            for need in decoding:
                read = decoded.get(need.site)
                for i, depth in enumerate(depths):
                    if depth in self._here[need]:
                        nats = final[:, :0] if read is None else read[i]
                        self._reduce(need, [depth], nats[None] * BITS_PER_NAT, start)

    def _carried(self, x: torch.Tensor, depth: int) -> torch.Tensor:
        return x if self.model.lens is None else self.model.lens.carried(x, depth)

    def _reduce(self, need: Need, layers: Sequence[int], rows: torch.Tensor, start: int = 0) -> None:
        """Queue rows `[layer, row, ...]`, those of the batch from `start` on."""
        self._waiting.setdefault((need, start, rows.device), []).append((layers, rows))
        self._waiting_bytes += rows.numel() * rows.element_size()
        if self._waiting_bytes > _WAITING_BYTES[rows.device.type == "cpu"]:
            self._take_in()

    def _take_in(self) -> None:
        """Reduce the queued rows, copied from their device together."""
        waiting, self._waiting, self._waiting_bytes = self._waiting, {}, 0
        for (need, start, _), parts in waiting.items():
            for _, same_shape in groupby(parts, key=lambda part: part[1].shape[1:]):
                of_parts, tensors = zip(*same_shape, strict=True)
                rows = (torch.cat(tensors) if len(tensors) > 1 else tensors[0]).float().cpu().numpy()
                prompts = self.rows[need.at].prompt[start : start + rows.shape[1]]
                for layer, of_layer in zip(chain(*of_parts), rows, strict=True):
                    self._add((need, layer), of_layer, prompts)

    def _add(self, key: Key, rows: np.ndarray, prompts: np.ndarray) -> None:
        if key not in self._passing:
            self._passing[key] = self._start[key[0]]()
        self._passing[key].add(rows, prompts)

    def finish(self) -> None:
        """Reduce all that is queued, at the end of a pass."""
        self._read_patterns()
        self._take_in()

    def saved(self) -> Iterator[tuple[Name, np.ndarray]]:
        """All that was reduced up to the end of a batch, by name, for `restore`."""
        kinds = [*self._start]
        for (kind, where), state in self.states.items():
            for name, array in state.saved().items():
                yield (kinds.index(kind), where, name), array

    def restore(self, saved: Mapping[Name, np.ndarray]) -> None:
        """Continue from the `saved` arrays of a collector of the same needs."""
        kinds = [*self._start]
        reduced: dict[Key, dict[str, np.ndarray]] = {}
        for (kind, where, name), array in saved.items():
            reduced.setdefault((kinds[int(kind)], where), {})[str(name)] = array
        for key, arrays in reduced.items():
            self.states[key] = self._start[key[0]]()
            self.states[key].restore(arrays)

    def join(self, ranks: Ranks) -> None:
        """Merge the states of the collectors of all ranks."""
        for kind in self._start:
            merged: dict[Key, RunningState] = {}
            for theirs in ranks.union({key: state for key, state in self.states.items() if key[0] == kind}):
                merge_states(merged, theirs)
            self.states |= merged

    def entropy(self, at: str) -> np.ndarray | None:
        """Next-token entropy in bits of the scored rows, in their order; None where the pass ends before it."""
        if at != "scored" or self.depth <= self.model.info.n_layers:
            return None
        return self._in_order("scored", self.states[_ENTROPY, "scored"])

    def _in_order(self, at: str, state: RunningState) -> np.ndarray:
        order = self.states[_ORDER, at].result()["rows"]
        return state.result()["rows"][np.argsort(order)]

    def reduced(self, need: Need) -> Mapping[str, np.ndarray]:
        """The reduction's arrays with the layers in front, rows in the order of the prompts."""
        once = need.described.layers == "once"
        layers = [self._result(need, layer, once) for layer in self.layers[need]]
        stacked = {name: np.stack([reduced[name] for reduced in layers]) for name in layers[0]}
        return {name: np.asarray(a[0]) for name, a in stacked.items()} if once else stacked

    def _result(self, need: Need, layer: int, once: bool) -> dict[str, np.ndarray]:
        if self.earlier is not None and layer < self.first_layer and not once:
            return self.earlier._result(need, layer, once)
        state = self.states[need, layer]
        return {"rows": self._in_order(need.at, state)} if isinstance(need.reduction, Rows) else state.result()


def merge_states(mine: dict[Key, RunningState], later: Mapping[Key, RunningState]) -> None:
    """Merge states of further rows into `mine`."""
    for key, state in later.items():
        if key in mine:
            mine[key].merge(state)
        else:
            mine[key] = state


def entropy_nats(log_p: torch.Tensor) -> torch.Tensor:
    """Entropy along the last axis of log-probabilities; an outcome of probability zero contributes nothing."""
    return -log_p.clamp_min(IMPOSSIBLE).mul_(log_p.exp()).sum(dim=-1)


def refuse_infinite(model: Model, numbers: torch.Tensor) -> None:
    """Raise `ModelError` where numbers of the logits are not finite."""
    if not torch.isfinite(numbers).all():
        raise ModelError(
            asked=f"the next-token distribution of {model.name}", found="the logits are not finite",
            fix=f"Load the model in float32 (now {model.info.dtype}), check its weights, or make edits smaller.",
        )  # fmt: skip
