"""A sweep on Ray's own pages: its progress on that of its driver's job, and its board in Grafana.

Ray (2.60) has no public way for a job to say how far it is. Its record of the job is a JSON text in
Ray's key-value store, which the job's supervisor next writes when the driver has ended.
"""

import json
import os
import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

from hposvc.events import Event
from hposvc.spec import SweepSpec
from hposvc.state.sweep import SweepState
from hposvc.views.dashboard import progress_line

EVERY_S = 10.0  # between two updates
CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray's, in the environment of a job
RECORD, NAMESPACE = "_ray_internal_job_info_{}", b"job"
BOARDS = "metrics/grafana/dashboards"  # in the folder of a Ray session; Grafana shows its files
SWEEP, PROGRESS = "hposvc.id", "hposvc.progress"  # keys of a job's metadata


class RayJob:
    """Keeps the record of this driver's job up to date; a Watcher of the runner."""

    def __init__(self, sweep: str, spec: SweepSpec) -> None:
        self._sweep = sweep
        self._job = submission_id()
        self._next = 0.0  # monotonic seconds of the next update
        self._thread: threading.Thread | None = None
        self._shows_board = False

    def on_events(self, state: SweepState, events: Sequence[Event]) -> None:
        """Update the record, at most every `EVERY_S`; called after the events are durable."""
        now = time.monotonic()
        if not (state.finished or now >= self._next) or not ray.is_initialized():
            return
        self._next = now + EVERY_S
        if not self._shows_board:
            self._shows_board = True
            show_board()
        if self._thread is not None and state.finished:
            self._thread.join(EVERY_S)
        if self._job is None or (self._thread and self._thread.is_alive()):
            return  # a head that is gone does not answer, and nobody waits for it
        text = progress_line(state, state.elapsed_s)
        self._thread = threading.Thread(
            target=_update, args=(self._job, self._sweep, text), name="ray-job", daemon=True
        )
        self._thread.start()
        if state.finished:
            self._thread.join(EVERY_S)


def submission_id() -> str | None:
    """Return the id of the Ray job that this process is; None: it is none."""
    with suppress(ValueError, AttributeError):
        job = json.loads(os.environ.get(CONFIG, "{}")).get("metadata", {}).get("job_submission_id")
        return job if isinstance(job, str) else None
    return None


def show_board() -> None:
    """Put the sweeps' board to Ray's own, where this machine has the folder of Ray's session."""
    board = files("cluster") / "deploy" / "grafana.json"
    with suppress(OSError, AttributeError):  # another user's Ray; a connection without a node
        node: Any = ray._private.worker._global_node
        folder = Path(node.get_session_dir_path()) / BOARDS
        if folder.is_dir():
            shutil.copyfile(str(board), folder / "hposvc_grafana_dashboard.json")


def _update(job: str, sweep: str, text: str) -> None:
    key = RECORD.format(job).encode()
    with suppress(Exception):  # the cluster is going
        record = json.loads(_internal_kv_get(key, namespace=NAMESPACE) or "{}")
        if record.get("status") == "RUNNING":
            record["message"] = f"{sweep}: {text}"
            record["metadata"] = {**(record.get("metadata") or {}), SWEEP: sweep, PROGRESS: text}
            _internal_kv_put(key, json.dumps(record).encode(), True, namespace=NAMESPACE)
