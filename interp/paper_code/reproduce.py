"""How much of a published figure is a bug: the quantity from the right tensor and from the one really read.

    reproduce_bug(interp.load("pythia-410m"), "fused-qkv").to_frame("side_by_side")

Four defects of the code released with the papers, on any model that can have them. The wrong reads live in
`interp.paper_code` and are used here alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from interp.errors import PromptError, UnknownName, UsageError
from interp.findings import Findings
from interp.model import Model
from interp.paper_code import embedding_keys, fused_qkv, gqa, layer_minus_one
from interp.paper_code.side_by_side import Subject
from interp.prompt import Prompts
from interp.prompting.clusters import in_words, with_clusters
from interp.prompting.pools import prompts_for
from interp.prompting.tokens import as_tokens
from interp.system.progress import reporting

FEWEST_PROMPTS = 3


@dataclass(frozen=True)
class Bug:
    """`what` the published code does, both reads of it, and why a model cannot have it (None: it can)."""

    what: str
    suited: str
    measure: Callable[[Subject], Findings]
    refusal: Callable[[Model], str | None] = lambda model: None


BUGS = {
    "fused-qkv": Bug(
        "a projection packed head by head is split in thirds",
        "a GPT-NeoX: any Pythia, or tunnel:bijection-gpt-neox",
        fused_qkv.measure,
        fused_qkv.refusal,
    ),
    "gqa": Bug(
        "grouped KV heads are cut into one piece per query head",
        "a model with grouped heads whose keys can be cut into as many pieces, such as llama-3.2-1b or mistral-7b",
        gqa.measure,
        gqa.refusal,
    ),
    "embedding-keys": Bug(
        "token embeddings are compared in place of keys",
        "any model",
        embedding_keys.measure,
    ),
    "layer-minus-one": Bug(
        "the layer that is edited by default does not exist",
        "any model",
        layer_minus_one.measure,
    ),
}


def reproduce_bug(
    model: Model,
    bug: str,
    *,
    prompts: Prompts | None = None,
    n_pool: int | None = None,
    seed: int = 0,
    quiet: bool = True,
) -> Findings:
    """Right and wrong side by side: the table `side_by_side`, the scalars `<quantity>_right` and `_wrong`.

    `bug` is one of `BUGS`. Both reads are of the same prompts: the whole pool, without a draw; a wind tunnel
    samples itself. Raises `UsageError`, in words, where the model cannot have the bug, `UnknownName` for any
    other name, and `PromptError` for fewer than three prompts, or clusters of prompts.
    """
    if bug not in BUGS:
        raise UnknownName("bug", bug, BUGS)
    chosen = BUGS[bug]
    why_not = chosen.refusal(model) if model.family.has_attention else "it has no attention, where all four bugs are"
    if why_not is not None:
        asked = f"the bug {bug} ({chosen.what}) on {model.name}"
        raise UsageError(asked=asked, found=why_not, fix=f"Name {chosen.suited}.")
    pool = prompts_for(model, prompts, n_pool, seed, "text")
    ids = as_tokens(model, pool, [], None).ids
    pool = with_clusters(pool, ids)
    if len(np.unique(pool.cluster_codes)) < FEWEST_PROMPTS:
        raise PromptError(
            asked=f"the bug {bug} on {in_words(pool)}",
            found="a spread between prompts needs three of them that do not belong together",
            fix="Give at least three; a hundred is better.",
        )
    with reporting(f"reading {model.name}", quiet) as progress:
        return chosen.measure(Subject(model, pool, ids, seed, progress))
