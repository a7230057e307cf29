"""Drivers of this home's sweeps that outlive who asked for them: the command, in the background."""

import subprocess
import sys
import time
from collections.abc import Sequence

from hposvc.api import Sweeps
from hposvc.errors import NotFound, OutOfReach
from hposvc.open_sweep import OpenSweep

BEGIN_S = 60.0  # for a driver to begin; one that needs longer, such as to start Ray, goes on
POLL_S = 0.05
LINES = 20  # of what a driver wrote, in an error


def start(sweeps: Sweeps, sweep: str, words: Sequence[str], stdin: str = "") -> None:
    """Start a command that drives a sweep, and wait until its driver has begun.

    Args:
        sweep: the id that the sweep has, or will have.
        words: arguments of `hposvc`, such as `resume ID`.

    Raises:
        OutOfReach: the command was refused; the message is what it wrote.
    """
    log = sweeps.home.path / "mcp" / f"{sweep}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    place = ("--home", f"{sweeps.home.path}", "--server", "")
    last = sweeps.journal.last(sweep)
    with log.open("w") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "hposvc", *words, *place],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # what ends the agent must not end its sweeps
            text=True,
        )
    assert driver.stdin is not None
    with driver.stdin:
        driver.stdin.write(stdin)
    deadline = time.monotonic() + BEGIN_S
    while driver.poll() is None:
        if sweeps.journal.last(sweep) > last or time.monotonic() > deadline:
            return
        time.sleep(POLL_S)
    try:
        has_ended = OpenSweep(sweeps, sweep).record().state.finished
    except NotFound:  # it was refused, which leaves nothing behind
        has_ended = False
    if driver.returncode and not has_ended:
        raise OutOfReach("\n".join(log.read_text(errors="replace").splitlines()[-LINES:]))
