"""Ranks are killed amid their steps, again and again; each trial comes to the same bits.

If it fails, a trial that lost a node came to other losses than it would have without, and nobody
can say whether its hyperparameters or the node made the difference.
"""

import math
import random
import time
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aftermath
import psutil
import pytest
from terminal import GONE_S, LONG, ROUNDS, Command, Terminal, title, until

from hposvc.events import Checkpointed, Failed, Ordered, Reported

pytestmark = [pytest.mark.ray, pytest.mark.long, pytest.mark.timeout(1800)]

KILLS = ROUNDS  # under each strategy
STEPS = 3 * KILLS + 3  # from one kill to the next it is about two
PATIENCE_S = 900.0
E = TypeVar("E")
EVERY = {"ddp": "7 steps", **({"fsdp": 1} if LONG else {})}  # between checkpoints: updates; steps
LOSSES = ("train/loss", "val/loss")
# The earliest moment of a kill, as a share of a step: of a few, one is to come amid a step, behind
# the checkpoint of its seventh update out of twenty.
EARLIEST = 0.0 if LONG else 0.5


@dataclass
class Siege:
    """A sweep whose ranks are killed, one at a time, whenever its present order has come on."""

    terminal: Terminal
    driver: Command
    sweep: str
    step_s: float  # how long a step takes
    rng: random.Random
    killed: list[float] = field(default_factory=list)  # when
    seen: int = 0  # of the journal's events
    moment: float | None = None  # of the next kill

    @property
    def over(self) -> bool:
        return len(self.killed) == KILLS

    def watch(self) -> bool:
        """Look, and kill a rank if its moment has come; returns whether the siege has ended."""
        for number, event in self.terminal.journal.read(self.sweep, self.seen):
            self.seen = number
            if isinstance(event, Ordered | Failed):
                self.moment = None
            elif isinstance(event, Reported | Checkpointed) and self.moment is None:
                self.moment = time.time() + self.step_s * self.rng.uniform(EARLIEST, 1.0)
        if self.moment is not None and time.time() >= self.moment and not self.over:
            self._kill()
        return self.over or self.driver.process.poll() is not None

    def _kill(self) -> None:
        if present := ranks(self.terminal, self.sweep):
            self.rng.choice(present).kill()
            self.killed.append(time.time())
            self.moment = math.inf  # until there is another order


def ranks(terminal: Terminal, sweep: str) -> list[psutil.Process]:
    """The processes that are at an order of a sweep."""
    return [each for each in terminal.processes() if f"ray::{sweep}/slot-" in title(each)]


def started(terminal: Terminal, sweep: str, strategy: str) -> Command:
    """The driver of one trial of two ranks."""
    spec: dict[str, Any] = {
        "trainable": "dicey:Dicey",
        "metric": {"name": "val/loss", "goal": "minimize"},
        "fidelity": {"max": STEPS},
        "parameters": {"lr": 0.01},
        "search": "random",
        "trials": {"max": 1},
        "resources": {"workers": 2, "cpus_per_worker": 0.5},
        "training": {"strategy": strategy, "deterministic": True},
        "checkpoints": {"every": EVERY[strategy]},
        "failure": {"infra_retries": 3 * KILLS},
    }
    return terminal.run(spec, sweep)


def expect_success(driver: Command) -> None:
    until(lambda: driver.process.poll() is not None, "the sweep is over", PATIENCE_S)
    code, said = driver.end()
    assert code == 0, said


def happened(terminal: Terminal, sweep: str, kind: type[E]) -> list[E]:
    return [event for _, event in terminal.journal.read(sweep) if isinstance(event, kind)]


def losses(terminal: Terminal, sweep: str) -> dict[int, list[float]]:
    """Of each step, the report that stands."""
    found: dict[int, list[float]] = {}
    for each in happened(terminal, sweep, Reported):
        found.setdefault(each.step, [each.metrics[name] for name in LOSSES])
    return found


def test_ranks_killed_at_random_moments_change_no_bit_of_the_losses(terminal):
    """Peers: an epoch is done again with other random numbers; or from its beginning, or never."""
    calm = {strategy: started(terminal, f"calm-{strategy}", strategy) for strategy in EVERY}
    for driver in calm.values():
        expect_success(driver)
    shaken = {strategy: started(terminal, f"shaken-{strategy}", strategy) for strategy in EVERY}
    sieges = {}
    for seed, strategy in enumerate(EVERY):
        times = [each.time for each in happened(terminal, f"calm-{strategy}", Reported)]
        step_s = (times[-1] - times[0]) / (STEPS - 1)
        sweep = f"shaken-{strategy}"
        sieges[strategy] = Siege(terminal, shaken[strategy], sweep, step_s, random.Random(seed))
    until(
        lambda: all([siege.watch() for siege in sieges.values()]),
        "all kills",
        PATIENCE_S,
    )
    for strategy, driver in shaken.items():
        expect_success(driver)
        siege, sweep = sieges[strategy], f"shaken-{strategy}"
        assert siege.over
        for each, at in zip(happened(terminal, sweep, Failed), siege.killed, strict=True):
            assert (each.cause, "killed by SIGKILL" in each.message) == ("infra", True)
            assert each.time < at + GONE_S, "the other rank ends too"
        orders = [each.order for each in happened(terminal, sweep, Ordered)]
        amid = [order.start is not None and order.start.within > 0 for order in orders]
        assert any(amid) == (strategy == "ddp")
        expected = losses(terminal, f"calm-{strategy}")
        assert sorted(expected) == list(range(1, STEPS + 1))
        assert losses(terminal, sweep) == expected
    until(lambda: not terminal.processes(), "nothing is left", GONE_S)
    for strategy in EVERY:
        for sweep in (f"calm-{strategy}", f"shaken-{strategy}"):
            aftermath.check(terminal.home, sweep, 1)
