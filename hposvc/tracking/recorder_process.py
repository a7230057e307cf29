"""The driver's handle of the MLflow recorder, which is a separate process (outbox.py).

MLflow takes 2 s to import and, measured on two cores, 16 ms a trial in the embedded database or
47 ms over HTTP; in the driver's process, slots would wait for that. The recorder's standard input
is a pipe: when the driver closes it, or dies, the recorder sends the rest of the journal and ends.
"""

import json
import logging
import os
import re
import subprocess
import sys
import time
from types import TracebackType

from hposvc.journal.home import Home
from hposvc.journal.journal import Journal
from hposvc.spec import SweepSpec, Tracking
from hposvc.tracking.projection import EXPERIMENT
from trainables.runtime.output import appending

OUT_OF_REACH = 5  # the recorder's exit code when it gave up on the tracker
FLUSH_S = 5.0  # seconds that an interrupted sweep waits for its recorder
ASK_S = 0.2  # seconds between two queries for a run that was missing
MOST_SIMULATED = 200  # trials of a simulation that are recorded without being asked for

# Run by the new interpreter before it can import hposvc: it takes over the driver's import path.
BOOT = (
    "import json, sys; task = json.loads(sys.stdin.readline()); sys.path[:] = task.pop('import'); "
    "from hposvc.tracking.outbox import main; main(task)"
)
# Outages should be noticed soon: the recorder itself waits and tries again.
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
CHATTY = ("alembic", "mlflow", "urllib3")  # loggers

log = logging.getLogger("hposvc")


def is_recorded(spec: SweepSpec) -> bool:
    """Whether a sweep is recorded in MLflow: all but large simulations that do not ask for it.

    Those are over in a second, while MLflow takes 16 to 47 ms a trial.
    """
    if not spec.engine.traits.simulated or spec.tracking != Tracking():
        return True
    return spec.trials.max is not None and spec.trials.max <= MOST_SIMULATED


def tracking_uri(home: Home, spec: SweepSpec) -> str:
    """Return MLflow's URI: from the spec, else the environment, else the embedded database."""
    return spec.tracking.uri or home.tracking_uri


def hide_passwords(text: str) -> str:
    """Return the text with passwords in URLs replaced by stars."""
    return re.sub(r"//[^/@\s]*@", "//***@", text)


def quiet_mlflow() -> None:
    """Configure MLflow, before it is loaded, for short timeouts and few messages."""
    os.environ.update({**QUIET, **os.environ})
    for logger in CHATTY:
        logging.getLogger(logger).setLevel(logging.ERROR)


class Recorder:
    """Starts the recorder with the sweep, and waits for it at the end."""

    def __init__(self, home: Home, sweep: str, spec: SweepSpec, journal: Journal) -> None:
        self.home, self.sweep, self.spec, self.journal = home, sweep, spec, journal
        self.folder = home.folder(sweep, spec.storage)
        self._process: subprocess.Popen[str] | None = None
        self._runs: dict[str, str] = {}
        self._experiment: str | None = None
        self._missed_at = 0.0  # monotonic seconds of the last query that found no run

    def __enter__(self) -> "Recorder":
        if is_recorded(self.spec):
            self._start()
        else:
            most = f"more than {MOST_SIMULATED} simulated trials"
            unlimited = "a simulation without `trials.max`"
            reason = unlimited if self.spec.trials.max is None else most
            message = "%s: not recorded in MLflow: %s; give `tracking` to have it recorded"
            log.warning(message, self.sweep, reason)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not is_recorded(self.spec):
            return
        if kind is not None:
            self._close(FLUSH_S)
            return
        if self._close(None) not in (0, OUT_OF_REACH):  # the recorder was killed
            self._start()
            self._close(None)

    @property
    def uri(self) -> str:
        """MLflow's URI for people, without a password."""
        return hide_passwords(tracking_uri(self.home, self.spec))

    @property
    def behind(self) -> int:
        """The number of events not sent to MLflow yet; `resume` sends them."""
        if not is_recorded(self.spec):
            return 0
        return self.journal.last(self.sweep) - self.journal.cursor(self.sweep)

    def environment(self, trial: str) -> dict[str, str]:
        """Return the variables that tell rank 0 of a trial its MLflow run; empty: no run yet."""
        run = self._runs.get(trial) or self._look_up_run(trial)
        if run is None or self._experiment is None:
            return {}
        return {
            "MLFLOW_RUN_ID": run,
            "MLFLOW_EXPERIMENT_ID": self._experiment,
            "MLFLOW_TRACKING_URI": tracking_uri(self.home, self.spec),
        }

    def _look_up_run(self, trial: str) -> str | None:
        """Look up a trial's run in the journal; not more than every `ASK_S` after a failed look-up.

        A simulation may place a thousand orders a second.
        """
        if self._process is None or time.monotonic() - self._missed_at < ASK_S:
            return None
        run = self.journal.run(self.sweep, trial)
        if run is None:
            self._missed_at = time.monotonic()
            return None
        self._experiment = self._experiment or self.journal.run(self.sweep, EXPERIMENT)
        self._runs[trial] = run
        return run

    def _start(self) -> None:
        task = {
            "import": sys.path,
            "path": str(self.home.path),
            "database": self.home.database,  # may hold a password, so it is not an argument
            "tracking_uri": self.home.tracking_uri,
            "sweep": self.sweep,
        }
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with appending(logs / "recorder.log") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C must reach only the driver
                env={**QUIET, **os.environ},
                text=True,
            )
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(json.dumps(task) + "\n")
        pipe.flush()

    def _close(self, timeout_s: float | None) -> int:
        """Close the pipe, and wait for the recorder; kill it after `timeout_s` (None: never)."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()  # what it did not send waits in the journal
            return self._process.wait()
