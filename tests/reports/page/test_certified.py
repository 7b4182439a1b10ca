"""The line that a run's page has of the certificate of its probe, and the shipped certificates themselves."""

import json
from dataclasses import replace

import pytest
from interp.reports.page.shipped import SITE, certificate_line, certificates

import interp
from interp.records.probe_code import code_hash
from interp.registry import load_entry
from tests.page_numbers import of_certificate
from tests.paths import ROOT

SHIPPED = sorted((ROOT / "examples" / "certificates").glob("*/run.json"))
NUMBERS = [
    {"number": "one", "word": "holds", "worst": 0.045, "worst_world": "heavy tails", "n_worst": 200, "power_1": 0.8,
     "power_2": 1.0, "power_3": 1.0},
    {"number": "two", "word": "conservative", "worst": 0.0, "worst_world": "as assumed", "n_worst": 60}
    | dict.fromkeys(("power_1", "power_2", "power_3")),
    {"number": "three", "word": "holds", "worst": None, "worst_world": "", "n_worst": 0}
    | dict.fromkeys(("power_1", "power_2", "power_3")),
]  # fmt: skip
KNOWN = {
    "manifold": {
        "code": "0123456789abcdef", "parameters": {"site": "v", "n_null": 100, "seed": 0}, "tried_with": ["n_null"],
        "numbers": NUMBERS, "effect": "R² = 0.05", "n": "500 prompts",
    }
}  # fmt: skip


@pytest.fixture
def record(a_record):
    return replace(of_site(a_record, "v"), environment={"probe_code": {"manifold": "0123456789abcdef"}})


def of_site(record, site):
    """The record as one of `manifold` with these parameters."""
    (found,) = record.findings.values()
    return replace(record, findings={"manifold": replace(found, parameters={"site": site, "n_null": 20, "seed": 7})})


@pytest.fixture(scope="module")
def a_record():
    return interp.run(probes=["orthogonality"], n_pool=20, out=None, quiet=True)


def test_the_line_says_how_often_it_was_called_at_worst_and_with_what_power(record):
    said, where = certificate_line("manifold", record, KNOWN)
    assert said == (
        "Certificate: without an effect, its headline numbers are significant in at most 4.5 % of simulations (one, "
        "200 simulations “heavy tails”); power 80 % at the smallest planted effect (R² = 0.05, 500 prompts)."
    )
    few = {"manifold": {**KNOWN["manifold"], "numbers": NUMBERS[2:]}}
    assert "no headline number was tested in enough simulations" in certificate_line("manifold", record, few)[0]
    none = {"manifold": {**KNOWN["manifold"], "numbers": NUMBERS[1:]}}
    assert "in at most 0 % of simulations (60 of each kind)" in certificate_line("manifold", record, none)[0]
    assert where == f"{SITE}manifold.html"
    assert certificate_line("another", record, KNOWN) == ("", "")


def test_poor_verdicts_other_code_and_other_parameters_are_said(record):
    bad = [{**NUMBERS[0], "word": "liberal"}, {**NUMBERS[1], "word": "without power"}]
    bad += [{**NUMBERS[2], "word": "not tested"}]
    said, _ = certificate_line("manifold", record, {"manifold": {**KNOWN["manifold"], "numbers": bad}})
    assert "one is liberal; two is without power; three is not tested." in said
    other = replace(record, environment={"probe_code": {"manifold": "f" * 16}})
    assert "its code differs" in certificate_line("manifold", other, KNOWN)[0]
    assert "not recorded" in certificate_line("manifold", replace(record, environment={}), KNOWN)[0]
    said, _ = certificate_line("manifold", of_site(record, "z"), KNOWN)
    assert said.endswith("Caution: it used other values of site.")


def test_certificates_are_of_the_code_that_runs(a_record):
    assert a_record.environment["probe_code"] == {"orthogonality": code_hash(load_entry("probe", "orthogonality"))}
    records = [interp.open_run(path) for path in SHIPPED]
    assert {record.spec["certified"]["name"] for record in records} == set(certificates()) and len(records) == 13
    for record in records:
        assert of_certificate(record) == certificates()[record.spec["certified"]["name"]]


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.parent.name)
def test_a_shipped_certificate_is_liberal_only_where_that_is_explained_and_has_a_page(path):
    record = interp.open_run(path)
    assert record.spec["certified"]["name"] == path.parent.name
    table = record.findings["certificate"].tables["headlines"]
    liberal = {f"{path.parent.name}.{name}" for name in table["number"][table["word"] == "liberal"]}
    told = {limit.partition(", ")[0] for limit in json.loads((ROOT / "tests/stress/limits.json").read_text())}
    assert table.n_rows and liberal <= told
    assert sum(file.stat().st_size for file in path.parent.rglob("*") if file.is_file()) < 90_000
    from interp.reports.certificate.render import html

    page = html(interp.open_run(path))
    assert page == html(interp.open_run(path)) and "<script" not in page and 'src="http' not in page
