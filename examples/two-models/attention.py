"""Attention entropy of two models by layer and length of text, and with a window imposed or lifted: `attention.csv`.

    python attention.py SMOLLM2_FOLDER GEMMA_FOLDER GEMMA_FILE.gguf

Texts are the longest topics of Python's own manual (`pydoc_data`). What is read is the row of the last token, without
the first position, as a mean over heads; its interval is t over topics. One core takes about ten minutes.
"""

import csv
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import numpy as np
import transformers

import interp
from interp.hooks.window import windowed
from interp.reading.forward import capture
from interp.statistics.intervals import t_mean

LENGTHS = {20: 2, 60: 2, 200: 1, 600: 1, 1500: 1}
"""Tokens of a text, and how many are cut out of each topic."""
WINDOW = 512
BITS, SHARE = interp.Need("pattern_entropy_no_first"), interp.Need("pattern_entropy_normalised_no_first")


def texts(tokenizer: Any) -> list[str]:
    """The topics of at least 1,800 tokens, cut to 1,900."""
    tidy = (re.sub(r"\n\n+", "\n\n", re.sub(r"[ \t]+", " ", topics[name])) for name in sorted(topics))
    ids = (tokenizer(text)["input_ids"] for text in tidy)
    return [tokenizer.decode(each[:1900]) for each in ids if len(each) >= 1800]


def pieces(model: interp.Model, text: str, length: int, *, bos: bool) -> Iterator[np.ndarray]:
    tokenizer: Any = model.tokenizer
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    start = [tokenizer.bos_token_id] if bos else []
    step = max(1, (len(ids) - length) // LENGTHS[length])
    for i in range(LENGTHS[length]):
        yield np.array(start + ids[i * step : i * step + length - len(start)])


def rows(
    model: interp.Model, name: str, change: str, read: list[str], length: int, window: int | None = None
) -> Iterator[dict[str, Any]]:
    """One row a layer."""
    is_gemma = name.startswith("Gemma")
    ids = [list(pieces(model, text, length, bos=is_gemma)) for text in read]
    flat = [each for of_text in ids for each in of_text]
    prompts = interp.PromptSet("topics", [interp.Prompt(token_ids=each.tolist()) for each in flat])
    with windowed(model, window):
        read_off = capture(model, prompts, flat, [BITS, SHARE])
    kinds = getattr(model.module.config, "layer_types", None) or ["full_attention"] * model.info.n_layers
    of = {need: read_off[need].mean(-1).reshape(model.info.n_layers, len(read), -1).mean(-1) for need in (BITS, SHARE)}
    for layer, kind in enumerate(kinds):
        bits, share = t_mean(of[BITS][layer]), t_mean(of[SHARE][layer])
        yield {"model": name, "change": change, "tokens": length, "layer": layer, "kind": kind.split("_")[0],
               "bits": bits.value, "share": share.value, "low": share.low, "high": share.high}  # fmt: skip


def gemma(folder: str, file: str) -> interp.Model:
    made = {"gguf_file": file, "dtype": "float32", "attn_implementation": "eager"}
    module = transformers.AutoModelForCausalLM.from_pretrained(folder, **made)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, gguf_file=file)
    return interp.load(module, tokenizer=tokenizer, allow_quantised=True)


def lifted(model: interp.Model) -> interp.Model:
    """The same model, whose windows are longer than any text; rotations stay those of each kind of layer."""
    module: Any = model.module
    module.config.sliding_window = 100_000
    for layer in module.model.layers:
        if layer.self_attn.sliding_window:
            layer.self_attn.sliding_window = 100_000
    return interp.load(module, tokenizer=model.tokenizer, allow_quantised=True)


def measured(smollm2: str, folder: str, file: str) -> Iterator[dict[str, Any]]:
    first, second = interp.load(smollm2), gemma(folder, file)
    read = texts(first.tokenizer)
    for length in LENGTHS:
        yield from rows(first, "SmolLM2-135M", "", read, length)
        yield from rows(second, "Gemma-3-270M", "", read, length)
    longest = max(LENGTHS)
    yield from rows(first, "SmolLM2-135M", f"window of {WINDOW} imposed", read, longest, WINDOW)
    yield from rows(lifted(second), "Gemma-3-270M", f"windows of {WINDOW} lifted", read, longest)


if __name__ == "__main__":
    found = list(measured(*sys.argv[1:]))
    with (Path(__file__).parent / "attention.csv").open("w", newline="") as out:
        writer = csv.DictWriter(out, found[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows({k: f"{v:.4g}" if isinstance(v, float) else v for k, v in row.items()} for row in found)
