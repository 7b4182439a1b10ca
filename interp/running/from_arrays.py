"""Captures from the activations of another tool: numpy arrays with named axes, whose sizes have to agree."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import Float

from interp.capture import Capture, ModelInfo
from interp.errors import PromptError, UsageError
from interp.information import entropy_bits, log_softmax
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.prompting.clusters import with_clusters
from interp.reading.batches import rows_of
from interp.reading.forward import row_table
from interp.reductions import PromptMean, Rows
from interp.running.collect import with_words
from interp.settings import LARGEST_SEED, refuse_number

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

NOT_OURS = "not ours: nobody held these arrays against the model"
"""What a record says in place of a self-check."""


def capture_from_arrays(
    arrays: Mapping[str | Need, tuple[str | Sequence[str], Any]],
    prompts: Sequence[str] | PromptSet,
    tokens: Sequence[Any],
    *,
    tool: str,
    model: str | ModelInfo,
    logits: Float[np.ndarray, "row vocab"] | None = None,
    next_entropy_bits: Float[np.ndarray, " row"] | None = None,
    tokenizer: "PreTrainedTokenizerBase | None" = None,
    seed: int = 0,
) -> Capture:
    """Make a capture from the activations of another tool, for `interp.analyse`, `save` and the rest.

    Args:
        arrays: Maps a site name (or `interp.Need`, for positions other than the scored ones) to a pair: the names of
            the axes in any order, and the array. `interp.Need("v").axes()` lists the names. Rows go prompt by prompt; a
            text has one row, at its last token.
        prompts: The texts, or a prompt set.
        tokens: Token ids of each prompt as the tool read it, without padding.
        tool: Name of the tool, for the record.
        model: Name of the model, or its `ModelInfo`.
        logits: Logits at the scored rows, from which next-token entropies are computed.
        next_entropy_bits: Next-token entropies in bits, if there are no logits.
        tokenizer: The model's tokenizer, if tokens should be shown as text.
        seed: Seed of the prompt sample.

    Returns:
        The capture. Records made from it say that nobody checked the activations.

    Raises:
        UsageError: Axes, sizes or numbers do not fit.
        PromptError: There are no prompts, or `tokens` does not fit them.

    Examples:
        >>> values, logits = np.random.rand(2, 3, 4, 16), np.random.rand(3, 50)
        >>> capture = interp.capture_from_arrays(
        ...     {"v": ("layer row kv_head d_head", values)}, ["a", "b c", "d"], [[1], [2, 3], [4]],
        ...     tool="TransformerLens", model="mine", logits=logits,
        ... )
        >>> capture["v"].shape
        (2, 3, 4, 16)
    """
    refuse_number(f"seed = {seed}", seed, 0, LARGEST_SEED)
    if not isinstance(prompts, PromptSet):
        prompts = PromptSet("memory", [Prompt(text=text) for text in prompts], source=f"read by {tool}")
    ids = _ids(prompts, tokens)
    prompts = with_clusters(prompts, ids)
    lengths = np.array([len(x) for x in ids])
    needs = {need if isinstance(need, Need) else Need(need): named for need, named in arrays.items()}
    index = rows_of(prompts, lengths, needs)
    sizes: dict[str, tuple[int, str]] = {"prompt": (len(prompts), "the prompts")}
    ordered: dict[Need, np.ndarray] = {}
    kinds: set[str] = set()
    for need, (axes, array) in needs.items():
        sizes["row"] = (len(index[need.at]), f"the rows at {need.at!r}")
        values = _numbers(str(need.site), array)
        kinds.add(str(values.dtype))
        ordered[need] = _in_order(need, axes.split() if isinstance(axes, str) else tuple(axes), values, sizes)
    if not ordered:
        raise UsageError(asked="a capture from arrays", found="there is none", fix='Give {"v": (axes, array)}.')
    n_rows = len(index["scored"])
    entropy, vocab = _entropy(next_entropy_bits, logits, n_rows)
    if isinstance(model, str):
        model = _info(model, tool, sizes, vocab or int(max(x.max() for x in ids)) + 1, kinds, int(lengths.max()))
    tables = {at: row_table(prompts, ids, i, at, entropy if at == "scored" else None) for at, i in index.items()}
    found = Capture(
        replace(model, source=f"arrays of {tool}"),
        prompts,
        tables,
        {need: {"rows": array} for need, array in ordered.items()},
        seed=seed,
        posterior=prompts.posterior,
        belief=prompts.belief,
        provenance={"tool": tool, "selfcheck": NOT_OURS},
    )
    return with_words(found, tokenizer)


def _ids(prompts: PromptSet, tokens: Sequence[Any]) -> list[np.ndarray]:
    """The token ids of every prompt, which have to equal those that a prompt already has."""
    ids = [np.asarray(x) for x in tokens]
    wrong = [i for i, x in enumerate(ids) if x.ndim != 1 or len(x) == 0 or x.dtype.kind not in "iu" or x.min() < 0]
    if len(ids) != len(prompts) or wrong:
        found = (
            f"those of prompt {wrong[0] + 1} are not token ids" if wrong else f"there are {len(ids)} for {len(prompts)}"
        )
        raise PromptError(
            asked=f"the token ids of {len(prompts)} prompts",
            found=found,
            fix="Give `tokens` one list of ids per prompt, without padding.",
        )
    for i, (prompt, mine) in enumerate(zip(prompts, ids, strict=True)):
        if prompt.token_ids is not None and tuple(mine) != tuple(prompt.token_ids):
            raise PromptError(
                asked=f"prompt {i + 1} of {prompts.name!r}",
                found="it is already token ids, and `tokens` has different ones",
                fix="Give the ids of the prompts.",
            )
    return [x.astype(np.int64) for x in ids]


def _numbers(name: str, array: Any) -> np.ndarray:
    try:
        values = np.asarray(array)
        why = f"its dtype is {values.dtype}"
    except (TypeError, RuntimeError, ValueError) as error:  # tensors of other devices and kinds, ragged lists
        values, why = np.empty(0, dtype=object), f"numpy cannot convert it ({error})"
    if values.dtype.kind != "f":
        fix = "Give one numpy array of floats; of a torch tensor `x.detach().float().cpu().numpy()`."
        raise UsageError(asked=f"the array of {name}", found=why, fix=fix)
    return values


def _in_order(
    need: Need, axes: Sequence[str], array: np.ndarray, sizes: dict[str, tuple[int, str]]
) -> Float[np.ndarray, "..."]:
    """The array in float32 with the axes of a capture; raises if a size differs from that in earlier arrays."""
    asked = f"{need.site} at {need.at!r} from an array {list(array.shape)} with the axes {' '.join(axes)}"
    if not isinstance(need.reduction, Rows | PromptMean) or need.described.source == "edit":
        raise UsageError(asked=asked, found="only rows and means over prompts can be given", fix="Give the rows.")
    wanted = need.axes()
    if sorted(axes) != sorted(wanted) or len(axes) != array.ndim:
        raise UsageError(
            asked=asked,
            found=f"the axes of {need.site} are {' '.join(wanted)}",
            fix="Name each of them once, in the order of your array; stack the layers to one array.",
        )
    for axis, size in zip(axes, array.shape, strict=True):
        key, count = ("layer", size - 1) if axis == "depth" else (axis, size)
        known, of = sizes.setdefault(key, (count, need.site))
        if known != count:
            extra = known + (axis == "depth")
            raise UsageError(
                asked=asked,
                found=f"the axis {axis} has {size} entries, by {of} it would have {extra}",
                fix="Depths are one more than layers; rows follow the order of prompts, one per text (its last token).",
            )
    return np.ascontiguousarray(np.transpose(array, [list(axes).index(axis) for axis in wanted]), dtype=np.float32)


def _entropy(given: np.ndarray | None, logits: np.ndarray | None, n_rows: int) -> tuple[np.ndarray | None, int | None]:
    """The next-token entropies in bits, and the size of the vocabulary if logits are given."""
    vocab = None
    if logits is not None:
        values = _numbers("logits", logits).astype(np.float64)
        if values.ndim != 2 or len(values) != n_rows:
            raise UsageError(
                asked="next-token entropies from logits",
                found=f"they are {list(values.shape)}, and there are {n_rows} scored rows",
                fix="Give the logits [row, vocab] of the scored positions only.",
            )
        if given is not None:
            raise UsageError(asked="next-token entropies", found="logits give them, too", fix="Give one of the two.")
        vocab, given = values.shape[1], entropy_bits(np.exp(log_softmax(values)))
    if given is None:
        return None, vocab
    entropy = _numbers("next_entropy_bits", given).astype(np.float64)
    if entropy.shape != (n_rows,) or not np.isfinite(entropy).all() or entropy.min() < 0:
        raise UsageError(
            asked="next-token entropies",
            found=f"they are {list(entropy.shape)} for {n_rows} scored rows, or not all finite and at least 0",
            fix="Give one number in bits per scored row.",
        )
    return entropy, vocab


def _info(
    name: str, tool: str, sizes: Mapping[str, tuple[int, str]], vocab: int, kinds: set[str], longest: int
) -> ModelInfo:
    known = {axis: sizes.get(axis, (0, ""))[0] for axis in ("layer", "head", "kv_head", "d_head", "d_model", "vocab")}
    n_heads = known["head"] or known["kv_head"]
    return ModelInfo(
        name=name, source=tool, family="", n_layers=known["layer"], n_heads=n_heads,
        n_kv_heads=known["kv_head"] or n_heads, d_head=known["d_head"], d_model=known["d_model"],
        vocab_size=known["vocab"] or vocab, n_parameters=0, dtype=", ".join(sorted(kinds)), device="unknown",
        attention_kernel="unknown", max_positions=longest,
    )  # fmt: skip
