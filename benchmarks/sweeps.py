"""Run a sweep the way its users do, and read what happened from the journal."""

from collections.abc import Sequence
from typing import Any

from hposvc import api
from hposvc import spec as specs
from hposvc.api import Sweeps
from hposvc.events import Event


def run(**spec: Any) -> list[Event]:
    """Run a sweep to its end in this process's home; its journal."""
    s = Sweeps.open()
    api.drive(s, api.create(s, specs.load(spec)))
    journal = Sweeps.open().journal
    return [event for _, event in journal.read(journal.sweeps()[0].id)]


def times_of(events: Sequence[Event], kind: str) -> list[float]:
    """When events of a kind happened, seconds since the epoch."""
    return [event.time for event in events if event.kind == kind]
