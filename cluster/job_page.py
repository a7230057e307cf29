"""Ray's pages of the job that this process is: its record on the dashboard, a board in Grafana.

Ray (2.60) has no public way for a job to say how far it is. Its record of the job is a JSON text in
Ray's key-value store, which the job's supervisor next writes when the driver has ended.
"""

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from importlib.resources import files
from pathlib import Path
from typing import Any

import ray
from ray.experimental.internal_kv import _internal_kv_get, _internal_kv_put

CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"  # Ray's, in the environment of a job
RECORD, NAMESPACE = "_ray_internal_job_info_{}", b"job"
BOARDS = "metrics/grafana/dashboards"  # in the folder of a Ray session; Grafana shows its files


def is_connected() -> bool:
    """Return whether this process is connected to a cluster."""
    return ray.is_initialized()


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


def update_record(job: str, message: str, metadata: Mapping[str, str]) -> None:
    """Replace a running job's message, and add to its metadata; a cluster that is going may fail.

    Args:
        job: its submission id.
    """
    key = RECORD.format(job).encode()
    with suppress(Exception):
        record = json.loads(_internal_kv_get(key, namespace=NAMESPACE) or "{}")
        if record.get("status") == "RUNNING":
            record["message"] = message
            record["metadata"] = {**(record.get("metadata") or {}), **metadata}
            _internal_kv_put(key, json.dumps(record).encode(), True, namespace=NAMESPACE)
