"""Curves and trainables of sweeps that tests run from the command line, in this folder."""

import os
import signal
from dataclasses import dataclass
from pathlib import Path


def valley(params, step):
    """Return a loss that is best at x = 3."""
    return {"loss": (params["x"] - 3) ** 2 + 1 / step}, 1.0


def sized(params, step):
    """Return a size and a loss: the further x is from 6, the smaller, and the worse."""
    return {**valley({"x": params["x"] - 3}, step)[0], "size": params["x"]}, 1.0


def torn(params, step):
    """Fail at x = 2."""
    if params["x"] == 2:
        raise ValueError("2 is no good")
    return valley(params, step)


def broken(params, step):
    raise ValueError("no luck")


def gated(params, worker):
    """Wait, at x = 4, until the test opens the gate, a named pipe."""
    print(f"x is {params['x']}")  # noqa: T201 - users print, and it is no data
    if params["x"] == 4:
        Path(os.environ["GATE"]).read_text()
    for step in worker.steps():
        worker.report(step, {"loss": (params["x"] - 3) ** 2 + 1 / step})


def crashing(params, worker):
    """End the process that calls it, as a broken native library does."""
    os.kill(os.getpid(), signal.SIGSEGV)


def unlucky(params, worker):
    print("about to fail")  # noqa: T201
    raise ZeroDivisionError("x is too small")


@dataclass(frozen=True)
class Stubborn:
    """A search method that gives up."""

    def suggest(self, space, history, n, rng):
        raise RuntimeError("out of ideas")
