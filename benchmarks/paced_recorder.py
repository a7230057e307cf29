"""What MLflow's recorder takes of a processor, by how often trials report.

The driver is a stand-in that writes reports into a journal at a steady rate; nothing trains. So the
figure hardly depends on what else the machine does.
"""

import time

import psutil
from apart import Figures, answer

from hposvc import spec as specs
from hposvc.events import Attached, Closed, Ended, Event, Finished, Ordered, Proposed, Reported
from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.tracking.recorder_process import Recorder
from trainables.order import Order

MEASURED_S = 30.0
METRICS = 26  # of a report: as many as a Task's on one rank
LAST = 1_000_000  # steps
TRIAL = "t0001"


def paced(rate: float) -> Figures:
    """One trial with some `rate` reports a second.

    Returns:
        `share` of a core that the recorder takes once it has caught up; `reports` a second.
    """
    home = Home.of(None)
    row, journal = _begin(home)
    with Recorder(home, row.id, specs.load(row.spec), journal) as recorder:
        process = _process(recorder)
        step = 0
        while journal.cursor(row.id, "mlflow") == 0:
            step = _report(journal, row.id, step, rate)
        begin, worked, first = time.monotonic(), _worked(process), step
        while time.monotonic() < begin + MEASURED_S:
            step = _report(journal, row.id, step, rate)
        seconds = time.monotonic() - begin
        share = (_worked(process) - worked) / seconds
        _end(journal, row.id)
    return {"share": share, "reports": (step - first) / seconds}


def _begin(home: Home) -> tuple[SweepRow, Journal]:
    """A sweep whose one trial has just begun."""
    spec = specs.load(
        {
            "project": "paced",
            "trainable": "trainables.zoo.digits:DigitsCNN",
            "metric": {"name": "loss", "goal": "minimize"},
            "fidelity": {"max": LAST},
            "parameters": {"lr": {"min": 1e-5, "max": 1e-1, "log": True}},
            "trials": {"max": 1, "parallel": 1},
        }
    )
    now = time.time()
    row = SweepRow("paced-1", spec.name, spec.project, now, specs.dump(spec), {})
    journal = home.journal()
    journal.create(row)
    order = Order(1, TRIAL, {"lr": 0.01}, None, 1, LAST)
    proposed = Proposed(now, TRIAL, {"lr": 0.01}, {}, LAST)
    _append(journal, row.id, [Attached(now, "here:1"), proposed, Ordered(now, order)])
    return row, journal


def _report(journal: Journal, sweep: str, step: int, rate: float) -> int:
    """The next report, and the pause behind it; its step."""
    metrics = {"loss": 1 / (step + 1)} | {f"perf/{n}": n + 0.1 * step for n in range(METRICS - 1)}
    _append(journal, sweep, [Reported(time.time(), 1, TRIAL, step + 1, metrics)])
    time.sleep(1 / rate)
    return step + 1


def _end(journal: Journal, sweep: str) -> None:
    now = time.time()
    ended = Ended(now, 1, TRIAL)
    _append(journal, sweep, [ended, Closed(now, "user"), Finished(now, "STOPPED", "user")])


def _append(journal: Journal, sweep: str, events: list[Event]) -> None:
    journal.append(sweep, journal.last(sweep), events)


def _process(recorder: Recorder) -> psutil.Process:
    return psutil.Process(recorder._processes["mlflow"].pid)


def _worked(process: psutil.Process) -> float:
    """Seconds of CPU so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


if __name__ == "__main__":
    answer({"paced": paced})
