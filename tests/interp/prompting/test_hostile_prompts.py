"""Prompts that nobody would write by hand: read as they stand, measured, shown as text, or rejected with a message."""

import csv
import io
import json
import math

import numpy as np
import pandas
import pytest
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import interp
from interp.errors import InterpError, PromptError
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from tests.named_prompts import resolve_prompts
from tests.tokenised import tokenise

TEXTS = {
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


def as_csv(texts) -> str:
    out = io.StringIO(newline="")
    csv.writer(out).writerows([["text"], *([text] for text in texts)])
    return out.getvalue()


def written(folder, ending, texts):
    path = folder / f"p{ending}"
    if ending == ".parquet":
        pandas.DataFrame({"text": texts}).to_parquet(path, index=False)
    else:
        lines = {".jsonl": lambda: "\n".join(json.dumps({"text": t}) for t in texts), ".csv": lambda: as_csv(texts),
                 ".txt": lambda: "\n".join(texts)}  # fmt: skip
        path.write_bytes(lines[ending]().encode())
    return path


@pytest.mark.parametrize("ending", [".jsonl", ".csv", ".txt", ".parquet"])
def test_strange_and_huge_texts_come_back_character_by_character(tmp_path, ending):
    texts = list(TEXTS.values())
    assert [p.text for p in resolve_prompts(written(tmp_path, ending, texts))] == texts
    # A CSV too: its reader stops at 131,072 characters unless told otherwise, and goes on to do so for others.
    texts = ["word " * 200_000 + "the", "short and"]
    limit = csv.field_size_limit()
    assert [p.text for p in resolve_prompts(written(tmp_path, ending, texts))] == texts
    assert csv.field_size_limit() == limit


def test_a_broken_line_after_a_huge_text_is_still_named(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("text,k\n" + "word " * 100_000 + ',1\n"open,2\n')
    with pytest.raises(PromptError, match=r"line 3: it is not CSV: unexpected end of data"):
        resolve_prompts(path)


def test_a_text_longer_than_the_model_is_refused_and_its_end_is_read_on_request(tiny_text_model):
    texts = ["long " * 1000 + "the", "short"]
    prompts = resolve_prompts(texts)
    with pytest.raises(PromptError, match="it has 5003 tokens and the model reads at most 64"):
        interp.collect(tiny_text_model, prompts, ["v"])
    capture = interp.collect(tiny_text_model, prompts, ["v"], window=64)
    end = interp.collect(tiny_text_model, resolve_prompts([texts[0][-64:], "short"]), ["v"])
    np.testing.assert_allclose(capture[Need("v")], end[Need("v")], atol=1e-6)


def test_strange_texts_are_measured_like_others(tiny_text_model):
    """Each alone gives what it gives among the others: nothing of one leaks into another, whatever its characters."""
    capture = interp.collect(tiny_text_model, list(TEXTS.values()), ["v"], window=48)
    for i, text in enumerate(TEXTS.values()):
        alone = interp.collect(tiny_text_model, [text], ["v"], window=48)
        np.testing.assert_allclose(capture[Need("v")][:, i], alone[Need("v")][:, 0], atol=1e-5)
    assert np.isfinite(capture.rows["next_entropy_bits"]).all()


def test_one_prompt_gives_reasons_in_place_of_statistics(tiny_text_model):
    """A single row has no spread: a run says so in words, and never prints a number for it."""
    try:
        record = interp.run(tiny_text_model, prompts=["one and only"], probes=["manifold"], out=None, quiet=True)
    except InterpError as error:
        assert error.found and error.fix
    else:
        for scalar in record.findings["manifold"].scalars.values():
            assert math.isnan(scalar.value) or scalar.interval_reason or scalar.underpowered


def test_texts_that_a_tokenizer_cannot_tell_apart_are_counted():
    inner = Tokenizer(models.WordLevel({w: i for i, w in enumerate(("<unk>", "a", "b"))}, unk_token="<unk>"))
    inner.normalizer, inner.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="<unk>", eos_token="<unk>")
    assert tokenizer.decode(tokenizer("A B")["input_ids"]) == "a b"
    prompts = PromptSet("some", [Prompt(text=t) for t in ("A b", "a b", "a  B", "b a", "b a")])
    tokens = tokenise(prompts, tokenizer, window=None, max_positions=None)
    assert tokens.notes == ("2 texts have the same tokens as another text: this tokenizer does not distinguish them",)
    assert tokenise(prompts.take([0, 3, 4]), tokenizer, window=None, max_positions=None).notes == ()


@pytest.mark.parametrize("name", ["/dev/zero", "/proc/self/mem", "/etc/passwd"])
def test_a_path_to_what_is_no_prompt_file_is_refused_by_its_ending(name):
    with pytest.raises(PromptError):
        resolve_prompts(name)


def test_a_file_that_names_other_files_opens_none_of_them(tmp_path, monkeypatch):
    """Cells that look like paths, links or commands are texts, and stay so."""
    opened = []
    path = written(tmp_path, ".csv", [TEXTS["path"], TEXTS["shell"], "file:///etc/passwd", "hf:owner/name"])
    real = type(path).read_bytes
    monkeypatch.setattr(type(path), "read_bytes", lambda self: opened.append(self) or real(self))
    assert len(resolve_prompts(path)) == 4 and opened == [path]
