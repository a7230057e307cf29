"""Runs hposvc as part of a round: `python -m acting SETTINGS ARGUMENTS`.

SETTINGS is JSON: `variables` of the environment, and `clock`, a file; the number of seconds in it
is added to what time.time() says in this process, as if somebody had set the machine's clock.
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
            return real() + float(clock.read_text())
        except (FileNotFoundError, ValueError):
            return real()

    return now


if __name__ == "__main__":
    settings = json.loads(sys.argv[1])
    os.environ.update(settings["variables"])
    time.time = jumpy(Path(settings["clock"]), time.time)
    from hposvc.cli import main

    main(sys.argv[2:])
