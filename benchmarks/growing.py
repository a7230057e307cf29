"""What it brings that trials get the workers which others left: the time until a sweep is done.

`python benchmarks/growing.py` simulates sweeps, each with one worker a trial and with one to eight,
on the same eight workers, and prints Markdown. A step on twice as many workers takes half as long;
what a start of a process group costs is added afterwards, for each time that a trial grew.
"""

import argparse
import math
from collections.abc import Mapping

from simulated import sweep
from tables import figure, heading, median, spread, table

from hposvc.events import WIDER, Decided, Ended, Failed, Finished, Ordered

WORKERS = 8
START_S = 10.0  # of a process group, on a busy machine
SCHEDULERS: Mapping[str, object] = {
    "fifo": "fifo",
    "asha": {"type": "asha", "mode": "stop"},
    "asha, promote": {"type": "asha", "mode": "promote"},
    "hyperband": "hyperband",
    "median": "median",
}


def curve(params: dict[str, float], step: int) -> tuple[dict[str, float], float]:
    """A trial's metrics at a step, and how long that takes: from 30 to 60 seconds."""
    seconds = 30 * 2 ** (-math.log10(params["lr"]) / 4 - 0.25)
    return {"loss": (math.log10(params["lr"]) + 3) ** 2 + 1 / step}, seconds


def run(scheduler: object, workers: object, trials: int, seed: int) -> tuple[float, float, int]:
    """Seconds until a sweep was done, the share of its workers that stood idle, and who grew."""
    events = sweep(
        {
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"min": 1, "max": 81},
            "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}},
            "trials": {"max": trials, "parallel": WORKERS},
            "resources": {"workers": workers},
            "search": "random",
            "scheduler": scheduler,
            "seed": seed,
        },
        curve,
    )
    out: dict[int, tuple[float, int]] = {}
    held_s = 0.0
    grown = 0
    for event in events:
        if isinstance(event, Ordered):
            out[event.order.id] = event.time, event.order.workers or 1
        elif isinstance(event, Ended | Failed):
            begun, ranks = out.pop(event.order)
            held_s += (event.time - begun) * ranks
        elif isinstance(event, Decided):
            grown += event.reason == WIDER
    last = events[-1]
    assert isinstance(last, Finished)
    return last.time, 1 - held_s / (WORKERS * last.time), grown


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    print(heading())
    rows = []
    for name, scheduler in SCHEDULERS.items():
        sizes = (1, {"min": 1, "max": WORKERS})
        pairs = [
            [run(scheduler, workers, options.trials, seed) for workers in sizes]
            for seed in range(options.seeds)
        ]
        alone, grown = zip(*pairs, strict=True)
        ratios = [
            (after[0] + START_S * after[2]) / before[0]
            for before, after in zip(alone, grown, strict=True)
        ]
        rows.append(
            [
                name,
                figure(median([seconds / 3600 for seconds, _, _ in alone])),
                spread([idle for _, idle, _ in alone]),
                figure(median([seconds / 3600 for seconds, _, _ in grown])),
                spread([idle for _, idle, _ in grown]),
                figure(median([times for _, _, times in grown]), 0),
                spread(ratios),
            ]
        )
    one, more = "one worker each", "one to eight"
    head = (f"{one}: hours", "idle", f"{more}: hours", "idle", "trials that grew", "time, of one")
    print(table(("scheduler", *head), rows))


if __name__ == "__main__":
    main()
