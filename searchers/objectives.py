"""Goals, and the conversion between values in the user's sign and losses.

Axes: K objectives. The sign is flipped here and nowhere else.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

import numpy as np
from numpy.typing import NDArray

Outcome = float | Sequence[float] | NDArray[np.float64]  # a list for several objectives
MAX_OBJECTIVES = 4  # the exact hypervolume of more costs too much


@dataclass(frozen=True)
class Objectives:
    """The sign of each objective's loss: 1 where values are minimized, -1 where maximized."""

    signs: tuple[float, ...]

    @classmethod
    def of(cls, goal: str | Sequence[str]) -> "Objectives":
        """Return the objectives of `minimize`, `maximize`, or a list of 2 to 4 such words."""
        goals = (goal,) if isinstance(goal, str) else tuple(goal)
        if not isinstance(goal, str) and not 2 <= len(goals) <= MAX_OBJECTIVES:
            raise ValueError(
                f"goal is {list(goals)}; give one word, or a list of 2 to {MAX_OBJECTIVES}"
            )
        for word in goals:
            if word not in ("minimize", "maximize"):
                raise ValueError(f"goal is {word!r}; write minimize or maximize")
        return cls(tuple(1.0 if word == "minimize" else -1.0 for word in goals))

    @property
    def are_several(self) -> bool:
        """Whether a value is a list."""
        return len(self.signs) > 1

    def losses(self, value: object, verb: str) -> tuple[float, ...]:
        """Return the loss of each objective, lower is better; `verb` names the call in errors.

        Raises:
            ValueError: the value is no number, or no list with a number for each objective.
        """
        if isinstance(value, np.ndarray) and value.ndim == 0:
            value = value.item()
        if not self.are_several:
            if isinstance(value, Sequence | np.ndarray) and not isinstance(value, str):
                raise ValueError(
                    f"{verb}: value is {value!r}, but there is one goal; give a number"
                )
            if not is_number(value):
                raise ValueError(f"{verb}: value is {value!r}; give a number, or None if it failed")
            return (self.signs[0] * float(value),)
        hint = f"give a list of {len(self.signs)} numbers, one for each goal"
        if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
            raise ValueError(f"{verb}: value is {value!r}; {hint}, or None if it failed")
        if len(value) != len(self.signs):
            raise ValueError(f"{verb}: there are {len(value)} values in {list(value)}; {hint}")
        for number in value:
            if not is_number(number):
                raise ValueError(f"{verb}: {number!r} is among the values; {hint}")
        return tuple(sign * float(number) for sign, number in zip(self.signs, value, strict=True))

    def in_user_sign(self, losses: Sequence[float]) -> float | tuple[float, ...]:
        """Return the value in the user's sign: a number, or a tuple for several objectives."""
        values = tuple(sign * loss for sign, loss in zip(self.signs, losses, strict=True))
        return values if self.are_several else values[0]


def is_number(value: object) -> TypeGuard[float]:
    """Return whether `value` is a number of Python or numpy, NaN and infinity included."""
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def are_finite(losses: Sequence[float]) -> bool:
    """Return whether no loss is NaN or infinite."""
    return all(map(math.isfinite, losses))
