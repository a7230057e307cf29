"""If these fail, samples are mixed up or loaded late, or processes stay behind and hold a GPU."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from counting import TRAINING, VALIDATION, Counting, once
from waiting import until

from trainables import StopTrial, Training, Worker
from trainables.data import Batch, Data, MapDataset, Source
from trainables.runtime import process_state
from trainables.worker import LocalLink

CPU = torch.device("cpu")
ORDER = torch.arange(20).flip(0).split(3)
SCRIPT = """
import os, torch
from trainables.data import MapDataset
source = MapDataset(lambda position: os.getpid(), length=9).to(torch.device("cpu"), torch.float32)
source.plan(torch.arange(9).split(1), 0)
print(*{source.batch(at)[0].item() for at in torch.arange(9).split(1)}, flush=True)
input()
"""


@pytest.fixture
def opened():
    """Yield a function that opens sources, and close them at the end."""
    sources: list[Source] = []

    def make(source: MapDataset) -> Source:
        sources.append(source.to(CPU, torch.float64))
        return sources[-1]

    yield make
    for source in sources:
        source.close()


def who(position: int) -> tuple[int, float]:
    return position, float(os.getpid())


def chances(position: int) -> tuple[float, float, float]:
    return torch.rand(()).item(), float(np.random.rand()), random.random()


def taken(source: Source, batches: object = ORDER, seed: int = 0) -> list[Batch]:
    source.plan(iter(batches), seed)
    return [source.batch(at_B) for at_B in batches]


def test_what_was_planned_is_loaded_by_its_processes_in_order(opened):
    source = opened(MapDataset(who, prefetch=1, length=20))
    for _ in range(2):
        batches = taken(source)
        assert torch.cat([numbers for numbers, _ in batches]).tolist() == list(range(20))[::-1]
        pids = {pid for _, makers in batches for pid in makers.tolist()}
        assert len(pids) == 2
        assert os.getpid() not in pids
    assert len(source) == 20


def test_what_was_not_planned_is_loaded_too_and_the_plan_goes_on(opened):
    source = opened(MapDataset(who, length=20))
    source.plan(ORDER, 0)
    source.batch(ORDER[0])
    numbers, makers = source.batch(torch.tensor([4, 4, 0]))
    assert numbers.tolist() == [4, 4, 0]
    assert set(makers.tolist()) == {os.getpid()}
    for at_B in ORDER[1:3]:
        numbers, makers = source.batch(at_B)
        assert numbers.tolist() == at_B.tolist()
        assert os.getpid() not in makers.tolist()
    halves = [half for at_B in ORDER[3:] for half in at_B.tensor_split(2)]
    batches = taken(source, halves)
    assert torch.cat([numbers for numbers, _ in batches]).tolist() == torch.cat(halves).tolist()
    assert os.getpid() not in torch.cat([makers for _, makers in batches]).tolist()


def test_random_numbers_depend_on_seed_and_position_alone(opened):
    def drawn(workers, batches, seed):
        loaded = taken(opened(MapDataset(chances, workers=workers, length=20)), batches, seed)
        values = {}
        for at_B, columns in zip(batches, loaded, strict=True):
            rows = torch.stack(columns, dim=1).tolist()
            values |= dict(zip(at_B.tolist(), map(tuple, rows), strict=True))
        return values

    first = drawn(1, ORDER, 7)
    assert drawn(2, torch.arange(20).split(4), 7) == first
    assert len({value for row in first.values() for value in row}) == 60
    assert not set(drawn(1, ORDER, 8).values()) & set(first.values())
    unplanned = opened(MapDataset(chances, length=20))
    unplanned.plan((), 7)
    assert tuple(column.item() for column in unplanned.batch(torch.tensor([5]))) == first[5]


@dataclass(frozen=True)
class Ending(Counting):
    """A task failing in the middle of its second evaluation."""

    def evaluate(self, model, batch):
        if self.folder.exists():
            raise OSError("the disk is gone")
        self.folder.touch()
        return super().evaluate(model, batch)


class Incomplete(Counting):
    """A data set lacking some of its samples."""

    def load_data(self):
        def missing(position: int) -> tuple[int, float]:
            if position == 30:
                raise OSError("sample 30 is not there")
            return position, 0.0

        return Data(*(MapDataset(missing, length=number) for number in (TRAINING, VALIDATION)))


def test_processes_end_with_the_order_however_it_ends(tmp_path):
    before, handler = process_state.baseline(), signal.getsignal(signal.SIGCHLD)
    Counting(source="loaded").train(Worker.alone(until=2))
    assert process_state.difference(before, process_state.baseline()) == []
    assert signal.getsignal(signal.SIGCHLD) == handler
    with pytest.raises(StopTrial):
        Counting(source="loaded").train(replace(Worker.alone(until=2), link=LocalLink(stop_at=1)))
    with pytest.raises(OSError, match="the disk is gone"):
        Ending(source="loaded", folder=tmp_path / "once").train(Worker.alone(until=2))
    with pytest.raises(OSError, match="sample 30 is not there") as held:
        Incomplete().train(Worker.alone())
    assert process_state.difference(before, process_state.baseline()) == []
    assert held.tb is not None  # it refers to all that was under way


def test_processes_end_with_a_rank_that_is_killed():
    rank = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path.cwd())},
        text=True,
    )
    pids = [int(pid) for pid in rank.stdout.readline().split()]
    assert len(pids) == 2
    assert all(Path(f"/proc/{pid}").exists() for pid in pids)
    rank.kill()
    rank.wait()
    # A worker would look for its parent itself every 5 s.
    until(lambda: not any(alive(pid) for pid in pids), patience_s=3)


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    try:
        return stat.read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_process_that_is_killed_is_an_error_and_no_hang(opened):
    def fatal(position: int) -> int:
        if position == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        return position

    source = opened(MapDataset(fatal, length=20))
    with pytest.raises(RuntimeError, match="process that loads samples was killed"):
        taken(source)


def test_what_is_loaded_follows_micro_batches_that_were_halved():
    class Watched(MapDataset):
        def to(self, device, dtype):
            source = super().to(device, dtype)
            load = source.batch

            def batch(at_B):
                columns = load(at_B)
                if len(self) == TRAINING:
                    makers.append((len(at_B), os.getpid() in columns[1].tolist()))
                return columns

            source.batch = batch
            return source

    @dataclass(frozen=True)
    class Halving(Counting):
        def load_data(self):
            return Data(*(Watched(who, length=number) for number in (TRAINING, VALIDATION)))

    makers: list[tuple[int, bool]] = []
    own = Worker.alone(until=2, training=Training(precision="64-true"))
    Halving(source="loaded", most=3).train(own)
    means = [(report.metrics["train/loss"], report.metrics["val/loss"]) for report in own.reports]
    assert means == [(once(TRAINING), once(VALIDATION))] * 2
    assert own.reports[-1].metrics["train/accumulate"] == 4
    here = [size for size, own_process in makers if own_process]
    assert here == [4, 2, 2, 2, 1]  # of the update that did not fit; its first try was planned
    assert sum(size for size, _ in makers) == 2 * TRAINING + 7 + 4


@dataclass(frozen=True)
class Stumbling(Counting):
    """A task whose loss is NaN once."""

    def compute_losses(self, model, batch):
        losses = super().compute_losses(model, batch)
        if 30 in batch[0] and not self.folder.exists():
            self.folder.touch()
            return losses * float("nan")
        return losses


def test_a_way_back_loads_the_epoch_again(tmp_path):
    own = replace(Worker.alone(until=2, training=Training(precision="64-true")), nan="rollback")
    Stumbling(source="loaded", folder=tmp_path / "once").train(own)
    means = [(report.metrics["train/loss"], report.metrics["val/loss"]) for report in own.reports]
    assert means == [(once(TRAINING), once(VALIDATION))] * 2
    assert own.reports[0].metrics["train/rollbacks"] == 1


def slow(position: int) -> tuple[int, float]:
    end = time.thread_time() + 2e-3
    while time.thread_time() < end:
        pass
    return position, 0.0


@dataclass(frozen=True)
class Slow(Counting):
    def load_data(self):
        return Data(MapDataset(slow, workers=1, length=9), MapDataset(slow, workers=1, length=1))


def test_every_report_says_which_share_of_training_waited_for_data():
    shares = {}
    for task in (Slow(source="loaded"), Slow(source="loaded", batch=9), Counting()):
        own = Worker.alone(until=2)
        task.train(own)
        shares[task.batch, task.source] = [
            report.metrics["perf/data_wait_fraction"] for report in own.reports
        ]
    assert all(0.1 < share <= 1 for share in shares[7, "loaded"] + shares[9, "loaded"])
    assert shares[7, "tensors"] == [0.0, 0.0]
