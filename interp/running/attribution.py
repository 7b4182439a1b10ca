"""Direct logit attribution: what each head, feed-forward block and bias adds to the logit of an answer.

The residual stream before the final norm is a sum of parts. With the norm's scale held fixed the logit is linear in
them: the parts and the biases of norm and output head add up to the logit exactly.

Source: Elhage et al. (2021), A mathematical framework for transformer circuits; nostalgebraist (2020).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Float

from interp.editing.editor import edits_applied, name_with_edits
from interp.errors import Answering, PromptError, UsageError
from interp.model import Model
from interp.need import Need
from interp.prompt import Prompts
from interp.prompting.files import given_prompts
from interp.prompting.tokens import as_tokens, one_token, words_of
from interp.reading.forward import capture
from interp.reading.lens import Lens
from interp.settings import LARGEST_SEED, MOST, refuse_number
from interp.statistics.intervals import band, t_half_width
from interp.system.float64 import double
from interp.system.plain_numbers import plain

if TYPE_CHECKING:
    import pandas

Answer = str | int | Sequence[str | int]


@dataclass(frozen=True, eq=False, repr=False)
class LogitAttribution(Answering):
    """Shares of the logit of an answer minus that of a wrong one (or minus the mean over the vocabulary), in logits.

    `heads` and `attention_bias` cover the layers with attention (`attention_layers`), `mlp` and `mixer` all layers; a
    mixer is a state-space model or convolution in place of attention or beside it. `embedding` is what enters the first
    block, `constant` what the biases of the final norm and of the output head add. All sum to `total`, the logit before
    any soft-cap. `null` is the mean share of each head for random pairs of tokens instead of the answers.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> found = interp.logit_attribution(model, interp.sampled_prompts(model.task, 4))
    >>> parts = found.heads.sum((1, 2)) + (found.mlp + found.attention_bias).sum(1) + found.embedding + found.constant
    >>> bool(np.allclose(parts, found.total))
    True
    """

    model: str
    answer: tuple[str, ...]
    wrong: tuple[str, ...] | None
    attention_layers: tuple[int, ...]
    heads: Float[np.ndarray, "row attention_layer head"]
    mlp: Float[np.ndarray, "row layer"]
    mixer: Float[np.ndarray, "row layer"]
    attention_bias: Float[np.ndarray, "row attention_layer"]
    embedding: Float[np.ndarray, " row"]
    constant: Float[np.ndarray, " row"]
    null: Float[np.ndarray, "draw attention_layer head"]

    @property
    def total(self) -> Float[np.ndarray, " row"]:
        """The sum of all parts: the logit that they explain."""
        attention, others = self.heads.sum(axis=2) + self.attention_bias, self.mlp + self.mixer
        return attention.sum(axis=1) + others.sum(axis=1) + self.embedding + self.constant

    def to_frame(self) -> "pandas.DataFrame":
        """One row per head, the largest first: mean over rows (logits), its 95 % t interval, and its null's band."""
        import pandas

        mean, half = self.heads.mean(axis=0), t_half_width(np.moveaxis(self.heads, 0, -1))
        low, high = np.full((2, *mean.shape), np.nan)
        if len(self.null):
            low, high = band(self.null)
        place, head = (x.ravel() for x in np.indices(mean.shape))
        frame = pandas.DataFrame({
            "layer": np.array(self.attention_layers)[place], "head": head, "logits": mean.ravel(),
            "low": (mean - half).ravel(), "high": (mean + half).ravel(), "null_low": low.ravel(),
            "null_high": high.ravel(),
        })  # fmt: skip
        return frame.sort_values("logits", key=abs, ascending=False, ignore_index=True)


def logit_attribution(
    model: Model,
    prompts: Prompts,
    *,
    answer: Answer | None = None,
    wrong: Answer | None = None,
    window: int | None = None,
    n_null: int = 100,
    seed: int = 0,
) -> LogitAttribution:
    """Attribute a logit to the heads that add to it directly, at the scored positions.

    The scale of the final norm is held at its value; its gain and centring are included. What a head does through later
    layers is not in its share: patch or ablate for that.

    Args:
        model: The model.
        prompts: Prompts as `interp.collect` takes them.
        answer: The token whose logit is attributed: a string (with its leading space) or id for all rows, or one each.
            By default the token that the model predicts.
        wrong: The token whose logit is subtracted. By default the mean over the vocabulary.
        window: How many tokens of each prompt are kept, from its end.
        n_null: Pairs of random tokens in the null.
        seed: Seed of these pairs.

    Returns:
        Shares of heads `[row, layer, head]`, feed-forwards, biases and embedding in logits, which add up to the logit.

    Raises:
        UsageError: The model normalises the attention output, so heads have no shares of their own, an edit that is
            `applied` changes the residual stream, or answer and wrong are one token.
        PromptError: A token is not a single token, or prompts do not fit the model.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> found = interp.logit_attribution(model, interp.sampled_prompts(model.task, 4), n_null=10)
        >>> found.to_frame().columns[:3].tolist()
        ['layer', 'head', 'logits']
    """
    if _is_normalised(model):
        raise UsageError(
            asked=f"what each head of {model.name} adds to a logit",
            found=f"{model.info.family} normalises the attention output, so heads have no separate shares",
            fix="Use the sites attn_logit and mlp_logit (one number per block), or ablate heads.",
        )
    behind = [edit for edit in edits_applied(model) if edit.place != "resid" or any(edit.layers(model.info))]
    if moved := [edit for edit in behind if edit.place in ("resid", "block", "attn_out")]:  # not the embedding alone
        raise UsageError(
            asked=f"what each head of {model.name} adds to a logit inside a block of interp.applied",
            found=f"with {moved[0]}, the residual stream is not the sum of what heads and blocks put out",
            fix="Leave the block, or edit heads, values or feed-forwards.",
        )
    refuse_number(f"n_null = {n_null}", n_null, 0, MOST)
    refuse_number(f"seed = {seed}", seed, 0, LARGEST_SEED)
    pool = given_prompts(model, prompts)
    needs = [Need(site) for site in ("z", "attn_out", "mlp_out", "resid", "next_log_prob")]
    z, attn_out, mlp_out, resid, log_p = needs
    mixed = Need("W_O")
    found = capture(model, pool, as_tokens(model, pool, needs, window).ids, [*needs, mixed])
    n = found.rows.n_rows
    right = _answer_ids(model, answer, n, "answer")
    right = found[log_p].argmax(axis=1) if right is None else right
    other = _answer_ids(model, wrong, n, "wrong")
    if other is not None and (same := np.flatnonzero(right == other)).size:
        asked = f"answer={answer!r} against wrong={wrong!r}"
        raise UsageError(asked=asked, found=f"in row {same[0]} they are one token", fix="Name two.")
    lens = Lens(model)
    last = torch.from_numpy(found[resid][-1]).to(model.input_device, next(model.module.parameters()).dtype)

    def of(part: Callable[[torch.Tensor, torch.Tensor], torch.Tensor], token: np.ndarray) -> np.ndarray:
        with torch.inference_mode():
            return double(part(last, torch.from_numpy(token).to(last.device))).cpu().numpy()

    g, fixed = of(lens.direction, right), of(lens.constant, right)  # [row, d_model] and [row]
    if other is not None:
        g, fixed = g - of(lens.direction, other), fixed - of(lens.constant, other)
    scale, having = model.family.summed_scale(model.config, "attn_out"), model.info.layers_with_attention
    added = np.einsum("lrhd,lhdm->lrhm", found[z].astype(float), found[mixed].astype(float), optimize=True) * scale
    bias = found[attn_out].astype(float) - added.sum(axis=2)  # [layer, row, d_model]
    beside = np.diff(found[resid].astype(float), axis=0) - found[mlp_out]  # [layer, row, d_model]
    beside[list(having)] -= found[attn_out]
    pairs = np.random.default_rng(seed).integers(model.info.vocab_size, size=(2, n_null, n))
    null = np.array([
        np.einsum("lrhm,rm->lh", added, of(lens.direction, a) - of(lens.direction, b), optimize=True) / n
        for a, b in zip(*pairs, strict=True)
    ]).reshape(n_null, *added.shape[:3:2])  # fmt: skip
    return LogitAttribution(
        model=name_with_edits(model),
        answer=words_of(model, right),
        wrong=None if other is None else words_of(model, other),
        attention_layers=having,
        heads=np.einsum("lrhm,rm->rlh", added, g, optimize=True),
        mlp=np.einsum("lrm,rm->rl", found[mlp_out].astype(float), g),
        mixer=np.einsum("lrm,rm->rl", beside * (model.family.mixer is not None), g),
        attention_bias=np.einsum("lrm,rm->rl", bias, g),
        embedding=np.einsum("rm,rm->r", found[resid][0].astype(float), g),
        constant=fixed,
        null=null,
    )


def _is_normalised(model: Model) -> bool:
    """Whether some layer normalises the output of attention before adding it to the residual stream."""
    family = model.family
    if family.attention_sum is None:
        return False
    added, made = attrgetter(family.attention_sum), attrgetter(f"{family.attention}.{family.out}")
    layers = [layer for layer in family.layer_modules(model.module) if family.attends(layer)]
    return not all(added(layer) is made(layer) or isinstance(added(layer), torch.nn.Identity) for layer in layers)


def _answer_ids(model: Model, given: Answer | None, n: int, what: str) -> np.ndarray | None:
    if given is None:
        return None
    given = plain(given)
    each = list(given) if isinstance(given, list | tuple) else [given] * n
    if len(each) != n:
        raise PromptError(
            asked=f"{what}= of {len(each)} tokens",
            found=f"there are {n} rows",
            fix="Give one token for all, or one for each row.",
        )
    return np.array([one_token(model, word) for word in each])
