"""Fitting a lens: its prompts, the held-out ones, and resuming."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int

from interp.editing.editor import edits_applied
from interp.editing.screen import token_bytes
from interp.errors import PromptError, UnknownName, UsageError
from interp.hooks.layer_gradients import refuse_without_gradients, with_gradients
from interp.lens.files import refuse_layout
from interp.lens.held import HeldOut
from interp.lens.jacobian import N_GROUPS, Valid, fit_jacobian, steps_of
from interp.lens.kinds import KINDS, FittedLens, Kind
from interp.lens.tuned import N_FOLDS, TunedFit
from interp.loading.aliases import MEMORY
from interp.model import Model
from interp.need import Need
from interp.options import RunOptions
from interp.prompt import Prompts, Run
from interp.prompting.clusters import with_clusters
from interp.prompting.pools import prompts_for
from interp.prompting.tokens import as_tokens
from interp.reading.forward import TOKENS_PER_BATCH, capture
from interp.reading.lens import Lens
from interp.records.unfinished import PARTIAL, Unfinished, refuse_unwritable
from interp.system.digest import digest_of
from interp.system.progress import reporting

PRECISION_BITS = 0.05
HELD_OUT, MOST_HELD = 0.2, 64
"""Share of the prompts that are held out, and how many at most."""

TUNED_ROWS = 4096
"""Rows that a tuned lens is trained on, at most."""


@dataclass(frozen=True, kw_only=True)
class FitPrompts(Run):
    """The prompts of a fit; `held` are those held out: whole clusters."""

    held: Int[np.ndarray, " held"]
    fitted: Int[np.ndarray, " fitted"]
    valid: Valid

    def groups(self, n: int, seed: int) -> Int[np.ndarray, " prompt"]:
        """The group of every prompt, with clusters assigned to `n` groups at random."""
        code = self.prompts.cluster_codes
        place = np.random.default_rng([seed, 2]).permutation(int(code.max()) + 1)
        return np.unique(place[code], return_inverse=True)[1] % n

    def held_out(self, model: Model) -> HeldOut:
        return HeldOut(model, self.take(self.held))

    @property
    def of_fit(self) -> dict[str, str]:
        """Entries of `FittedLens.about`: the name of the prompts, and a digest of those held out."""
        return {"prompts": self.prompts.name, "held_out": digest_of([self.ids[i].tolist() for i in self.held])}

    def refuse_fitted(self, lens: FittedLens) -> None:
        """Raise `UsageError` if the lens may have been fitted on prompts that are held out here."""
        fit = {**self.of_fit, **lens.about}
        if fit["prompts"] == self.prompts.name and fit["held_out"] != self.of_fit["held_out"]:
            raise UsageError(
                asked=f"the {lens.kind} lens of {lens.model} on prompts of {self.prompts.name!r} held out",
                found="its fit held out others, so it may have been fitted on these",
                fix="Give the same --seed, --n-pool and --window as the fit, or prompts of another file.",
            )


def fit_prompts(model: Model, asked: RunOptions, skip_first: int | None = None, horizon: int = 0) -> FitPrompts:
    """The prompts that a lens is fitted on and those held out, of those that a run would read.

    The first `skip_first` positions of a text (16) and the last one do not count; all of a tunnel's sequence do. Raises
    `PromptError` if too few prompts have a position that counts.
    """
    pool, seed = prompts_for(model, asked), asked.seed
    ids = as_tokens(model, pool, (), asked.window).ids
    pool = with_clusters(pool, ids)
    is_text = model.task is None
    valid = Valid((16 if is_text else 0) if skip_first is None else skip_first, int(is_text), horizon)
    code, lengths = pool.cluster_codes, np.array([len(x) for x in ids])
    order = np.random.default_rng([seed, 1]).permutation(np.unique(code))
    sizes = np.bincount(code)[order].cumsum()
    n_held = max(1, int(np.searchsorted(sizes, min(HELD_OUT * len(ids), MOST_HELD), side="right")))
    is_held = np.isin(code, order[:n_held])
    fitted = np.flatnonzero(~is_held & (lengths > valid.first + valid.last))
    if len(np.unique(code[fitted])) < 2:
        raise PromptError(
            asked=f"a lens fitted on {pool.name!r}",
            found=f"fewer than 2 clusters of its {len(ids)} prompts are fitted on and have more than "
            f"{valid.first + valid.last} tokens",
            fix="Give more prompts or longer ones, or count more positions (skip_first).",
        )
    return FitPrompts(pool, ids, held=np.flatnonzero(is_held)[:MOST_HELD], fitted=fitted, valid=valid)


@with_gradients()
def fit_lens(
    model: Model, prompts: Prompts | None = None, kind: Kind = "jacobian", *, n_pool: int | None = None,
    window: int | None = None, precision_bits: float = PRECISION_BITS,
    seconds: float | None = None, skip_first: int | None = None, horizon: int = 0, seed: int = 0,
    out: str | Path | None = None, quiet: bool = False,
) -> FittedLens:  # fmt: skip
    """Fit a lens: a map from the residual stream at any depth to the final prediction.

    Whole clusters are held out: about a fifth of the prompts. Edits that are `applied`, and listeners, act in the fit.

    Args:
        model: The model.
        prompts: Prompts as `interp.run` takes them.
        kind: `logit` (nothing is fitted), `tuned` (an affine map for each depth) or `jacobian` (the mean derivative of
            the final residual stream).
        n_pool: How many of the prompts are used.
        window: How many tokens of each prompt are kept, from its end.
        precision_bits: The Jacobian lens adds prompts and cotangents until the standard error of its mean KL from the
            final prediction, on held-out prompts, is at most this at every depth; 0 continues until the mean is exact.
        seconds: Time limit of the fit. A Jacobian fit completes its round over the prompts first (at least one).
        skip_first: Positions at the start of each prompt that are left out; by default 16 for texts, 0 for tunnels.
        horizon: The Jacobian lens takes derivatives of targets at least this many positions after their source. 0 takes
            all; from 1 on, the fit takes as many times longer as prompts have positions.
        seed: Seed of the held-out clusters, the order of prompts and the cotangents.
        out: Where you will save the lens (`interp.save_lens`). An interrupted Jacobian fit keeps its work there.
        quiet: Whether to print no progress.

    Returns:
        The lens.

    Raises:
        UsageError: The kind is unknown, a number is negative, or the file `out` cannot hold this kind of lens.
        ModelError: The model has no gradients.
        PromptError: There are too few prompts.
        RecordError: `out` cannot be written.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> prompts = interp.sampled_prompts(model.task, 20)
        >>> tuned = interp.fit_lens(model, prompts, kind="tuned", seconds=5, quiet=True)
        >>> log2_p = tuned.log_probabilities(model, torch.zeros(2, model.info.d_model), depth=1)
        >>> log2_p.shape == (2, model.info.vocab_size)
        True
    """
    if kind not in KINDS:
        raise UnknownName("lens", kind, KINDS)
    for name, value in (("precision_bits", precision_bits), ("skip_first", skip_first or 0), ("horizon", horizon)):
        if not value >= 0:
            raise UsageError(asked=f"fit_lens({name}={value})", found="it is not possible", fix="Give 0 or more.")
    if out is not None:
        refuse_layout(kind, Path(out))
        refuse_unwritable(Path(out), is_file=True)
    if kind == "logit":
        return FittedLens.logit(model)
    refuse_without_gradients(model)
    options = RunOptions(prompts=prompts, n_pool=n_pool, window=window, seed=seed)
    asked = fit_prompts(model, options, skip_first, horizon)
    about = {**asked.of_fit, "skip_first": asked.valid.first, "seed": seed, "weights": model.fingerprint}
    about |= {"horizon": horizon} if horizon else {}
    edits = edits_applied(model)
    about |= {"edits": [f"{edit} ({digest_of(edit.to_json())})" for edit in edits]} if edits else {}
    with reporting(f"fitting the {kind} lens of {model.name.removeprefix(MEMORY)}", quiet) as progress:
        if kind == "tuned":
            return _tuned(model, asked, seconds, seed, progress, about)
        name = digest_of(about | {"precision": precision_bits})
        work = Unfinished(None if out is None else Path(out).absolute().parent / PARTIAL / name, name)
        rng = np.random.default_rng([seed, 3])
        groups = asked.groups(N_GROUPS, seed)
        rounds = steps_of(model, asked.ids, groups, asked.fitted, TOKENS_PER_BATCH, rng)
        sums, errors = fit_jacobian(
            model, rounds, asked.held_out(model), valid=asked.valid, seed=seed, progress=progress,
            precision_bits=precision_bits, seconds=seconds, stage=work.stage("lens", model, asked.prompts, asked.ids),
        )  # fmt: skip
        work.remove()
    lens = replace(FittedLens.logit(model), kind=kind, n_prompts=len(sums.seen), about=about)
    by_depth = {depth: float(error) for depth, error in enumerate(errors) if np.isfinite(error)}
    return replace(lens, matrices=dict(enumerate(sums.mean())), error_bits=by_depth)


def _tuned(
    model: Model, asked: FitPrompts, seconds: float | None, seed: int, progress: Any, about: dict[str, Any]
) -> FittedLens:
    rng = np.random.default_rng([seed, 4])
    ends = np.cumsum(asked.lengths[order := rng.permutation(asked.fitted)])
    chosen = np.sort(order[: max(2 * N_FOLDS, int(np.searchsorted(ends, TUNED_ROWS)))])
    resid = Need("resid", at="all")
    mine = asked.take(chosen)
    found = capture(model, mine.prompts, mine.ids, [resid])
    rows = found.rows_at("all")
    counts = asked.valid.counts(np.asarray(rows["position"]), np.asarray(rows["length"]))
    stream = torch.from_numpy(found[resid][:, counts]).to(model.input_device, model.module.dtype)
    fold = asked.groups(N_FOLDS, seed)[chosen][np.asarray(rows["prompt"])[counts]]
    with torch.no_grad():
        maps = TunedFit(Lens(model), stream, fold, np.random.default_rng([seed, 7])).maps(seconds, progress)
    lens = replace(FittedLens.logit(model), kind="tuned", n_prompts=len(chosen), about=about)
    matrices, offsets = (dict(enumerate(x.cpu() for x in each)) for each in zip(*maps, strict=True))
    return replace(lens, matrices=matrices, offsets=offsets)


def fit_bytes(model: Model) -> tuple[int, int]:
    """The bytes of a Jacobian fit beside the weights: about those of the graph of a batch, and its sums by group."""
    sums = 4 * N_GROUPS * model.info.n_layers * model.info.d_model**2
    return token_bytes(model) * TOKENS_PER_BATCH, sums
