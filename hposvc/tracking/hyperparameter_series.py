"""The changing parameter values of a trial, as metric points over its steps.

A trial whose values never change has no such points. The first change also adds points for the
values at the beginning, so that they form a curve over all steps of the trial.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from hposvc.state.trial import Segment
from searchers import as_text, identity, is_number


@dataclass
class ParameterHistory:
    """The parameter values of a trial's segments, as far as they were seen."""

    searched: Sequence[str]
    _segment_starts: list[int] = field(default_factory=list)  # start of each segment, ms
    _returned: dict[str, int] = field(default_factory=dict)  # points of each name returned so far
    _segments: Sequence[Segment] = ()

    def add_segments(
        self, lives: Sequence[Segment], time: int
    ) -> Iterator[tuple[str, float, int, int]]:
        """Yield (name, value, ms, first step) of new values, as an order goes out at `time`."""
        self._segment_starts += [time] * (len(lives) - len(self._segment_starts))
        self._segments = list(lives)
        for name in self._changing_names():
            for number in range(self._returned.get(name, 0), len(lives)):
                value = lives[number].params.get(name)
                if is_number(value):
                    yield name, float(value), self._segment_starts[number], lives[number].after + 1
            self._returned[name] = len(lives)

    def current_values(self) -> Mapping[str, str]:
        """Return the present values of changing parameters; empty if none ever changed."""
        if not self._segments:
            return {}
        now = self._segments[-1].params
        return {name: as_text(now[name]) for name in self._changing_names() if name in now}

    def _changing_names(self) -> list[str]:
        """Return the names of searched or differing parameters; empty with a single segment."""
        if len(self._segments) < 2:
            return []
        names = dict.fromkeys(name for life in self._segments for name in life.params)
        values = {
            name: {identity(life.params.get(name)) for life in self._segments} for name in names
        }
        return [name for name in names if name in self.searched or len(values[name]) > 1]
