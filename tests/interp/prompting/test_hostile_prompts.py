"""Prompts that nobody would write by hand: read as they stand, measured, shown as text, or rejected with a message."""

import csv

import numpy as np
import pytest
from tokenizers import normalizers

import interp
from interp.need import Need
from interp.prompt import Prompt, PromptSet
from interp.prompting.files import read_prompts
from tests.interp.prompting.test_prompt_files import TEXT_FORMATS, as_csv, written
from tests.tokenised import of_words, tokenise

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


@pytest.mark.parametrize("ending", TEXT_FORMATS)
def test_strange_and_huge_texts_come_back_character_by_character(tmp_path, ending):
    """A CSV too: its reader stops at 131,072 characters unless told otherwise, and goes on to do so for others."""
    limit, texts = csv.field_size_limit(), [*TEXTS.values(), "word " * 200_000 + "the"]
    path = written(tmp_path, f"p{ending}", TEXT_FORMATS[ending]([{"text": text} for text in texts]))
    assert [p.text for p in read_prompts(path)] == texts
    assert csv.field_size_limit() == limit


def test_strange_texts_are_measured_like_others(tiny_text_model):
    """Each alone gives what it gives among the others: nothing of one leaks into another, whatever its characters."""
    capture = interp.collect(tiny_text_model, list(TEXTS.values()), ["v"], window=48)
    for i, text in enumerate(TEXTS.values()):
        alone = interp.collect(tiny_text_model, [text], ["v"], window=48)
        np.testing.assert_allclose(capture[Need("v")][:, i], alone[Need("v")][:, 0], atol=1e-5)
    assert np.isfinite(capture.rows["next_entropy_bits"]).all()


def test_texts_that_a_tokenizer_cannot_tell_apart_are_counted():
    tokenizer = of_words("<unk>", "a", "b", eos_token="<unk>")
    tokenizer.backend_tokenizer.normalizer = normalizers.Lowercase()
    assert tokenizer.decode(tokenizer("A B")["input_ids"]) == "a b"
    prompts = PromptSet("some", [Prompt(text=t) for t in ("A b", "a b", "a  B", "b a", "b a")])
    tokens = tokenise(prompts, tokenizer, window=None, max_positions=None)
    assert tokens.notes == ("2 texts have the same tokens as another text: this tokenizer does not distinguish them",)
    assert tokenise(prompts.take([0, 3, 4]), tokenizer, window=None, max_positions=None).notes == ()


def test_a_file_that_names_other_files_opens_none_of_them(tmp_path, monkeypatch):
    opened = []
    texts = [TEXTS["path"], TEXTS["shell"], "file:///etc/passwd", "hf:owner/name"]
    path = written(tmp_path, "p.csv", as_csv([{"text": text} for text in texts]))
    real = type(path).read_bytes
    monkeypatch.setattr(type(path), "read_bytes", lambda self: opened.append(self) or real(self))
    assert len(read_prompts(path)) == 4 and opened == [path]
