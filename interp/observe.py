"""Captures for notebooks: ask for tensors by name and get them with their rows, in one pass."""

from collections.abc import Sequence

from interp.capture import Capture
from interp.forward import capture
from interp.model import Model
from interp.need import Need
from interp.prompt import PromptSet
from interp.prompt_files import resolve_prompts
from interp.tokens import tokenise


def collect(
    model: Model,
    prompts: PromptSet | str | Sequence[str],
    needs: Sequence[Need | str],
    *,
    window: int | None = None,
) -> Capture:
    """What `needs` name, on `prompts`, from one forward pass a prompt.

    `needs` are `Need`s, or names of sites for every row at the scored positions: `collect(model, texts, ["v"])`
    gives `capture[Need("v")]` of shape `[layer, row, kv_head, d_head]`. Rows are described by `capture.rows`.
    """
    pool = resolve_prompts(prompts)
    tokens = tokenise(pool, model.tokenizer, window=window or pool.window, max_positions=model.info.max_positions)
    return capture(model, pool, tokens.ids, [need if isinstance(need, Need) else Need(need) for need in needs])
