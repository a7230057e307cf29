"""Sweeps of engine agents for tests: recorded in a home, and driven in a thread."""

import threading
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from simulated_sweeps import Lab, make_spec

from hposvc import api
from hposvc.backends.agents import Agents
from hposvc.errors import Interrupted
from hposvc.journal.agents import AgentMailbox
from hposvc.journal.database import Store


def agents_spec(**sections):
    """Return the spec of four trials of three steps, two at once, that agents carry out."""
    sections = {"fidelity": {"max": 3}, "trials": {"max": 4, "parallel": 2}, **sections}
    return make_spec(**{"engine": "agents", "tracking": {"send_to": []}, **sections})


@contextmanager
def quick_store():
    """Yield a store in memory, if the machine has a file system there."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        store = Store(f"sqlite:///{folder}/x.db")
        yield store
        store.close()


def backend_on(store, backend=Agents):
    """Return what makes a backend with a mailbox in the store."""
    return lambda setting: backend(replace(setting, mailbox=AgentMailbox(store, setting.sweep)))


@contextmanager
def driven(home, sweep="s", **sections):
    """Record a sweep in a home, and drive it in a thread until the block is left."""
    sweeps = api.Sweeps.open(home)
    spec = agents_spec(**sections)
    api.create(sweeps, spec, sweep)
    lab, ends = Lab(sweeps.journal, home), threading.Event()

    def drive():
        with suppress(Interrupted):
            lab.run(spec, sweep, backend_on(sweeps.journal.store), interrupted=ends.is_set)

    thread = threading.Thread(target=drive)
    thread.start()
    try:
        yield lab
    finally:
        ends.set()
        thread.join()
