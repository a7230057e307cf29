"""What the benchmark asks of a searcher, and how most libraries see a space: as axes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from searchers import Choice, Constant, Float, Int, Space

Params = Mapping[str, Any]  # a configuration; inactive parameters are absent


class Method(Protocol):
    """A search in progress."""

    def ask(self) -> tuple[Params, Any]:
        """A configuration, and by what it is known to `tell`."""
        ...

    def tell(self, asked: Any, loss: float) -> None: ...

    def add(self, params: Params, loss: float) -> None:
        """Take in a result that was not asked for."""
        ...


@dataclass(frozen=True)
class Axis:
    """A parameter as most libraries know them: a range of numbers, or labels.

    Ordered choices are integers from 0 on.
    """

    name: str
    domain: Float | Int | Choice

    @property
    def kind(self) -> Literal["float", "int", "label"]:
        if isinstance(self.domain, Choice):
            return "int" if self.domain.ordered else "label"
        return "int" if isinstance(self.domain, Int) else "float"

    @property
    def low(self) -> Any:
        return 0 if isinstance(self.domain, Choice) else self.domain.low

    @property
    def high(self) -> Any:
        return self.domain.count - 1 if isinstance(self.domain, Choice) else self.domain.high

    @property
    def log(self) -> bool:
        return not isinstance(self.domain, Choice) and self.domain.log

    @property
    def labels(self) -> list[str]:
        """The labels of a choice, which are its values' places; none of a range."""
        values = self.domain.values if isinstance(self.domain, Choice) else ()
        return [str(place) for place in range(len(values))]

    def forward(self, value: Any) -> Any:
        """What the library calls a value."""
        if not isinstance(self.domain, Choice):
            return value
        index = self.domain.index(value)
        return index if self.domain.ordered else str(index)

    def backward(self, value: Any) -> Any:
        """The value that the library means; rounding may have taken it past an end."""
        if isinstance(self.domain, Choice):
            return self.domain.values[int(value)]
        if self.kind == "int":
            return min(max(round(value), self.low), self.high)
        return min(max(float(value), self.low), self.high)


def axes(space: Space) -> dict[str, Axis]:
    """The searched parameters, parents before children."""
    domains = {name: space[name] for name in space.searched}
    return {
        name: Axis(name, domain)
        for name, domain in domains.items()
        if not isinstance(domain, Constant)  # none of them is, which the type does not say
    }


def active(space: Space, full: Params) -> dict[str, Any]:
    """A configuration without what is inactive in it."""
    names = space.active(full)
    return {name: value for name, value in full.items() if name in names}


def filled(space: Space, params: Params) -> dict[str, Any]:
    """A configuration in which what is inactive has the middle of its range."""
    return {name: params.get(name, space[name].from_unit(0.5)) for name in space.searched}
