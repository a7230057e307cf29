"""Drivers of this home's sweeps that outlive who asked for them: the command, in the background."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

from hposvc.api import Sweeps
from hposvc.errors import OutOfReach

BEGIN_S = 60.0  # for a driver to begin; one that needs longer, such as to start Ray, goes on
POLL_S = 0.05


def start(sweeps: Sweeps, sweep: str, words: Sequence[str], stdin: str = "") -> None:
    """Run a command that drives a sweep, such as `resume ID`, and wait until the sweep goes on.

    Raises:
        OutOfReach: the command was refused; the message is what it wrote.
    """
    place = ("--home", f"{sweeps.home.path}", "--server", "")
    last = sweeps.journal.last(sweep)
    with tempfile.TemporaryFile("w+") as given, tempfile.TemporaryFile("w+") as output:
        given.write(stdin)
        given.seek(0)
        driver = subprocess.Popen(
            [sys.executable, "-m", "hposvc", *words, *place],
            stdin=given,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # what ends the agent must not end its sweeps
        )
        deadline = time.monotonic() + BEGIN_S
        while sweeps.journal.last(sweep) == last and time.monotonic() < deadline:
            if driver.poll() == 0:
                return
            if driver.returncode:
                output.seek(0)
                raise OutOfReach(output.read().strip())
            time.sleep(POLL_S)
