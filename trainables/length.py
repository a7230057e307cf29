"""The length of a Task's training: what a step is, and how many updates steps take. No torch."""

import re
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property

COUNTED = ("update", "sample", "token")  # units of which a trial has very many
ENDLESS = 2**40  # updates of an epoch, where samples never end
# The name `step`, a spec's default, says nothing; for a Task it means an epoch.
PARTS = re.compile(r"(?:epoch|step)(?:/([1-9][0-9]*))?", re.ASCII)


def parts_of_epoch(unit: str) -> int | None:
    """Return into how many steps a unit of fidelity divides an epoch; None: it counts something.

    Raises:
        ValueError: a Task's length can't be measured in this unit.
    """
    if unit in COUNTED:
        return None
    if (match := PARTS.fullmatch(unit)) is None:
        matches = get_close_matches(unit, (*COUNTED, "epoch"), n=1)
        hint = f"; did you mean {matches[0]!r}?" if matches else ""
        raise ValueError(
            f"is {unit!r}, and a Task measures its length in epoch, in parts of one such as "
            f"epoch/10, or in update, sample or token{hint}"
        )
    return int(match[1] or 1)


@dataclass(frozen=True)
class Length:
    """The steps of a trial, in the unit of the sweep's fidelity, and the updates of its epochs."""

    unit: str
    steps: int  # of the complete trial
    batch: int
    epoch_updates: int
    epoch_samples: int

    def __post_init__(self) -> None:
        if self.is_counted:
            return
        if self.epoch_updates == ENDLESS:
            raise ValueError(
                f"fidelity.unit is {self.unit}, but the training samples are a stream without "
                "length, so there are no epochs; measure in update, sample or token, or give the "
                "stream a length"
            )
        if self.parts > self.epoch_updates:
            raise ValueError(
                f"fidelity.unit is {self.unit}, but an epoch has {self.epoch_updates} updates "
                f"(batch: {self.batch}); divide it into fewer parts, or measure in update"
            )

    @cached_property
    def parts(self) -> int:
        """The steps of an epoch, where a step is a part of one."""
        return parts_of_epoch(self.unit) or 1

    @property
    def is_counted(self) -> bool:
        """Whether a step is no part of an epoch; an update may be several steps then."""
        return self.unit in COUNTED

    @property
    def counts_tokens(self) -> bool:
        """Whether the number of updates depends on the elements of their losses."""
        return self.unit == "token"

    def updates(self, steps: int) -> int:
        """Return after how many updates so many steps are done; not for tokens."""
        if self.unit == "update":
            return steps
        if self.unit == "sample":
            return self.updates_of(steps)
        epochs, rest = divmod(steps, self.parts)
        return epochs * self.epoch_updates + rest * self.epoch_updates // self.parts

    def updates_of(self, samples: int) -> int:
        """Return after how many updates so many samples are trained on."""
        epochs, rest = divmod(samples, self.epoch_samples)
        return epochs * self.epoch_updates + -(-rest // self.batch)

    def samples(self, updates: int) -> int:
        """Return the number of samples in so many updates."""
        epochs, rest = divmod(updates, self.epoch_updates)
        return epochs * self.epoch_samples + min(rest * self.batch, self.epoch_samples)

    def progress(self, updates: int, tokens: float) -> float:
        """Return the share of the complete trial that is done, by its updates and their tokens."""
        if self.unit == "token":
            return tokens / self.steps
        if self.unit == "sample":
            return self.samples(updates) / self.steps
        if self.unit == "update":
            return updates / self.steps
        epochs, rest = divmod(updates, self.epoch_updates)
        return (epochs + rest / self.epoch_updates) * self.parts / self.steps
