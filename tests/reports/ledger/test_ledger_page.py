"""The page of a ledger: what it says, where it leads, what it may run, and how several models stand side by side."""

import re
from dataclasses import replace

import pytest
from interp.reports.ledger.in_words import MEANINGS, SIGNS, bibtex, headline, methods, short_name
from interp.reports.ledger.render import first_number, html, render

from interp.findings import Null, Scalar
from interp.ledger.ledger import ClaimOutcome, ClaimRow, JudgedPart, LedgerFile, MeasuredNumber, PaperFile, SourceFile
from interp.ledger.replicate import JOINT, TRAINED
from interp.ledger.rules import OUTCOMES
from interp.registry import load_entry
from tests.reports.parsed import parse

FINGERPRINT = "0123456789abcdef0123456789abcdef"


def number(source="probes", value=0.32, models=(("tiny", FINGERPRINT),)):
    scalar = Scalar(
        value=value, unit="fraction", interval=(0.27, 0.37), interval_method="jackknife over prompts",
        null=Null("Gaussian columns", 0.14, (0.13, 0.15)), p=0.004, p_over="layers", p_least=0.002, n=75,
        meaning="Share of the plane.",
    )  # fmt: skip
    within = replace(scalar, value=0.05, p=0.6)
    return MeasuredNumber(
        source=source, of="manifold", field="pc1_share", models=list(models), scalar=scalar,
        controls=[("within the last token", within)],
    )  # fmt: skip


def cell(outcome="supported", model="", why="the interval lies in the claimed region", **more):
    part = JudgedPart(
        label="share of the first axis", numbers=[number(**more)], kind="at_least", rule="at least 0.3 fraction",
        p_corrected=0.008, outcome=outcome, why=why,
    )  # fmt: skip
    return ClaimOutcome(model=model, outcome=outcome, why=why, parts=[part])


def row(n, *cells, says="It is."):
    return ClaimRow(
        number=n, title=f"Claim {n}", says=says, measure="The share.", here="Our size: small.", cells=list(cells),
        paper=[
            {"value": 0.8, "unit": "fraction", "model": "large", "where": "P9 Tab. 1"},
            {"value": "84 to 90 %", "where": "P9 §2"},
        ],
    )  # fmt: skip


def source(name="probes", record="../run", **more):
    return SourceFile(
        name=name, title="probes of it", kind="run", record=record, command="interp run", spec_hash="ab" * 8, **more
    )


def paper(*rows, models=(), sources=None, name="paper9"):
    return PaperFile(
        name=name, title="A paper", citation="Somebody (2030)", models=list(models), rows=list(rows),
        sources=[source()] if sources is None else sources,
    )  # fmt: skip


def ledger(*papers):
    return LedgerFile(
        created="2030-01-02T03:04:05+00:00", scale="smoke", command="interp replicate paper9 --scale smoke",
        papers=list(papers), environment={"packages": {"interp": "0.1.0"}, "python": "3.11"},
    )  # fmt: skip


ALL_OUTCOMES = paper(*(row(i, cell(outcome)) for i, outcome in enumerate(OUTCOMES, 1)))


def test_rows_say_what_was_measured_and_outcomes_have_signs(tmp_path):
    text = parse(html(ledger(paper(row(1, cell()))), tmp_path)).text
    for words in (
        "1Claim 1 It is.", "0.8 large (P9 Tab. 1)", "84 to 90 % (P9 §2)", "Our size: small.", "The share.",
        "0.32", "interval 0.27 to 0.37", "null 0.14 (0.13 to 0.15)", "n = 75 prompts", "tiny 01234567",
        "Claimed: at least 0.3 fraction.", "p = 0.008, corrected over the paper's rows.", "✓ supported",
        "Interval: jackknife over prompts.", "Null: Gaussian columns.", "p = 0.004, corrected over layers",
        "within the last token: 0.05, p = 0.6",
    ):  # fmt: skip
        assert words in text, words
    page = parse(html(ledger(ALL_OUTCOMES), tmp_path))
    assert len(set(SIGNS.values())) == len(OUTCOMES) == len(MEANINGS)
    for outcome in OUTCOMES:
        assert f"{SIGNS[outcome]} {outcome} {MEANINGS[outcome]}" in page.text
        assert f"Claim {OUTCOMES.index(outcome) + 1} It is." in page.text
        assert page.text.count(f"{SIGNS[outcome]} {outcome}") == 4  # its meaning, its row, its cell and its part
    assert headline(ALL_OUTCOMES) == (
        "5 claims: 1 supported, 1 contradicted, 1 no different from the null, 1 underpowered and 1 not measurable here."
    )


def test_models_stand_side_by_side_and_what_is_said_of_all_beside_them(tmp_path):
    asked = paper(
        row(1, cell(model="a/one"), cell("contradicted", model="./models/two"), cell("underpowered", model=JOINT)),
        row(2, cell("not measurable here", why="nobody can")), models=["a/one", "./models/two"],
    )  # fmt: skip
    text = html(ledger(asked), tmp_path)
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', text)
    assert heads[:4] == ["claim", "a/one", "two", JOINT]
    body = text[text.index('<tr id="claim-1"') : text.index('<tr id="claim-2"')]
    assert re.findall(r'<td[^>]*data-label="([^"]*)"', body) == ["a/one", "two", JOINT]
    assert re.findall(r"<h3>([^<]*)</h3>", body) == ["a/one", "two", JOINT]
    assert headline(asked) == "2 claims. a/one: 1 supported. two: 1 contradicted. all models together: 1 underpowered."


@pytest.mark.parametrize("models, said", [
    (["a/one"], "1 claim for a/one: 1 supported. Claims beyond the fifty: 1 claim for {}: 1 contradicted."),
    (["a/one", "two"], "1 claim. a/one: 1 supported. two: 1 supported. "
                       "Claims beyond the fifty: 1 claim. {}: 1 contradicted."),
])  # fmt: skip
def test_what_is_said_of_networks_trained_for_a_claim_is_not_said_of_a_model(tmp_path, models, said):
    further = row(64, cell("contradicted", model=TRAINED)).model_copy(update={"is_beyond": True})
    asked = paper(row(1, *(cell(model=model) for model in models)), further, models=models)
    assert headline(asked) == said.format(TRAINED)
    text = html(ledger(asked), tmp_path)
    assert re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', text)[1 : len(models) + 2] == [*models, TRAINED]
    body = text[text.index('<tr id="claim-64"') :]
    cells = re.findall(r'<td[^>]*data-label="[^"]*">(.*?)</td>', body[: body.index("</tr>")], re.S)
    assert ["contradicted" in cell for cell in cells] == [False] * len(models) + [True]


def test_numbers_that_decided_are_cited_and_shown_ones_are_not():
    odd = JudgedPart(label="x", numbers=[number(value=0.9)], outcome="supported", rule="r")
    deciding = JudgedPart(label="y", numbers=[number(value=0.1)], outcome="contradicted", rule="r")
    shown = JudgedPart(label="z", numbers=[number(value=0.5)])
    both = ClaimOutcome(outcome="contradicted", parts=[shown, odd, deciding])
    assert first_number(both).scalar.value == 0.1
    assert first_number(ClaimOutcome(outcome="not measurable here", parts=[shown, odd])).scalar.value == 0.9
    assert first_number(ClaimOutcome(outcome="not measurable here", parts=[])) is None
    shown = JudgedPart(label="x", numbers=[number(models=[("shown", "f" * 32)])])
    made = ledger(paper(row(1, ClaimOutcome(outcome="not measurable here", parts=[shown]))))
    assert "shown" not in bibtex(made)


def test_numbers_lead_to_their_records_where_those_lie(tmp_path):
    folder = tmp_path / "ledger"
    folder.mkdir()
    made = ledger(paper(row(1, cell())))
    assert "report.html" not in html(made, folder)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "report.html").write_text("", encoding="utf-8")
    (link,) = [a for a in parse(html(made, folder)).all("a") if "report.html" in a.attributes["href"]]
    assert link.attributes["href"] == "./../run/report.html#probe-manifold"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "report.html").write_text("", encoding="utf-8")
    sources = [source(record="one", model="one"), source(record="two", model="two")]
    asked = paper(row(1, cell(model="one"), cell(model="two")), models=["one", "two"], sources=sources)
    links = [
        a.attributes["href"] for a in parse(html(ledger(asked), tmp_path)).all("a") if "report" in a.attributes["href"]
    ]
    assert links == ["./one/report.html#probe-manifold", "./two/report.html#probe-manifold"]


def test_failures_and_trainings_cut_short_are_said(tmp_path):
    failed = source(record="", reason="there is no such model", failed=True)
    text = parse(html(ledger(paper(row(1, cell()), sources=[failed])), tmp_path)).text
    assert "probes of it failed. there is no such model" in text
    short = ledger(ALL_OUTCOMES)
    assert "trainings are cut short" in html(short, tmp_path)
    whole = short.model_copy(update={"scale": "default"})
    assert "cut short" not in html(whole, tmp_path)


def test_several_papers_share_a_page_and_claims_beyond_have_a_heading(tmp_path):
    page = parse(html(ledger(ALL_OUTCOMES, paper(row(7, cell()), name="paper8")), tmp_path))
    targets = {e.attributes["id"] for e in page.elements if "id" in e.attributes}
    links = [a.attributes["href"] for a in page.all("a") if a.attributes["href"].startswith("#")]
    assert {"#paper9", "#paper8", "#main"} <= set(links) and {link[1:] for link in links} <= targets
    assert "Three papers, claim by claim" in page.text
    further = row(51, cell("contradicted")).model_copy(update={"is_beyond": True})
    both = paper(row(1, cell()), further, row(2, cell()))
    assert headline(both) == "2 claims: 2 supported. Claims beyond the fifty: 1 claim: 1 contradicted."
    text = html(ledger(both), tmp_path)
    order = [
        text.index(words) for words in ('id="claim-1"', 'id="claim-2"', ">Claims beyond the fifty", 'id="claim-51"')
    ]
    assert order == sorted(order) and len(re.findall(r"<tr id=", text)) == 3
    assert "Claims beyond the fifty" not in html(ledger(paper(row(1, cell()))), tmp_path)


def test_the_page_is_small_the_same_again_and_of_this_renderer(tmp_path):
    made = ledger(paper(*(row(i, cell()) for i in range(1, 51))))
    first = render(made, tmp_path).read_bytes()
    assert render(made, tmp_path).read_bytes() == first and len(first) < 400_000
    assert {path.name for path in tmp_path.iterdir()} == {"ledger.html"}
    assert load_entry("report", "ledger") is render


def test_the_methods_sentence_and_bibtex_pin_what_was_measured():
    made = ledger(ALL_OUTCOMES)
    for words in (
        "interp 0.1.0", "Somebody (2030) (5 claims)", "scale smoke", "jackknife over prompts", "Gaussian columns",
        "75 prompts", "tiny 0123456789abcdef", "Benjamini and Hochberg",
    ):  # fmt: skip
        assert words in methods(made), words
    entry = bibtex(made)
    assert entry.startswith("@software{interp-ledger-paper9,") and entry.count("{") == entry.count("}")
    for words in ("75 prompts", "jackknife over prompts", "Gaussian columns", "0123456789abcdef", "year    = {2030}"):
        assert words in entry, words


@pytest.mark.parametrize("model, shown", [
    ("EleutherAI/pythia-410m", "EleutherAI/pythia-410m"), ("pythia-410m", "pythia-410m"), ("./models/two/", "two"),
    ("runs/.partial/abc/bijection-gpt-neox", "bijection-gpt-neox"), ("/home/me/model", "model"),
])  # fmt: skip
def test_of_a_path_only_the_end_is_shown(model, shown):
    assert short_name(model) == shown
