"""Prompts from files and from whatever holds them in Python: what is read, and what is refused in words."""

import csv
import io
import json
from contextlib import suppress

import numpy as np
import pandas
import pyarrow
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyarrow import parquet
from tokenizers import Tokenizer

import interp
from interp.errors import PromptError, UsageError
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.prompting.formats import piped_rows
from interp.registry import load_entry
from interp.settings import read_fields
from tests.named_prompts import resolve_prompts
from tests.tiny_models import fresh_model

TEXTS = ["The cat sat on the", "A tab\tand\na line break, é and 漢, then a", 'She said "yes", and']
ROWS = [
    {"text": text, "domain": domain, "k": k, "h_bits": h}
    for text, domain, k, h in zip(TEXTS, "aba", (1, 2, 3), (0.5, 1.0, 2.25), strict=True)
]


def written(folder, name, content):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def as_jsonl(rows):
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)


def as_csv(rows, separator=","):
    out = io.StringIO(newline="")
    writer = csv.DictWriter(out, rows[0].keys(), delimiter=separator)
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()


def as_parquet(rows):
    out = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows), out)
    return out.getvalue()


FORMATS = {".jsonl": as_jsonl, ".csv": as_csv, ".parquet": as_parquet}
TEXT_FORMATS = {**FORMATS, ".txt": lambda rows: "\n".join(row["text"] for row in rows)}


def refusal(path, **options):
    with pytest.raises(PromptError) as caught:
        resolve_prompts(path, **options)
    return caught.value


@pytest.mark.parametrize("ending", FORMATS)
def test_texts_columns_and_units_are_the_same_from_every_format(tmp_path, ending):
    prompts = resolve_prompts(written(tmp_path, f"p{ending}", FORMATS[ending](ROWS)))
    assert [p.text for p in prompts] == TEXTS
    assert [dict(p.columns) for p in prompts] == [{k: v for k, v in row.items() if k != "text"} for row in ROWS]
    assert prompts.units == {"domain": "label", "k": "1", "h_bits": "bits"}
    assert prompts.source == f"3 prompts from p{ending}"
    assert prompts.content_hash == resolve_prompts(written(tmp_path, "q.jsonl", as_jsonl(ROWS))).content_hash


def test_a_text_file_is_one_prompt_a_line(tmp_path):
    prompts = resolve_prompts(written(tmp_path, "p.txt", "one and\r\n two\twith a tab and \n\n \n"))
    assert [p.text for p in prompts] == ["one and", " two\twith a tab and "]
    assert prompts.source == "2 prompts from p.txt; 1 of 2 texts end in white space, which is then their last token"
    text = "before\u2028after\u2029 and"
    for name, content in (("p.txt", text), ("p.jsonl", as_jsonl([{"text": text}]))):
        assert [p.text for p in resolve_prompts(written(tmp_path, name, content))] == [text]
    prompts = resolve_prompts(written(tmp_path, "p.txt", "a\nb\na\na\n"))
    assert [p.text for p in prompts] == ["a", "b", "a", "a"]
    assert "2 of 4 texts repeat an earlier one" in prompts.source
    assert len(resolve_prompts(written(tmp_path, "p.txt", "one"))) == 1


def test_columns_may_hold_texts_numbers_or_truth_values(tmp_path):
    path = written(tmp_path, "p.csv", "domain,prompt\nx,the one\ny,the other\n")
    prompts = resolve_prompts(path, text_column="prompt")
    assert [(p.text, p.columns["domain"]) for p in prompts] == [("the one", "x"), ("the other", "y")]
    assert [p.text for p in resolve_prompts(written(tmp_path, "p.csv", "text\n1\n02\n"))] == ["1", "02"]
    assert "line 4: it has 1 cells" in str(refusal(written(tmp_path, "q.csv", "sep=;\ntext;k\na;1\nb\n")))
    assert "has the columns 'satz', 'k'" in str(refusal(written(tmp_path, "r.csv", "satz;k\na;1\n")))
    prompts = resolve_prompts(
        written(tmp_path, "p.jsonl", as_jsonl([{"text": "a", "b": True}, {"text": "c", "b": False}]))
    )
    assert prompts.units == {"b": "label"}
    assert [p.columns["b"] for p in prompts] == [True, False]


CSV_COLUMNS = {
    "plain": (["1", "-2", "30"], [1, -2, 30]),
    "signs": (["+0.25", "-0.75", "1"], [0.25, -0.75, 1.0]),
    "points": ([".25", "5.", "-.5"], [0.25, 5.0, -0.5]),
    "white": ([" 0.75", "0.25 ", "\t1"], [0.75, 0.25, 1.0]),
    "powers": (["1e-3", "2E5", "0"], [0.001, 2e5, 0.0]),
    "zeros": (["0", "0.0", "+0"], [0.0, 0.0, 0.0]),
    "codes": (["007", "010", "100"], None),
    "words": (["a", "", "b"], None),
    "some numbers": (["Paris", "1984", "NaN"], None),
    "as many": (["x", "1", "x1"], None),
    "dates": (["2024-01-05", "2024-01-06", "2024"], None),
    "versions": (["1.2.3", "1.2.4", "2.0"], None),
    "times": (["12:30", "1:05", "9"], None),
    "white is kept": ([" a", "b ", "c"], None),
}
"""Cells of a CSV, and the numbers they are; names stay as they are."""
CSV_GAPS = [
    "", " ", "1 250", "12 %", "NaN", "nan", "NA", "N/A", "null", "None", "-", "?", "inf", "#N/A", "1,250", "0,25",
    "1_250", "$3", "\u22121", "x", "1e",
]  # fmt: skip


def csv_of(cells):
    return as_csv([{"text": f"text {i}", "k": cell} for i, cell in enumerate(cells)])


@pytest.mark.parametrize("case", CSV_COLUMNS)
def test_a_csv_column_of_numbers_is_numbers_and_one_of_names_stays_as_it_is(tmp_path, case):
    cells, numbers = CSV_COLUMNS[case]
    found = resolve_prompts(written(tmp_path, "p.csv", csv_of(cells)))
    assert found.units == {"k": "1" if numbers else "label"}
    assert [repr(p.columns["k"]) for p in found] == [repr(value) for value in numbers or cells]


@pytest.mark.parametrize("cell", CSV_GAPS)
def test_a_csv_column_of_numbers_with_another_cell_is_refused_with_its_line(tmp_path, cell):
    error = refusal(written(tmp_path, "p.csv", csv_of(["0.25", "3", cell, "0.125"])))
    assert error.asked.endswith("p.csv, line 4")
    assert f"the column 'k' holds {cell!r}, and most of its cells are numbers" in error.found


@pytest.mark.parametrize(
    "cells", [["1,250", "2,100"], ["0,25", "0,5"], ["12%", "13%"], ["9" * 20, "2"], ["9" * 5000, "1"]]
)
def test_numbers_that_no_cell_writes_plainly_are_refused(tmp_path, cells):
    assert "'k' holds" in refusal(written(tmp_path, "p.csv", csv_of(cells))).found


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("text_column", ["text", "k"])
def test_the_separator_of_a_csv_is_that_of_its_header(tmp_path, separator, text_column):
    rows = [{"k": "a, b; c|d", "text": "x\ty"}, {"k": "e", "text": "f"}]
    expected = resolve_prompts(rows, text_column=text_column).prompts
    for content in (as_csv(rows, separator), f"sep={separator}\r\n{as_csv(rows, separator)}"):
        assert resolve_prompts(written(tmp_path, "p.csv", content), text_column=text_column).prompts == expected


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".txt"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16-le", "utf-16-be"])
def test_a_mark_at_the_beginning_says_the_encoding_and_is_no_part_of_the_first_prompt(tmp_path, ending, encoding):
    content = "\ufeff" + TEXT_FORMATS[ending]([{"text": "é"}, {"text": "漢"}])
    prompts = resolve_prompts(written(tmp_path, f"p{ending}", content.encode(encoding)))
    assert [p.text for p in prompts] == ["é", "漢"]


MESSAGES = {
    "empty": (".txt", "", "there is no prompt in it"),
    "blank": (".txt", "a\n\nb", "p.txt, line 2: the line is empty"),
    "only_white": (".csv", 'text,k\na,1\n"  ",2\n', "p.csv, line 3: the prompt is empty"),
    "number": (".jsonl", '{"text": "a"}\n{"text": 7}\n', "p.jsonl, line 2: 'text' holds 7, which is not a text"),
    "null": (".jsonl", '{"text": null}\n', "p.jsonl, line 1: 'text' holds nothing, which is not a text"),
    "truncated": (".jsonl", '{"text": "a"}\n{"text": "b', "line 2: it is not JSON: Unterminated string"),
    "deep": (".jsonl", "[" * 100_000, "p.jsonl, line 1: it is not JSON"),
    "long_number": (".jsonl", '{"text": "a", "k": ' + "9" * 5000 + "}", "p.jsonl, line 1: it is not JSON"),
    "big_number": (".jsonl", '{"text": "a", "k": 9223372036854775808}', "the column 'k' holds 9223372036854775808"),
    "no_object": (".jsonl", '["a"]\n', "p.jsonl, line 1: it is a list, not an object"),
    "twice": (".jsonl", '{"text": "a", "text": "b"}', "line 1: it is not JSON: a key is repeated"),
    "not_finite": (".jsonl", '{"text": "a", "k": NaN}', "line 1: the column 'k' holds nan"),
    "nested": (".jsonl", '{"text": "a", "k": [1]}', "line 1: the column 'k' holds [1]"),
    "hole": (".jsonl", '{"text": "a", "k": null}', "line 1: the column 'k' holds nothing"),
    "kinds": (".jsonl", '{"text": "a", "k": 1}\n{"text": "b", "k": "x"}', "holds a text, in line 1 it is a number"),
    "columns": (".jsonl", '{"text": "a"}\n{"text": "b", "k": 1}', "line 2: it has the columns ['k', 'text'], line 1"),
    "nothing": (".jsonl", "{}", "it has the columns none"),
    "other_columns": (".csv", "prompt,domain\nhello,x\n",
                      "the column 'text' of {}: it has the columns 'prompt', 'domain'\n"
                      "  Call the one that holds the texts `text`, or name it to a run: "
                      "--text-column NAME, text_column=NAME."),
    "reserved": (".jsonl", '{"text": "a", "length": 3}', "every capture has a column of this name"),
    "control": (".jsonl", '{"text": "a\\u0000b"}', "line 1: 'text' holds the control character U+0000 at character 1"),
    "return": (".txt", "a\rb", "p.txt, line 1: there is a carriage return inside the line"),
    "surrogate": (".jsonl", '{"text": "a\\ud800"}', "line 1: 'text' holds half a surrogate pair at character 1"),
    "cells": (".csv", "text,k\na,1\nb,c,2\n", "p.csv, line 3: it has 3 cells, the header has 2"),
    "cells_after_long": (".csv", 'text,k\n"a\nb",1\nc\n', "p.csv, line 4: it has 1 cells, the header has 2"),
    "quote": (".csv", f'text,k\n{"long " * 40_000},1\n"b,2\nc,3\n', "line 3: it is not CSV: unexpected end of data"),
    "header_twice": (".csv", "text,text\na,b\n", "p.csv, line 1: a column of the header is repeated"),
    "unnamed": (".csv", ",text\n0,a\n", "the columns of {}: one of them is named ''"),
    "overflow": (".csv", "text,k\na,1e999\n", "line 2: the column 'k' holds inf"),
    "latin": (".txt", b"caf\xc3\xa9\nna\xefve", "p.txt, line 2: byte 8 of the file (0xef) is not UTF-8"),
    "latin_after_mark": (".txt", b"\xef\xbb\xbfa\n\xff", "p.txt, line 2: byte 5 of the file (0xff) is not UTF-8"),
    "same": (".txt", "a\na\na\n", "all 3 prompts are the same text: every row would be one and the same point"),
    "parquet": (".parquet", b"PAR1 this is none", "p.parquet: it cannot be read as Parquet"),
}  # fmt: skip


@pytest.mark.parametrize("case", MESSAGES)
def test_an_unusable_file_is_refused_with_its_place(tmp_path, case):
    ending, content, message = MESSAGES[case]
    path = written(tmp_path, f"p{ending}", content)
    error = refusal(path)
    assert message.format(path) in str(error)
    assert str(path) in error.asked
    assert error.fix.endswith(".") or error.fix.endswith("on it.")


def test_a_parquet_file_that_cannot_be_read_names_column_or_row(tmp_path):
    table = pyarrow.table({"text": ["a"], "when": pyarrow.array([0], pyarrow.timestamp("us"))})
    parquet.write_table(table, tmp_path / "p.parquet")
    assert "the column 'when'" in str(refusal(tmp_path / "p.parquet"))
    assert "timestamp[us]" in str(refusal(tmp_path / "p.parquet"))
    parquet.write_table(pyarrow.table({"text": ["a", None]}), tmp_path / "p.parquet")
    assert "p.parquet, row 2: 'text' holds nothing" in str(refusal(tmp_path / "p.parquet"))


TEXT_KINDS = [
    pyarrow.string(), pyarrow.large_string(), pyarrow.string_view(),
    pyarrow.dictionary(pyarrow.int8(), pyarrow.string()), pyarrow.dictionary(pyarrow.int32(), pyarrow.large_string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", TEXT_KINDS, ids=str)
def test_texts_of_every_kind_that_arrow_has_are_texts_and_half_floats_numbers(tmp_path, kind):
    columns = {"text": TEXTS, "domain": ["x", "y", "x"]}
    columns = {name: pyarrow.array(values).cast(kind) for name, values in columns.items()}
    columns["h"] = pyarrow.array(np.array([0.5, 1.5, 2.0], np.float16))
    parquet.write_table(pyarrow.table(columns), tmp_path / "p.parquet")
    found = resolve_prompts(tmp_path / "p.parquet")
    assert [(p.text, *p.columns.values()) for p in found] == list(zip(TEXTS, "xyx", (0.5, 1.5, 2.0), strict=True))
    assert found.units == {"domain": "label", "h": "1"}


NAMES = ["World", "Sports", "Sci/Tech"]


def classed(values):
    datasets = pytest.importorskip("datasets")
    kinds = {"text": datasets.Value("string"), "k": datasets.Value("int64"), "topic": datasets.ClassLabel(names=NAMES)}
    columns = {"text": TEXTS, "k": range(len(TEXTS)), "topic": values}
    return datasets.Dataset.from_dict(columns, features=datasets.Features(kinds))


def parquet_of(folder, dataset):
    table = dataset.with_format("arrow")[:]
    parquet.write_table(table, folder / "train.parquet")
    return folder / "train.parquet"


WAYS = {
    "in memory": lambda folder, dataset: dataset,
    "as numpy": lambda folder, dataset: dataset.with_format("numpy"),
    "chosen": lambda folder, dataset: dataset.select([0, 1, 2]),
    "parquet": parquet_of,
    "folder": lambda folder, dataset: f"hf:{parquet_of(folder, dataset).parent}",
}


@pytest.mark.parametrize("way", WAYS)
def test_the_numbers_of_a_class_are_its_names_everywhere(tmp_path, way):
    found = resolve_prompts(WAYS[way](tmp_path, classed([2, 0, 1])))
    assert found.units == {"k": "1", "topic": "label"}
    assert [dict(p.columns) for p in found] == [
        {"k": i, "topic": name} for i, name in enumerate(["Sci/Tech", "World", "Sports"])
    ]


@pytest.mark.parametrize("way", ["in memory", "parquet"])
def test_a_row_without_its_class_is_refused(tmp_path, way):
    for hidden in (-1, None):
        with pytest.raises(PromptError, match="row 2: the column 'topic' holds nothing"):
            resolve_prompts(WAYS[way](tmp_path, classed([2, hidden, 1])))


@pytest.mark.parametrize("features", [[1], 3, {"k": 3}, {"k": {"_type": "ClassLabel"}}, {"k": {"names": ["a"]}}])
def test_features_of_another_form_break_nothing(tmp_path, features):
    table = pyarrow.Table.from_pylist(ROWS)
    for info in ({"features": features}, features):
        meant = table.replace_schema_metadata({"huggingface": json.dumps({"info": info})})
        parquet.write_table(meant, tmp_path / "p.parquet")
        with suppress(PromptError):
            assert [p.text for p in resolve_prompts(tmp_path / "p.parquet")] == TEXTS


def test_what_is_no_file_of_prompts_is_refused(tmp_path):
    assert str(refusal(written(tmp_path, "p.json", "[]"))) == (
        f"the prompts of {tmp_path / 'p.json'}: the ending '.json' is not one that is read\n"
        "  Known endings: .jsonl, .csv, .tsv, .parquet, .txt."
    )
    assert "No such file or directory" in str(refusal(tmp_path / "none.txt"))
    (tmp_path / "folder.txt").mkdir()
    for folder in (tmp_path / "folder.txt", tmp_path):
        assert f"it is a folder\n  hf:{folder} reads" in str(refusal(folder))


def test_names_paths_lists_and_sets_are_resolved(tmp_path):
    assert resolve_prompts("fiction").name == "fiction"
    assert len(resolve_prompts("fiction", n_pool=12, seed=3)) == 12
    with pytest.raises(PromptError) as caught:
        resolve_prompts("mathematic")
    assert caught.value.found == "there is no prompt set of this name, and no such file"
    assert caught.value.fix.startswith("Did you mean mathematics? Known: code, fiction, general,")
    assert caught.value.exit_code == 2
    with pytest.raises(PromptError, match="put it in a list"):
        resolve_prompts("The cat sat on the")
    path = written(tmp_path, "p.csv", as_csv(ROWS))
    assert resolve_prompts(str(path)).content_hash == resolve_prompts(path).content_hash
    assert resolve_prompts(str(written(tmp_path, "q.csv", "t\nhello\n")), text_column="t").prompts[0].text == "hello"
    given_texts = resolve_prompts(TEXTS, text_column="other")
    assert (given_texts.name, [p.text for p in given_texts]) == ("texts", TEXTS)
    ids = PromptSet("ids", [Prompt(token_ids=(1, 2))])
    assert resolve_prompts(ids) is ids
    for tableless in (ids, "mixed"):
        with pytest.raises(PromptError, match="the column 'other' of the prompts"):
            resolve_prompts(tableless, text_column="other")


@pytest.mark.parametrize("name", ["a" * 5000, "nul\0byte", ""])
def test_a_name_that_no_file_can_have_is_unknown(name):
    with pytest.raises(PromptError, match="no prompt set of this name"):
        resolve_prompts(name)


def test_a_data_set_of_several_splits_is_refused():
    datasets = pytest.importorskip("datasets")
    with pytest.raises(PromptError, match="Choose a split"):
        resolve_prompts(datasets.DatasetDict({"train": datasets.Dataset.from_list(ROWS)}))


def test_a_smaller_pool_is_a_seeded_draw_in_the_old_order(tmp_path):
    path = written(tmp_path, "p.txt", "\n".join(f"text {i}" for i in range(100)))
    all_texts = [p.text for p in resolve_prompts(path)]
    drawn = resolve_prompts(path, n_pool=30, seed=1)
    places = [all_texts.index(p.text) for p in drawn]
    assert places == sorted(set(places)) and len(places) == 30
    assert [p.text for p in resolve_prompts(path, n_pool=30, seed=1)] == [p.text for p in drawn]
    assert [p.text for p in resolve_prompts(path, n_pool=30, seed=2)] != [p.text for p in drawn]
    assert drawn.source == "30 (drawn with seed 1) of 100 prompts from p.txt" and drawn.seed == 1
    for n, found in ((0, "too small"), (101, "it has 100")):
        with pytest.raises(UsageError, match=found):
            resolve_prompts(path, n_pool=n)


PLAIN_TEXT = st.text(st.characters(blacklist_categories=["Cc", "Cs"]), min_size=1).filter(str.strip)


@given(texts=st.lists(PLAIN_TEXT, min_size=1, max_size=5, unique=True))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_text_comes_back_as_it_was_written(tmp_path, texts):
    for ending, write in TEXT_FORMATS.items():
        if ending != ".txt" or not texts[0].startswith("\ufeff"):
            path = written(tmp_path, f"whole{ending}", write([{"text": text, "name": "x"} for text in texts]))
            assert [p.text for p in resolve_prompts(path)] == texts


STRANGE = {
    "html": '</script><script>window.hurt=1</script><img src=x onerror="alert(1)">&amp;',
    "template": "{{ 7 * 7 }} {% raw %} ${x} %s {0}",
    "right to left": "العربية שלום \u202egnitirw\u202c then",
    "joined": "👩‍👩‍👧‍👦 e\u0301 \u200bzero\u200dwidth ﷽",
    "spreadsheet": '=HYPERLINK("http://x.example","click")',
    "shell": "$(touch it-ran); `touch it-ran` | rm -rf ~",
    "path": "../../../../etc/passwd",
    "private": "\ue000\ufffd\U0010fffd\ufdd0",
    "spaces": "  two\u00a0 spaces\u3000 ",
}


@pytest.mark.parametrize("ending", TEXT_FORMATS)
def test_strange_and_huge_texts_come_back_character_by_character(tmp_path, ending):
    """A CSV too: its reader stops at 131,072 characters unless told otherwise, and goes on to do so for others."""
    limit, texts = csv.field_size_limit(), [*STRANGE.values(), "word " * 200_000 + "the"]
    path = written(tmp_path, f"p{ending}", TEXT_FORMATS[ending]([{"text": text} for text in texts]))
    assert [p.text for p in resolve_prompts(path)] == texts
    assert [row.values["text"] for row in piped_rows("\n".join(texts[-1:] * 2).encode(), "text")] == texts[-1:] * 2
    assert csv.field_size_limit() == limit


def test_strange_texts_are_measured_like_others(tiny_text_model):
    """Each alone gives what it gives among the others: nothing of one leaks into another, whatever its characters."""
    capture = interp.collect(tiny_text_model, list(STRANGE.values()), ["v"], window=48)
    for i, text in enumerate(STRANGE.values()):
        alone = interp.collect(tiny_text_model, [text], ["v"], window=48)
        np.testing.assert_allclose(capture[Need("v")][:, i], alone[Need("v")][:, 0], atol=1e-5)
    assert np.isfinite(capture.rows["next_entropy_bits"]).all()


def test_a_file_that_names_other_files_opens_none_of_them(tmp_path, monkeypatch):
    opened = []
    texts = [STRANGE["path"], STRANGE["shell"], "file:///etc/passwd", "hf:owner/name"]
    path = written(tmp_path, "p.csv", as_csv([{"text": text} for text in texts]))
    real = type(path).read_bytes
    monkeypatch.setattr(type(path), "read_bytes", lambda self: opened.append(self) or real(self))
    assert len(resolve_prompts(path)) == 4 and opened == [path]


HELD = [row | {"seen": i > 0} for i, row in enumerate(ROWS)]
COLUMNS = {name: [row[name] for row in HELD] for name in HELD[0]}
UNITS = {"domain": "label", "k": "1", "h_bits": "bits", "seen": "label"}


def prompt_of(row):
    return Prompt(row["text"], columns={name: value for name, value in row.items() if name != "text"})


TABLES = {
    "rows": lambda: HELD,
    "rows of numpy": lambda: [row | {"k": np.int32(row["k"]), "h_bits": np.float32(row["h_bits"])} for row in HELD],
    "rows of torch": lambda: [row | {"k": torch.tensor(row["k"]), "seen": np.bool_(row["seen"])} for row in HELD],
    "generator of rows": lambda: (row for row in HELD),
    "frame": lambda: pandas.DataFrame(HELD),
    "frame with an index": lambda: pandas.DataFrame(HELD, index=[7, 3, 5]),
    "frame of categories": lambda: pandas.DataFrame(HELD).astype(
        {"domain": "category", "h_bits": "float32", "k": "int8"}
    ),
    "part of a frame": lambda: pandas.DataFrame(HELD * 2).iloc[3:],
    "arrow": lambda: pyarrow.Table.from_pylist(HELD),
    "arrow views": lambda: pyarrow.table({**COLUMNS, "text": pyarrow.array(TEXTS, pyarrow.string_view())}),
    "prompts": lambda: [prompt_of(row) for row in HELD],
    "generator of prompts": lambda: map(prompt_of, HELD),
}


@pytest.mark.parametrize("way", TABLES)
def test_what_holds_rows_gives_the_same_prompts(way):
    found = resolve_prompts(TABLES[way]())
    assert found.content_hash == resolve_prompts(HELD).content_hash
    assert found.units == UNITS
    assert [p.text for p in found] == TEXTS
    assert all(type(p.columns[name]) is type(row[name]) for p, row in zip(found, HELD, strict=True) for name in UNITS)


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


@pytest.mark.parametrize("ids", [[0.5, 1.0], [[1, 2]], ["a"], 3, np.array([[1, 2]]), torch.tensor([0.5]), []])
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


def test_settings_take_numbers_of_any_library():
    manifold = load_entry("probe", "manifold")
    for number in (np.int64(20), torch.tensor(20), pandas.Series([20]).iloc[0], np.float64(20)):
        assert repr(read_fields(manifold, "manifold", {"n_null": number})) == "{'n_null': 20}"


def test_a_tokenizer_of_the_tokenizers_library_and_a_path_are_taken(stories):
    module = fresh_model("llama", vocab_size=512).module
    texts = ["One day", "Two"]
    ids = [interp.collect(interp.load(module, tokenizer=given), texts, "v").rows["token"].tolist() for given in (
        str(stories), stories, Tokenizer.from_file(str(stories / "tokenizer.json")),
    )]  # fmt: skip
    assert ids[0] == ids[1] == ids[2]


def test_polars_gives_the_same_prompts():
    polars = pytest.importorskip("polars")
    assert resolve_prompts(polars.DataFrame(HELD)).content_hash == resolve_prompts(HELD).content_hash
    assert [p.text for p in resolve_prompts(polars.Series(TEXTS))] == TEXTS
