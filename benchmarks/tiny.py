"""A model of five weights on DDP ranks, with faults on demand: what the turn-around is taken on.

A trial is STEPS updates. Each report holds `at`, when its rank 0 made it: the gap from a trial's
last report to the next trial's first is measured on the ranks, the same for ours and the peers.
"""

import os
import signal
import time
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

Fate = Literal["fine", "raise", "kill"]

STEPS = 2
RANKS = 2


class Fault(Exception):
    """What a trial of fate `raise` raises."""


class Training:
    """One trial on one rank; the default process group is there."""

    def __init__(self, config: Mapping[str, Any], rank: int) -> None:
        self.fate: Fate = config["fate"]
        self.rank = rank
        self.model = DistributedDataParallel(nn.Linear(4, 1))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=config["lr"])

    def step(self, number: int) -> dict[str, float]:
        """One update; what to report. The last rank meets its fate before the second."""
        if number > 1 and self.rank == RANKS - 1:
            self._suffer()
        loss = self.model(torch.randn(8, 4)).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return {"loss": loss.item(), "at": time.time()}

    def _suffer(self) -> None:
        if self.fate == "raise":
            raise Fault("as ordered")
        if self.fate == "kill":
            os.kill(os.getpid(), signal.SIGKILL)


def train(params: Mapping[str, Any], worker: Any) -> None:
    """The trial as one of our sweep's."""
    training = Training(params, worker.rank)
    for step in worker.steps():
        worker.report(step, training.step(step))


def plan(warm: int, raised: int, killed: int) -> list[Fate]:
    """The fates of a run: `warm` turn-arounds without a fault, then those after faults."""
    fates: list[Fate] = ["fine"] * (warm + 1)
    after_raise: list[Fate] = ["raise", "fine"]
    after_kill: list[Fate] = ["kill", "fine"]
    return [*fates, *after_raise * raised, *after_kill * killed]
