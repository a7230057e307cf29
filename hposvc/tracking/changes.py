"""The values of a trial that changes them as it goes, as points over its steps.

A trial whose values never change has no such points. The first change brings those of the
beginning, too, so that the values are a line over all of its steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hposvc.trial import Life
from searchers.values import Value, identity, is_number


@dataclass
class Changes:
    """What one trial's lives were seen to hold."""

    searched: Sequence[str]
    _began: list[int] = field(default_factory=list)  # when each life did, ms
    _told: dict[str, int] = field(default_factory=dict)  # points of each name so far
    _lives: Sequence[Life] = ()

    def follow(self, lives: Sequence[Life], time: int) -> Iterator[tuple[str, float, int, int]]:
        """Name, value, time and first step of what is new, as an order goes out at `time`."""
        self._began += [time] * (len(lives) - len(self._began))
        self._lives = list(lives)
        for name in self._names():
            for number in range(self._told.get(name, 0), len(lives)):
                value = lives[number].params.get(name)
                if is_number(value):
                    yield name, float(value), self._began[number], lives[number].after + 1
            self._told[name] = len(lives)

    def present(self) -> Mapping[str, str]:
        """The values that may change, as they are now; empty where none ever did."""
        if not self._lives:
            return {}
        now = self._lives[-1].params
        return {name: str(now[name]) for name in self._names() if name in now}

    def _names(self) -> list[str]:
        """Where there are several lives: what is searched, and what differs between them."""
        if len(self._lives) < 2:
            return []
        known = dict.fromkeys(name for life in self._lives for name in life.params)
        return [name for name in known if name in self.searched or self._differs(name)]

    def _differs(self, name: str) -> bool:
        values: list[Value] = [life.params.get(name) for life in self._lives]
        return any(identity(value) != identity(values[0]) for value in values)
