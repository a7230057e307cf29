"""What the orders of a process wait for, and who makes it for several of them at once."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from trainables.link import Link, Unanswered


@dataclass(eq=False)
class Wanted:
    """Something that an order waits for."""

    error: BaseException | None = field(default=None, init=False)  # why it could not be made


@dataclass
class PassedOn:
    """A link that passes on to another one what needs no answer."""

    link: Link

    def tell(self, message: Unanswered) -> None:
        self.link.tell(message)

    def beat(self) -> None:
        self.link.beat()

    def once(self, name: str, work: Callable[[], str]) -> str:
        return self.link.once(name, work)


class Maker(Protocol):
    """Makes what orders wait for."""

    @property
    def for_all(self) -> bool:
        """Whether it is made once all orders wait, also those that await the controller."""
        ...

    def make(self, waiting: Sequence[Any]) -> Sequence[Wanted]:
        """Make some of this, and return it. No order has its turn."""
        ...

    def forget(self) -> None:
        """Let go of all that is kept: an order has ended."""
        ...


class TooManyTrials(Exception):
    """Memory ran out for several trials at once; so many may fit."""

    def __init__(self, trials: int, most: int, error: BaseException) -> None:
        text = f"{trials} trials at once did not fit into memory; from now on {most}: {error}"
        super().__init__(text)
        self.most = most
