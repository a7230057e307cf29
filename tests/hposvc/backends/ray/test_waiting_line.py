"""The line of waiting sweeps, in the store of a real Ray. If these fail, a sweep may starve."""

import os
import subprocess
import sys
import threading

import psutil
import pytest
from simulated_sweeps import spec_of

from cluster import launch
from hposvc import api
from hposvc.backends.ray import waiting_line
from hposvc.backends.ray.waiting_line import Ticket, WaitingLine

pytestmark = pytest.mark.ray


@pytest.fixture
def joined(home):
    connection = launch.connect(home / "ray")
    yield
    connection.close()


def names(tickets):
    return [ticket.sweep for ticket in tickets]


def test_a_sweep_sees_those_that_arrived_earlier_whoever_enters_first(joined):
    late, early, middle = (WaitingLine(f"at-{at}", at) for at in (30.0, 9.5, 20.0))
    assert late.wait(["CPU"], ["a"]) == []
    assert early.wait(["CPU"], ["a"]) == []
    assert names(middle.wait(["CPU"], ["a"])) == ["at-9.5"]
    assert names(late.wait(["CPU"], ["a"])) == ["at-9.5", "at-20.0"]
    assert names(early.others()) == ["at-20.0", "at-30.0"]
    for line in (early, middle, late):
        line.leave()
    assert WaitingLine("other", 50.0).others() == [], "nothing is left in the cluster's store"


def test_a_silent_driver_is_passed_over_and_keeps_its_place_when_it_wakes(joined, monkeypatch):
    frozen, live, other = (WaitingLine(f"at-{at}", at) for at in (1.0, 2.0, 3.0))
    frozen.wait(["CPU"], ["a"])
    live.wait(["CPU"], ["a"])
    assert names(other.wait(["CPU"], ["a"])) == ["at-1.0", "at-2.0"]
    monkeypatch.setattr(waiting_line, "STALE_S", -1.0)
    live.wait(["CPU"], ["a"])
    assert names(other.wait(["CPU"], ["a"])) == ["at-2.0"]
    frozen.wait(["CPU"], ["a"])
    live.wait(["CPU"], ["a"])
    assert names(other.wait(["CPU"], ["a"])) == ["at-1.0", "at-2.0"]
    for line in (frozen, live, other):
        line.leave()


def test_only_what_an_earlier_sweep_lacks_is_left_to_it():
    """A sweep that waits for a GPU must not keep free cores idle."""
    waits_for_gpu = Ticket("gpu", ["GPU"], ["a", "b"])
    assert not waits_for_gpu.blocks(["CPU"], ["a"])
    assert waits_for_gpu.blocks(["CPU", "GPU"], ["b", "c"])
    assert not waits_for_gpu.blocks(["CPU", "GPU"], ["c"])


class Driver:
    """A driver in a process of its own."""

    def __init__(self, home, sweep):
        self.sweep, self.waits, self.said = sweep, threading.Event(), []
        command = [sys.executable, "-m", "hposvc", "--home", str(home), "resume", sweep]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        self.process = subprocess.Popen(
            command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for line in self.process.stderr:
            self.said.append(line)
            if "waiting for" in line:
                self.waits.set()


@pytest.mark.full
@pytest.mark.long
def test_sweeps_are_served_in_the_order_of_their_arrival(home, sweeps, tmp_path):
    """Ray places the newest group first. A driver that is killed while waiting holds up no one."""
    gate = tmp_path / "gate"
    cores = psutil.cpu_count()

    def create(gate):
        spec = spec_of(
            "toys:waits_at_a_gate",
            fidelity={"max": 1},
            parameters={"gate": f"{gate}", "lr": {"min": 0.1, "max": 0.2}},
            trials={"max": 2},
            resources={"cpus_per_worker": cores / 2},
        )
        return api.create(sweeps, spec)

    open_gate = tmp_path / "open"
    open_gate.touch()
    ids = [create(open_gate).id for _ in range(3)]

    class AtStart:
        """Starts the others once both slots of the first sweep are at work."""

        def __init__(self):
            self.drivers, self.thread = [], None

        def on_events(self, state, events):
            if self.thread is None and len(state.running()) == 2:
                self.thread = threading.Thread(target=self.start)
                self.thread.start()

        def start(self):
            try:
                for sweep in ids:
                    self.drivers.append(Driver(home, sweep))
                    assert self.drivers[-1].waits.wait(90), self.drivers[-1].said
                self.drivers[1].process.kill()
                self.drivers[1].process.wait()
            finally:
                gate.touch()

    watcher = AtStart()
    api.drive(sweeps, create(gate), [watcher])
    watcher.thread.join()
    first, _, last = watcher.drivers
    assert [first.process.wait(120), last.process.wait(120)] == [0, 0], (first.said, last.said)
    assert any(f"behind sweeps {ids[0]}, {ids[1]}" in line for line in last.said), last.said

    def began(sweep):
        return [e.time for _, e in sweeps.journal.read(sweep) if e.kind == "ordered"]

    assert max(began(ids[0])) < min(began(ids[2]))
    assert began(ids[1]) == []
