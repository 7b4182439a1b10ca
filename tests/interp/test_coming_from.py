"""The tables of docs/coming-from.md: every call on the right is run on a tiny model."""

import json
import re

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.numpy import save_file
from sklearn.linear_model import LinearRegression

import interp
from interp.sites import SITES
from tests.paths import ROOT
from tests.quick import quick
from tests.tiny_models import fresh_model

PAGE = (ROOT / "docs" / "coming-from.md").read_text(encoding="utf-8")
PARTS = dict(part.split("\n", 1) for part in PAGE.split("\n## ")[1:])
LEAST = {"TransformerLens": 30, "transformers": 30, "nnsight": 15, "SAELens": 15, "scikit-learn": 15}
ROWS = [
    (part, row) for part in LEAST for row in re.findall(r"^\| .+? \| (?!interp \|)(.+) \|$", PARTS[part], re.MULTILINE)
]
CALLS = [(part, row[1:-1]) for part, row in ROWS if re.fullmatch("`[^`]+`", row)]


@pytest.fixture(scope="module")
def names(word_tokenizer, tmp_path_factory):
    """What the page says that its names are; "gpt2" is the tiny model's folder."""
    gpt2, sae = tmp_path_factory.mktemp("tiny"), tmp_path_factory.mktemp("sae")
    module, tokenizer = fresh_model("llama").module, word_tokenizer
    module.save_pretrained(gpt2)
    tokenizer.save_pretrained(gpt2)
    rng = np.random.default_rng(0)
    model = interp.load(gpt2)
    rows = rng.normal(size=(40, model.info.d_model)).astype(np.float32)
    cfg = {"d_in": model.info.d_model, "d_sae": 40, "metadata": {"hook_name": "blocks.0.hook_resid_post"}}
    (sae / "cfg.json").write_text(json.dumps(cfg), encoding="utf-8")
    save_file({"W_dec": rows}, sae / "sae_weights.safetensors")
    texts = [" ".join(f"w{i}" for i in rng.integers(1, 100, 6)) for _ in range(30)]
    capture = interp.collect(model, texts, ["resid", "v", "pattern_row"])
    few = {"n_null": 20, "n_permutations": 20, "n_splits": 2, "n_bootstrap": 20}
    manifold = interp.registry.load_entry("probe", "manifold")(**few)
    record = interp.run(model, probes=manifold, prompts=texts, per_quintile=0, out=None, quiet=True)
    return {
        "gpt2": str(gpt2), "sae": str(sae), "interp": interp, "torch": torch, "pd": pd, "module": module,
        "LinearRegression": LinearRegression, "tokenizer": tokenizer, "model": model, "texts": texts, "text": texts[0],
        "clean": texts[0], "corrupted": texts[1], "ids": tokenizer(texts[0], return_tensors="pt").input_ids,
        "axis": rows[0], "edit": interp.AblateHeads(0, 1, by="zero"), "capture": capture, "record": record,
        "features": interp.open_features(sae), "messages": [{"role": "user", "content": texts[0]}],
    }  # fmt: skip


@pytest.mark.parametrize(("part", "call"), quick([each for each in CALLS if each[0] == "TransformerLens"], CALLS))
def test_a_call_of_the_tables_runs(part, call, names, tmp_path, monkeypatch, without_type_checks):
    monkeypatch.chdir(tmp_path)
    written = call.replace('"gpt2"', "gpt2").replace('"sae"', "sae")
    exec(compile(written, f"{part}: {call}", "exec"), dict(names))


@pytest.mark.parametrize("part", LEAST)
def test_a_table_has_rows_enough_and_says_gaps(part):
    rows = [row for of, row in ROWS if of == part]
    assert len(rows) >= LEAST[part] and any(row.startswith("not ") for row in rows)
    assert all(re.fullmatch("`[^`]+`", row) or row.startswith(("not ", "[")) for row in rows)


def test_our_names_of_activations_are_sites():
    ours = re.findall(r"^\| `.+?` \| (`.+?) \|", PARTS["Names of activations"], re.MULTILINE)
    assert ours and {name for row in ours for name in re.findall(r"`(\w+)`", row)} <= set(SITES)
