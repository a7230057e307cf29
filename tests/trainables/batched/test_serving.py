"""A leader and a real process that trains several trials at once, without Ray.

If these fail, trials of a sweep with training.batched get others' results, or take others along.
"""

import os
import pickle
import queue
import signal
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from small import EXACT, Small

from trainables import Worker
from trainables.batched.leading import BatchLeader
from trainables.checkpoints.checkpoint import verify
from trainables.slots.assignment import Assignment, Place
from trainables.slots.leader import Switchboard
from trainables.slots.wire import Finished, Kept, Leaving, Ready, Reported, Used
from trainables.training import Training

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
WAIT_S = 120
LONG = 3000  # epochs: nobody waits for the last
RANK = """
import os, pickle, sys
from trainables.slots.ranks import Rank
place, call = pickle.load(open(sys.argv[1], "rb"))
Rank(0, place).serve(call)
os._exit(0)
"""


class Slot:
    """The process, and what its leader says of each order."""

    def __init__(self, leader, said, place, rank):
        self.leader, self.said, self.place, self.number = leader, said, place, 0
        self.rank = rank
        self.kept, self.leaving = {}, []  # the last checkpoint that came without a report

    def start(self, params, start=None, until=3, milestones=()):
        self.number += 1
        first = 1 if start is None else start.step + 1
        trial = f"t{self.number:04}"
        task = Assignment(self.number, trial, params, start, first, until, milestones)
        self.leader.carry_out(task)
        return self.number

    def finish(self, *orders, stops=()):
        """What each of these reported, and how it ended."""
        reports, ends = {order: [] for order in orders}, {}
        while ends.keys() != set(orders):
            message = self.said.get(timeout=WAIT_S)
            if isinstance(message, Finished):
                ends[message.order] = message
            elif isinstance(message, Reported):
                reports[message.order].append(message)
                if (message.order, message.step) in stops:
                    self.leader.decide(message.order, "stop")
            elif isinstance(message, Kept):
                self.kept[message.order] = message.saved
            elif isinstance(message, Leaving):
                self.leaving.append(message.why)
            else:
                assert isinstance(message, Used)
        return [(reports[order], ends[order]) for order in orders]


@contextmanager
def started(folder, **changes):
    """A slot of four trials at once."""
    place = Place(
        trainable=f"{HERE / 'small.py'}:Small",
        training=Training(precision="64-true", batched=4),
        metrics=("val/loss",),
        total=3,
        every=1,
        seed=5,
        folder=folder / "sweep",
    )
    place = replace(place, **changes)
    board, said = Switchboard("127.0.0.1"), queue.Queue()
    board.connect("s", leader := BatchLeader(said.put, place.stall_s))
    (folder / "rank").write_bytes(pickle.dumps((place, board.call("s"))))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", RANK, str(folder / "rank")]
    rank = subprocess.Popen(command, cwd=ROOT, env=environment)
    try:
        assert said.get(timeout=WAIT_S) == Ready()
        yield Slot(leader, said, place, rank)
    finally:
        rank.kill()
        rank.wait()
        board.close()


@pytest.fixture(scope="module")
def slot(tmp_path_factory):
    """One for many tests."""
    with started(tmp_path_factory.mktemp("slot")) as slot:
        yield slot


def alone(slot, order, params):
    """The validation losses of the same trial in a process of its own."""
    worker = Worker.alone(until=3, seed=slot.place.seed * 1_000_003 + order, training=EXACT)
    Small(**params).train(worker)
    return [report.metrics["val/loss"] for report in worker.reports]


def losses(reports):
    return [report.metrics["val/loss"] for report in reports]


def test_more_orders_than_train_at_once_come_to_what_they_come_to_alone(slot):
    chosen = [{"lr": 0.01 * k, "dropout": 0.1 * k} for k in range(1, 7)]
    orders = [slot.start(params) for params in chosen]
    found = slot.finish(*orders)
    for (reports, end), order, params in zip(found, orders, chosen, strict=True):
        assert end.failure is None
        assert end.clean
        assert not end.residues
        assert losses(reports) == pytest.approx(alone(slot, order, params), rel=1e-12)
        assert reports[-1].saved is not None


def test_a_trial_is_stopped_at_its_milestone_and_goes_on_in_another_order(slot):
    first = slot.start({"lr": 0.02}, milestones=(1,))
    other = slot.start({"lr": 0.03}, until=3)
    (stopped, end), (whole, _) = slot.finish(first, other, stops=[(first, 1)])
    assert [report.step for report in stopped] == [1]
    assert end.failure is None
    assert [report.step for report in whole] == [1, 2, 3]
    again = slot.start({"lr": 0.02}, start=stopped[0].saved)
    [(rest, end)] = slot.finish(again)
    assert end.failure is None
    assert [report.step for report in rest] == [2, 3]


def test_what_cannot_train_with_the_others_is_told_and_the_others_go_on(slot):
    orders = [slot.start({"lr": 0.01}), slot.start({"width": 9}), slot.start({"lr": "fast"})]
    (good, well), (_, shape), (_, broken) = slot.finish(*orders)
    assert well.failure is None
    assert len(good) == 3
    assert shape.failure.kind == broken.failure.kind == "user"
    assert "fields that differ are width" in shape.failure.message
    assert "TypeError" in broken.failure.message or "ValueError" in broken.failure.message
    [(later, end)] = slot.finish(slot.start({"width": 9}))  # alone it may
    assert end.failure is None
    assert len(later) == 3


def test_a_checkpoint_that_was_changed_is_told_as_that(slot):
    [(reports, _)] = slot.finish(slot.start({"lr": 0.01}))
    saved = reports[0].saved
    (Path(saved.path) / "training.pt").write_bytes(b"torn")
    good, bad = slot.start({"lr": 0.01}), slot.start({"lr": 0.01}, start=saved)
    (_, well), (_, end) = slot.finish(good, bad)
    assert well.failure is None
    assert end.failure.kind == "damaged"


@pytest.mark.parametrize("told", ["SIGTERM", "leave"])
def test_trials_whose_process_is_to_end_keep_the_epoch_that_they_are_at(tmp_path, told):
    """Peers: a spot node takes all trials of a process back to their last checkpoints."""
    params = [{"lr": 0.01 * k} for k in (1, 2, 3)]
    with started(tmp_path, every=LONG, total=LONG) as slot:
        orders = [slot.start(each, until=LONG) for each in params]
        last = {}
        while last.keys() != set(orders):
            message = slot.said.get(timeout=WAIT_S)
            if isinstance(message, Reported):
                last[message.order] = message.step
        if told == "SIGTERM":
            slot.rank.send_signal(signal.SIGTERM)
        else:
            slot.leader.leave("Ray drains the node")
        found = slot.finish(*orders)
        why = "Ray drains the node" if told == "leave" else "the rank was told to end (SIGTERM)"
        assert slot.leaving == [why]
        for (reports, end), order in zip(found, orders, strict=True):
            assert (end.failure.kind, end.failure.message, end.clean) == ("preempt", why, True)
            last |= {report.order: report.step for report in reports}
            assert slot.kept[order].step == last[order] < LONG
            verify(slot.kept[order])
        assert found[-1][1].residues == ("it was told to end (SIGTERM)",)
    (tmp_path / "next").mkdir()
    steps = slot.kept[1].step + 3
    with started(tmp_path / "next", every=LONG, total=LONG) as other:
        order = other.start(params[0], start=slot.kept[1], until=steps)
        [(reports, end)] = other.finish(order)
    assert end.failure is None
    worker = Worker.alone(until=LONG, seed=5 * 1_000_003 + 1, training=EXACT)
    worker.until = steps
    Small(**params[0]).train(worker)
    whole = [report.metrics["val/loss"] for report in worker.reports]
    assert losses(reports) == pytest.approx(whole[-3:], rel=1e-12)


def test_an_order_that_comes_while_the_process_is_to_end_is_given_back(tmp_path):
    """It was on its way: it has nothing to keep, and must not train into the end."""
    with started(tmp_path, every=LONG, total=LONG) as slot:
        first = slot.start({"lr": 0.01}, until=LONG)
        slot.said.get(timeout=WAIT_S)
        slot.leader.leave("Ray drains the node")
        late = slot.start({"lr": 0.02}, until=LONG)
        [_, (reports, end)] = slot.finish(first, late)
    assert (reports, end.failure.kind) == ([], "preempt")
    assert late not in slot.kept
