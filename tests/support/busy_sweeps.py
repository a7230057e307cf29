"""Sweeps whose slots have several trials at once, and what their journals say."""

from engines import await_none, in_slots

from hposvc import api
from hposvc import spec as specs
from hposvc.events import Ordered, Reported


def run(home, sections):
    """Run a sweep to its end, and return its events."""
    sweeps = api.Sweeps.open(home)
    row = api.create(sweeps, specs.load(sections))
    api.drive(sweeps, row)
    assert api.load(sweeps, row.id).status().state == "COMPLETED"
    events = [event for _, event in sweeps.journal.read(row.id)]
    await_none(lambda: in_slots(home))
    return events


def curves(events):
    """Return the validation losses by trial and step."""
    curves_by_trial = {}
    for event in events:
        if isinstance(event, Reported):
            curves_by_trial.setdefault(event.trial, {})[event.step] = event.metrics["val/loss"]
    return curves_by_trial


def most_at_once(events):
    """Return the largest number of orders that were under way at the same time."""
    running, largest = set(), 0
    for event in events:
        if isinstance(event, Ordered):
            running.add(event.order.id)
        elif type(event).__name__ in ("Ended", "Failed"):
            running.discard(event.order)
        largest = max(largest, len(running))
    return largest
