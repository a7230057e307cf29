"""An agent's ranks: processes that stay warm, and are gone with whoever started them."""

import queue
import time
from dataclasses import replace

import psutil
import pytest
from engines import PATIENCE_S, await_none, make_spec

from hposvc.backends.backend import Setting
from hposvc.backends.process.rank_commands import LocalLauncher
from hposvc.backends.process.rank_group import Exited, RankGroup
from trainables.link import Report
from trainables.order import Order
from trainables.runtime.assignment import Assignment, Outcome
from trainables.runtime.coordinator import Switchboard
from trainables.runtime.wire import Ready


class Slot:
    """A group, and the messages that it has posted."""

    def __init__(self, folder, ranks=1, **sections):
        self.inbox = queue.Queue()
        config = Setting("s", make_spec("local", **sections), folder, folder).slot_config()
        config = replace(config, world_size=ranks)
        self.group = RankGroup(
            "s/agent-1",
            config,
            LocalLauncher(),
            Switchboard("127.0.0.1"),
            lambda group, message: self.inbox.put(message),
            gpus=0,
            cpus=1,
        )
        self.group.launch()

    def wait(self, kind):
        deadline = time.monotonic() + PATIENCE_S
        while not isinstance(message := self.inbox.get(timeout=deadline - time.monotonic()), kind):
            assert not isinstance(message, Exited), message.why
        return message

    def start(self, number, until=3, **params):
        order = Order(number, f"t{number:04d}", {"lr": 0.1, **params}, None, 1, until)
        self.group.coordinator.carry_out(Assignment(order))

    def finish(self, number, **params):
        self.start(number, **params)
        return self.wait(Outcome)

    @property
    def pids(self):
        return [process.pid for process in self.group._processes]


@pytest.fixture
def make_slot(tmp_path):
    slots = []

    def make(*args, **sections):
        slots.append(Slot(tmp_path, *args, **sections))
        slots[-1].wait(Ready)
        return slots[-1]

    yield make
    for slot in slots:
        slot.group.kill()


def test_ranks_carry_out_one_order_after_the_other_in_one_process(make_slot):
    slot = make_slot(trainable="toys:steady")
    slot.start(1)
    first = slot.wait(Report).metrics["pid"]
    assert slot.wait(Outcome).kind == "ended"
    slot.start(2)
    assert slot.wait(Report).metrics["pid"] == first


@pytest.mark.full
def test_a_killed_group_leaves_no_process_behind(make_slot):
    slot = make_slot(2, trainable="toys:ddp")
    slot.start(1, until=1000)
    slot.wait(Report)
    slot.group.kill()
    await_none(lambda: [pid for pid in slot.pids if psutil.pid_exists(pid)])


def test_the_exit_of_a_rank_is_posted_with_its_signal(make_slot):
    slot = make_slot(trainable="toys:steady")
    psutil.Process(slot.pids[0]).kill()
    exited = slot.wait(Exited)
    assert exited.why == "rank 0 was killed by SIGKILL (out of memory?)"
    assert (exited.rank, exited.code) == (0, -9)
