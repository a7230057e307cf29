"""Run a sweep the way its users do, and read what happened from the journal."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hposvc import Sweep
from hposvc.api import Sweeps
from hposvc.events import Event


def run(**spec: Any) -> list[Event]:
    """Run a sweep to its end in this process's home; its journal."""
    return _journal(Sweep(**spec))


def run_file(file: Path, changes: Mapping[str, Any]) -> list[Event]:
    """Run the sweep of a file, with the values at the dotted keys of `changes`; its journal."""
    return _journal(Sweep.load(file, changes))


def times_of(events: Iterable[Event], kind: str) -> list[float]:
    """When events of a kind happened, seconds since the epoch."""
    return [event.time for event in events if event.kind == kind]


def _journal(sweep: Sweep) -> list[Event]:
    result = sweep.run(progress=False)
    return [event for _, event in Sweeps.open().journal.read(result.sweep)]
