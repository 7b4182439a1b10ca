"""Prompts from whatever holds them in Python: the same prompts from each, and numbers as any library has them."""

import numpy as np
import pandas
import pyarrow
import pytest
import torch

import interp
from interp.errors import InterpError, PromptError
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.settings import read_fields
from tests.named_prompts import resolve_prompts
from tests.tiny_models import fresh_model

TEXTS = ["One day", "Two", "The end of"]
ROWS = [{"text": text, "topic": "aba"[i], "k": i, "h_bits": i / 2, "seen": i > 0} for i, text in enumerate(TEXTS)]
COLUMNS = {name: [row[name] for row in ROWS] for name in ROWS[0]}
UNITS = {"topic": "label", "k": "1", "h_bits": "bits", "seen": "label"}


def prompt_of(row):
    return Prompt(row["text"], columns={name: value for name, value in row.items() if name != "text"})


TABLES = {
    "rows": lambda: ROWS,
    "rows of numpy": lambda: [row | {"k": np.int32(row["k"]), "h_bits": np.float32(row["h_bits"])} for row in ROWS],
    "rows of torch": lambda: [row | {"k": torch.tensor(row["k"]), "seen": np.bool_(row["seen"])} for row in ROWS],
    "generator of rows": lambda: (row for row in ROWS),
    "frame": lambda: pandas.DataFrame(ROWS),
    "frame with an index": lambda: pandas.DataFrame(ROWS, index=[7, 3, 5]),
    "frame of categories": lambda: pandas.DataFrame(ROWS).astype(
        {"topic": "category", "h_bits": "float32", "k": "int8"}
    ),
    "part of a frame": lambda: pandas.DataFrame(ROWS * 2).iloc[3:],
    "arrow": lambda: pyarrow.Table.from_pylist(ROWS),
    "arrow views": lambda: pyarrow.table({**COLUMNS, "text": pyarrow.array(TEXTS, pyarrow.string_view())}),
    "prompts": lambda: [prompt_of(row) for row in ROWS],
    "generator of prompts": lambda: map(prompt_of, ROWS),
}


@pytest.mark.parametrize("way", TABLES)
def test_what_holds_rows_gives_the_same_prompts(way):
    found = resolve_prompts(TABLES[way]())
    assert found.content_hash == resolve_prompts(ROWS).content_hash
    assert found.units == UNITS
    assert [p.text for p in found] == TEXTS
    assert all(type(p.columns[name]) is type(row[name]) for p, row in zip(found, ROWS, strict=True) for name in UNITS)


def test_polars_gives_the_same_prompts():
    polars = pytest.importorskip("polars")
    assert resolve_prompts(polars.DataFrame(ROWS)).content_hash == resolve_prompts(ROWS).content_hash
    assert [p.text for p in resolve_prompts(polars.Series(TEXTS))] == TEXTS


@pytest.mark.parametrize(
    "made",
    [tuple, iter, np.array, pandas.Series, pandas.Index, pyarrow.array, lambda texts: pyarrow.chunked_array([texts]),
     lambda texts: np.array(texts, dtype=object), lambda texts: [np.str_(text) for text in texts]],
)  # fmt: skip
def test_what_holds_texts_gives_the_same_prompts(made):
    found = resolve_prompts(made(TEXTS))
    assert [p.text for p in found] == TEXTS
    assert all(type(p.text) is str for p in found)


IDS = [(3, 1, 2), (2, 2, 5)]


@pytest.mark.parametrize(
    "made",
    [
        list, np.array, torch.tensor, lambda ids: [list(each) for each in ids], lambda ids: [np.array(i) for i in ids],
        lambda ids: [torch.tensor(each) for each in ids], lambda ids: (np.array(each, np.int32) for each in ids),
        lambda ids: [Prompt(token_ids=np.array(each)) for each in ids],
        lambda ids: PromptSet("ids", [Prompt(token_ids=torch.tensor(each)) for each in ids]),
    ],
)  # fmt: skip
def test_what_holds_token_ids_gives_the_same_prompts(made):
    found = resolve_prompts(made(IDS))
    assert [p.token_ids for p in found] == IDS
    assert all(type(i) is int for p in found for i in p.token_ids)
    assert (
        found.content_hash == resolve_prompts(PromptSet("plain", [Prompt(token_ids=each) for each in IDS])).content_hash
    )


def test_numbers_of_a_prompt_are_pythons_own_whoever_made_them():
    plain = Prompt(
        token_ids=(1, 2), columns={"s": 0.5, "n": 3, "b": True}, scored=(0, 1), scored_columns={"h": (0.5, 1.0)}
    )
    for to in (np.array, torch.tensor):
        made = Prompt(
            token_ids=to([1, 2]), columns={"s": to(0.5), "n": to(3), "b": to(True)}, scored=to([0, 1]),
            scored_columns={"h": to([0.5, 1.0])},
        )  # fmt: skip
        assert repr(made) == repr(plain)
    series = pandas.Series({"s": 0.5})
    assert Prompt("a", columns=series.to_dict() | {"n": series.iloc[0]}).columns == {"s": 0.5, "n": 0.5}
    scored = [Prompt(token_ids=IDS[0], scored=(1, 2), scored_columns={"h_bits": (0.5, np.float32(1))})]
    assert resolve_prompts(scored).units == {"h_bits": "bits"}


@pytest.mark.parametrize("ids", [[0.5, 1.0], [[1, 2]], ["a"], 3, np.array([[1, 2]]), torch.tensor([0.5])])
def test_token_ids_that_are_no_row_of_whole_numbers_are_refused(ids):
    with pytest.raises(PromptError, match="token_ids of a prompt"):
        Prompt(token_ids=ids)


@pytest.mark.parametrize(
    "given, found",
    [
        (pandas.DataFrame({"prompt": TEXTS}), "the column 'text' of table: it has the columns 'prompt'"),
        (pandas.DataFrame({"text": TEXTS, "k": [1.0, np.nan, 2.0]}), "row 2: the column 'k' holds nothing"),
        (pandas.DataFrame({"text": TEXTS, "k": [1, "a", 2]}), "a column cannot be read"),
        (pandas.DataFrame({"text": TEXTS, "k": [pandas.Timestamp(0)] * 3}), "it holds values of the type timestamp"),
        (pandas.DataFrame({"text": []}), "there is no prompt"),
        (pandas.Series([1.0, 2.0]), "'text' holds 1.0, which is not a text"),
        (np.array(3), "they are a ndarray"),
        (None, "they are a NoneType"),
        (b"bytes", "they are a bytes"),
        ({"text": "a"}, "they are a dict"),
        ({"a", "b"}, "they are a set"),
        (["a", 3], "'text' holds 3"),
        (["a", " "], "empty"),
        ([Prompt("a", columns={"k": 1}), Prompt("b")], "prompt 2: it has the columns"),
        ([Prompt("a", columns={"k": 1}), Prompt("b", columns={"k": "x"})], "holds a text, in prompt 1 it is a number"),
        ([[1, 2], ["a"]], "message 1 is 1"),
        ([], "there is no prompt"),
        (iter(()), "there is no prompt"),
    ],
)
def test_what_cannot_be_used_is_refused_in_words(given, found):
    with pytest.raises(PromptError, match=found):
        resolve_prompts(given)


def test_runs_take_what_collect_takes():
    tunnel = interp.load("tunnel:bijection-gpt-neox")
    ids = [np.array(p.token_ids) for p in interp.sampled_prompts(tunnel.task, n=20)]
    marked = [Prompt(token_ids=x, columns={"s": np.float32(i)}) for i, x in enumerate(ids)]
    for prompts in (marked, PromptSet("marked", marked, units={"s": "1"})):
        record = interp.run(tunnel, prompts=prompts, probes="manifold", out=None, quiet=True)
        assert record.prompts["n"] == 20
    with pytest.raises(InterpError, match="there is no prompt"):
        interp.run(tunnel, prompts=[], probes="manifold", out=None, quiet=True)
    whole = interp.collect(tunnel, [x.tolist() for x in ids], ["resid"])
    for needs in ("resid", Need("resid"), ("resid",)):
        assert np.array_equal(interp.collect(tunnel, ids, needs)[Need("resid")], whole[Need("resid")])


def test_settings_take_numbers_of_any_library():
    from interp.registry import load_entry

    manifold = load_entry("probe", "manifold")
    for number in (np.int64(20), torch.tensor(20), pandas.Series([20]).iloc[0], np.float64(20)):
        assert repr(read_fields(manifold, "manifold", {"n_null": number})) == "{'n_null': 20}"


def test_a_tokenizer_of_the_tokenizers_library_and_a_path_are_taken(stories):
    from tokenizers import Tokenizer

    module = fresh_model("llama", vocab_size=512).module
    texts = ["One day", "Two"]
    ids = [interp.collect(interp.load(module, tokenizer=given), texts, "v").rows["token"].tolist() for given in (
        str(stories), stories, Tokenizer.from_file(str(stories / "tokenizer.json")),
    )]  # fmt: skip
    assert ids[0] == ids[1] == ids[2]
