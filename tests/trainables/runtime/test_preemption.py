"""SIGTERM to real ranks. If these fail, a spot node takes hours of training with it."""

import os
import signal
import subprocess
import sys

import pytest
from two_ranks import ROOT, started

from trainables.link import CheckpointSaved, Report
from trainables.order import Order
from trainables.programs.command import Command
from trainables.runtime.assignment import Assignment, Outcome
from trainables.runtime.wire import PreemptionStarted
from trainables.storage.checkpoint import verify
from trainables.training import Training

TRAINABLES = """
import time
from dataclasses import dataclass
import torch
from torch import nn
from trainables.data import Data, Tensors
from trainables.task import Task

@dataclass(frozen=True)
class Slow(Task):
    lr: float = 0.1
    batch: int = 4

    def build_model(self):
        return nn.Linear(2, 1)

    def load_data(self):
        x_N2, y_N = torch.ones(240, 2), torch.ones(240)
        return Data(Tensors(x_N2, y_N), Tensors(x_N2[:4], y_N[:4]))

    def compute_losses(self, model, batch):
        time.sleep(0.05)
        return (model(batch[0])[:, 0] - batch[1]) ** 2

def reports(params, worker):
    for step in worker.steps():
        time.sleep(0.05)
        folder = worker.scratch()
        (folder / "step").write_text(str(step))
        worker.report(step, {"loss": 1.0}, checkpoint=folder)

def at_its_last(params, worker):
    worker.report(2, {"loss": 1.0})
    time.sleep(1)
    worker.report(3, {"loss": 1.0})
"""
PROGRAM = """
import signal, sys, time
print("loss=1", flush=True)
signal.signal(signal.SIGTERM, lambda *_: sys.exit("told"))
print("loss=2", flush=True)
while True:
    time.sleep(0.01)
"""
FORKS = """
import os, signal, time
from trainables.runtime.preemption import SigtermHandler

told = []
watch = SigtermHandler(told.append)
with watch.during(7):
    ours, theirs = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(theirs, b"up")  # Python drops what comes before
        while True:  # it handles what comes just before a sleep after that
            time.sleep(0.01)
    os.read(ours, 2)
    os.kill(child, signal.SIGTERM)
    died_of = os.WTERMSIG(os.waitpid(child, 0)[1])
    assert not watch.notice.given
    os.kill(os.getpid(), signal.SIGTERM)
    while not told:
        time.sleep(0.01)
print(died_of == signal.SIGTERM, told, flush=True)
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(600)
"""


def warned(slot, until=3, start=None, at=1, rank=None):
    """Return the messages of an order; `rank`, if any, gets SIGTERM when step `at` is reported."""
    first = 1 if start is None else start.step + 1
    slot.leader.carry_out(Assignment(Order(1, "t0001", {}, start, first, until, ())))
    messages = []
    while not messages or not isinstance(messages[-1], Outcome):
        messages.append(slot.next_message())
        if rank is not None and isinstance(messages[-1], Report) and messages[-1].step == at:
            slot.ranks[rank].send_signal(signal.SIGTERM)
    return messages


def only(kind, said):
    return [message for message in said if isinstance(message, kind)]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    file = tmp_path_factory.mktemp("mine") / "mine.py"
    file.write_text(TRAINABLES)
    return file


@pytest.mark.full
def test_a_task_keeps_the_updates_of_a_step_that_sigterm_cuts_short(file, tmp_path):
    """With peers of hposvc, the whole step is lost, or the order counts as failed by its code."""
    task = {"trainable": f"{file}:Slow", "total": 2, "metrics": ("val/loss",)}
    (tmp_path / "first").mkdir()
    with started(tmp_path / "first", **task) as two:
        messages = warned(two, until=2, rank=1)
    assert [report.step for report in only(Report, messages)] == [1]
    assert [message.why for message in only(PreemptionStarted, messages)] == [
        "rank 1 was told to end (SIGTERM)"
    ]
    end = messages[-1]
    assert (end.kind, end.clean) == ("preempt", True)
    assert end.leaks == ("it was told to end (SIGTERM)",)
    saved = only(CheckpointSaved, messages)[-1].saved
    assert saved.step == 1
    assert 0 < saved.within < 60
    verify(saved)
    (tmp_path / "second").mkdir()
    with started(tmp_path / "second", world_size=1, training=Training("single"), **task) as single:
        messages = warned(single, until=2, start=saved)
    assert [report.step for report in only(Report, messages)] == [2]
    assert messages[-1].kind == "ended"


def test_a_function_ends_at_its_next_report_with_that_checkpoint(file, tmp_path):
    with started(tmp_path, trainable=f"{file}:reports", total=999, every=500) as two:
        messages = warned(two, until=999, rank=0, at=2)
    last = only(Report, messages)[-1]
    assert 2 <= last.step < 999
    assert last.checkpoint.step == last.step  # which no other step's is, of those before the 500th
    assert all(report.checkpoint is None for report in only(Report, messages)[:2])
    assert messages[-1].kind == "preempt"
    assert messages[-1].clean


@pytest.mark.full
def test_an_order_that_is_at_its_last_step_ends_as_it_should(file, tmp_path):
    """The step is done; doing it again would be a waste."""
    alone = {"world_size": 1, "training": Training("single")}
    with started(tmp_path, trainable=f"{file}:at_its_last", **alone) as slot:
        messages = warned(slot, rank=0, at=2)
    assert [report.step for report in only(Report, messages)] == [2, 3]
    assert messages[-1].kind == "ended"
    assert messages[-1].leaks, "the process is not to be used again"


@pytest.mark.long
def test_a_program_is_told_to_end_too(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(PROGRAM)
    command = Command(("python", str(script)), "rank", r"loss=(?P<loss>\S+)", 20.0)
    alone = {"world_size": 1, "training": Training("single"), "command": command}
    with started(tmp_path, total=9, **alone) as slot:
        messages = warned(slot, until=9, rank=0, at=2)
    assert [report.step for report in only(Report, messages)] == [1, 2]
    assert messages[-1].kind == "preempt"


def test_forked_children_and_idle_ranks_end_at_sigterm_as_ever():
    """multiprocessing ends its children by SIGTERM, and waits for their end."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.stdout == "True [7]\n", done.stderr
    assert done.returncode == -signal.SIGTERM
