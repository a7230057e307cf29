"""A sweep for the screen of `watch`: a list of events in place of a journal."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from sweep_stories import trial, trial_name

from hposvc import spec as specs
from hposvc.events import Attached, DriverState, Event, Failed
from hposvc.journal.follow import Follow
from hposvc.journal.journal import SweepRow
from hposvc.state.sweep import SweepState


@dataclass
class EventList:
    """A source of one sweep; a test appends events."""

    events: list[Event] = field(default_factory=list)
    driver: DriverState = "alive"
    log: str = "epoch 1\n"
    reads: list[int] = field(default_factory=list)  # after which event each read began

    def read(self, sweep: str, after: int) -> Iterator[tuple[int, Event]]:
        self.reads.append(after)
        yield from enumerate(self.events[after:], after + 1)

    def driver_of(self, row: SweepRow) -> DriverState:
        return self.driver

    def waiting_of(self, row: SweepRow) -> None:
        return None

    def log_parts(
        self, row: SweepRow, trial: str, rank: int | None, most: int, *of: int | None
    ) -> list[dict[str, Any]]:
        return [{"text": f"{trial}: {self.log}"[-most:]}]

    def find(self, name: str) -> Any:
        raise NotImplementedError

    follow = record_of = find


def failing(count: int) -> list[Event]:
    """Return the events of so many trials that all fail."""
    events: list[Event] = [Attached(0.0, "here:1")]
    for number in range(1, count + 1):
        message = "Traceback\nValueError: no luck"
        failed = Failed(number + 0.5, number, trial_name(number), "user", message)
        events += trial(number, [], float(number), end=failed)
    return events


def watched(spec: specs.SweepSpec, events: Sequence[Event]) -> tuple[EventList, Follow[SweepState]]:
    """Return a source and its sweep with these events, looked at once."""
    row = SweepRow("digits-1", "digits", "demo", 0.0, specs.dump(spec), {})
    source = EventList([*events])
    follow = Follow(source, row, lambda: SweepState(spec))
    follow.look()
    return source, follow


def state_of(spec: specs.SweepSpec, events: Sequence[Event]) -> SweepState:
    """Return the state of a sweep with these events."""
    return watched(spec, events)[1].state
