"""Which heads are ablated by themselves, and how many each of them stands for.

All of them, or with a screen (`interp.editing.screen`) those that it ranks highest, those of the two layers that it
is most wrong about, and a random sample drawn before the screen was looked at.

Each layer's attention is switched off anyway. Where that does far more harm than the screen says of the layer's heads
together, one of them may act through attention that is saturated further up, where gradients vanish: the head that
writes the keys of a look-up does. So all heads of the two layers that lack most are measured: a look-up has two ends.

The sample says how far the screen can be trusted, for all heads of the model on these prompts, and what the heads do
that were passed over: of these, those in the sample stand for all.
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
    """The heads of one run; `estimates` are the screen's, by ablation, and none where all heads are measured.

    `doubted` are the layers all of whose heads are measured.
    """

    plan: Plan
    estimates: Mapping[str, Float[np.ndarray, "unit head"]]
    doubted: tuple[int, ...] = ()

    @classmethod
    def of(cls, plan: Plan, under: Mapping[str, Readout], measure: str) -> "Choice":
        """What the screen left in the readouts: slope and half the curvature, the mean over donors' draws."""
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
        """Those that the screen ranks highest for one ablation, and of the layers in doubt; without a screen all."""
        if not self.plan.is_screened:
            return np.arange(self.plan.n_all)
        order = np.argsort(-mean_of_units(self.estimates[how]), kind="stable")
        in_doubt = np.isin(np.arange(self.plan.n_all) // self.plan.n_heads, self.doubted)
        return np.union1d(order[: self.plan.n_screened], np.flatnonzero(in_doubt))

    def measured(self, how: How) -> Int[np.ndarray, " head"]:
        """The heads that are ablated so; the random sample by the primary ablation alone."""
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
        """Whether the measured heads tell the sum over all."""
        return len(self.measured(how)) == self.plan.n_all or (self.is_primary(how) and len(self.passed_over) > 0)

    def stands_for(self, n_resamples: int, rng: np.random.Generator) -> Float[np.ndarray, "one_and_resamples head"]:
        """For how many heads each that has the primary ablation stands, and in every resample of the random sample.

        A chosen head stands for itself, the sample of the others for all others.
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
        """Over which heads a number is taken, to follow its meaning; nothing where it is all."""
        if not self.plan.is_screened:
            return ""
        n, plan = len(self.measured(how)), self.plan
        sample = f" and {len(plan.sample)} at random" if self.is_primary(how) else ""
        return (
            f"; over {n} of {plan.n_all} heads, the {plan.n_screened} that the screen ranks highest, those of the "
            f"layers {self.in_doubt}{sample}: another may do more harm"
        )

    def labels(self, how: How) -> np.ndarray:
        """Why each head of the model is measured, or that it is not."""
        found = np.full(self.plan.n_all, "not measured", dtype=object)
        if self.is_primary(how):
            found[self.plan.sample] = "random"
        chosen = self.chosen(how)
        found[chosen] = np.where(found[chosen] == "random", "chosen and random", "chosen")
        return found.astype(str)
