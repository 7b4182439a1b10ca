"""The self-check: test on the user's own model that captured activations are what their names say.

The checks run on every load, on two short sequences of different lengths. Each returns the largest error, relative to
the largest entry compared, and its bound. A model that fails one is rejected with the name of the check. Checks that do
not apply are left out; a model without attention is checked as a stack of blocks.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Literal

import torch
import transformers

from interp.errors import ModelError
from interp.hooks.attention import claimed
from interp.model import Check, Model
from interp.self_check import checks
from interp.self_check.two_sequences import CheckResult, Observations


def check_model(model: Model) -> tuple[Check, ...]:
    """Run the self-check on a loaded model.

    Args:
        model: The model.

    Returns:
        All checks, each with its value and bound.

    Raises:
        ModelError: A check fails (the message names it), or the model cannot process a few tokens.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> all(check.passed for check in interp.check_model(model))
        True
    """
    checks = tuple(run_checks(model))
    failed = next((c for c in checks if not c.passed), None)
    if failed is not None:
        raise _refusal(
            model,
            f"the self-check {failed.name!r} failed: {failed.meaning}; {failed.detail or 'error'} "
            f"{failed.value:.3g}, at most {failed.bound:.3g} allowed",
            f"Load it in float32 (it was read in {model.info.dtype}), or copy its weights again: their files may be "
            "damaged."
            if failed.name == "finite"
            else _FIX,
        )
    return checks


def run_checks(model: Model) -> Iterator[Check]:
    """Run the checks one after another, passed or not; stop if one fails on which the others rest."""
    with torch.inference_mode(), claimed(model):
        seen = Observations(model)
        precisions = {weight.dtype: name for name, weight in model.module.named_parameters()}
        mixed = ", ".join(f"{name} in {dtype}" for dtype, name in precisions.items()) if len(precisions) > 1 else ""
        fix = "Cast it to one precision: `model.to(torch.float32)`." if mixed else _FIX_RUN
        with _refusing(model, f"it cannot read a few tokens{mixed and f' ({mixed})'}", fix):
            _ = seen.plain  # before any hook
            _ = model.module.get_input_embeddings().weight
        for name, meaning, run, _ in _applying(model):
            with _refusing(model, f"the self-check {name!r} cannot be carried out", _FIX):
                value, bound, detail = run(seen)
            passed = bool(value <= bound)
            yield Check(name, meaning, passed, value, bound, detail=detail)
            if name in _GROUND and not passed:
                return


@contextmanager
def _refusing(model: Model, failure: str, fix: str) -> Iterator[None]:
    """Raise `ModelError` if this block fails on the model."""
    try:
        yield
    except _FAILURES as error:
        raise _refusal(model, f"{failure}: {type(error).__name__}: {error}", fix) from error


def _refusal(model: Model, failure: str, fix: str) -> ModelError:
    """The error for a model; if it has a foreign hook, `forward` or class, that is the reason."""
    changed = _changed_part(model)
    if changed:
        failure = f"{changed}; {failure}"
        fix = (
            "Remove it (`handle.remove()`, `del part.forward`) or merge it into the weights before the model is loaded."
        )
    return ModelError(asked=f"reading {model.name} ({model.info.family})", found=failure, fix=fix)


def _changed_part(model: Model) -> str:
    """A part that no library made, or with a foreign hook or `forward`, in words; empty if there is none."""
    known = (*_LIBRARIES, type(model.module).__module__.partition(".")[0])
    for name, part in model.module.named_modules():
        where = f"its part {name}" if name else "the model as a whole"
        if not type(part).__module__.startswith(known):
            return f"{where} is a {type(part).__qualname__} of {type(part).__module__}"
        mine = [*part._forward_pre_hooks.values(), *part._forward_hooks.values()]
        own = None if hasattr(part, "_hf_hook") else vars(part).get("forward")
        if own is not None and not hasattr(own, "_torchdynamo_orig_callable"):
            mine.append(own)
        for thing in (each.func if isinstance(each, partial) else each for each in mine):
            if not (getattr(thing, "__module__", None) or type(thing).__module__).startswith(_LIBRARIES):
                called = getattr(thing, "__qualname__", None) or type(thing).__qualname__
                what = "hook" if thing is not own else "forward"
                return f"{where} has a {what} of its own ({called})"
    return ""


_LIBRARIES = ("transformers.", "accelerate.", "torch.", "interp.")
"""Packages whose hooks belong to a model."""


def left_out(model: Model) -> tuple[str, ...]:
    """The names of the checks that do not apply to this model."""
    applying = _applying(model)
    return tuple(entry[0] for entry in _CHECKS if entry not in applying and entry[3] != "stack")


def _applying(model: Model) -> tuple["_Entry", ...]:
    family = model.family
    has = {"model": True, "attention": family.has_attention, "stack": not family.has_attention}
    has["ropes"] = model.info.n_rotary is not None
    has["sums"] = family.adds(model.config) and (family.has_attention or family.mlp is not None)
    has["weights"] = family.has_attention and model.info.quantisation is None
    return tuple(entry for entry in _CHECKS if has[entry[3]])


_FAILURES = (ArithmeticError, AttributeError, ImportError, LookupError, RuntimeError, TypeError, ValueError)
"""Errors of Python and PyTorch if parts of a model do not fit together, or a kernel is missing."""

_FIX = (
    "Nothing captured from it could be trusted, so it is refused. If you changed the model, its configuration has to "
    "say so too; else please report the model and the check. To look at it all the same: "
    "`interp.load(..., check=False)`."
)
"""What to do about a failed check, by default."""

_FIX_RUN = (
    "Check its configuration, and whether another version of transformers runs it (this is "
    f"{transformers.__version__})."
)

_GROUND = frozenset({"captured", "blocks"})
"""Checks on which the others rest: each layer is captured once."""

_About = Literal["model", "attention", "weights", "ropes", "stack", "sums"]
"""What a check needs: any model; attention; its weights, not quantised; rotary embedding; a model without attention;
blocks that add to the residual stream."""

_Entry = tuple[str, str, Callable[[Observations], CheckResult], _About]

_CHECKS: tuple[_Entry, ...] = (
    ("finite", "weights and logits are finite", checks.finite, "model"),
    ("captured", "every layer is captured exactly once", checks.captured_once, "attention"),
    ("blocks", "every block runs exactly once", checks.blocks_once, "stack"),
    ("eager", "logits with our attention function equal eager attention", checks.equals_eager, "attention"),
    ("causal", "attention rows are distributions over the past", checks.causal, "attention"),
    ("blind ahead", "later tokens change no earlier logit", checks.blind_ahead, "stack"),
    (
        "output",
        "captured values times the pattern, through W_O, are the attention's output",
        checks.output,
        "weights",
    ),
    (
        "projections",
        "the attention's input times W_Q, W_K, W_V per head are the captured q, k, v",
        checks.projections,
        "weights",
    ),
    ("rotary", "keys and queries before and after rotary embedding belong together", checks.rotary, "attention"),
    ("stream", "what a block returns is what the next one receives", checks.blocks_join, "stack"),
    ("residual", "block outputs add up to the residual stream", checks.residual, "sums"),
    ("head", "the residual stream through final norm and head gives the logits", checks.decoded, "model"),
    ("batched", "right-padded in a batch equals alone", checks.batched, "model"),
    ("shared", "prompts that may share a pass are rotated as in a pass alone", checks.rotates_alike, "ropes"),
    ("edit", "an edit of the values moves the logits", checks.edit_acts, "attention"),
    ("dose 0", "an edit of dose 0 changes nothing", checks.dose_zero, "attention"),
    ("reading", "reading changes no bit of the logits", checks.reading_is_harmless, "stack"),
    ("restored", "leaving restores the model bit for bit", checks.restored, "model"),
)
