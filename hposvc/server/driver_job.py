"""The job of a cluster that drives a sweep which a server has recorded; see cluster_drivers.py.

Whatever the cluster can't reach is detected before the sweep begins.
"""

import os
import socket
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

from cluster.launch import connect
from cluster.own_ray import Unreachable
from cluster.secret_transfer import take
from hposvc import api
from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.shared_storage import check_shared
from hposvc.errors import OutOfReach, fail
from hposvc.journal import supervision
from hposvc.journal.home import as_store_errors
from hposvc.journal.journal import SweepRow
from hposvc.remote.job_payload import DriverPayload
from hposvc.server import supervised
from hposvc.spec import SweepSpec

REMEDIES = {
    "journal": "set HPOSVC_DB to a postgresql:// URL that both sides reach",
    "tracker": "set MLFLOW_TRACKING_URI to a server that both sides reach",
}


def drive(name: str, watching: api.Watching) -> None:
    """Drive the sweep of a payload as `supervised.drive` does, with the paths of this machine.

    Raises:
        PayloadGone: this job has started before.
        OutOfReach: the journal or the storage can't be reached.
        SpecError: the sweep is refused; the journal has the reason.
    """
    payload = DriverPayload.unpack(take(name))
    os.environ.update(payload.variables)
    sys.path[:0] = [str(Path(path).absolute()) for path in payload.paths]
    for proof in payload.proofs:
        if not proof.seen():
            raise OutOfReach(
                f"{proof.what}: it is in {Path(proof.file).parent} of the server's machine, and "
                f"its driver's node ({socket.gethostname()}) has no such folder",
                fix=REMEDIES[proof.what],
            )
    sweeps = api.Sweeps.open(None if payload.home is None else Path(payload.home))
    home, spec = sweeps.home, specs.restore(payload.spec)
    os.environ.update({**spec.environment.env, **payload.secrets})

    asked = supervision.find(sweeps.journal.store, payload.sweep)
    if asked is not None:
        locate, check = partial(replace, spec=payload.spec), partial(_check_storage, sweeps, spec)
        with as_store_errors(home.path, home.folder(payload.sweep, spec.storage)):
            supervised.carry_out(
                sweeps, asked, watching, _address(), locate, check, payload.secrets
            )


def _check_storage(sweeps: api.Sweeps, spec: SweepSpec, row: SweepRow) -> None:
    """Check that all nodes share the sweep's storage, if its trials run on nodes.

    Raises:
        OutOfReach: Ray can't be reached, or a sweep that has begun has lost its storage.
        SpecError: some node does not see the storage of a sweep that has not begun.
    """
    if not spec.engine.traits.on_nodes:
        return
    home = sweeps.home.path
    try:
        connection = connect(home / "ray", _address())
    except Unreachable as error:
        raise OutOfReach(str(error)) from error
    folder = sweeps.home.folder(row.id, spec.storage)
    try:
        check_shared(Setting(row.id, spec, folder, home, _address()))
    except OutOfReach as error:
        if sweeps.journal.last(row.id):
            raise
        raise fail(f"{error}", "storage") from error
    finally:
        connection.close()


def _address() -> str:
    return os.environ["RAY_ADDRESS"]  # Ray sets it for every job
