"""What a notebook shows: numbers with interval and null, escaped, small; and the page's figure by its name."""

from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from interp.reports.export import export

import interp
from interp.errors import UnknownName, UsageError
from interp.findings import Findings, Interval, Null, Scalar
from interp.need import Need
from interp.probe import Figure
from interp.records.record import RunRecord
from interp.table import Table
from interp.testing import Shape, synthetic_capture

HOSTILE = "<script>hurt()</script>"


def findings() -> Findings:
    share = Scalar(0.25, "1", (0.2, 0.3), "bootstrap", null=Null("noise", 0.1, (0.05, 0.15)), p=0.01, n=75)
    bare = Scalar(3.0, "bits", interval_reason=HOSTILE, null_reason="a control", underpowered=True)
    table = Table({"x": np.arange(30), "who": np.array([HOSTILE] * 30)}, {"x": "bits", "who": "label"})
    return Findings(HOSTILE, {"share": share, "bare": bare, "further": bare}, {"t": table}, headline=("share", "bare"))


def record() -> RunRecord:
    empty = {"environment": {}, "selfcheck": (), "timings": {}}
    return RunRecord(
        {}, "00", created="2026-01-01", model={"name": HOSTILE}, prompts={"n": 1008, "name": "mixed"},
        findings={"p": findings()}, **empty
    )  # fmt: skip


def test_findings_are_shown_and_printed_with_their_headlines():
    shown = findings()._repr_html_()
    assert "<td>0.25</td><td>0.2 to 0.3</td><td>0.1 (0.05 to 0.15)</td><td>0.01</td><td>75 prompts</td>" in shown
    assert "3 bits (underpowered)" in shown and "none: a control" in shown
    assert "1 further numbers" in shown and "Tables: t" in shown and shown.count("<tr>") == 3
    every = replace(findings(), headline=())._repr_html_()
    assert every.count("<tr>") == 4 and "0 further numbers" in every
    shown = str(findings())
    assert "share" in shown and "0.2 to 0.3" in shown and "1 further numbers" in shown
    shown = str(record())
    assert shown == repr(record()) and shown.startswith(f"{HOSTILE}, 1,008 prompts of mixed\nprobe  number")
    assert len(str(record())) < 1_500


@pytest.mark.parametrize("of", [findings(), record(), findings().tables["t"]])
def test_what_is_shown_is_escaped_small_and_takes_the_notebooks_colours(of):
    shown = of._repr_html_().replace("currentcolor", "")
    assert "<script" not in shown and "&lt;script&gt;" in shown
    assert len(shown) < 20_000 and "color" not in shown
    assert "style=" not in shown.replace('style="text-align: right;"', "")


def test_records_show_and_hold_every_probes_numbers():
    shown = record()._repr_html_()
    assert "1,008 prompts of mixed" in shown and "<td>p</td><td>share</td>" in shown
    first, _, rest = shown.partition("<details>")
    assert "0.25, above its null." in first
    assert "0.25 (95 % interval 0.2 to 0.3); baseline 0.1 (0.05 to 0.15), noise" in first
    assert "not the original" not in first
    changed = {"edits": [{"kind": "ablate", "layer": 3, "heads": [1], "dose": 0.5}], "attention_window": 8}
    first = replace(record(), spec=changed, model={**record().model, "adapter": "lora"})._repr_html_()
    for said in (
        "Adapter lora",
        "Edits (ablate z at layer 3, dose 0.5, heads 1)",
        "Every query sees the last 8 keys only",
    ):
        assert f"<p>{said}: all numbers describe the " in first
    assert "Not written to a folder" in rest and "The record has 3 numbers" in shown
    frame = record().to_frame()
    assert frame["probe"].tolist() == ["p"] * 3 and frame["name"].tolist() == ["share", "bare", "further"]
    assert frame["null"].iloc[0] == 0.1 and np.isnan(frame["null"].iloc[1])
    assert replace(record(), findings={}).to_frame().empty
    share = frame.iloc[0]
    assert (share["low"], share["high"], share["null_low"], share["null_high"]) == (0.2, 0.3, 0.05, 0.15)
    assert share["standing"] == "above" and share["is_headline"] and share["interval_method"] == "bootstrap"
    assert frame["null_reason"].iloc[1] == "a control" and frame["underpowered"].tolist() == [False, True, True]


def test_metrics_and_latex_hold_the_headline_numbers():
    told = {name: value for name, value in record().metrics().items() if name.startswith("p.share")}
    assert told == {"p.share": 0.25, "p.share.low": 0.2, "p.share.high": 0.3, "p.share.null": 0.1, "p.share.p": 0.01}
    assert record().metrics()["p.bare"] == 3.0 and "p.bare.low" not in record().metrics()
    told = replace(findings(), probe="p").to_latex()
    assert "share & 0.25 & 0.2 to 0.3 & 0.1 (0.05 to 0.15) & 0.01 & 75 prompts" in told and "further" not in told
    assert r"95 \% interval" in told and r"\toprule" in told
    assert "further" in findings().to_latex(["further"])


def test_a_frame_says_what_was_resampled_and_latex_compiles_without_unicode_fonts():
    null = Null("permuted", -0.5, (-1e-5, 0.05), n_draws=99)
    one = Scalar.of(-2.0, "bits", Interval(-3.0, -1.0, "t"), null, p=0.01, n=288, n_clusters=48)
    found = Findings("p", scalars={"share": one})
    assert found.to_frame()["n_clusters"].tolist() == [48]
    told = found.to_latex()
    assert "$-$2 bits & $-$3 to $-$1 &" in told and r"$\leq$ 0.01" in told and told.isascii()


def test_sites_tables_and_captures_are_found_and_shown_by_name():
    one = Need("v")
    capture = synthetic_capture((one, Need("z"), Need("z", at="all")), Shape(n_prompts=3))
    assert capture["v"] is capture[one]
    for name, words in (("z", "captured in 2 ways"), ("k", "no captured need of this name")):
        with pytest.raises(UsageError, match=words):
            _ = capture[name]
    capture = synthetic_capture((Need("v"),), Shape(n_prompts=7, n_layers=2))
    shown = capture._repr_html_()
    assert str(list(capture[Need("v")].shape)) in shown and "7 prompts" in shown and "next_entropy_bits" in shown
    shown = findings().tables["t"]._repr_html_()
    assert "x / bits" in shown and "who / label" not in shown and shown.count("<tr>") < 14


@pytest.fixture(scope="module")
def entropy() -> Findings:
    from interp.probes.components.probe import Components

    probe = Components(n_permutations=99, n_bootstrap=20)
    return probe.analyse(synthetic_capture(probe.needs, Shape(n_prompts=40, n_layers=3)), {})


@pytest.mark.parametrize(("theme", "paper"), [("light", "#fdfdfb"), ("dark", "#15171a")])
def test_findings_plot_the_pages_figure_in_its_theme(entropy, theme, paper):
    from interp.probes.components.probe import Components

    plot = entropy.plot("lens_kl", theme)
    own = {figure.name: figure for figure in Components().figures(entropy)}["lens_kl"]
    assert plot.layout.paper_bgcolor == paper and plot.layout.title.text == own.title
    assert len(plot.data) == len(own.plot.data)
    np.testing.assert_array_equal(plot.data[1].y, own.plot.data[1].y)
    assert plot.layout.template.layout.font.color is not None


def test_the_findings_of_a_record_are_drawn_with_the_parameters_of_their_run(entropy, tmp_path, monkeypatch):
    from interp.probes.components.probe import Components

    def figures(self, findings):
        return (Figure(f"of_{self.n_bootstrap}", "F", "", go.Figure(go.Scatter(y=[1]))),)

    monkeypatch.setattr(Components, "figures", figures)
    made = replace(record(), findings={"components": replace(entropy, parameters={"n_bootstrap": 77})})
    for one in (made, interp.open_run(made.save(tmp_path / "run").path), replace(made, spec_hash="01")):
        assert [*one["components"].figures()] == ["of_77"] and [*one.figures()] == ["components.of_77"]
        assert one["components"].plot("of_77").data
    assert [*entropy.figures()] == [f"of_{Components().n_bootstrap}"], "findings of no record have the defaults"


def test_an_unknown_figure_or_theme_is_refused_with_what_there_is(entropy, without_type_checks):
    with pytest.raises(UnknownName) as caught:
        entropy.plot("lens")
    assert "lens_kl" in str(caught.value)
    for plot in (entropy.plot, entropy.figures):
        with pytest.raises(UnknownName, match=r"theme 'drak'(.|\n)*dark"):
            plot(theme="drak")


def test_a_probe_that_is_not_registered_has_no_figures_and_hides_none_of_the_others(entropy, tmp_path):
    own = Findings("nobodys", scalars=entropy.scalars)
    both = replace(record(), findings={"nobodys": own, "components": entropy})
    assert own.figures() == {} and set(both.figures()) == {f"components.{name}" for name in entropy.figures()}
    with pytest.raises(UnknownName, match="registered"):
        own.plot()
    assert export(both, tmp_path, figures=(), tables=("csv",))
