"""The study `sticky_chain`: does a separate, larger step on the values learn faster, and is it the values?

Source: Paper II (arXiv 2512.22473), section 5.2, and its released script.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from interp.findings import Findings
from interp.probe import Figure
from interp.study import Study
from interp.system.progress import Report

from ...validation import check_distinct, check_positive
from .process import StickyChain


@dataclass(frozen=True)
class StickyChainStudy(Study):
    """Heads of one chain trained by every arm for `n_steps` from each of `seeds`, on `n_positions` predictions.

    `rate` is plain descent's, `factor` the larger one's multiple; `rates` and `adam_rates` are the grids.
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

    def measure(self, work: Path, progress: Report) -> Findings:
        from .arms import arms_of, draw_start, train_all
        from .findings import findings_of

        self._check_fields()
        chain = StickyChain(self_prob=self.self_prob, normalised=self.normalised)
        arms = arms_of(self.rate, self.factor, self.rates, self.adam_rates)
        start = draw_start(chain, self.seeds, self.n_positions)
        curves = train_all(arms, start, self.n_steps, progress)
        return findings_of(
            self.name, arms, curves, start, self.seeds, chain.next_entropy_bits, float(np.log2(chain.n_symbols)),
        )  # fmt: skip

    def figures(self, findings: Findings) -> tuple[Figure, ...]:
        from .figures import sticky_figures

        return sticky_figures(findings)

    def _check_fields(self) -> None:
        rates = {f"{name}[{i}]": r for name in ("rates", "adam_rates") for i, r in enumerate(getattr(self, name))}
        check_positive(self.name, vars(self) | rates, ("n_steps", "n_positions", "rate", "factor", *rates))
        check_distinct(self.name, "seeds", self.seeds)
