"""A coordinator and real ranks of a slot, without Ray, for tests."""

import os
import pickle
import queue
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from forks import FORKS

from trainables.link import CheckpointSaved, DataDeclared
from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome, SlotConfig, log_file
from trainables.runtime.coordinator import Coordinator, Switchboard
from trainables.runtime.ranks import Rank
from trainables.runtime.wire import OrderPlaced, Ready
from trainables.training import Training

WAIT_S = 240  # for a message; pytest's own limit for a test is 300
DEAD_S = 20
STALL_S = 60.0  # ranks that wait for each other are to say where, not to take all of WAIT_S
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

    @staticmethod
    def lead(place, say):
        return Coordinator(place.world_size, say, place.stall_s)

    def next_message(self):
        """Return the coordinator's next message; where ranks have died, do not wait for long."""
        deadline = time.monotonic() + WAIT_S
        while True:
            with suppress(queue.Empty):
                return self.said.get(timeout=1)
            dead = [number for number, rank in enumerate(self.ranks) if not is_alive(rank)]
            if dead:  # what they said before may be on its way
                deadline = min(deadline, time.monotonic() + DEAD_S)
            assert time.monotonic() < deadline, f"no message; of the ranks, {dead} have died"

    def order(self, params, until=3, milestones=(), start=None):
        """Carry out an order, and return its reports and how it ended."""
        self.number += 1
        first = 1 if start is None else start.step + 1
        task = Assignment(Order(self.number, "t0001", params, start, first, until, milestones))
        self.leader.carry_out(task)
        reports = []
        while not isinstance(message := self.next_message(), Outcome):
            if isinstance(message, CheckpointSaved):
                self.kept.append(message)
            if isinstance(message, CheckpointSaved | DataDeclared | OrderPlaced):
                continue
            reports.append(message)
            if message.step in milestones:
                self.leader.decide(self.number, "stop")
        if message.kind == "stalled":
            for rank in range(len(self.ranks)):
                sys.stderr.write(self.log(rank))  # where each rank waits, if the test fails
        return reports, message

    def log(self, rank):
        """Return the output of a rank during the last order."""
        return log_file(self.folder, "t0001", self.number, rank).read_text()


def is_alive(rank):
    """Return whether the process of a rank runs."""
    try:
        return rank.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


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
def started(folder, begin=forked, kind=Slot, **fields):
    """Start a slot of two ranks, or as many as its configuration says."""
    given = {"trainable": "", "training": Training("ddp"), "total": 3, "world_size": 2}
    given |= {"metrics": ("loss",), "every": 1, "seed": 0, "folder": folder / "sweep"}
    given |= {"stall_s": STALL_S}
    place = SlotConfig(**{**given, **fields})
    board, messages = Switchboard("127.0.0.1"), queue.Queue()
    leader = kind.lead(place, messages.put)
    board.connect("s", leader)
    ranks = [begin(rank, place, board.call("s")) for rank in range(place.world_size)]
    slot = kind(leader, messages, place.folder, ranks)
    try:
        assert slot.next_message() == Ready()
        yield slot
    finally:
        for rank in ranks:
            with suppress(psutil.NoSuchProcess):
                rank.kill()
            rank.wait()
        board.close()
