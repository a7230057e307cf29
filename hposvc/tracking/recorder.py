"""The driver's hold on the MLflow recorder, which is a process of its own (outbox.py).

MLflow takes 2 s to import and, measured on two cores, 16 ms a trial in the embedded database or
47 ms over HTTP: in the driver's process that would be time that slots wait. Standard input of the
recorder is a pipe: when the driver closes it, or dies, the recorder tells the rest of what the
journal holds and ends.
"""

import json
import logging
import os
import re
import subprocess
import sys
import time
from types import TracebackType

from hposvc.home import Home
from hposvc.journal import Journal
from hposvc.spec import SweepSpec, Tracking
from hposvc.tracking.projection import EXPERIMENT

OUT_OF_REACH = 5  # the recorder's exit code when it gave up on the tracker
FLUSH_S = 5.0  # what an interrupted sweep waits for its recorder
ASK_S = 0.2  # between two looks for a run that was not there
MOST_SIMULATED = 200  # trials

# What an interpreter runs before it can import us: the driver's own import path comes first.
BOOT = (
    "import json, sys; task = json.loads(sys.stdin.readline()); sys.path[:] = task.pop('import'); "
    "from hposvc.tracking.outbox import main; main(task)"
)
# An outage is to be noticed soon: waiting and trying again is the recorder's own work.
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
}
CHATTY = ("alembic", "mlflow", "urllib3")  # loggers

log = logging.getLogger("hposvc")


def recorded(spec: SweepSpec) -> bool:
    """Whether MLflow is told of a sweep: always, but for large simulations that do not ask for it.

    They are over in a second, and MLflow takes 16 to 47 ms a trial.
    """
    if spec.engine.type != "simulate" or spec.tracking != Tracking():
        return True
    return spec.trials.max is not None and spec.trials.max <= MOST_SIMULATED


def tracking_uri(home: Home, spec: SweepSpec) -> str:
    """Where MLflow is: the spec's word, or the environment's, or the embedded one."""
    return spec.tracking.uri or home.tracking_uri


def hidden(text: str) -> str:
    """The text without passwords of URLs."""
    return re.sub(r"//[^/@\s]*@", "//***@", text)


def quieten() -> None:
    """Have MLflow, where a command loads it, answer soon and talk little."""
    os.environ.update({**QUIET, **os.environ})
    for chatty in CHATTY:
        logging.getLogger(chatty).setLevel(logging.ERROR)


class Recorder:
    """Starts the recorder with the sweep, and lets it finish."""

    def __init__(self, home: Home, sweep: str, spec: SweepSpec, journal: Journal) -> None:
        self.home, self.sweep, self.spec, self.journal = home, sweep, spec, journal
        self.folder = home.folder(sweep, spec.storage)
        self._process: subprocess.Popen[str] | None = None
        self._runs: dict[str, str] = {}
        self._experiment: str | None = None
        self._asked = 0.0  # when a run was last looked for in vain, monotonic

    def __enter__(self) -> "Recorder":
        if recorded(self.spec):
            self._start()
        else:
            log.warning(
                "%s: not recorded in MLflow: more than %d simulated trials; give `tracking` to "
                "have them recorded",
                self.sweep,
                MOST_SIMULATED,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not recorded(self.spec):
            return
        if kind is not None:
            self._close(FLUSH_S)
            return
        if self._close(None) not in (0, OUT_OF_REACH):  # it was killed on the way
            self._start()
            self._close(None)

    @property
    def uri(self) -> str:
        """Where MLflow is, for people: without a password."""
        return hidden(tracking_uri(self.home, self.spec))

    @property
    def behind(self) -> int:
        """How many events MLflow was not told of yet; `resume` tells them."""
        if not recorded(self.spec):
            return 0
        return self.journal.last(self.sweep) - self.journal.cursor(self.sweep)

    def environment(self, trial: str) -> dict[str, str]:
        """What rank 0 of a trial is told of its MLflow run; empty if there is none yet."""
        run = self._runs.get(trial) or self._ask(trial)
        if run is None or self._experiment is None:
            return {}
        return {
            "MLFLOW_RUN_ID": run,
            "MLFLOW_EXPERIMENT_ID": self._experiment,
            "MLFLOW_TRACKING_URI": tracking_uri(self.home, self.spec),
        }

    def _ask(self, trial: str) -> str | None:
        """Look in the journal, but not at each of a thousand orders a second."""
        if self._process is None or time.monotonic() - self._asked < ASK_S:
            return None
        run = self.journal.run(self.sweep, trial)
        if run is None:
            self._asked = time.monotonic()
            return None
        self._experiment = self._experiment or self.journal.run(self.sweep, EXPERIMENT)
        self._runs[trial] = run
        return run

    def _start(self) -> None:
        task = {
            "import": sys.path,
            "path": str(self.home.path),
            "database": self.home.database,  # may hold a password: not in an argument
            "tracking_uri": self.home.tracking_uri,
            "sweep": self.sweep,
        }
        logs = self.folder / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / "recorder.log").open("a") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", BOOT],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the driver
                env={**QUIET, **os.environ},
                text=True,
            )
        pipe = self._process.stdin
        assert pipe is not None
        pipe.write(json.dumps(task) + "\n")
        pipe.flush()

    def _close(self, timeout_s: float | None) -> int:
        """Say that there is no more, and wait for the end; None: as long as the recorder does."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()  # what it did not tell waits in the journal
            return self._process.wait()
