"""What people do with results: mappings by name, numbers as numbers, and a picture in words that fits a screen."""

import pickle
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import interp
from interp.errors import InterpError
from interp.records.record import RunRecord, open_run
from interp.running.several_models import ManyRuns, RunOutcome


class Made:
    """One of each, made when the first test asks."""

    @cached_property
    def model(self):
        return interp.load("tunnel:bijection-gpt-neox")

    @cached_property
    def prompts(self):
        return interp.sampled_prompts(self.model.task, 20)

    @cached_property
    def capture(self):
        return interp.collect(self.model, self.prompts, ["v", "resid", "pattern_entropy"])

    @cached_property
    def record(self):
        return interp.run(self.model, probes=["attention_entropy", "orthogonality"], n_pool=20, out=None, quiet=True)

    @property
    def found(self):
        return self.record["attention_entropy"]

    @property
    def number(self):
        return self.found["reduction"]

    @property
    def table(self):
        return self.found.tables["by_layer"]


made = Made()


@pytest.mark.parametrize(
    ("mapping", "name"),
    [("capture", interp.Need("v")), ("record", "orthogonality"), ("found", "reduction"), ("table", "layer")],
)
def test_results_are_mappings_of_what_they_hold(mapping, name):
    mapping = getattr(made, mapping)
    assert name in list(mapping) and name in mapping and "no such thing" not in mapping
    assert list(mapping.keys()) == list(mapping) and dict(mapping).keys() == set(mapping)
    assert mapping[name] is dict(mapping)[name]
    with pytest.raises(KeyError) as caught:
        mapping["no such thing"]
    assert isinstance(caught.value, InterpError) and str(name).strip("'") in str(caught.value)


def test_captures_and_tables_answer_by_name_or_say_how_many_needs_there_are():
    assert "v" in made.capture and "q" not in made.capture and made.capture.get("q") is None
    assert [need.site for need, _ in made.capture.items()] == ["v", "resid", "pattern_entropy"]
    assert len(made.table) == len(made.table.to_frame()) and list(made.table) == list(made.table.to_frame())
    assert pd.DataFrame(dict(made.table)).equals(made.table.to_frame())
    sites = ["q", "k", "v", "z", "q_pre", "k_pre", "attn_out", "mlp_out", "resid"]
    many = interp.collect(made.model, made.prompts, sites)
    assert len(repr(many).splitlines()) == 10 and "2 further needs" in repr(many) and "k_pre" in repr(many)


def test_a_number_serves_where_numbers_do_and_keeps_to_itself_what_it_is():
    value = made.number.value
    assert float(made.number) == np.float64(made.number) == value and f"{made.number:.3f}" == f"{value:.3f}"
    assert value - 1 < made.number < value + 1 and made.number - 1 == value - 1 and 2 * made.number == 2 * value
    assert np.isfinite(made.number) and np.sqrt(abs(value)) == np.sqrt(np.abs(made.number))
    assert np.array([made.number, made.number], dtype=float).tolist() == [value, value]
    assert pickle.loads(pickle.dumps(made.number)) == made.number and made.found["correlation"] != made.number


@pytest.mark.parametrize(
    "shown",
    [
        lambda: made.capture,
        lambda: made.capture.rows,
        lambda: made.table,
        lambda: made.number,
        lambda: made.found,
        lambda: made.prompts,
        lambda: made.model,
        lambda: made.model.info,
        lambda: next(iter(made.capture)),
        lambda: interp.diff(made.record, made.record),
        lambda: ManyRuns((RunOutcome("a", made.record, False), RunOutcome("b", None, False, "no such model")), None),
        lambda: interp.logit_attribution(made.model, made.prompts, n_null=3),
        lambda: interp.patching_map(made.model, *(p.token_ids[:7] for p in made.prompts.prompts[:2]), n_null=3),
    ],
)
def test_what_a_console_shows_is_a_summary_of_ten_lines_at_most(shown):
    words = repr(shown())
    assert len(words.splitlines()) <= 10 and len(words) < 2_500 and "array([" not in words


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: made.capture.resid_pre, "attribute of Capture"),
        (lambda: made.capture.shape, "rows"),
        (lambda: made.record.finding, "findings"),
        (lambda: made.record.orthogonality, "attribute of RunRecord"),
        (lambda: made.found.numbers, "findings[name]"),
        (lambda: made.table.head(), "to_frame"),
        (lambda: made.model.generate("a"), "interp.generate"),
        (lambda: made.model.run_with_cache("a"), "model.module"),
        (lambda: made.model.eval(), "model.module"),
        (lambda: made.model.info.n_layer, "n_layers"),
        (lambda: made.model(torch.tensor([[1]])), "model.module"),
        (lambda: made.prompts.texts, "prompts"),
    ],
)
def test_an_attribute_of_another_library_is_answered_with_what_to_type(call, words):
    with pytest.raises(InterpError) as caught:
        call()
    assert words in str(caught.value)


def test_what_an_object_lacks_or_fails_at_is_told_as_it_is():
    assert not hasattr(made.capture, "shape") and getattr(made.model, "generate", None) is None
    with pytest.raises(AttributeError, match="_repr_png_"):
        _ = made.record._repr_png_
    again = pickle.loads(pickle.dumps(made.record))
    assert isinstance(again, RunRecord) and list(again) == list(made.record)

    class Faulty(interp.errors.Answering):
        @property
        def size(self) -> int:
            return object().bytes  # pyrefly: ignore[missing-attribute]

    with pytest.raises(AttributeError, match="'object' object has no attribute 'bytes'"):
        _ = Faulty().size


def test_a_record_is_saved_drawn_and_written_as_a_page_of_its_own(tmp_path: Path):
    figures = made.record.figures()
    assert list(figures) == [f"{probe}.{name}" for probe in made.record for name in made.record[probe].figures()]
    assert figures["attention_entropy.entropy_scored"].data
    with pytest.raises(InterpError, match="write_page"):
        made.record.show()
    page = made.record.write_page(str(tmp_path / "page.html"))
    assert "attention_entropy" in page.read_text(encoding="utf-8") and list(tmp_path.iterdir()) == [page]
    saved = made.record.save(str(tmp_path / "record"))
    assert (
        list(open_run(tmp_path / "record")) == list(made.record) and saved.show() == tmp_path / "record" / "report.html"
    )
