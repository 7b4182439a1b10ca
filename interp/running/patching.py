"""Activation patching of a clean prompt into a corrupted one, by layer and position.

A patch adds (clean − corrupted) to the activation of the corrupted pass at one layer and position. Its null adds a
random vector of the same length there.

Source: Meng et al. (2022), arXiv 2202.05262 (causal tracing); Heimersheim and Nanda (2024), arXiv 2404.15255.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import numpy as np
from jaxtyping import Float

from interp.capture import Capture
from interp.edit import SITES, Edit
from interp.editing.conditions import read_conditions
from interp.editing.editor import name_with_edits
from interp.edits import ShiftAxis
from interp.errors import Answering, PromptError, UnknownName, UsageError
from interp.model import Model
from interp.need import Need
from interp.probe import Condition, Readout
from interp.prompt import Prompt, PromptSet, Run
from interp.prompting.tokens import as_tokens, one_token, words_of
from interp.reading.batches import layers_of
from interp.reading.forward import capture
from interp.settings import LARGEST_SEED, MOST, refuse_number
from interp.statistics.intervals import band
from interp.system.plain_numbers import from_0, plain
from interp.system.progress import reporting
from interp.system.values import read

if TYPE_CHECKING:
    import pandas
    import plotly.graph_objects as go

_LOG_P = Need("next_log_prob")

OnePrompt = str | Sequence[int]
"""A prompt: a text, or token ids."""


@dataclass(frozen=True, eq=False, repr=False)
class PatchingMap(Answering):
    """What clean activations restore in a corrupted forward pass, by layer (depth, for `resid`) and position.

    `clean`, `corrupted`, `effect` and `null` are the log2 odds of `answer` over `wrong` (log2 p of the answer if there
    is no wrong one), in bits; times ln 2 they are logit differences. `null` holds random moves of the same length at
    the same layer and position; `moves` is what each patch adds.

    >>> model = interp.load("tunnel:bijection-gpt-neox")
    >>> first, second = (list(p.token_ids)[:7] for p in interp.sampled_prompts(model.task, 2))
    >>> found = interp.patching_map(model, first, second, n_null=3)
    >>> found.recovered.shape == found.p.shape
    True
    """

    model: str
    site: str
    layers: tuple[int, ...]
    positions: tuple[int, ...]
    clean_tokens: tuple[str, ...]
    corrupted_tokens: tuple[str, ...]
    answer: str
    wrong: str | None
    clean: float
    corrupted: float
    effect: Float[np.ndarray, "layer pos"]
    null: Float[np.ndarray, "draw layer pos"]
    moves: Float[np.ndarray, "layer pos feature"] = field(repr=False)

    @property
    def recovered(self) -> Float[np.ndarray, "layer pos"]:
        """The share of the difference that each patch restores: 0 is the corrupted pass, 1 the clean one."""
        return (self.effect - self.corrupted) / (self.clean - self.corrupted)

    @property
    def null_recovered(self) -> Float[np.ndarray, "draw layer pos"]:
        """`recovered` of the random moves."""
        return (self.null - self.corrupted) / (self.clean - self.corrupted)

    @property
    def p(self) -> Float[np.ndarray, "layer pos"]:
        """p corrected over the whole map: how often its largest random move restores as much; NaN without any."""
        if not len(self.null):
            return np.full(self.effect.shape, np.nan)
        largest = np.abs(self.null_recovered).max(axis=(1, 2))
        return (1 + (largest[:, None, None] >= np.abs(self.recovered)).sum(axis=0)) / (1 + len(largest))

    def edits(self, layer: int, positions: Sequence[int] | None = None) -> tuple[Edit, ...]:
        """The patches of one layer at these positions (None: all), as edits; `UsageError` for others than the map's."""
        chosen = self.positions if positions is None else tuple(positions)
        for what, asked, known in (("layer", [layer], self.layers), ("position", chosen, self.positions)):
            strange = sorted(set(asked) - set(known))
            if strange:
                raise UnknownName(f"{what} of this map", strange[0], map(str, known))
        i = self.layers.index(layer)
        moves = ((at, self.moves[i, self.positions.index(at)]) for at in chosen)
        return tuple(_moved(self.site, layer, at, move) for at, move in moves if move.any())

    def to_frame(self) -> "pandas.DataFrame":
        """One row per patch: layer, position, token, share recovered, 95 % band of its random moves, and p."""
        import pandas

        layer, pos = np.indices(self.effect.shape)
        no_null = np.full((2, *self.effect.shape), np.nan)
        null = band(self.null_recovered) if len(self.null) else no_null
        tokens = np.array(self.corrupted_tokens, dtype=object)[list(self.positions)]
        return pandas.DataFrame({
            "layer": np.array(self.layers)[layer.ravel()], "position": np.array(self.positions)[pos.ravel()],
            "token": tokens[pos.ravel()], "recovered": self.recovered.ravel(),
            "null_low": null[0].ravel(), "null_high": null[1].ravel(), "p": self.p.ravel(),
        })  # fmt: skip

    def plot(self, theme: Literal["light", "dark"] = "light") -> "go.Figure":
        """The map as a figure; a cross marks patches that no random move reaches."""
        from interp.registry import load_entry

        return load_entry("report", "patching")(self, theme)


def patching_map(
    model: Model,
    clean: OnePrompt,
    corrupted: OnePrompt,
    *,
    answer: str | int | None = None,
    wrong: str | int | None = None,
    site: str = "resid",
    layers: Sequence[int] | None = None,
    positions: Sequence[int] | None = None,
    n_null: int = 20,
    seed: int = 0,
    quiet: bool = True,
) -> PatchingMap:
    """Patch each activation of one prompt into the forward pass of another, one layer and position at a time.

    Args:
        model: The model.
        clean: A text, or token ids.
        corrupted: A text, or token ids, of the same number of tokens.
        answer: Token of the clean prompt's answer: a string (with its leading space) or id. By default what the model
            predicts after it.
        wrong: Token of the corrupted prompt's answer. By default what the model predicts after it, or none if `answer`
            is given.
        site: `resid` (layers are depths, 0 the embedding), or `z`, `v`, `q` or `k` of all heads of a layer.
        layers: Layers to patch, from 0; all by default.
        positions: Positions to patch, from 0; all by default.
        n_null: Random changes of the same length that each patch is compared with. `p` is corrected over the whole map.
        seed: Seed of these changes.
        quiet: Whether to print no progress.

    Returns:
        The map: for each layer and position, the share of the logit difference that the patch recovers, with its null.

    Raises:
        PromptError: The prompts differ in length or give the same answer, or a token is not a single token.
        UsageError: The model has no such layer or position, or the site cannot be patched.

    Examples:
        >>> model = interp.load("tunnel:bijection-gpt-neox")
        >>> first, second = (list(p.token_ids)[:7] for p in interp.sampled_prompts(model.task, 2))
        >>> interp.patching_map(model, first, second, layers=[0, 1], n_null=3).to_frame().shape
        (14, 7)
    """
    if site not in SITES:
        raise UnknownName("site that can be patched", site, SITES)
    refuse_number(f"n_null = {n_null}", n_null, 0, MOST)
    refuse_number(f"seed = {seed}", seed, 0, LARGEST_SEED)
    ids = [_ids(model, each, what) for each, what in ((clean, "clean"), (corrupted, "corrupted"))]
    n = len(ids[0])
    if len(ids[1]) != n:
        raise PromptError(
            asked="patching one prompt into another, position by position",
            found=f"the clean one has {n} tokens ({_listed(model, ids[0])}), the corrupted one {len(ids[1])} "
            f"({_listed(model, ids[1])})",
            fix="Replace words by words with as many tokens.",
        )
    every = range(n) if positions is None else positions
    chosen = from_0(f"the positions {list(every)} of these prompts", every, n, "there are positions")
    at_layers = layers_of(Need(site), layers, model.info)
    need = Need(site, at="all", layers=at_layers)
    pair = PromptSet("pair", [Prompt(token_ids=tuple(x.tolist()), scored=(n - 1,)) for x in ids])
    read = capture(model, pair, ids, [need, _LOG_P])
    x = read[need].astype(float).reshape(len(at_layers), 2, n, -1)  # [layer, prompt, pos, feature]
    log_p = read[_LOG_P].astype(float)
    right, other = _answers(model, answer, wrong, log_p)
    moves = (x[:, 0] - x[:, 1])[:, list(chosen)]

    def odds(log_p: np.ndarray) -> np.ndarray:
        return np.asarray(log_p[..., right] - (0.0 if other is None else log_p[..., other]))

    def kept(under: Capture) -> Readout:
        return {"odds": odds(under[_LOG_P][0].astype(float))}

    ends = odds(log_p)
    if ends[0] == ends[1]:
        raise PromptError(
            asked="what brings back the clean answer",
            found="clean and corrupted prompt give the answer the same odds",
            fix="Give prompts with different answers.",
        )
    rng = np.random.default_rng(seed)
    conditions = []
    for i, layer in enumerate(at_layers):
        for j, at in enumerate(chosen):
            length = np.linalg.norm(moves[i, j])
            drawn = rng.standard_normal((n_null, moves.shape[-1]))
            drawn *= length / np.linalg.norm(drawn, axis=1, keepdims=True)
            for draw, move in enumerate((moves[i, j], *drawn) if length > 0 else ()):
                moved = (_moved(site, layer, at, move),)
                conditions.append(Condition(f"{draw} {i} {j}", moved, (_LOG_P,), kept))
    with reporting("patches", quiet) as progress:
        found = read_conditions(model, Run(pair[[1]], [ids[1]]), conditions, progress=progress)
    values = np.full((1 + n_null, *moves.shape[:2]), ends[1])
    for name, readout in found.items():
        values[tuple(map(int, name.split()))] = float(readout["odds"])
    return PatchingMap(
        model=name_with_edits(model), site=site, layers=at_layers, positions=chosen,
        clean_tokens=words_of(model, ids[0]), corrupted_tokens=words_of(model, ids[1]),
        answer=words_of(model, np.array([right]))[0],
        wrong=None if other is None else words_of(model, np.array([other]))[0], clean=float(ends[0]),
        corrupted=float(ends[1]), effect=values[0], null=values[1:], moves=moves,
    )  # fmt: skip


def _ids(model: Model, given: OnePrompt, what: str) -> np.ndarray:
    given = plain(given)
    if isinstance(given, list | tuple) and len(given) == 1 and isinstance(given[0], str | list):
        given = given[0]  # a batch of one
    if isinstance(given, str):
        prompt = Prompt(text=given)
    else:
        ids = read(f"the {what} prompt", Sequence[int], given)
        prompt = Prompt(token_ids=ids, scored=(len(ids) - 1,))
    return as_tokens(model, PromptSet(what, [prompt]), (), 0).ids[0]


def _listed(model: Model, ids: np.ndarray) -> str:
    return " ".join(repr(word) for word in words_of(model, ids[:12])) + (" ..." if len(ids) > 12 else "")


def _answers(
    model: Model, answer: str | int | None, wrong: str | int | None, log_p: np.ndarray
) -> tuple[int, int | None]:
    """The token ids; by default those that the model predicts after each of the two prompts."""
    if answer is None:
        right, other = (int(i) for i in log_p.argmax(axis=1))
        other = other if wrong is None else one_token(model, wrong)
        if right == other:
            raise PromptError(
                asked="the answer to the clean prompt against that to the corrupted one",
                found=f"the model predicts {words_of(model, np.array([right]))[0]!r} after both",
                fix="Name the tokens with answer= and wrong=.",
            )
        return right, other
    right, other = one_token(model, answer), None if wrong is None else one_token(model, wrong)
    if right == other:
        asked = f"answer={answer!r} against wrong={wrong!r}"
        raise UsageError(asked=asked, found="they are one token", fix="Name two.")
    return right, other


def _moved(site: str, layer: int, at: int, move: np.ndarray) -> ShiftAxis:
    """The edit that adds `move`."""
    length = float(np.linalg.norm(move))
    return ShiftAxis(layer=layer, site=site, axis=move / length, deviations=1.0, score_sigma=length, at=(at,))
