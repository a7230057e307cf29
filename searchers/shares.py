"""Shares: numbers that are declared together and add up to a total, such as a mixture of data.

`mix: {shares: [web, code, books]}` declares the parameters `mix.web`, `mix.code` and `mix.books`,
each a Share. Every searcher chooses them one by one, as it chooses other numbers, and `balanced`
then makes the choices add up: it multiplies them all by one factor, and keeps those that come to an
end of their range there. So exact zeros stay zeros, and values that add up stay as they are.

The place of a share in the unit interval goes with its square root. Distances are then those of
Hellinger: .001 is near to 0 and not far from .01, and .4 is about as far from .5 as .02 from .05.

At random, shares have a Dirichlet distribution, which is uniform unless a prior says otherwise.
Where ranges cut it off, each share is drawn from an exponential distribution that is cut off at its
range, and one rate for all of them makes them add up; that is uniform but for a factor that varies
little. With `zeros` each share is 0 with a probability of one half.

Amounts are counted in quanta, whole numbers of `step` or of a millionth of the total, so that sums
are exact.

Axes: N points, K shares. Sources: Aitchison, The Statistical Analysis of Compositional Data (1986),
for the need of a geometry; Rao, A review of canonical coordinates and an alternative to
correspondence analysis using Hellinger distance (1995); Devroye, Non-Uniform Random Variate
Generation (1986), XI.4, for the Dirichlet distribution by exponential and gamma variates.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from searchers.ranges import GROW, SHRINK
from searchers.sums import cut_exponentials, zeros_that_fit
from searchers.values import Condition, Params, SpaceError, Value, is_number

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

FINENESS = 10**6  # quanta of shares without a step
MAX_SHARES = 200
ZEROS = 0.5  # probability of a zero
ZERO_WIDTH = 0.05  # of the unit interval, so that every searcher comes upon zeros
SUM_ERROR = 1e-9  # of the total, that shares which a user wrote may miss
DIGITS = 14  # of the total, to which values are rounded: .3, and not .30000000000000004
HALVINGS = 80
BLOCK = 1_000  # rows that are drawn at once, which a processor's cache holds
LEAST = 1e-3  # quanta of an amount that may grow
LEAST_ENERGY = 1e-290  # of a share with a parameter of 1; smaller variates leave the floats
ROUNDING = 1e-6  # quanta by which a value may miss a whole number of them


@dataclass(frozen=True)
class Shares:
    """Several numbers with a fixed sum.

    Attributes:
        declared: the name under which they are declared together.
        names: of the shares, within that name.
        low_K: the least of each share; with zeros, of each that is not 0.
        high_K: the most of each share.
        step: of which each share is a multiple; None: none.
        alpha_K: the parameters of the Dirichlet distribution, all 1 for a uniform one.
        whole: whether values are whole numbers.
    """

    declared: str
    names: tuple[str, ...]
    total: float = 1.0
    low_K: tuple[float, ...] = ()
    high_K: tuple[float, ...] = ()
    step: float | None = None
    zeros: bool = False
    alpha_K: tuple[float, ...] = ()
    prior_K: tuple[float, ...] = ()
    concentration: float = 1.0
    whole: bool = False

    def __post_init__(self) -> None:
        if self.quanta > FINENESS:
            message = f"is {self.step:g}, a {self.quanta:,}th of the total of {self.total:g}"
            raise SpaceError(("step",), f"{message}; give a larger one, or leave it out")
        for index in np.flatnonzero(self.least_K > self._most_K)[:1]:
            what = "a millionth of the total" if self.step is None else f"the step of {self.step:g}"
            message = f"is {self.low_K[index]:g}, max is {self.high_K[index]:g}"
            message += f", and no multiple of {what} lies between"
            raise SpaceError(("min", self.names[index]), f"{message}; move one of them")
        least, most = int(self.least_K.sum()), int(self._most_K.sum())
        if self.zeros:
            least = int(self.least_K.min())
        for bound, name, sign in ((least, "min", "more"), (most, "max", "less")):
            if (bound > self.quanta) if name == "min" else (bound < self.quanta):
                message = f"leaves {sign} than the total of {self.total:g} for the shares together"
                raise SpaceError((name,), f"{message}: {self._text(bound)}; change it, or total")
        low_1K, high_1K = self._ranges(np.full((1, len(self.names)), float(self.quanta)))
        if not low_1K.sum() <= self.quanta <= high_1K.sum():
            message = "and max leave no shares that add up to the total beside those that are 0"
            raise SpaceError(("min",), f"{message}; lower min, or raise max")

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The names of the parameters."""
        return tuple(f"{self.declared}.{name}" for name in self.names)

    @property
    def quantum(self) -> float:
        """The smallest difference of two values."""
        return self.total / FINENESS if self.step is None else self.step

    @cached_property
    def quanta(self) -> int:
        """The total, in quanta."""
        return FINENESS if self.step is None else round(self.total / self.step)

    @cached_property
    def least_K(self) -> Array:
        """The least of shares that are not 0, in quanta."""
        floor = 1.0 if self.step is None or self.zeros else 0.0
        return np.maximum(np.ceil(np.array(self.low_K) / self.quantum - ROUNDING), floor)

    @cached_property
    def _most_K(self) -> Array:
        most_K = np.floor(np.array(self.high_K) / self.quantum + ROUNDING)
        return np.minimum(most_K, float(self.quanta))

    @cached_property
    def base_K(self) -> Array:
        """The amounts at the lower end of the unit interval, in quanta."""
        return np.zeros(len(self.names)) if self.zeros else self.least_K

    @cached_property
    def width_K(self) -> Array:
        """The amounts from the lower end of the unit interval to the upper one, in quanta."""
        return np.maximum(self._most_K - self.base_K, 1e-9)

    def amounts(self, unit_NK: Array) -> Array:
        """Return the amounts, in quanta, at places in the unit interval."""
        return self.base_K + self.width_K * self.roots(unit_NK) ** 2

    def units(self, amount_NK: Array) -> Array:
        """Return the places of amounts in the unit interval."""
        root_NK = np.sqrt(np.clip((amount_NK - self.base_K) / self.width_K, 0.0, 1.0))
        return np.where(root_NK > 0.0, self.at_roots(root_NK), 0.0)

    @property
    def zero_width(self) -> float:
        """The part of the unit interval that stands for 0."""
        return ZERO_WIDTH if self.zeros else 0.0

    def roots(self, unit_NK: Array) -> Array:
        """Return the roots of amounts, as parts of their ranges, at places in the interval."""
        return np.clip((unit_NK - self.zero_width) / (1.0 - self.zero_width), 0.0, 1.0)

    def at_roots(self, root_NK: Array) -> Array:
        """Return the places in the unit interval of such roots."""
        return self.zero_width + (1.0 - self.zero_width) * root_NK

    def values(self, amount_NK: Array) -> Array:
        """Return amounts in the user's units."""
        decimals = max(0, DIGITS - math.ceil(math.log10(self.total)))
        return np.round(amount_NK * self.total / self.quanta, decimals)

    def balanced(self, amount_NK: Array, held_K: Mask | None = None) -> Array:
        """Return whole amounts near to given ones that add up to the total, within the ranges.

        Args:
            amount_NK: in quanta.
            held_K: shares that stay as they are; None: none.
        """
        amount_NK = np.array(amount_NK, dtype=float)
        low_NK, high_NK = self._ranges(amount_NK, held_K)
        clipped_NK = np.clip(amount_NK, low_NK, high_NK)
        off_N = np.flatnonzero(np.abs(clipped_NK.sum(axis=1) - self.quanta) > 0.5)
        if len(off_N):
            grown_NK = np.maximum(amount_NK[off_N], LEAST)
            low_MK, high_MK = low_NK[off_N], high_NK[off_N]
            bottom_N, top_N = np.full(len(off_N), -60.0), np.full(len(off_N), 60.0)
            for _ in range(HALVINGS):
                middle_N = (bottom_N + top_N) / 2
                clipped_MK = np.clip(grown_NK * np.exp(middle_N)[:, None], low_MK, high_MK)
                above_N = clipped_MK.sum(axis=1) > self.quanta
                top_N = np.where(above_N, middle_N, top_N)
                bottom_N = np.where(above_N, bottom_N, middle_N)
            clipped_NK[off_N] = clipped_MK
        return self._rounded(clipped_NK, low_NK, high_NK)

    def drawn(self, quantile_NK: Array) -> Array:
        """Return amounts, in quanta, that are drawn by numbers which are uniform in [0, 1]."""
        blocks = range(0, max(1, len(quantile_NK)), BLOCK)
        return np.vstack([self._drawn(quantile_NK[start : start + BLOCK]) for start in blocks])

    def _drawn(self, quantile_NK: Array) -> Array:
        ending_NK = np.clip(quantile_NK, 0.0, 1.0 - 2.0**-53)
        zero_NK = np.zeros(ending_NK.shape, dtype=np.bool_)
        if self.zeros:
            zero_NK = ending_NK < ZEROS
            ending_NK = np.where(zero_NK, ending_NK / ZEROS, (ending_NK - ZEROS) / (1.0 - ZEROS))
        energy_NK = self._energies(ending_NK)
        wanted_NK = np.where(zero_NK, 0.0, np.maximum(energy_NK, 1.0) + self.quanta)
        low_NK, high_NK = self._ranges(wanted_NK, order_NK=energy_NK)
        width_NK = high_NK - low_NK
        if self.step is not None:  # each value owns a cell, those at the ends of a range too
            low_NK, width_NK = low_NK - 0.5 * (width_NK > 0.0), width_NK + (width_NK > 0.0)
        rest_N = self.quanta - low_NK.sum(axis=1)
        part_NK = np.where(width_NK > 0.0, energy_NK, 0.0)
        part_NK = part_NK / np.maximum(part_NK.sum(axis=1, keepdims=True), np.finfo(float).tiny)
        amount_NK = part_NK * rest_N[:, None]
        is_cut_NK = (width_NK > 0.0) & (width_NK < rest_N[:, None])
        cut_N = np.flatnonzero(is_cut_NK.any(axis=1))
        if len(cut_N):
            amount_NK[cut_N] = cut_exponentials(energy_NK[cut_N], width_NK[cut_N], rest_N[cut_N])
        ends_2NK = np.ceil(low_NK), np.floor(low_NK + width_NK)
        return self._rounded(low_NK + np.minimum(amount_NK, width_NK), *ends_2NK)

    def _energies(self, quantile_NK: Array) -> Array:
        """Return gamma variates with the parameters of the distribution, at quantiles.

        Those at the quantile of 0 are in proportion to the parameters, as the means are.
        """
        if all(alpha == 1.0 for alpha in self.alpha_K):
            return np.maximum(-np.log1p(-quantile_NK), LEAST_ENERGY)
        from scipy.special import gammaincinv  # takes long to import

        alpha_K = np.array(self.alpha_K)
        energy_NK: Array = gammaincinv(alpha_K, quantile_NK)
        return np.maximum(energy_NK, LEAST_ENERGY * alpha_K)

    def _ranges(
        self, amount_NK: Array, held_K: Mask | None = None, order_NK: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the ends of each share: both are 0 where it is to be 0, and its own where held.

        Without `zeros`, shares without a minimum are 0 only where others that are held leave less.
        As many zeros as needed are given up where the others can't make up the total, those of the
        largest amounts first; as many shares become 0 as leave room for the least of the others.
        """
        held_K = np.zeros(len(self.names), dtype=np.bool_) if held_K is None else held_K
        low_NK = np.where(held_K, amount_NK, self.least_K + 0.0 * amount_NK)
        high_NK = np.where(held_K, amount_NK, self._most_K + 0.0 * amount_NK)
        if not self.zeros:
            is_tight_N1 = low_NK.sum(axis=1, keepdims=True) > self.quanta
            may_be_zero_K = ~held_K & (np.array(self.low_K) == 0.0)
            return np.where(is_tight_N1 & may_be_zero_K, 0.0, low_NK), high_NK
        zero_NK = (amount_NK < self.least_K / 2) & ~held_K
        order_NK = amount_NK if order_NK is None else order_NK
        free_NK = np.broadcast_to(~held_K, zero_NK.shape)
        _flip(zero_NK, high_NK, free_NK, self.quanta, order_NK, revive=True)
        _flip(zero_NK, low_NK, free_NK, self.quanta, order_NK, revive=False)
        sums_2N = [np.where(zero_NK, 0.0, end_NK).sum(axis=1) for end_NK in (low_NK, high_NK)]
        for row in np.flatnonzero((sums_2N[0] > self.quanta) | (sums_2N[1] < self.quanta)):
            zero_NK[row] = zeros_that_fit(
                zero_NK[row], low_NK[row], high_NK[row], ~held_K, self.quanta
            )
        return np.where(zero_NK, 0.0, low_NK), np.where(zero_NK, 0.0, high_NK)

    def _rounded(self, amount_NK: Array, low_NK: Array, high_NK: Array) -> Array:
        """Return whole amounts that add up, by the largest remainders."""
        whole_NK = np.clip(np.round(amount_NK), low_NK, high_NK)
        missing_N = np.round(self.quanta - whole_NK.sum(axis=1))
        for _ in range(amount_NK.shape[1] * 2):
            rows_N = np.flatnonzero(missing_N)
            if not len(rows_N):
                break
            sign_N = np.sign(missing_N[rows_N])
            lost_MK = (amount_NK[rows_N] - whole_NK[rows_N]) * sign_N[:, None]
            moved_MK = whole_NK[rows_N] + sign_N[:, None]
            allowed_MK = (moved_MK >= low_NK[rows_N]) & (moved_MK <= high_NK[rows_N])
            allowed_MK &= low_NK[rows_N] < high_NK[rows_N]
            best_N = np.where(allowed_MK, lost_MK, -np.inf).argmax(axis=1)
            possible_N = allowed_MK.any(axis=1)
            whole_NK[rows_N, best_N] += sign_N * possible_N
            missing_N[rows_N] -= np.where(possible_N, sign_N, missing_N[rows_N])
        return whole_NK

    def problem(self, params: Params) -> str | None:
        """Return what is wrong with the shares of a configuration together; None: nothing."""
        total = math.fsum(float(cast(float, params[name])) for name in self.members)
        if abs(total - self.total) <= SUM_ERROR * self.total:
            return None
        text = f"{total:.9g}"
        return f"the shares add up to {text}; they must add up to {self.total:g}"

    def lattice(self, index: int, resolution: int) -> list[float]:
        """Return the values of a share in a grid: multiples of the step, or of a part."""
        count = max(1, resolution - 1) if self.step is None else self.quanta
        value_V = self.values(np.arange(count + 1, dtype=float) * (self.quanta / count))
        slack = SUM_ERROR * self.total
        low, high = self.low_K[index] - slack, self.high_K[index] + slack
        is_within_V = (value_V >= low) & (value_V <= high)
        is_within_V[0] |= self.zeros
        return cast(list[float], value_V[is_within_V].tolist())

    @cached_property
    def count(self) -> int | None:
        """The number of ways to divide the total; None: infinitely many, or very many."""
        if self.step is None or self.quanta > MAX_SHARES**2:
            return None
        ways = np.zeros(self.quanta + 1)
        ways[0] = 1.0
        for least, most in zip(self.least_K.astype(int), self._most_K.astype(int), strict=True):
            own = np.zeros(self.quanta + 1)
            own[least : most + 1] = 1.0
            own[0] = own[0] or float(self.zeros)
            ways = np.convolve(ways, own)[: self.quanta + 1]
        return int(ways[-1]) if ways[-1] < 2**53 else None

    def _text(self, quanta: float) -> str:
        return f"{float(self.values(np.array(float(quanta)))):g}"


@dataclass(frozen=True)
class Share:
    """One of several shares."""

    shares: Shares
    index: int
    when: Condition = field(default_factory=dict, hash=False)

    @property
    def name(self) -> str:
        """Its own name, within that of the shares."""
        return self.shares.names[self.index]

    @property
    def low(self) -> float:
        """The least value."""
        return 0.0 if self.shares.zeros else self.shares.low_K[self.index]

    @property
    def high(self) -> float:
        """The largest value."""
        return self.shares.high_K[self.index]

    @property
    def distribution(self) -> "Marginal":
        """How a share alone is drawn; `Shares.drawn` draws them together."""
        return Marginal(self)

    @property
    def count(self) -> int | None:
        """The number of values; None: infinitely many."""
        return None if self.shares.step is None else len(self.grid(1))

    def problem(self, value: Value) -> str | None:
        """Return what is wrong with `value`, whatever the other shares; None: nothing."""
        shares = self.shares
        if not is_number(value) or (shares.whole and value != int(value)):
            return f"is {value!r}; give a {'whole ' if shares.whole else ''}number"
        slack = SUM_ERROR * shares.total
        if shares.zeros and value == 0:
            return None
        low = shares.low_K[self.index]
        if not low - slack <= value <= self.high + slack:
            also = "0 or " if shares.zeros and low > 0 else ""
            return f"is {value}; give {also}{low:g} to {self.high:g}"
        if shares.step is not None:
            nearest = round(value / shares.step) * shares.step
            if abs(nearest - value) > slack:
                return f"is {value}, off the step of {shares.step:g}; the nearest is {nearest:g}"
        return None

    def cast(self, value: Value) -> float:
        """Return a valid value with the type of the shares."""
        number = float(cast(float, value))
        return int(number) if self.shares.whole else number

    def to_unit(self, value: Value) -> float:
        amount = float(cast(float, value)) / self.shares.quantum
        if abs(amount - round(amount)) < ROUNDING:
            amount = round(amount)
        return float(self.shares.units(np.full(len(self.shares.names), amount))[self.index])

    def from_unit(self, unit: float) -> float:
        amount_K = self.shares.amounts(np.full(len(self.shares.names), float(unit)))
        amount, least = round(float(amount_K[self.index])), self.shares.least_K[self.index]
        if amount < least:  # with zeros
            amount = 0 if amount < least / 2 else int(least)
        number = float(self.shares.values(np.array(amount)))
        return int(number) if self.shares.whole else number

    def moved(self, value: Value, rng: Generator) -> float:
        """Make PBT's move: 0.8 or 1.2 times the value; the other shares make up for it."""
        number = float(cast(float, value)) * (GROW if rng.random() < 0.5 else SHRINK)
        return self.from_unit(self.to_unit(number))

    def grid(self, resolution: int) -> Sequence[float]:
        """Return the values of a grid."""
        numbers = self.shares.lattice(self.index, resolution)
        return [int(number) for number in numbers] if self.shares.whole else numbers


@dataclass(frozen=True)
class Marginal:
    """How one share is drawn without the others, about as it is among them."""

    share: Share

    def at_quantile(self, quantile: Array) -> Array:
        """Return the places in the unit interval at quantiles."""
        shares, index = self.share.shares, self.share.index
        row_QK = np.full((np.size(quantile), len(shares.names)), 0.6)
        row_QK[:, index] = np.ravel(quantile)
        place_Q = shares.units(shares.drawn(row_QK))[:, index]
        return place_Q.reshape(np.shape(quantile))

    def quantile(self, unit: Array) -> Array:
        """Return places as they are: shares are drawn together."""
        return unit


def groups_of(domains: Mapping[str, object]) -> list[Shares]:
    """Return the shares that are declared together."""
    found = (domain.shares for domain in domains.values() if isinstance(domain, Share))
    return [*dict.fromkeys(found)]


def balance(params: dict[str, Value], shares: Shares, held: Collection[str]) -> None:
    """Make the shares in a configuration add up, in place; without them nothing is done.

    Args:
        held: names of parameters that keep their values, as far as that is possible.
    """
    if shares.members[0] not in params or shares.problem(params) is None:
        return
    amount_K = np.array([float(cast(float, params[name])) for name in shares.members])
    held_K = np.array([name in held for name in shares.members])
    whole_K = shares.balanced(amount_K[None] / shares.quantum, held_K)[0]
    for name, amount, is_held, value in zip(
        shares.members, whole_K.tolist(), held_K, shares.values(whole_K).tolist(), strict=True
    ):
        if not is_held:
            params[name] = round(amount * (shares.step or 1)) if shares.whole else value
    missing = shares.total - math.fsum(float(cast(float, params[name])) for name in shares.members)
    if shares.step is None and held_K.any() and 0.0 < abs(missing) <= shares.quantum:
        _make_up(params, shares, held_K, missing)


def _make_up(params: dict[str, Value], shares: Shares, held_K: Mask, missing: float) -> None:
    """Add what held values between two quanta leave to the largest other share with room for it."""
    amount_K = np.array([float(cast(float, params[name])) for name in shares.members])
    moved_K = amount_K + missing
    has_room_K = (moved_K >= shares.low_K) & (moved_K <= shares.high_K) & (amount_K > 0.0)
    fitting_K = np.where(has_room_K & ~held_K, amount_K, -np.inf)
    if fitting_K.max() > 0.0:
        largest = int(fitting_K.argmax())
        params[shares.members[largest]] = float(moved_K[largest])


def partial_sums(shares: Shares, params: Params) -> bool:
    """Return whether the shares that a configuration lacks can still make up the total."""
    given = [float(cast(float, params[name])) for name in shares.members if name in params]
    left = range(len(given), len(shares.names))
    low = 0.0 if shares.zeros else sum(shares.low_K[index] for index in left)
    high = sum(shares.high_K[index] for index in left)
    rest, slack = shares.total - math.fsum(given), SUM_ERROR * shares.total
    return low - slack <= rest <= high + slack


def _flip(
    zero_NK: Mask, end_NK: Array, free_NK: Mask, quanta: int, order_NK: Array, revive: bool
) -> None:
    """Give up zeros until upper ends make up a total, or make zeros until lower ends fit in it."""
    for _ in range(zero_NK.shape[1]):
        reached_N = np.where(zero_NK, 0.0, end_NK).sum(axis=1)
        candidate_NK = free_NK & (zero_NK if revive else ~zero_NK)
        off_N = (reached_N < quanta) if revive else (reached_N > quanta)
        rows_N = np.flatnonzero(off_N & candidate_NK.any(axis=1))
        if not len(rows_N):
            return
        sign = 1.0 if revive else -1.0
        rank_MK = np.where(candidate_NK[rows_N], sign * order_NK[rows_N], -np.inf)
        zero_NK[rows_N, rank_MK.argmax(axis=1)] = not revive
