"""Selection: the class of a map, and its next value, from the pairs seen so far.

Both answers are ratios of counts of the maps of a class that agree with the pairs:

    bijections       (V − d)! after d pairs
    involutions      without fixed points: (m − 1)!! for the m symbols that no pair touches
    3-cycles         n (n − 1) … (n − k + 1) ways to close k open pairs with n untouched symbols, times
                     m! / ((m / 3)! 3^(m / 3)) for the m = n − k that are left
    rotations        x + c mod V, and
    multiplications  c x mod V (V prime, c ≠ 0): their few maps one by one

Source: arXiv 2607.19379.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import factorial, factorial2, perm

from interp.statistics.resampling import random_orders
from interp.tunnel import REQUIRED_UNITS, Sequences

from ..validation import Conflict, is_prime
from .shipped_task import ShippedTask, in_turn

MapClass = Literal["bijections", "involutions", "3-cycles", "rotations", "multiplications"]
Images = Int[np.ndarray, "*any symbol"]
"""The known image of every symbol of maps, −1 if no pair shows it."""

Pairs = Int[np.ndarray, "sequence pair"]


@dataclass(frozen=True)
class Selection(ShippedTask):
    """Maps of `V` symbols of the class `first` or of the class `second`, shown in `L` pairs START x1 f(x1) … xL.

    The last value is an answer only. Symbols are 0 … V − 1; the answers V and V + 1 name the classes, START is V + 2.
    """

    first: MapClass = "involutions"
    second: MapClass = "bijections"
    V: int = 12
    L: int = 10

    name: ClassVar[str] = "selection"
    question: ClassVar[str] = "Does the network infer which class of maps it sees, and predict by both?"
    length_field: ClassVar[str] = "L"
    shifted: ClassVar = (True, True, False)
    rules: ClassVar = {"V": 3, "L": 1}
    units: ClassVar[Mapping[str, str]] = {**REQUIRED_UNITS, "is_first": "boolean", "p_first": "probability"}

    def conflicts(self) -> Iterator[Conflict]:
        yield self.first == self.second, f"{self.first} twice", "Name two different classes."
        yield self.L > self.V, f"L = {self.L} of V = {self.V} symbols", f"Choose L up to {self.V}."
        fitting = {
            "involutions": ("even", self.V % 2 == 0),
            "3-cycles": ("a multiple of 3", self.V % 3 == 0),
            "multiplications": ("a prime number", is_prime(self.V)),
        }
        for name in (self.first, self.second):
            found, (what, fits) = f"{name} of V = {self.V} symbols", fitting.get(name, ("", True))
            yield not fits, found, f"For {name} V is {what}."
            with np.errstate(over="ignore"):
                is_counted = np.isfinite(CLASSES[name].count(np.full((1, self.V), -1))).all()
            yield not is_counted, f"{found}: too many to count", "Choose V up to 170."

    @property
    def vocab_size(self) -> int:
        return self.V + 3

    @property
    def n_positions(self) -> int:
        return 2 * self.L

    @property
    def most_copies(self) -> int:
        """The number of cyclic shifts of all symbols; multiplications allow none."""
        return 1 if "multiplications" in (self.first, self.second) else self.V

    def encode(self, keys: Pairs, values: Pairs, is_first: Bool[np.ndarray, " sequence"]) -> Sequences:
        """The sequences that show these pairs, with the exact posterior of values and classes."""
        n, (V, L) = len(keys), (self.V, self.L)
        shown = np.full((n, L + 1, V), -1)  # [sequence, pairs seen, symbol]
        for k in range(L):
            shown[np.arange(n), k + 1 :, keys[:, k]] = values[:, [k]]
        tried = np.repeat(shown[:, :L, None], V, axis=2)  # and the next key sent to every symbol
        np.put_along_axis(tried, keys[:, :, None, None], np.arange(V)[:, None], axis=3)
        counts, unseen = [CLASSES[name].count for name in (self.first, self.second)], np.full((1, V), -1)
        of_class = np.stack([count(shown) / count(unseen) for count in counts], axis=-1)
        of_value = np.sum([count(tried) / count(unseen) for count in counts], axis=0)
        tokens, belief = in_turn(keys, values), of_class / of_class.sum(axis=-1, keepdims=True)
        asked, seen = np.arange(2 * L - 1), np.arange(1, 2 * L) // 2
        targets, posterior = np.roll(tokens, -1, axis=1)[:, :-1], np.zeros((n, 2 * L - 1, V + 2))
        targets[:, 1::2] = np.where(is_first, V, V + 1)[:, None]
        posterior[:, 0::2, :V] = of_value / of_value.sum(axis=-1, keepdims=True)
        posterior[:, 1::2, V:] = belief[:, 1:L]
        belief = belief[:, seen]
        return self._sequences(
            np.column_stack([np.full(n, V + 2), tokens[:, :-1]]), asked + 1, targets, posterior, np.arange(V + 2), seen,
            {"is_first": is_first[:, None], "p_first": belief[..., 0]}, belief=belief,
            outcome_slice=np.array(["value"] * V + ["class"] * 2), scored_slice=np.array(["value", "class"])[asked % 2],
        )  # fmt: skip

    def _draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, ...]:
        is_first = rng.random(n) < 0.5
        first, second = (CLASSES[name].draw(rng, n, self.V) for name in (self.first, self.second))
        keys = random_orders(self.V, n, rng)[:, : self.L]
        return keys, np.take_along_axis(np.where(is_first[:, None], first, second), keys, axis=1), is_first


def count_involutions(images: Images) -> Float[np.ndarray, "*any"]:
    """The number of involutions without fixed points that agree."""
    symbols, back = np.arange(images.shape[-1]), _after(images, images)
    fits = (images != symbols) & ((back < 0) | (back == symbols))
    n_free = (~_is_touched(images)).sum(axis=-1)
    return factorial2(np.maximum(n_free - 1, 0)) * fits.all(axis=-1) * _is_injective(images)


def count_three_cycles(images: Images) -> Float[np.ndarray, "*any"]:
    """The number of permutations of 3-cycles that agree."""
    symbols, second = np.arange(images.shape[-1]), _after(images, images)
    third = _after(images, second)
    fits = (images != symbols) & ((second < 0) | (second != symbols)) & ((third < 0) | (third == symbols))
    n_free = (~_is_touched(images)).sum(axis=-1)
    n_open = ((images >= 0) & (second < 0) & ~_is_image(images)).sum(axis=-1)
    is_right = fits.all(axis=-1) & _is_injective(images) & (n_free >= n_open)
    left = np.where(is_right, n_free - n_open, 0)
    return perm(n_free, n_open) * factorial(left) / (factorial(left // 3) * 3.0 ** (left // 3)) * is_right


def _after(images: Images, at: Images) -> Images:
    """The images of these symbols, −1 for unknown symbols."""
    return np.where(at < 0, -1, np.take_along_axis(images, np.maximum(at, 0), axis=-1))


def _is_image(images: Images) -> Bool[np.ndarray, "*any symbol"]:
    found = np.zeros((*images.shape[:-1], images.shape[-1] + 1), dtype=bool)
    np.put_along_axis(found, images, True, axis=-1)  # what is unknown, -1, is put in the last place
    return found[..., :-1]


def _is_touched(images: Images) -> np.ndarray:
    return (images >= 0) | _is_image(images)


def _is_injective(images: Images) -> np.ndarray:
    return _is_image(images).sum(axis=-1) == (images >= 0).sum(axis=-1)


def _cycles(rng: np.random.Generator, n: int, n_symbols: int, period: int) -> Int[np.ndarray, "map symbol"]:
    """Uniform permutations that consist of cycles of one length."""
    order = random_orders(n_symbols, n, rng)
    onward = np.roll(order.reshape(n, -1, period), -1, axis=2).reshape(n, n_symbols)
    images = np.empty_like(order)
    np.put_along_axis(images, order, onward, axis=1)
    return images


class Maps(NamedTuple):
    """A class of maps: the number that agree with the known images, and a uniform draw of n maps of V symbols."""

    count: Callable[[Images], Float[np.ndarray, "*any"]]
    draw: Callable[[np.random.Generator, int, int], Int[np.ndarray, "map symbol"]]


def _few(members: Callable[[int], Int[np.ndarray, "map symbol"]]) -> Maps:
    def count(images: Images) -> Float[np.ndarray, "*any"]:
        agreeing = [((images < 0) | (images == each)).all(axis=-1) for each in members(images.shape[-1])]
        return np.array(agreeing).sum(axis=0, dtype=np.float64)

    return Maps(count, lambda rng, n, V: rng.choice(members(V), n))


CLASSES: Mapping[str, Maps] = {
    "bijections": Maps(
        lambda known: factorial((known < 0).sum(axis=-1)) * _is_injective(known),
        lambda rng, n, V: random_orders(V, n, rng),
    ),
    "involutions": Maps(count_involutions, lambda rng, n, V: _cycles(rng, n, V, 2)),
    "3-cycles": Maps(count_three_cycles, lambda rng, n, V: _cycles(rng, n, V, 3)),
    "rotations": _few(lambda V: (np.arange(V)[:, None] + np.arange(V)) % V),
    "multiplications": _few(lambda V: np.arange(1, V)[:, None] * np.arange(V) % V),
}
