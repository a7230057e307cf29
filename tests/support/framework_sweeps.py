"""Sweeps over the learning rate of a training with a framework, in this process."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

import hposvc


def sweep(train, home, metric, rates, **sections):
    """Run a sweep of one trial to its end, or what `sections` make of it."""
    low, high = rates
    given = {
        "metric": {"name": metric, "goal": "minimize"},
        "parameters": {"rate": {"min": low, "max": high, "log": True}},
        "trials": {"max": 1},
        "scheduler": "fifo",
        "search": "random",
        "engine": "local",
        "tracking": {"send_to": []},
    }
    return hposvc.Sweep(train, **{**given, **sections}).run(home, progress=False)


def swept(folder, metric, rates, fit, steps, trials=5, eta=2):
    """Run a sweep of fit(rate, count) in a function with a worker, whose trials pause at rungs.

    Returns:
        Its result, and how often each (rate, number) was counted.
    """

    def train(params, worker):
        def count(number):
            with (folder / "counted").open("a") as lines:
                lines.write(json.dumps([params["rate"], number]) + "\n")

        fit(params["rate"], count)

    result = sweep(
        train,
        folder / "home",
        metric,
        rates,
        fidelity={"unit": "epoch", "max": steps},
        scheduler={"type": "asha", "mode": "promote", "eta": eta},
        trials={"max": trials},
    )
    lines = (folder / "counted").read_text().splitlines()
    return result, Counter(tuple(json.loads(line)) for line in lines)


def check_rungs(result, counted, numbers_of, repeats=False):
    """Trials were stopped, or paused and completed, with each number of their steps once."""
    trials = result.trials
    assert {*trials["state"]} == {"COMPLETED", "STOPPED"}
    assert max(trials["attempts"]) > 1
    assert (max(counted.values()) > 1) is repeats
    for rate, step in zip(trials["rate"], trials["step"], strict=True):
        assert sorted(n for given, n in counted if given == rate) == [*numbers_of(step)]


def longest(result):
    """Return the row of a trial that was paused and trained to its end."""
    trials = result.trials
    return trials[(trials["state"] == "COMPLETED") & (trials["attempts"] > 1)].iloc[0]


def check_curves(result, trial, printed, names, steps):
    """Hold a trial's curves against those of a training outside a sweep, which prints them."""
    curves = result.curves
    mine = curves[curves["trial"] == trial].sort_values("step")
    for name in names:
        alone = [float(value) for value in re.findall(rf"'{name}': ([0-9.e-]+)", printed)]
        assert [*mine[name]] == pytest.approx(alone, rel=1e-5)
        assert len(alone) == steps


def break_once(folder: Path, at: int):
    """Return a function that notes each number that it is given, and fails once, at a number."""

    def count(number):
        with (folder / "numbers").open("a") as lines:
            lines.write(f"{number}\n")
        if number == at and not (folder / "failed").exists():
            (folder / "failed").touch()
            raise RuntimeError("the first attempt breaks")

    return count


def numbers(folder: Path) -> list[int]:
    """Return what `break_once` has noted."""
    return [int(line) for line in (folder / "numbers").read_text().splitlines()]
