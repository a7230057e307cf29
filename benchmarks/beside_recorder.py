"""What epochs of a real trial take while MLflow's recorder works, and while it is halted.

The recorder is a process of its own: SIGSTOP halts it, SIGCONT lets it go on. Stretches of time
without it and with it take turns. Where it goes on it first tells what has waited for it, which is
in no stretch.
"""

import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
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
    waited_s: float  # for a core, by all threads of the ranks that could have run

    @property
    def seconds(self) -> float:
        return self.end - self.begin


def epochs(ranks: int, batch: int, pairs: int) -> Figures:
    """One trial of the digits' network that reports each epoch, for so many pairs of stretches.

    Returns:
        `halted_ms` (one more than pairs) and `working_ms`: an epoch in each stretch; `halted_wait`
        and `working_wait`: what its ranks waited for a core, by the time that it took; `share` of
        a core that the recorder took in the latter; `reports` a second, in all of them.
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
        "halted_wait": [one.waited_s / one.seconds for one in found[::2]],
        "working_wait": [one.waited_s / one.seconds for one in working],
        "share": sum(one.worked_s for one in working) / _length(working),
        "reports": sum(map(len, inside)) / _length(found),
    }


def _length(found: Sequence[Stretch]) -> float:
    """Seconds in all."""
    return sum(one.seconds for one in found)


def _alternate(pairs: int, found: list[Stretch]) -> None:
    """Halt the recorder and let it go on, in turn, then end the sweep."""
    sweeps = Sweeps.open()
    _await(lambda: sweeps.journal.sweeps())
    sweep = sweeps.journal.sweeps()[0].id
    _await(lambda: sweeps.journal.last(sweep) > SETTLED)
    recorder = _await(_recorder)
    ranks = [one.pid for one in psutil.process_iter() if _is_rank(one, sweep)]

    def stretch() -> Stretch:
        begin, worked, waits = time.time(), _worked(recorder), _waits(ranks)
        time.sleep(STRETCH_S)
        end, worked = time.time(), _worked(recorder) - worked
        later = _waits(ranks)
        waited = sum(later[each] - waits[each] for each in later.keys() & waits.keys())
        return Stretch(begin, end, worked, waited / 1e9)

    try:
        for _ in range(pairs):
            found.append(_halted(recorder, stretch))
            time.sleep(CATCH_UP_S)
            found.append(stretch())
        found.append(_halted(recorder, stretch))
    finally:
        sweeps.journal.request(sweep, "kill")


def _halted(recorder: psutil.Process, stretch: Callable[[], Stretch]) -> Stretch:
    """Halted while it waits: not amid a commit to the journal, which the driver would wait for."""
    _await(lambda: recorder.status() == psutil.STATUS_SLEEPING)
    recorder.send_signal(signal.SIGSTOP)
    try:
        return stretch()
    finally:
        recorder.send_signal(signal.SIGCONT)


def _worked(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _waits(ranks: Sequence[int]) -> dict[Path, int]:
    """Nanoseconds so far in which each thread could have run, and had no core (Linux)."""
    threads = [each for rank in ranks for each in Path(f"/proc/{rank}/task").glob("*/schedstat")]
    found = {}
    for thread in threads:
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            found[thread] = int(thread.read_text().split()[1])
    return found


def _is_rank(process: psutil.Process, sweep: str) -> bool:
    try:
        title = process.cmdline()[:1]
    except psutil.Error:
        return False
    return bool(title) and title[0].startswith(f"ray::{sweep}/slot-")


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
