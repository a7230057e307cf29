"""A sweep by a simulated clock, and what its journal says of it."""

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.simulate import Simulation
from hposvc.controller.controller import Controller
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.events import Event
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.spec import registry


def sweep(given: Mapping[str, Any], curve: Callable[..., object]) -> list[Event]:
    """Run the sweep of a spec on a learning curve; returns its events, in that clock's order."""
    engine = {"type": "simulate", "curve": f"{curve.__module__}:{curve.__name__}"}
    spec = specs.check({**given, "engine": engine})
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        journal = Journal(Store(f"sqlite:///{folder / 'journal.db'}"))
        Runner(
            "race",
            Controller(spec, registry.build(registry.SCHEDULERS, spec.scheduler)),
            Simulation(Setting("race", spec, folder, folder)),
            SyncProposer(spec, spec.searcher()),
            journal,
            Lease(journal.store, "race"),
        ).run("race:1")
        events = [event for _, event in journal.read("race")]
        journal.store.close()
    return events
