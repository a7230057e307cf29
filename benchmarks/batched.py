"""Trials that train at once in one process, beside one after the other, and one a process.

What is counted are trial-epochs a second: updates, evaluation and report of a trial's step, on
scikit-learn's digits. Each process has one thread. Each round, all ways take a turn.

    python benchmarks/batched.py
    python benchmarks/batched.py --model cnn --rounds 20
    python benchmarks/batched.py --device cuda --at-once 1 8 32 64 256
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import NamedTuple

import torch
from tables import figure, heading, median, spread, table
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from trainables import Data, Task, Worker
from trainables.data import Batch as Samples
from trainables.environment import keep_freed_memory
from trainables.trainer.fit import prepare
from trainables.vmapped.batch import Batch
from trainables.zoo.digits import DigitsCNN, digits

EPOCHS = 10**6  # of which there is no end
ALONE = 0  # so many at once: one session after the other, without a batch


@dataclass(frozen=True)
class DigitsMLP(Task):
    """Two hidden layers."""

    width: int = 64

    def build_model(self) -> nn.Module:
        hidden = [
            nn.Linear(64, self.width),
            nn.ReLU(),
            nn.Linear(self.width, self.width),
            nn.ReLU(),
        ]
        return nn.Sequential(nn.Flatten(), *hidden, nn.Linear(self.width, 10))

    def load_data(self) -> Data:
        return digits()

    def compute_losses(self, model: nn.Module, batch: Samples) -> Tensor:
        images, labels_B = batch
        return cross_entropy(model(images), labels_B, reduction="none")


MODELS: dict[str, Callable[[float], Task]] = {
    "mlp": lambda lr: DigitsMLP(lr=lr),
    "cnn": lambda lr: DigitsCNN(lr=lr, width=8),
}


@dataclass(frozen=True)
class Way:
    """How trials are trained."""

    name: str
    at_once: int  # in a process; ALONE: without a batch
    processes: int


class Pace(NamedTuple):
    """Trial-epochs a second, by two clocks."""

    wall: float
    cpu: float  # of the processes' own time: it cares little what else the machine does


class Trials:
    """Some that train in this process, an epoch of all of them at a time."""

    def __init__(self, model: str, at_once: int, gpu: bool) -> None:
        self._stack = ExitStack()
        self.each = max(at_once, 1)
        self.epoch: Callable[[], object]
        tasks = [MODELS[model](1e-3 * (1 + k % 8)) for k in range(self.each)]
        alone = [Worker.alone(until=EPOCHS, seed=k) for k in range(self.each)]
        workers = [replace(worker, every=EPOCHS, gpu=gpu) for worker in alone]
        if at_once == ALONE:
            self._session = self._stack.enter_context(prepare(tasks[0], workers[0]))
            self._step = 0
            self.epoch = self._one
            return
        batch = self._stack.enter_context(Batch(self.each))
        for task, worker in zip(tasks, workers, strict=True):
            batch.add(task, worker)
        self.epoch = batch.epoch

    def _one(self) -> None:
        self._step += 1
        tallies = self._session.train_steps(self._step, self._step)
        self._session.report(self._step, {**tallies, **self._session.evaluate()})


def live(line: Connection, model: str, gpu: bool) -> None:
    """Train as the other end of the line says: so many at once, so long."""
    torch.set_num_threads(1)
    keep_freed_memory()
    made: dict[int, Trials] = {}
    while order := line.recv():
        at_once, seconds = order
        if at_once not in made:
            made[at_once] = Trials(model, at_once, gpu)
            made[at_once].epoch()  # the first is none like the others
        trials, epochs = made[at_once], 0
        begun, begun_cpu = time.perf_counter(), time.process_time()
        while (spent := time.perf_counter() - begun) < seconds:
            trials.epoch()
            epochs += 1
        line.send((trials.each * epochs, spent, time.process_time() - begun_cpu))


def measure(ways: list[Way], arguments: argparse.Namespace) -> dict[str, list[Pace]]:
    """The pace of each way, by round."""
    context = multiprocessing.get_context("spawn")
    lines, processes = [], []
    for _ in range(max(way.processes for way in ways)):
        near, far = context.Pipe()
        target = partial(live, far, arguments.model, arguments.device == "cuda")
        processes.append(context.Process(target=target, daemon=True))
        processes[-1].start()
        lines.append(near)
    found: dict[str, list[Pace]] = {way.name: [] for way in ways}
    for number in range(arguments.rounds + 1):
        for way in ways:
            at_work = lines[: way.processes]
            for line in at_work:
                line.send((way.at_once, arguments.turn if number else 0.1))
            turns = [line.recv() for line in at_work]
            wall = sum(epochs / spent for epochs, spent, _ in turns)
            cpu = sum(epochs for epochs, _, _ in turns) / sum(taken for _, _, taken in turns)
            if number:  # the first round is to make what is needed
                found[way.name].append(Pace(wall, cpu))
    for line, process in zip(lines, processes, strict=True):
        line.send(None)
        process.join()
    return found


def rows(ways: list[Way], found: dict[str, list[Pace]]) -> list[list[str]]:
    """A row a way; ratios are taken round by round."""
    lines = []
    for way in ways:
        pairs = list(zip(found[way.name], found[ways[0].name], strict=True))
        lines.append(
            [
                way.name,
                str(way.processes),
                figure(median([own.wall for own, _ in pairs]), 1),
                spread([own.wall / one.wall for own, one in pairs]),
                spread([own.cpu / one.cpu for own, one in pairs]),
            ]
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description="Trials at once, and one by one")
    parser.add_argument("--model", choices=MODELS, default="mlp")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--at-once", type=int, nargs="+", default=[1, 8, 32, 64])
    parser.add_argument("--processes", type=int, help="that share the machine; one a core, or GPU")
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--turn", type=float, default=1.0, help="seconds of a way in a round")
    arguments = parser.parse_args()
    cores = os.cpu_count() or 1
    processes = arguments.processes or (1 if arguments.device == "cuda" else cores)
    ways = [Way("one after the other", ALONE, 1)]
    ways += [Way(f"{number} at once", number, 1) for number in arguments.at_once]
    if processes > 1:
        most = max(arguments.at_once)
        ways.append(Way("one a process", ALONE, processes))
        ways.append(Way(f"{most} at once in each process", most, processes))
    text = heading(("torch",))
    found = measure(ways, arguments)
    head = ["trials", "processes", "trial-epochs/s", "of one after the other", "by CPU time"]
    print(f"{text}\n{table(head, rows(ways, found))}")


if __name__ == "__main__":
    main()
