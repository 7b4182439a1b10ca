"""The study `sticky_chain`: does a separate, larger step on the values learn faster, and is it the values?

Source: Paper II (arXiv 2512.22473), section 5.2, and its released script.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from interp.findings import Findings
from interp.plotting import PALETTE, VALUE, Chart
from interp.probe import Figure
from interp.statistics.intervals import t_half_width
from interp.system.progress import Report
from interp.table import Table, number_columns

from ...validation import DISTINCT, FRACTION, POSITIVE, POSITIVES
from ..over_seeds import CheckedStudy
from .process import StickyChain

_MOST = 2.0
"""The top of the loss axis, in multiples of the true chain's loss: some arms diverge to thousands."""

_PUBLISHED = ("sgd", "w_v", "w_o", "w_qk", "w_vo", "all")


def _curves(curves: Table, arms: Table, names: list[str], name: str, title: str) -> Figure:
    chart = Chart(curves, "step", "steps", "loss (bits)")
    for i, arm in enumerate(names):
        one, colour = _over_seeds(curves, arm), PALETTE[i % len(PALETTE)]
        mine = chart.of(one)
        mine.curve("loss", arm, colour, "solid" if i < len(PALETTE) else "longdash", mode="lines")
        mine.line("fresh", f"{arm}, another sequence", "dot", colour, showlegend=False)
    base = arms["arm"] == "sgd"
    end, excess = (float(arms[name][base][0]) for name in ("loss_bits", "excess_bits"))
    chain = end - excess  # the true chain's loss on the same symbols
    last = [1.0, float(curves["step"].max())]
    chart.straight(last, [end, end], "plain descent's end")
    chart.straight(last, [chain, chain], "the true chain", "solid")
    plot = chart.plot
    plot.update_xaxes(type="log")
    top = _MOST * chain
    plot.update_yaxes(range=[0, top])
    reading = (
        "Mean training loss over seeds with its 95 % t band; dotted, without a band, the same heads on a sequence that "
        "was not trained on. Grey: dashed the loss that plain descent ends at, the threshold of every speed-up; solid "
        "what the true chain loses on the training sequences. A coloured solid line below that has learnt noise. "
        f"Losses above {top:.1f} bits, twice the chain's, are left to the table."
    )
    return Figure(name, title, reading, plot, "curves")


def _over_seeds(curves: Table, arm: str) -> Table:
    """Mean losses of an arm by step, with their t band on the training sequence."""
    mine = curves.where((curves["arm"] == arm) & (curves["step"] > 0))
    steps = np.unique(mine["step"])
    losses, fresh = (mine[name].reshape(len(steps), -1) for name in ("loss_bits", "fresh_loss_bits"))
    mean, half = losses.mean(axis=1), t_half_width(losses)
    loss = number_columns("loss", mean, (mean - half, mean + half))
    return Table(
        {"step": steps, "fresh": fresh.mean(axis=1), **loss}, {"step": "steps", "fresh": "bits", "loss": "bits"}
    )


def _speedups(arms: Table) -> Figure:
    mine = arms.where((arms["arm"] != "sgd") & np.isfinite(arms["paired"]))
    mine = mine.where(np.argsort(mine["paired"], kind="stable"))
    chart = Chart(mine, "paired", "speed-up over plain descent", "")
    place = np.arange(mine.n_rows)
    chart.dots("paired", "paired by seed", VALUE, 9, y=place - 0.12)
    chart.dots("speedup", "as published", PALETTE[1], 9, y=place + 0.12)
    chart.straight([1.0, 1.0], [-0.5, mine.n_rows - 0.5], "plain descent")
    plot = chart.plot
    plot.update_xaxes(type="log")
    plot.update_yaxes(tickmode="array", tickvals=place, ticktext=[str(name) for name in mine["arm"]])
    reading = (
        "Steps that plain descent takes to its final loss over those an arm takes, with 95 % t intervals over seeds. "
        "Arms that some seed never brought there are left out. If the gain of w_v came from what values are, w_o and "
        "w_qk would lie left of it; if it is the larger rate, every arm with one gains."
    )
    return Figure("speedups", "Speed-up of every arm", reading, plot, "arms")


@dataclass(frozen=True)
class StickyChainStudy(CheckedStudy):
    """Heads of one chain trained by every arm for `n_steps` from each of `seeds`, on `n_positions` predictions.

    `rate` is plain descent's, `factor` that of the larger rate; `rates` and `adam_rates` are the grids.
    """

    n_steps: int = 1000
    n_positions: int = 1999
    seeds: tuple[int, ...] = (42, 2024, 1337, 7777, 9999)
    rate: float = 0.01
    factor: float = 10.0
    rates: tuple[float, ...] = (0.003, 0.03, 0.3, 1.0)
    adam_rates: tuple[float, ...] = (0.001, 0.01, 0.1)
    self_prob: float = 0.3
    normalised: Literal["published", "exact"] = "published"

    name: ClassVar[str] = "sticky_chain"
    question: ClassVar[str] = "Does a larger step on the values learn a sticky chain faster because they are values?"
    rules: ClassVar = {
        "seeds": DISTINCT, "n_steps": 1, "n_positions": 1, "rate": POSITIVE, "factor": POSITIVE, "rates": POSITIVES,
        "adam_rates": POSITIVES, "self_prob": FRACTION,
    }  # fmt: skip

    def measure(self, work: Path, progress: Report) -> Findings:
        from .arms import arms_of, draw_start, train_all
        from .findings import findings_of

        chain = StickyChain(self_prob=self.self_prob, normalised=self.normalised)
        arms = arms_of(self.rate, self.factor, self.rates, self.adam_rates)
        start = draw_start(chain, self.seeds, self.n_positions)
        curves = train_all(arms, start, self.n_steps, progress)
        return findings_of(self.name, arms, curves, start)

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        """Loss curves of the published arms with their controls, of the other rules, and speed-ups."""
        arms, curves = findings.tables["arms"], findings.tables["curves"]
        names = [str(name) for name in arms["arm"]]
        published = [name for name in names if name in _PUBLISHED]
        others = ["sgd", *(name for name in names if name not in _PUBLISHED)]
        return (
            _curves(curves, arms, published, "controls", "The larger rate, on each matrix in turn"),
            _curves(curves, arms, others, "rules", "Other rates, Adam and a closed-form M-step"),
            _speedups(arms),
        )
