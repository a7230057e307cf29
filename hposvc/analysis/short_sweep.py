"""Run a short sweep on a spec's own engine with a temporary journal: it measures, and is gone."""

import os
import socket
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hposvc.backends.backend import Backend, Setting
from hposvc.controller.controller import Controller
from hposvc.driver.driver import interruptible
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import SyncProposer
from hposvc.events import Event
from hposvc.journal.database import Store
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from hposvc.spec import SweepSpec, registry
from hposvc.state.sweep import SweepState


@dataclass(frozen=True)
class ShortSweep:
    """Outcome of a short sweep."""

    state: SweepState
    events: Sequence[Event]
    slots: int  # trials at once that the engine has room for


def run(spec: SweepSpec, name: str, home: Home, address: str | None) -> ShortSweep:
    """Run a sweep with a temporary journal, and return its state and its events.

    Args:
        name: of the sweep, for processes and logs.
        address: of a Ray cluster; None: start Ray on this machine.

    Raises:
        OutOfReach: the cluster can never provide the resources.
        Interrupted: by Ctrl-C.
    """
    with tempfile.TemporaryDirectory(prefix="hposvc-") as folder, interruptible() as interrupted:
        place = Path(folder)
        setting = Setting(
            name,
            spec,
            place,
            home.path,
            address,
            secrets=spec.environment.reveal(os.environ),
            runtime_env=spec.environment.runtime_env,
        )
        journal = Journal(Store(f"sqlite:///{place / 'journal.db'}"))
        path = spec.engine.traits.backend_for(spec.resources.ranks)
        backend: Backend = registry.resolve(path)(setting)
        slots = backend.slots()
        try:
            state = Runner(
                sweep=name,
                controller=Controller(spec, registry.build(registry.SCHEDULERS, spec.scheduler)),
                backend=backend,
                proposer=SyncProposer(spec, spec.searcher()),
                journal=journal,
                lease=Lease(journal.store, name),
                interrupted=interrupted.is_set,
            ).run(f"{socket.gethostname()}:{os.getpid()}")
            events = [event for _, event in journal.read(name)]
        finally:
            journal.store.close()
    return ShortSweep(state, events, slots)
