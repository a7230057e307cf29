"""Runs hposvc as part of a round: `python -m acting SETTINGS ARGUMENTS`.

SETTINGS is JSON: `variables` of the environment, `patience_s` with a journal that does not answer,
and `place`, the round's folder. The number of seconds in its file `clock` is added to what
time.time() says in this process, as if somebody had set the machine's clock, and `clock.at` says
that it was read so; where `observer.armed` is there, one who looks on raises.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path


def jumpy(clock: Path, real: Callable[[], float]) -> Callable[[], float]:
    """A clock that jumps whenever the file changes; without the file it is right."""

    def now() -> float:
        try:
            shifted = real() + float(clock.read_text())
            clock.with_suffix(".at").touch()
            return shifted
        except (FileNotFoundError, ValueError):
            return real()

    return now


def break_an_observer(place: Path) -> None:
    """Let one of the sweep's watchers raise whenever it is called, once that is armed."""
    from hposvc.driver.limit_warnings import MissingLimitMetrics

    real = MissingLimitMetrics.on_events

    def breaking(self, state, events):
        if (place / "observer.armed").exists():
            (place / "observer.at").touch()
            raise OSError("nobody is to look any more")
        real(self, state, events)

    MissingLimitMetrics.on_events = breaking


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    os.environ.update(settings["variables"])
    place = Path(settings["place"])
    time.time = jumpy(place / "clock", time.time)
    from hposvc.cli.main import main
    from hposvc.journal import database

    database.PATIENCE_S = settings["patience_s"]
    break_an_observer(place)

    main(sys.argv[2:])
