"""A need: a requested activation, its positions and its reduction. It is the key to a captured array."""

from collections.abc import Iterable
from dataclasses import dataclass

from interp.errors import Answering, UsageError
from interp.reductions import PromptMean, Reduction, Rows
from interp.sites import Site, overview, site
from interp.system.calls import AnsweringType
from interp.system.plain_numbers import plain
from interp.system.values import read

ROWS = Rows()

PLACES = frozenset({"scored", "last", "all", "followed", "before_last", "tunnel"})
"""Positions that have a name of their own; every other one is a column of the prompt set."""


@dataclass(frozen=True, repr=False)
class Need(Answering, metaclass=AnsweringType):
    """A requested activation: its site, its positions, and how its rows are reduced.

    `at` names the positions: `scored` (the last token of a text, all scored positions of a wind tunnel), `last`, `all`,
    `followed` (all but the last), `before_last` (the one before the last, texts only), `tunnel` (all of a wind tunnel's
    sequences, none of other prompts), or a column of the prompt set that holds one position per prompt. Weights have no
    positions and no reduction. `layers` (depths, for the residual stream; negative ones count from the end) keeps these
    layers only, in their order. Raises `UnknownName` for an unknown site, `UsageError` for an impossible combination.

    >>> interp.Need("pattern_entropy", interp.PromptMean(), at="all").at
    'all'
    """

    site: str
    reduction: Reduction = ROWS
    at: str = "scored"
    layers: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        described = site(self.site)
        if not isinstance(self.reduction, Reduction):
            raise self._refused(
                f"its reduction is {self.reduction!r:.60}", "Give interp.PromptMean(), or leave it out."
            )
        if not isinstance(self.at, str) or not self.at:
            fix = f"Name them: {', '.join(sorted(PLACES))}, or a column with one position a prompt."
            raise self._refused(f"its positions are {self.at!r:.60}", fix)
        if self.layers is not None:
            layers = read(f"layers of {self.site}", tuple[int, ...], self.layers, from_words=False)
            object.__setattr__(self, "layers", layers)
            if described.layers == "once":
                raise self._refused("it has no layers to choose among", "Leave `layers` out.")
        if described.source in ("weights", "edit") and (self.at != "scored" or self.reduction != ROWS):
            raise self._refused("it has neither positions nor a reduction to choose", "Name the site alone.")
        if described.source == "text" and self.at not in ("followed", "before_last"):
            found = f"it is read at positions that a token follows, and not at {self.at!r}"
            raise self._refused(found, "Give at='followed' or at='before_last'.")
        if described.source in ("output", "lens") and self.at != "scored":
            found = f"it is read at scored positions alone, and not at {self.at!r}"
            raise self._refused(found, "Leave `at` out; choose positions in Prompt(token_ids=..., scored=...).")
        if self.at == "tunnel" and self.reduction != ROWS:
            found = "tunnel positions may be none at all, which has no mean"
            raise self._refused(found, "Keep them as rows: leave the reduction out.")

    def _refused(self, found: str, fix: str) -> UsageError:
        return UsageError(asked=f"Need({self.site!r})", found=found, fix=fix)

    @property
    def described(self) -> Site:
        """The site: its axes, unit and meaning."""
        return site(self.site)

    @property
    def kind(self) -> str:
        """The name of the reduction."""
        return type(self.reduction).__name__

    def axes(self) -> tuple[str, ...]:
        """The names of the axes of its rows."""
        described = self.described
        leading = () if described.layers == "once" else (described.layers,)
        if described.source in ("weights", "edit"):
            return (*leading, *described.axes)
        over = "prompt" if isinstance(self.reduction, PromptMean) else "row"
        return (*leading, over, *described.axes)


def as_needs(needs: "Need | str | Iterable[Need | str] | None") -> tuple[Need, ...]:
    """Needs from needs or names of sites, one or several; `UsageError` with all sites if there are none."""
    listed = [needs] if isinstance(needs, Need | str) else list(plain(needs) or ())
    if not listed:
        raise UsageError(
            asked="a capture of nothing",
            found="no need is named",
            fix=f'Name sites, such as ["v", "resid"]. There are\n  {overview()}',
        )
    return tuple(need if isinstance(need, Need) else Need(need) for need in listed)
