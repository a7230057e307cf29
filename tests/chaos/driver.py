"""Drives a sweep and dies at a chosen call: `python -m driver HOME SWEEP EFFECT MOMENT`.

The process is killed by SIGKILL right before or right after the call of the effect that COUNTS
names. `batch` is an effect of the recorder's process, which then dies instead, once.
"""

import importlib
import os
import signal
import sys
from itertools import count
from pathlib import Path

from hposvc import api
from hposvc.journal.home import find
from hposvc.tracking import recorder_process

# Effect: where its call is found, and which call of it is the fatal one.
COUNTS = {
    "order": ("hposvc.backends.ray.slot:Slot.carry_out", 3),
    "decision": ("hposvc.backends.ray.slot:Slot.decide", 3),
    "turn": ("hposvc.journal.journal:Journal.append", 6),
    "deletion": ("trainables.storage.checkpoint:shutil.rmtree", 2),
    "batch": ("mlflow:MlflowClient.log_batch", 4),
}
BOOT = (
    "import json, sys; task = json.loads(sys.stdin.readline()); sys.path[:] = task.pop('import'); "
    "import driver; driver.kill_once({effect!r}, {moment!r}, {mark!r}); "
    "from hposvc.tracking.outbox import main; main(task)"
)


def kill_at(effect: str, moment: str) -> None:
    """Let this process die at the effect."""
    place, fatal = COUNTS[effect]
    module, _, path = place.partition(":")
    owner = importlib.import_module(module)
    *classes, name = path.split(".")
    for each in classes:
        owner = getattr(owner, each)
    original, calls = getattr(owner, name), count(1)

    def call(*arguments, **options):
        last = next(calls) == fatal
        if last and moment == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = original(*arguments, **options)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, call)


def kill_once(effect: str, moment: str, mark: str) -> None:
    """As `kill_at`, in the first process that comes here."""
    try:
        Path(mark).touch(exist_ok=False)
    except FileExistsError:
        return
    kill_at(effect, moment)


if __name__ == "__main__":
    home, sweep, effect, moment = sys.argv[1:]
    if effect == "batch":
        mark = f"{home}/{sweep}.{moment}"
        recorder_process.BOOT = BOOT.format(effect=effect, moment=moment, mark=mark)
    else:
        kill_at(effect, moment)
    sweeps = api.Sweeps.open(Path(home))
    api.drive(sweeps, find(sweeps.journal, sweep))
