"""Where MLflow is, and whether a sweep is recorded there; this file does not import MLflow."""

import logging
import os
import re
import time

from hposvc.journal.home import Home
from hposvc.journal.journal import Journal
from hposvc.spec import SweepSpec
from hposvc.spec.sinks import Tracking, sink_type
from hposvc.tracking.projection import EXPERIMENT

ASK_S = 0.2  # seconds between two queries for a run that was missing
MOST_SIMULATED = 200  # trials of a simulation that are recorded without being asked for

# Outages should be noticed soon: the recorder itself waits and tries again.
QUIET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "10",
    "WANDB_ERROR_REPORTING": "false",  # read at the import of wandb
}
CHATTY = ("alembic", "mlflow", "urllib3")  # loggers


def is_recorded(spec: SweepSpec) -> bool:
    """Whether a sweep is recorded in MLflow: if `send_to` names it, and `why_not` has no reason."""
    return "mlflow" in spec.tracking.send_to and not why_not("mlflow", spec)


def why_not(sink: str, spec: SweepSpec) -> str:
    """Say why a sink gets nothing of a sweep although `send_to` names it; empty: it gets all.

    Large simulations are not sent to a slow sink unless they ask for it: they are over in a second,
    while MLflow takes 16 to 47 ms a trial.
    """
    is_slow, asked = sink_type(sink).slow, spec.tracking != Tracking()
    if not is_slow or asked or not spec.engine.traits.simulated:
        return ""
    if spec.trials.max is None:
        return "a simulation without `trials.max`"
    large = spec.trials.max > MOST_SIMULATED
    return f"more than {MOST_SIMULATED} simulated trials" if large else ""


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


class TrialRuns:
    """The MLflow run of each trial of a sweep, as the journal records them."""

    def __init__(self, journal: Journal, sweep: str, uri: str) -> None:
        self.journal, self.sweep, self.uri = journal, sweep, uri
        self._runs: dict[str, str] = {}
        self._experiment: str | None = None
        self._missed_at = 0.0  # monotonic seconds of the last query that found no run

    def environment(self, trial: str) -> dict[str, str]:
        """Return the variables that tell rank 0 of a trial its run; empty: no run yet."""
        run = self._runs.get(trial) or self._look_up_run(trial)
        if run is None or self._experiment is None:
            return {}
        return {
            "MLFLOW_RUN_ID": run,
            "MLFLOW_EXPERIMENT_ID": self._experiment,
            "MLFLOW_TRACKING_URI": self.uri,
        }

    def _look_up_run(self, trial: str) -> str | None:
        """Look up a trial's run in the journal; not more than every `ASK_S` after a failed look-up.

        A simulation may place a thousand orders a second.
        """
        if time.monotonic() - self._missed_at < ASK_S:
            return None
        run = self.journal.run(self.sweep, trial)
        if run is None:
            self._missed_at = time.monotonic()
            return None
        self._experiment = self._experiment or self.journal.run(self.sweep, EXPERIMENT)
        self._runs[trial] = run
        return run
