"""Drivers of this home's sweeps in the background: they outlive the process that starts them."""

import subprocess
import sys
import tempfile
import time

import psutil

from hposvc.api import Sweeps
from hposvc.errors import Busy, OutOfReach
from hposvc.journal.lease import driver_state

BEGIN_S = 60.0  # for a driver to begin; one that needs longer, such as to start Ray, goes on
POLL_S = 0.1


def resume(sweeps: Sweeps, sweep: str) -> None:
    """Run `hposvc resume` on a sweep, and wait for BEGIN_S at most until the sweep goes on.

    It waits for a driver at work, or one that an earlier call has started, and starts no second.

    Raises:
        OutOfReach: the command was refused; the message is what it wrote.
        Busy: it still starts.
    """
    command = [sys.executable, "-m", "hposvc", "resume", sweep]
    command += ["--home", f"{sweeps.home.path}", "--server", ""]
    last, deadline = sweeps.journal.last(sweep), time.monotonic() + BEGIN_S
    driver: subprocess.Popen[bytes] | None = None
    with tempfile.TemporaryFile("w+") as output:
        while sweeps.journal.last(sweep) == last:
            has_ended = driver is not None and driver.poll() is not None
            is_alive = driver_state(sweeps.journal.store, sweep) == "alive"
            if driver is not None and has_ended and not is_alive:
                if driver.returncode and sweeps.journal.last(sweep) == last:
                    output.seek(0)
                    raise OutOfReach(output.read().strip())
                return
            if time.monotonic() > deadline:
                if is_alive:  # it waits for its turn, or for Ray
                    return
                message = f"{sweep} is recorded, and its driver still starts, after {BEGIN_S:g} s"
                raise Busy(message, "`submit`, or `steer` to resume, again waits on for it")
            running = (one.info["cmdline"] for one in psutil.process_iter(["cmdline"]))  # lazily
            if driver is None and not is_alive and command not in running:
                driver = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,  # what ends the agent must not end its sweeps
                )
            time.sleep(POLL_S)
