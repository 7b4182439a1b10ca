"""Which heads are ablated one by one, and how many each of them represents.

All of them, or with a screen (`interp.editing.screen`) those that it ranks highest, all heads of the two layers that it
underestimates most, and a random sample drawn before the screen.

A layer is underestimated if switching off its attention does more harm than the screen estimates for all its heads: a
head may act through attention that is saturated in later layers, where gradients vanish. Two layers, as a look-up has
two ends. The sample measures how far the screen can be trusted, and represents the heads that were not chosen.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from interp.probe import Readout
from interp.statistics.resampling import bootstrap_weights
from interp.statistics.units import mean_of_units

from .edits import N_DOUBTED, How, Plan


@dataclass(frozen=True)
class Choice:
    """The heads of one run; `estimates` are the screen's, by ablation. All heads of `doubted` layers are measured."""

    plan: Plan
    estimates: Mapping[str, Float[np.ndarray, "unit head"]]
    doubted: tuple[int, ...] = ()

    @classmethod
    def of(cls, plan: Plan, under: Mapping[str, Readout], measure: str) -> "Choice":
        """From the screen's readouts: slope plus half the curvature, the mean over draws of donors."""
        if not plan.is_screened:
            return cls(plan, {})
        found: dict[str, np.ndarray] = {}
        for how in plan.how:
            draws = [under[plan.screened(how, draw)] for draw in range(plan.draws(how))]
            harm = np.mean([read["slope"] + read["curvature"] / 2 for read in draws], axis=0)
            found[how] = harm.reshape(len(harm), -1)
        off = np.array([under[plan.part("attention off", layer)][measure].mean() for layer in range(plan.n_layers)])
        together = mean_of_units(found[plan.how[0]]).reshape(plan.n_layers, -1).sum(axis=1)
        return cls(plan, found, tuple(sorted(np.argsort(together - off, kind="stable")[:N_DOUBTED].tolist())))

    def chosen(self, how: How) -> Int[np.ndarray, " head"]:
        """The heads that the screen ranks highest, and those of the layers in doubt; without a screen all."""
        if not self.plan.is_screened:
            return np.arange(self.plan.n_all)
        order = np.argsort(-mean_of_units(self.estimates[how]), kind="stable")
        in_doubt = np.isin(np.arange(self.plan.n_all) // self.plan.n_heads, self.doubted)
        return np.union1d(order[: self.plan.n_screened], np.flatnonzero(in_doubt))

    def measured(self, how: How) -> Int[np.ndarray, " head"]:
        """The heads with this ablation; the random sample has the primary one alone."""
        return np.union1d(self.chosen(how), self.plan.sample) if self.is_primary(how) else self.chosen(how)

    def is_primary(self, how: str) -> bool:
        return how == self.plan.how[0]

    @property
    def passed_over(self) -> Int[np.ndarray, " head"]:
        """Heads of the random sample that were not chosen for the primary ablation."""
        return np.setdiff1d(self.plan.sample, self.chosen(self.plan.how[0]))

    @property
    def in_doubt(self) -> str:
        """The layers in doubt, in words."""
        return " and ".join(map(str, self.doubted))

    def can_be_summed(self, how: How) -> bool:
        """Whether the sum over all heads can be estimated."""
        return len(self.measured(how)) == self.plan.n_all or (self.is_primary(how) and len(self.passed_over) > 0)

    def stands_for(self, n_resamples: int, rng: np.random.Generator) -> Float[np.ndarray, "one_and_resamples head"]:
        """How many heads each measured one represents: 1 if chosen, else its share of all that were not chosen.

        Then the same in every resample of the random sample.
        """
        heads = self.measured(self.plan.how[0])
        found, is_other = np.ones((1 + n_resamples, len(heads))), np.isin(heads, self.passed_over)
        n = int(is_other.sum())
        if n:
            counts = bootstrap_weights(np.arange(n), None, n_resamples, rng)
            n_others = self.plan.n_all - len(heads) + n
            found[:, is_other] = np.vstack([np.ones(n, dtype=np.int64), counts]) * n_others / n
        return found

    def in_words(self, how: How) -> str:
        """The heads that a number is computed over, as the end of its meaning; empty for all."""
        if not self.plan.is_screened:
            return ""
        n, plan = len(self.measured(how)), self.plan
        sample = f" and {len(plan.sample)} at random" if self.is_primary(how) else ""
        return (
            f"; over {n} of {plan.n_all} heads, the {plan.n_screened} that the screen ranks highest, those of the "
            f"layers {self.in_doubt}{sample}: another may do more harm"
        )

    def labels(self, how: How) -> np.ndarray:
        """Why each head is measured, or that it is not."""
        found = np.full(self.plan.n_all, "not measured", dtype=object)
        if self.is_primary(how):
            found[self.plan.sample] = "random"
        chosen = self.chosen(how)
        found[chosen] = np.where(found[chosen] == "random", "chosen and random", "chosen")
        return found.astype(str)
