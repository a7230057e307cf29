"""What epochs of a real trial take while MLflow's recorder works, and while it is halted.

The recorder is a process of its own: SIGSTOP halts it, SIGCONT lets it go on. Stretches of time
without it and with it take turns. Where it goes on it first tells what has waited for it, which is
in no stretch.
"""

import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psutil
from apart import Figures, answer
from rays import own_ray
from sweeps import run, times_of

from hposvc.api import Sweeps

STRETCH_S, CATCH_UP_S = 5.0, 3.0
SETTLED = 30  # epochs before the first stretch
MOST = 1_000_000  # epochs: it is ended before
POLL_S = 0.002
DEADLINE_S = 120.0


@dataclass(frozen=True)
class Stretch:
    """A time in which the recorder was halted, or at work."""

    begin: float  # seconds since the epoch
    end: float
    worked_s: float  # of CPU, by the recorder


def epochs(ranks: int, batch: int, pairs: int) -> Figures:
    """One trial of the digits' network that reports each epoch, for so many pairs of stretches.

    Returns:
        `halted_ms` (one more than pairs) and `working_ms`: an epoch in each stretch; `share` of a
        core that the recorder took in the latter; `reports` a second, in all of them.
    """
    found: list[Stretch] = []
    with own_ray():
        turns = threading.Thread(target=_alternate, args=(pairs, found), daemon=True)
        turns.start()
        events = run(
            trainable="trainables.zoo.digits:DigitsCNN",
            metric={"name": "val/accuracy", "goal": "maximize"},
            fidelity={"max": MOST},
            parameters={"lr": {"min": 1e-4, "max": 1e-3}, "batch": batch, "layers": 2},
            search="random",
            trials={"max": 1, "parallel": 1},
            resources={"workers": ranks, "cpus_per_worker": 1},
            checkpoints={"every": MOST},
        )
        turns.join()
    return _figures(times_of(events, "reported"), found)


def _figures(reports: Sequence[float], found: Sequence[Stretch]) -> Figures:
    inside = [[at for at in reports if one.begin <= at <= one.end] for one in found]
    epoch_ms = [1e3 * (times[-1] - times[0]) / (len(times) - 1) for times in inside]
    working = found[1::2]
    return {
        "halted_ms": epoch_ms[::2],
        "working_ms": epoch_ms[1::2],
        "share": sum(one.worked_s for one in working) / _length(working),
        "reports": sum(map(len, inside)) / _length(found),
    }


def _length(found: Sequence[Stretch]) -> float:
    """Seconds in all."""
    return sum(one.end - one.begin for one in found)


def _alternate(pairs: int, found: list[Stretch]) -> None:
    """Halt the recorder and let it go on, in turn, then end the sweep."""
    sweeps = Sweeps.open()
    _await(lambda: sweeps.journal.sweeps())
    sweep = sweeps.journal.sweeps()[0].id
    _await(lambda: sweeps.journal.last(sweep) > SETTLED)
    recorder = _await(_recorder)
    try:
        for _ in range(pairs):
            found.append(_halted(recorder))
            time.sleep(CATCH_UP_S)
            found.append(_stretch(recorder))
        found.append(_halted(recorder))
    finally:
        sweeps.journal.request(sweep, "kill")


def _halted(recorder: psutil.Process) -> Stretch:
    """Halted while it waits: not amid a commit to the journal, which the driver would wait for."""
    _await(lambda: recorder.status() == psutil.STATUS_SLEEPING)
    recorder.send_signal(signal.SIGSTOP)
    try:
        return _stretch(recorder)
    finally:
        recorder.send_signal(signal.SIGCONT)


def _stretch(recorder: psutil.Process) -> Stretch:
    begin, worked = time.time(), _worked(recorder)
    time.sleep(STRETCH_S)
    return Stretch(begin, time.time(), _worked(recorder) - worked)


def _worked(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _recorder() -> psutil.Process | None:
    """The child that tells MLflow; None: it has not begun."""
    for child in psutil.Process().children():
        if any("hposvc.tracking.outbox" in word for word in child.cmdline()):
            return child
    return None


def _await(found: Any) -> Any:
    """What it finds, as soon as that is something."""
    deadline = time.monotonic() + DEADLINE_S
    while not (value := found()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"nothing in {DEADLINE_S:.0f} s")
        time.sleep(POLL_S)
    return value


if __name__ == "__main__":
    answer({"epochs": epochs})
