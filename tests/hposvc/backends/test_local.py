"""The local backend: a function, its checkpoints, its errors, and a resumed sweep."""

import os
import platform
import sys
import time

import pytest
from simulated_sweeps import make_controller, make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.local import LocalBackend
from hposvc.driver.loop import Runner
from hposvc.driver.proposals import BackgroundProposer
from hposvc.errors import Interrupted
from hposvc.events import Checkpointed, Ended, Failed, Ordered, Placed, Reported
from hposvc.journal.database import Store
from hposvc.journal.journal import Journal
from hposvc.journal.lease import Lease
from trainables.order import Order
from trainables.storage import checkpoint

CODE = '''
import os
import platform
import sys
from pathlib import Path
from trainables.stop_signals import StopTrial

SEEN = []

def train(params, worker):
    """Counts; the count travels in the checkpoint."""
    folder = worker.restore()
    count = int((folder / "count").read_text()) if folder else 0
    SEEN.append((worker.trial, worker.first, count))
    for step in worker.steps():
        count += 1
        saved = worker.scratch()
        (saved / "count").write_text(str(count))
        worker.report(step, {"loss": params["lr"] + 1 / count, "count": count}, checkpoint=saved)

def leaves(params, worker):
    sys.exit("enough")

def surroundings(params, worker):
    worker.report(1, {"loss": float(os.environ.get("MADE_UP", -1))})

def spoils(params, worker):
    """Fails once at step 3, and spoils the newest checkpoint as it goes."""
    for_good = worker.checkpoints / "spoiled"
    folder = worker.restore()
    count = int((folder / "count").read_text()) if folder else 0
    for step in worker.steps():
        if step == 3 and not for_good.exists():
            for_good.touch()
            (worker.checkpoints / worker.trial / "1-2" / "count").write_text("torn")
            raise OSError("the disk")
        count += 1
        saved = worker.scratch()
        (saved / "count").write_text(str(count))
        worker.report(step, {"loss": 1.0, "count": count}, checkpoint=saved)

def hesitant(params, worker):
    """Goes on for a while after it was told to stop, as a finally block may."""
    try:
        train(params, worker)
    except StopTrial:
        SEEN.append("stopped")
        raise
'''


def running_thread(local):
    """Return the thread of the only running order."""
    (running,) = local._running.values()
    return running.thread


@pytest.fixture
def module(tmp_path, monkeypatch):
    """Return the name of an importable module of trainables, new in each test."""
    name = f"local_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.fixture
def engine(tmp_path, module):
    """Return a function that makes backends for a trainable; all are closed at the end."""
    backends = []

    def make(function="train", **sections):
        spec = make_spec(engine="local", trainable=f"{module}:{function}", **sections)
        backends.append(LocalBackend(Setting("s", spec, tmp_path / "sweep", tmp_path)))
        return backends[-1]

    yield make
    for local in backends:
        local.close()


def order(until=3, first=1, milestones=(), start=None, number=1):
    return Order(number, "t0001", {"lr": 0.1}, start, first, until, milestones)


def await_events(engine, kind, seconds=20.0):
    """Return all events up to the first of a kind, without where orders run."""
    seen, deadline = [], time.monotonic() + seconds
    while time.monotonic() < deadline:
        seen += [event for event in engine.events(0.05) if not isinstance(event, Placed)]
        if seen and isinstance(seen[-1], kind):
            return seen
    raise TimeoutError(f"no {kind.__name__} came; only {seen}")


def test_an_order_says_where_it_runs(engine):
    local = engine()
    local.start(order(), {})
    [placed] = local.events(20.0)
    assert (placed.kind, placed.trial, placed.node) == ("placed", "t0001", platform.node())
    assert placed.device
    await_events(local, Ended)


def test_the_trainable_waits_until_its_report_was_taken(engine, module):
    local = engine()
    local.start(order(), {})
    await_events(local, Reported)
    assert local._messages.empty()
    assert running_thread(local).is_alive()
    assert [event.step for event in local.events(20.0) if isinstance(event, Reported)] == [2]


def test_a_trainable_that_exits_fails_instead_of_hanging(engine):
    local = engine("leaves")
    local.start(order(), {})
    [failed] = await_events(local, Failed)
    assert (failed.cause, failed.message.rstrip().splitlines()[-1]) == (
        "user",
        "trainables.runtime.assignment.TrainableExited: exit status 1: enough",
    )


def test_rank_0_sees_the_environment_of_its_order_and_no_other(engine):
    local = engine("surroundings")
    for number, value in enumerate([{"MADE_UP": "7"}, {}], 1):
        local.start(order(number=number), value)
        seen = await_events(local, Ended)
        assert [event.metrics["loss"] for event in seen[:-1]] == [float(value.get("MADE_UP", -1))]


def test_closing_stops_what_runs(engine, module):
    local = engine("hesitant")
    local.start(order(until=9), {})
    await_events(local, Reported)
    thread = running_thread(local)
    local.close()
    assert not thread.is_alive()
    assert sys.modules[module].SEEN[-1] == "stopped"
    assert local.capacity() == 0


def drive(journal, folder, spec, interrupted=lambda: False):
    controller = make_controller(spec)
    for _, event in journal.read("s"):
        controller.apply(event)
    runner = Runner(
        sweep="s",
        controller=controller,
        backend=LocalBackend(
            Setting("s", spec, folder / "sweep", folder, clock=controller.state.now)
        ),
        proposer=BackgroundProposer(spec, spec.searcher()),
        journal=journal,
        lease=Lease(journal.store, "s"),
        interrupted=interrupted,
        seq=journal.last("s"),
    )
    return runner.run("here:1")


@pytest.mark.parametrize("mode", ["stop", "promote"])
def test_a_sweep_resumes_from_its_checkpoints_after_an_interruption(tmp_path, module, mode):
    spec = make_spec(
        engine="local",
        trainable=f"{module}:train",
        trials={"max": 5},
        fidelity={"max": 9},
        scheduler={"type": "asha", "eta": 3, "mode": mode},
    )
    journal = Journal(Store(f"sqlite:///{tmp_path / 'x.db'}"))
    with pytest.raises(Interrupted):
        drive(journal, tmp_path, spec, lambda: journal.last("s") >= 12)
    state = drive(journal, tmp_path, spec)
    assert (state.state, len(state.trials)) == ("COMPLETED", 5)
    for trial in state.trials.values():
        assert trial.over
        assert [step for step, _ in trial.curve] == list(range(1, trial.step + 1))
        assert trial.metrics["count"] == trial.step  # no step was trained twice into the weights
    orders = [event.order for _, event in journal.read("s") if isinstance(event, Ordered)]
    assert any(order.start is not None for order in orders)
    expected = {saved.path for trial in state.trials.values() for saved in trial.usable()}
    folders = {str(path) for path in (tmp_path / "sweep" / "checkpoints").glob("t*/*")}
    journaled = {
        event.saved.path for _, event in journal.read("s") if isinstance(event, Checkpointed)
    }
    # A last checkpoint may be one that the first driver never took.
    assert folders & journaled == expected


def test_a_damaged_checkpoint_is_passed_over_for_an_older_one(tmp_path, module):
    """Starting from the broken checkpoint again and again would use up the retries."""
    spec = make_spec(
        engine="local",
        trainable=f"{module}:spoils",
        trials={"max": 1},
        fidelity={"max": 4},
        checkpoints={"keep_last": 2},
        failure={"user_retries": 1},
    )
    journal = Journal(Store(f"sqlite:///{tmp_path / 'x.db'}"))
    state = drive(journal, tmp_path, spec)
    assert state.state == "COMPLETED"
    orders = [event.order for _, event in journal.read("s") if isinstance(event, Ordered)]
    assert [order.first for order in orders] == [1, 3, 2]
    assert state.trials["t0001"].metrics["count"] == 4


def test_a_checkpoint_that_cannot_be_deleted_does_not_end_the_sweep(tmp_path, module, monkeypatch):
    """For example, a file that somebody holds open on a network file system."""

    def busy(saved):
        raise OSError(39, "Directory not empty", saved.path)

    monkeypatch.setattr(checkpoint, "remove", busy)
    spec = make_spec(
        engine="local", trainable=f"{module}:train", trials={"max": 1}, fidelity={"max": 4}
    )
    journal = Journal(Store(f"sqlite:///{tmp_path / 'x.db'}"))
    assert drive(journal, tmp_path, spec).state == "COMPLETED"


MEETING = """
import os
import time
from pathlib import Path

import hposvc

Path(os.environ["HPOSVC_TRIAL"]).touch()
deadline = time.monotonic() + 60
while not (Path("t0001").exists() and Path("t0002").exists()):
    assert time.monotonic() < deadline, "the other one has not come"
    time.sleep(0.01)
hposvc.report({"loss": float(os.environ["OWN"])})
"""


def test_programs_run_at_once_each_with_variables_of_its_own(tmp_path):
    (tmp_path / "meet.py").write_text(MEETING)
    spec = make_spec(
        engine="local",
        trainable=None,
        command=["python", "meet.py", "--lr=${lr}"],
        folder=str(tmp_path),
        fidelity=None,
        scheduler="fifo",
        trials={"max": 2, "parallel": 2},
        parameters={"lr": {"min": 0.0, "max": 1.0}},
    )
    local = LocalBackend(Setting("s", spec, tmp_path / "sweep", tmp_path))
    try:
        assert (local.slots(), local.capacity()) == (2, 2)
        for number, trial in ((1, "t0001"), (2, "t0002")):
            given = Order(number, trial, {"lr": 0.1}, None, 1, None)
            local.start(given, {"OWN": f"{number}"})
        assert local.capacity() == 0
        first, second = await_events(local, Ended, 90.0), []
        if sum(isinstance(event, Ended) for event in first) < 2:
            second = await_events(local, Ended, 90.0)
        reports = [event for event in first + second if isinstance(event, Reported)]
        assert {event.trial: event.metrics["loss"] for event in reports} == {
            "t0001": 1.0,
            "t0002": 2.0,
        }
        assert local.capacity() == 2
        assert local.set_slot_limit(1) == 1
        assert local.capacity() == 1
    finally:
        local.close()
    assert "OWN" not in os.environ
