"""Captures for notebooks: ask for tensors by name and get them with their rows, in one pass."""

from collections.abc import Sequence

from interp.capture import Capture
from interp.editing.conditions import capture_edited
from interp.edits import Edit
from interp.model import Model
from interp.need import Need
from interp.prompt import Prompts
from interp.prompting.files import resolve_prompts
from interp.prompting.tokens import as_tokens
from interp.reading.forward import capture
from interp.running.donors import with_donors


def collect(
    model: Model,
    prompts: Prompts,
    needs: Sequence[Need | str],
    *,
    layers: Sequence[int] | None = None,
    window: int | None = None,
    edits: Sequence[Edit] = (),
) -> Capture:
    """What `needs` name, on `prompts`, from one forward pass a prompt.

    `needs` are `Need`s, or names of sites for every row at the scored positions: `collect(model, texts, ["v"])`
    gives `capture[Need("v")]` of shape `[layer, row, kv_head, d_head]`. Rows are described by `capture.rows`.
    With `layers` (depths, for the residual stream; negative ones count from the end) only these are read, the first
    axis holds them in their order, and passes end behind the last of them: `collect(model, texts, ["v"], layers=[3])`
    costs four blocks, and the rows have no `next_entropy_bits`.
    `window` keeps the last tokens of each text; None is the set's own window, 0 reads texts whole. With `edits` it is
    the edited model that is read.
    """
    pool = resolve_prompts(prompts, tokenizer=model.tokenizer)
    asked = [need if isinstance(need, Need) else Need(need) for need in needs]
    ids = as_tokens(model, pool, asked, window).ids
    if edits:
        return capture_edited(model, pool, ids, asked, with_donors(edits, model.info), layers=layers)
    return capture(model, pool, ids, asked, layers=layers)
