"""Measured figures on the site are those of the shipped data: sentences and rows are made of it and looked up."""

import csv
import importlib
import json
import re
import tomllib

import numpy as np
import pytest
from interp.reports.plotly.prepare import undrawable

import interp
from tests.paths import ROOT
from tests.quick import quick

CERTIFICATES = ROOT / "examples" / "certificates"

REFERENCE = ROOT / "docs" / "reference"
TUNNELS = " ".join((REFERENCE / "measured-tunnels.md").read_text().split())  # line breaks do not count
TASKS = " ".join((REFERENCE / "tasks.md").read_text().split())
NUMBERS = json.loads((ROOT / "reports" / "calibration.json").read_text())[0]["numbers"]


def said(name: str, digits: int, *, null: bool = False) -> str:
    """A number of the shipped tunnel's page, or its null, as prose gives it."""
    number = NUMBERS[name]
    return short(number["null"]["value"] if null else number["value"], digits)


def bounds(name: str, digits: int) -> str:
    low, high = NUMBERS[name]["interval"]
    return f"[{short(low, digits)}, {short(high, digits)}]"


def within(name: str, digits: int) -> str:
    return f"{said(name, digits)} {bounds(name, digits)}"


def short(value: float, digits: int) -> str:
    """`.477`, `−.00005`, `4.59`: no zero before the point, and a minus sign that is one."""
    return re.sub(r"^(−?)0\.", r"\1.", f"{value:.{digits}f}".replace("-", "−"))


SENTENCES = {
    "heads": [
        f"layer 0 head 1 costs {said('heads.top_head_effect', 2)} bits of KL {bounds('heads.top_head_effect', 2)}, "
        f"{said('heads.top_head_ratio', 2)} times the second {bounds('heads.top_head_ratio', 2)};",
        f"at least {said('heads.bypass_ratio_min', 1)} times {bounds('heads.bypass_ratio_min', 1)};",
        f"without late attention it is {said('heads.late_attention_off', 2)} bits "
        f"{bounds('heads.late_attention_off', 2)} instead of {said('heads.late_attention_off', 4, null=True)}.",
    ],
    "depth_use": [
        f"the last layer takes away {said('depth_use.last_layer', 3)} bits of KL {bounds('depth_use.last_layer', 3)}",
        f"a copy {within('depth_use.copies_gain', 5)}",
        f"stand in for the last layer ({within('depth_use.copies_for_layer', 3)})",
    ],
    "sula": [f"KL {said('components.posterior_kl', 4)}", f"skill {said('sula.skill', 3)}"],
    "components": [f"{said('components.posterior_kl', 4)} bits"],
    "orthogonality": [f"layer-0 `token_keys` {said('orthogonality.token_keys', 3)}"],
}  # fmt: skip


@pytest.mark.parametrize("probe, sentence", [(p, s) for p, sentences in SENTENCES.items() for s in sentences])
def test_prose_about_the_shipped_tunnel_is_what_its_page_measured(probe, sentence):
    assert sentence in " ".join((REFERENCE / "probes" / f"{probe}.md").read_text().split())


@pytest.fixture
def measured(monkeypatch):
    """The tables of the site, made as `mkdocs` makes them."""
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_hooks"))
    return importlib.import_module("measured")


def test_every_shipped_tunnel_and_every_architecture_has_a_row(measured):
    tunnels = {path.name for path in (ROOT / "wind_tunnels" / "checkpoints").iterdir()}
    assert set(re.findall(r"^\| `([\w-]+)` ", measured.tunnels(), re.MULTILINE)) == tunnels
    assert "| `bijection-gpt-neox` | 152,640 | 1200 × 100 | 0.0023 [0.0023, 0.0024] |" in measured.tunnels()
    assert re.search(r"^\| `gpt-neox` .* 0\.0005, 0\.0005 \|", measured.primitives(), re.MULTILINE)
    assert "| `interp`, all observational probes, last position | 1.13, 172 |  |  | 1.05, 43 |" in measured.costs()


def test_tables_of_rates_hold_every_committed_rate_and_every_known_limit(measured):
    stress = ROOT / "tests" / "stress"
    committed = json.loads((stress / "simulations.json").read_text())
    known = [*committed["known"].values(), *json.loads((stress / "limits.json").read_text()).values()]
    assert all(reason in measured.rates("limits") for reason in known)
    probes = {"assumed": committed["rates"], "broken": [path.name for path in CERTIFICATES.iterdir()]}
    for kind, names in probes.items():
        assert all(f"| `{probe}." in measured.rates(kind) for probe in names)
    row = next(
        line
        for line in measured.rates("broken").splitlines()
        if line.startswith("| `depth_use.last_layer` | as assumed |")
    )
    first = interp.open_run(CERTIFICATES / "depth_use").findings["certificate"].to_frame("worlds").iloc[0]
    assert f"| {first.n_judged} of {first.n_null} | {first.called:.3f} | {first.covered:.3f} " in row


@pytest.mark.parametrize("page", ["ledger.md", "reference/measured-tunnels.md"])
def test_every_mark_of_a_page_of_measurements_makes_a_table(measured, page):
    marks = re.findall(r"^\[\[([\w ]+?)(?:: (.+))?\]\]$", (ROOT / "docs" / page).read_text(), re.MULTILINE)
    makers = {"table": measured.data, "checked": measured.checked, "tunnels": lambda _: measured.tunnels(),
              "primitives": lambda _: measured.primitives(), "outcomes": lambda _: measured.outcomes(),
              "by position": lambda _: measured.by_position()}  # fmt: skip
    made = [makers[name](word) for name, word in marks if name in makers]
    assert len(made) >= 3 and all(text.startswith("| ") and text.count("\n") > 3 for text in made)


def speed_cell(runs: list[dict[str, str]]) -> str:
    def span(column: str, decimals: int) -> str:
        ends = [f"{end(float(run[column]) for run in runs):.{decimals}f}" for end in (min, max)]
        return " to ".join(dict.fromkeys(ends))

    (is_reached,) = {run["is_reached"] for run in runs}
    spent = f"{span('core_seconds', 0)} ({span('steps', 0)} steps)"
    return spent if is_reached == "True" else f"not in {spent}: {span('kl_bits', 3)} bits"


def test_the_table_of_training_speed_is_what_was_measured():
    with (ROOT / "wind_tunnels" / "measured" / "training_speed.csv").open() as file:
        runs = list(csv.DictReader(file))
    shown = (ROOT / "wind_tunnels" / "README.md").read_text()
    networks = list(dict.fromkeys(run["network"] for run in runs))
    assert networks == ["gpt-neox", "phi", "llama", "mistral", "mamba"] and len(runs) == 30
    for network in networks:
        cells = [
            speed_cell([run for run in runs if (run["network"], run["recipe"]) == (network, recipe)])
            for recipe in ("ours", "papers")
        ]
        assert f"| `{network}` | {' | '.join(cells)} |" in shown


def test_what_is_said_of_mamba_and_of_the_reduction_is_said_everywhere():
    said = " ".join((TASKS + TUNNELS).split())
    assert set(re.findall(r"(\d\.\d to \d\.\d) times (?:slower than attention|attention's)", said)) == {"2.2 to 2.3"}
    assert len(re.findall("2.2 to 2.3 times", said)) == 2
    # `attention_entropy` reads every scored position of a tunnel, and its number is the mean over them.
    claims = tomllib.loads((ROOT / "reports" / "claims" / "paper1.toml").read_text())["claim"]
    (row,) = (claim for claim in claims if claim["number"] == 17)
    assert "all scored positions" in row["measure"] and "last scored" not in row["measure"]


PAGE = (ROOT / "docs" / "gallery" / "two-models.md").read_text(encoding="utf-8").replace("−", "-")
FINDINGS = interp.open_run(ROOT / "examples" / "two-models" / "comparison").findings["comparison"]


@pytest.mark.parametrize("name", quick(["windows"], ["pair", "lengths", "windows"]))
def test_every_figure_of_the_page_is_drawn(monkeypatch, name):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_hooks"))
    hook = importlib.import_module("two_models")
    assert f"[[two models: {name}]]" in PAGE
    figure = hook.FIGURES[name]()
    assert undrawable(figure.plot) is None and len(figure.plot.data) > 3
    assert hook.drawn(name).startswith("\n<figure") or "<figure" in hook.drawn(name)


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("reduction_no_first", (".22 [.20, .23]", "-.02 [-.05, .01]")),
        ("pc1_correlation", (".36 [.29, .42]", "-.00 [-.10, .09]")),
        ("content_sharpening_no_first", (".12 [.07, .18]", ".27 [.23, .30]")),
    ],
)
def test_the_page_quotes_the_record(name, quoted):
    table = FINDINGS.tables["differences"]
    mine = table.where(table["name"] == name)
    for value, low, high, said in zip(mine["value"], mine["low"], mine["high"], quoted, strict=True):
        assert f"{value:.2f} [{low:.2f}, {high:.2f}]".replace("0.", ".") == said and said in PAGE


@pytest.mark.parametrize(("model", "tokens", "kind", "fall"), [
    ("SmolLM2-135M", 20, "full", 0.21), ("SmolLM2-135M", 1500, "full", 0.40),
    ("Gemma-3-270M", 20, "sliding", 0.07), ("Gemma-3-270M", 60, "sliding", 0.24),
    ("Gemma-3-270M", 600, "sliding", 0.52), ("Gemma-3-270M", 1500, "sliding", 0.46),
    ("Gemma-3-270M", 60, "full", -0.17), ("Gemma-3-270M", 600, "full", -0.30),
])  # fmt: skip
def test_the_page_quotes_the_fall_of_entropy_between_the_ends_of_each_kind(model, tokens, kind, fall):
    with (ROOT / "examples" / "two-models" / "attention.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if (row["model"], int(row["tokens"])) == (model, tokens)]
    bits = np.array([float(row["bits"]) for row in rows if row["kind"] == kind and not row["change"]])
    assert 1 - bits[-1] / bits[0] == pytest.approx(fall, abs=0.05)  # the page has the mean of falls, this is of means
    assert f"{abs(fall):.2f} [".removeprefix("0") in PAGE
