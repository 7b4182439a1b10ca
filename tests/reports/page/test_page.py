"""The page as text: what it says, what it escapes, what it may run, and what an unfinished record gives."""

import tomllib
from dataclasses import replace
from importlib.resources import files

import pytest
from interp.reports.page.render import explained, html, render

from interp import registry
from interp.errors import RecordError
from interp.records.labels import label
from interp.records.record import open_run
from tests.reports.parsed import parse
from tests.reports.pictures import made_findings, made_record

HOSTILE = '</script><script>window.hurt=1</script><img src=x onerror="window.hurt=2">&amp;\'"\u2028'


def test_a_page_is_written_beside_its_record_the_same_to_the_byte(tmp_path):
    record = made_record().write(tmp_path / "run")
    before = {p.name for p in record.path.iterdir()}
    assert record.show() == tmp_path / "run" / "report.html"
    assert {p.name for p in record.path.iterdir()} - before == {"report.html"}
    first = render(record).read_bytes()
    assert render(record).read_bytes() == first
    assert render(open_run(tmp_path / "run")).read_bytes() == first
    assert len(html(made_record()).encode()) < 3_000_000


def test_a_page_that_cannot_be_written_is_told_in_three_parts(tmp_path):
    with pytest.raises(RecordError) as caught:
        render(made_record())
    assert "page" in caught.value.asked and "not saved" in caught.value.found and "save(folder)" in caught.value.fix
    record = made_record().write(tmp_path / "run")
    (tmp_path / "run" / "report.html").mkdir()
    with pytest.raises(RecordError) as caught:
        render(record)
    assert "writing the page" in caught.value.asked and "of this name exists" in caught.value.found
    assert "move the old one away" in caught.value.fix
    assert open_run(tmp_path / "run").spec_hash == record.spec_hash


def test_headline_numbers_give_interval_null_and_p_or_the_reason():
    text = parse(html(made_record())).text
    row = text[text.index("Number by number") :]
    assert "Share of the values' variance that lies in their first two directions" in row
    assert "interval jackknife over prompts, logit scale null Gaussian, own variances" in row
    assert "0.471 0.43 to 0.52" in row.replace("0.4710", "0.471 0")
    assert "p p = 0.002, corrected over layers" in row and "6.82 dimensions" in row
    table = text[text.index("Number by number") :]
    collapse = table[
        table.index("Extra share when prompts come from one domain 12 prompts, 9 distinct rows") : table.index(
            "pictures.collapse"
        )
    ]
    assert collapse.count("none: too few prompts of one domain") == 2 and "p p = 0.21 " in collapse
    assert text.count("underpowered") == 3  # in its sentence, in what would change it, in its row


def test_a_page_opens_with_questions_and_explains_its_terms():
    page = parse(html(made_record()))
    before = page.text[: page.text.index("Number by number")]
    assert "Do the values lie near a curve" in before and "How many directions the values use" in before
    order = [e.attributes.get("id") for e in page.elements]
    assert order.index("pictures-map") < order.index("numbers") < order.index("pictures-depth")
    assert sum(e.attributes.get("class") == "question" for e in page.elements) == 3
    parts = [["A linear readout of the attention value vectors explains 0.4; p = 0.01"], ["p = 0.2", "the baseline"]]
    assert {part: [*terms] for part, terms in explained(dict(enumerate(parts))).items()} == {
        0: ["linear readout", "attention value vectors", "p"], 1: ["baseline, null"],
    }  # fmt: skip
    text = parse(html(made_record())).text
    said = text[: text.index("Number by number")]
    assert "baseline, null what the same measurement gives" in said and "J-space" not in said


_EXPLAINED = (("qk_alignment", "logit"), ("value_axis", "selectivity"), ("components", "lens_kl_trend"),
              ("manifold", "participation_ratio"))  # fmt: skip
"""Probes and names of numbers that only a comparison shows on its first screen."""


def test_every_explained_term_can_stand_on_a_page():
    declared = [said for probe in registry.entries("probe") for said in registry.load_entry("probe", probe).sentences]
    texts = [
        text for said in declared for text in (said.question, said.yes, said.no, said.opposite, said.rest, said.open)
    ]
    texts += [f"tunnel:{task}-gpt-neox, left after the last token" for task in registry.entries("tunnel")]
    texts += [
        "tunnel:x",
        "“mixed” and “sula”",
        "without the first position; without the dimensions of largest variance",
        "in one way only",
        "p = 0.1; baseline, as this keeps what position predicts",
        "the attention value vectors of, than with another prompt's keys; Holds beyond x",
        "the model's next-token entropy; layer 0 head 1 (zero ablation)",
        *(label(probe, name, "") for probe, name in _EXPLAINED),
    ]
    known = tomllib.loads(files("interp.reports.page").joinpath("terms.toml").read_text(encoding="utf-8"))
    assert [*explained({"page": texts})["page"]] == list(known)
    tasks = {f"tunnel:{task}" for task in registry.entries("tunnel")}
    assert tasks <= set(known), "the page of a tunnel says what its task is"


def test_numbers_and_figures_beyond_the_first_are_folded_and_called_exploratory():
    page = parse(html(made_record()))
    order = [e.attributes.get("id") or e.attributes.get("class") for e in page.elements]
    assert order.index("pictures-matrix") < order.index("more") < order.index("pictures-panels")
    assert "1 more figure: Three domains" in page.text
    text = parse(html(made_record())).text
    assert text.index("exploratory") < text.index("Sink entropy.")


def test_hostile_names_of_probes_and_tables_open_no_element(tmp_path):
    findings = made_findings()
    findings = replace(findings, tables={HOSTILE: findings.tables["loose"]}, headline=())
    record = replace(made_record(), findings={HOSTILE: findings})
    page = parse(html(record))
    assert not page.all("img")
    assert "window.hurt" in page.text


def test_links_lead_somewhere_and_figures_have_words_for_those_who_hear():
    page = parse(html(made_record()))
    ids = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(ids) == len(set(ids))
    assert {e.attributes["href"][1:] for e in page.all("a")} <= set(ids)
    assert "pictures-map" in ids and "probe-pictures" in ids
    plots = [e for e in page.elements if e.attributes.get("class") == "plot"]
    assert [p.attributes["aria-label"] for p in plots][:2] == ["Value manifold, layer by layer", "Share by depth"]
    for plot in plots:
        assert page.with_id(plot.attributes["aria-describedby"]).tag == "p"


def test_a_probe_that_is_no_longer_installed_still_shows_its_numbers_and_tables():
    record = made_record()
    old = replace(record, findings={"gone": record.findings["pictures"]})
    page = parse(html(old))
    assert (
        "The installed probe “gone” cannot draw these findings (probe 'gone': there is no probe of this name)"
        in page.text
    )
    assert "by_layer" in page.text and "0.471" in page.text and "points" in page.text
    assert not [e for e in page.elements if e.attributes.get("class") == "plot"]


def test_a_probe_that_lost_a_field_or_a_figure_says_so():
    record = made_record(replace(made_findings(), parameters={"forgotten": 3}))
    page = parse(html(record))
    assert "field of pictures 'forgotten': there is no" in page.text and "loose" in page.text
    record = made_record(replace(made_findings(), parameters={"kind": "solid"}))
    page = parse(html(record))
    assert (
        "This figure cannot be drawn here. It holds traces of the kind scatter3d; the page draws bar, box" in page.text
    )
    assert len([e for e in page.elements if e.attributes.get("class") == "plot"]) == 4


def test_tables_are_shown_once_and_failed_checks_stand_out():
    page = parse(html(made_record()))
    shown = [e.attributes["id"] for e in page.all("details") if "id" in e.attributes]
    assert shown == ["table-pictures-points", "table-pictures-by_layer", "table-pictures-loose"]
    links = [e.attributes["href"] for e in page.all("a") if e.attributes["href"].startswith("#table")]
    assert links == ["#table-pictures-points"]
    broken = {"name": "eager", "meaning": "logits", "passed": False, "value": 0.3, "bound": 1e-4}
    page = parse(html(made_record(selfcheck=(broken,))))
    assert "0 of 1 checks passed" in page.text
    assert [e for e in page.all("strong") if e.attributes.get("class") == "failure"]
    assert registry.load_entry("report", "html") is render


def test_a_record_without_findings_renders_and_says_so():
    empty = {key: {} for key in ("model", "prompts", "environment", "timings", "findings")}
    bare = replace(made_record(), selfcheck=(), spec={"model": "pythia-410m"}, **empty)
    page = parse(html(bare))
    assert "This record contains no findings" in page.text
    assert "were not verified on this model" in page.text
    assert len([e for e in page.all("script") if "type" not in e.attributes]) == 1  # no figure, no plotly


def test_few_clusters_are_told_above_the_numbers_and_explained_with_the_prompts_of_every_set():
    record = made_record()
    others = [
        {
            "name": "sula",
            "n": 8,
            "clusters": {"n": 2, "by": "the column problem", "caution": "8 of <2>"},
            "notes": ["a note of the other"],
        }
    ]
    clusters = {"n": 48, "by": "shared <wording>", "caution": "288 in 48", "examples": ["one and another"]}
    prompts = {"name": "mixed", "n": 288, "clusters": clusters, "notes": ["how <they> were found"], "others": others}
    page, plain = parse(html(replace(record, prompts=prompts))), parse(html(record))
    n_warned = [sum(e.attributes.get("class") == "notice warning small" for e in p.all("p")) for p in (page, plain)]
    assert n_warned[0] == n_warned[1] + 2
    for words in (
        "288 in 48",
        "“sula”: 8 of <2>",
        "how <they> were found",
        "a note of the other",
    ):
        assert words in page.text
    assert "one and another" not in page.text and "{'" not in page.text
