"""The driver's handle of the recorders: for each sink, a separate process (outbox.py).

MLflow takes 2 s to import and, measured on two cores, 16 ms a trial in the embedded database or
47 ms over HTTP; in the driver's process, slots would wait for that. A recorder's standard input is
a pipe: when the driver closes it, or dies, the recorder sends the rest of the journal and ends.
"""

import json
import logging
import os
import subprocess
import sys
import time
from types import TracebackType

from hposvc.journal.home import Home
from hposvc.journal.journal import Journal
from hposvc.spec import SweepSpec
from hposvc.spec.sinks import SINKS
from hposvc.tracking.mlflow_server import (
    QUIET,
    TrialRuns,
    hide_passwords,
    is_recorded,
    tracking_uri,
    why_not,
)
from trainables.runtime.output import appending

OUT_OF_REACH = 5  # a recorder's exit code when it gave up on its sink
FLUSH_S = 5.0  # seconds that an interrupted sweep waits for its recorders

# Run by the new interpreter before it can import hposvc: it takes over the driver's import path.
BOOT = (
    "import json, sys; task = json.loads(sys.stdin.readline()); sys.path[:] = task.pop('import'); "
    "from hposvc.tracking.outbox import main; main(task)"
)

log = logging.getLogger("hposvc")


class Recorder:
    """Starts a recorder process for each sink with the sweep, and waits for them at the end."""

    def __init__(self, home: Home, sweep: str, spec: SweepSpec, journal: Journal) -> None:
        self.home, self.sweep, self.spec, self.journal = home, sweep, spec, journal
        self.folder = home.folder(sweep, spec.storage)
        self.sinks = [
            name for name in spec.tracking.send_to if name != "mlflow" or is_recorded(spec)
        ]
        self._processes: dict[str, subprocess.Popen[str]] = {}  # by sink
        self._trial_runs = TrialRuns(journal, sweep, tracking_uri(home, spec))

    def __enter__(self) -> "Recorder":
        for sink in self.sinks:
            self._start(sink)
        if "mlflow" in self.spec.tracking.send_to and "mlflow" not in self.sinks:
            message = "%s: not recorded in MLflow: %s; give `tracking` to have it recorded"
            log.warning(message, self.sweep, why_not(self.spec))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._close(self.sinks, FLUSH_S)
            return
        codes = self._close(self.sinks, None)
        killed = [sink for sink in self.sinks if codes[sink] not in (0, OUT_OF_REACH)]
        for sink in killed:
            self._start(sink)
        self._close(killed, None)

    @property
    def uri(self) -> str:
        """MLflow's URI for people, without a password."""
        return hide_passwords(tracking_uri(self.home, self.spec))

    @property
    def behind(self) -> int:
        """The number of events that some sink was not sent yet; `resume` sends them."""
        return max((self._count_unsent(sink) for sink in self.sinks), default=0)

    @property
    def waiting(self) -> list[str]:
        """The sinks that were not sent all events yet, as people know them."""
        return [SINKS[sink].title for sink in self.sinks if self._count_unsent(sink)]

    def environment(self, trial: str) -> dict[str, str]:
        """Return the variables that tell rank 0 of a trial its MLflow run; empty: no run yet."""
        return self._trial_runs.environment(trial) if "mlflow" in self._processes else {}

    def _count_unsent(self, sink: str) -> int:
        return self.journal.last(self.sweep) - self.journal.cursor(self.sweep, sink)

    def _start(self, sink: str) -> None:
        task = {
            "import": sys.path,
            "path": str(self.home.path),
            "database": self.home.database,  # may hold a password, so it is not an argument
            "tracking_uri": self.home.tracking_uri,
            "sweep": self.sweep,
            "sink": sink,
        }
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with appending(logs / "recorder.log") as output:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach only the driver
                env={**QUIET, **os.environ},
                text=True,
            )
        self._processes[sink] = process
        pipe = process.stdin
        assert pipe is not None
        pipe.write(json.dumps(task) + "\n")
        pipe.flush()

    def _close(self, sinks: list[str], timeout_s: float | None) -> dict[str, int]:
        """Close the pipes, and return the exit codes; kill after `timeout_s` (None: never)."""
        processes = {sink: self._processes[sink] for sink in sinks}
        for process in processes.values():  # all at once, so that they work beside each other
            assert process.stdin is not None
            process.stdin.close()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return {sink: _wait(process, deadline) for sink, process in processes.items()}


def _wait(process: subprocess.Popen[str], deadline: float | None) -> int:
    """Return a process's exit code; kill the process at the deadline (monotonic seconds)."""
    try:
        return process.wait(None if deadline is None else max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()  # what it did not send waits in the journal
        return process.wait()
