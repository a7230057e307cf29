"""A coordinator and real ranks of a slot, without Ray, for tests."""

import os
import pickle
import queue
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from forks import FORKS

from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome, SlotConfig, log_file
from trainables.runtime.coordinator import Coordinator, Switchboard
from trainables.runtime.ranks import Rank
from trainables.runtime.wire import CheckpointSaved, DataDeclared, OrderPlaced, Ready
from trainables.training import Training

WAIT_S = 120
ROOT = Path(__file__).parents[2]
RANK = """
import os, pickle, sys
from trainables.runtime.ranks import Rank
rank, place, call = pickle.load(open(sys.argv[1], "rb"))
Rank(rank, place).serve(call)
os._exit(0)
"""


class Slot:
    """The ranks of a slot, and the messages of their coordinator."""

    def __init__(self, leader, said, folder, ranks):
        self.leader, self.said, self.number = leader, said, 0
        self.folder, self.ranks = folder, ranks  # of the sweep; their processes
        self.kept = []  # checkpoints without a report

    def order(self, params, until=3, milestones=(), start=None):
        """Carry out an order, and return its reports and how it ended."""
        self.number += 1
        first = 1 if start is None else start.step + 1
        task = Assignment(Order(self.number, "t0001", params, start, first, until, milestones))
        self.leader.carry_out(task)
        reports = []
        while not isinstance(message := self.said.get(timeout=WAIT_S), Outcome):
            if isinstance(message, CheckpointSaved):
                self.kept.append(message)
            if isinstance(message, CheckpointSaved | DataDeclared | OrderPlaced):
                continue
            reports.append(message)
            if message.step in milestones:
                self.leader.decide(self.number, "stop")
        return reports, message

    def log(self, rank):
        """Return the output of a rank during the last order."""
        return log_file(self.folder, "t0001", self.number, rank).read_text()


def serve(environment, rank, place, call):
    """Run a rank until it is told to end."""
    os.chdir(ROOT)
    os.environ.clear()
    os.environ.update(environment)
    Rank(rank, place).serve(call)
    os._exit(0)


def forked(rank, place, call):
    """Start a rank by forking a process that has imported torch."""
    process = FORKS.Process(target=serve, args=(dict(os.environ), rank, place, call))
    process.start()
    return psutil.Process(process.pid)


def fresh(rank, place, call):
    """Start a rank in a new interpreter, as Ray does."""
    file = place.folder.parent / f"rank{rank}"
    file.write_bytes(pickle.dumps((rank, place, call)))
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return psutil.Popen([sys.executable, "-c", RANK, str(file)], cwd=ROOT, env=environment)


@contextmanager
def started(folder, begin=forked, **fields):
    """Start a slot of two ranks, or as many as its configuration says."""
    given = {"trainable": "", "training": Training("ddp"), "total": 3, "world_size": 2}
    given |= {"metrics": ("loss",), "every": 1, "seed": 0, "folder": folder / "sweep"}
    place = SlotConfig(**{**given, **fields})
    board, messages = Switchboard("127.0.0.1"), queue.Queue()
    board.connect("s", leader := Coordinator(place.world_size, messages.put, place.stall_s))
    ranks = [begin(rank, place, board.call("s")) for rank in range(place.world_size)]
    try:
        assert messages.get(timeout=WAIT_S) == Ready()
        yield Slot(leader, messages, place.folder, ranks)
    finally:
        for rank in ranks:
            with suppress(psutil.NoSuchProcess):
                rank.kill()
            rank.wait()
        board.close()
