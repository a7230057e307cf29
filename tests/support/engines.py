"""A test bench for engines: tests give orders by hand, and wait for their events."""

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from agent_clients import open_bench
from waiting import until

from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.events import Checkpointed, Ended, Failed, Placed, Reported
from hposvc.spec import registry
from hposvc.spec.engines import ENGINES
from trainables.order import Order

ALONE = ("local", "agents")  # engines that are given one order at a time here
PATIENCE_S = 360.0  # for anything to happen on a loaded machine


def make_spec(engine, ranks=1, **sections):
    """Two slots of one rank, or one of several, that run `toys.obedient`."""
    simulated = {"type": "simulate", "curve": "toys:obedient_curve"}
    return specs.load(
        {
            **({} if engine == "simulate" else {"trainable": "toys:obedient"}),
            "engine": simulated if engine == "simulate" else engine,
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"max": 1000},
            "parameters": {"lr": 0.1},
            "search": "random",
            "trials": {"max": 9, "parallel": 1 if ranks > 1 or engine in ALONE else 2},
            "resources": {"workers": ranks, "cpus_per_worker": 0.5},
            **sections,
        }
    )


@dataclass
class Bench:
    """An engine, and the events of each order that it was given."""

    name: str
    ranks: int
    backend: object
    seen: dict
    folder: Path

    @classmethod
    def of(cls, name, ranks, folder, home, **sections):
        spec = make_spec(name, ranks, **sections)
        setting = Setting(f"{name}-{ranks}", spec, folder, home)
        backend = registry.resolve(ENGINES[name].backend_for(ranks))
        opened = open_bench(backend, setting, folder) if name == "agents" else backend(setting)
        return cls(name, ranks, opened, {}, folder)

    @property
    def real(self):
        """Whether ranks run in their own processes."""
        return self.name in ("ray", "tune") or self.ranks > 1

    def start(self, until=3, first=1, start=None, milestones=(), trial=None, **params):
        """Wait for a free slot, give it an order, and return the order's number."""
        self.wait(lambda: self.backend.capacity() > 0)
        number = len(self.seen) + 1
        self.seen[number] = []
        params = {"lr": 0.1, **params}
        name = trial or f"t{number:04d}"
        self.backend.start(Order(number, name, params, start, first, until, milestones), {})
        return number

    def pump(self, timeout_s=0.05):
        for event in self.backend.events(timeout_s):
            if not isinstance(event, Placed):  # backends that simulate do not know
                self.seen[event.order].append(event)

    def wait(self, holds):
        """Collect events until the condition holds."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert time.monotonic() < deadline, self.seen
            self.pump()

    def finish(self, *orders):
        """Wait for the end of orders, and return an order's events; of several, a list each."""
        self.wait(lambda: all(self.over(order) for order in orders))
        return (
            self.seen[orders[0]] if len(orders) == 1 else [self.seen[number] for number in orders]
        )

    def over(self, order):
        return any(isinstance(event, Ended | Failed) for event in self.seen[order])

    def reach(self, order, step):
        """Wait for an order's report of a step."""
        self.wait(lambda: step in steps(self.seen[order]) or self.over(order))
        assert step in steps(self.seen[order]), self.seen[order]


def steps(events):
    return [event.step for event in events if isinstance(event, Reported)]


def kinds(events):
    return [event.kind for event in events]


def losses(events):
    return [round(event.metrics["loss"], 6) for event in events if isinstance(event, Reported)]


def pids(*orders):
    """Return the ids of the processes in which orders ran."""
    reports = [event for events in orders for event in events if isinstance(event, Reported)]
    return {int(report.metrics["pid"]) for report in reports}


def saved(events):
    """Return the last checkpoint of an order."""
    return [event.saved for event in events if isinstance(event, Checkpointed)][-1]


def living(pids):
    """Return the running processes among these, with their command lines."""
    return {pid: command for pid in pids if (command := _command(pid))}


def in_slots(home):
    """Return the processes of slots in a home's Ray, with their command lines."""
    daemon = json.loads((home / "ray" / "address.json").read_text())["pid"]
    children = psutil.Process(daemon).children(recursive=True)
    slots = re.compile(r"ray::(Rank|SlotTrial|\S+/slot-)")
    commands = living(child.pid for child in children)
    return {pid: command for pid, command in commands.items() if slots.match(command)}


def await_none(found):
    """Wait until the function finds nothing."""
    until(lambda: not found(), found)


def _command(pid):
    try:
        process = psutil.Process(pid)
        return "" if process.status() == psutil.STATUS_ZOMBIE else " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""
