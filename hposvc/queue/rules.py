"""The operator's rules of the queue: weights and quotas of queues, users and projects."""

from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import Field

from hposvc.spec.parsing.coercion import fill
from hposvc.spec.types import CLOSED, Name, Seconds, Word

Amount = Annotated[float, Field(ge=0)]


@dataclass(frozen=True)
class Quota:
    """The most that sweeps may hold at once together."""

    gpus: Amount | None = None  # None: no limit
    cpus: Amount | None = None
    __pydantic_config__ = CLOSED

    @property
    def amounts(self) -> dict[str, float]:
        """The limits, by Ray's names of the resources."""
        limits = {"GPU": self.gpus, "CPU": self.cpus}
        return {name: limit for name, limit in limits.items() if limit is not None}


@dataclass(frozen=True)
class Member(Quota):
    """A queue, or a user: its quota, and its weight beside its like."""

    weight: Amount | None = None  # None: that of the heaviest of its sweeps
    __pydantic_config__ = CLOSED


@dataclass(frozen=True)
class Rules:
    """How sweeps share a cluster; as it is here, there are no rules but the sweeps' own weights."""

    half_life: Annotated[Seconds, Field(ge=1)] = 24 * 3600.0  # after which slot time counts half
    # How long a sweep may be ahead of its share before another takes the slot at a rung: the
    # shorter, the closer to the weights at any moment, and the more often trials change slots.
    max_ahead: Annotated[Seconds, Field(ge=1)] = 300.0
    queues: dict[Name, Member] = field(default_factory=dict)
    users: dict[Word, Member] = field(default_factory=dict)
    projects: dict[Name, Quota] = field(default_factory=dict)
    __pydantic_config__ = CLOSED

    @classmethod
    def of(cls, data: dict[str, Any]) -> "Rules":
        """Return the rules in JSON data."""
        return fill(cls, data)
