"""The job of a cluster that serves its sweeps; the first submit starts it (cluster_server.py)."""

import os
import time
from collections.abc import Callable
from dataclasses import replace
from urllib.parse import urlsplit

from cluster.secret_transfer import dashboard, take
from hposvc import api
from hposvc.journal.tokens import Tokens
from hposvc.remote.job_payload import NAME, ServerPayload
from hposvc.server import config, serving
from hposvc.server.service import Listening

OWNER = "cluster"  # of the token that stands for the cluster's own


def serve(name: str, begun: Callable[[str], None]) -> None:
    """Serve the sweeps of the home that this job's payload names, until the job is stopped.

    The server listens where the cluster's dashboard does: on this machine alone, or on all of its
    addresses. Nobody is known by the address alone: on a head, others have accounts too.

    Raises:
        PayloadGone: this job has started before.
        SpecError, JobsError: see `serving.serve`.
    """
    payload = ServerPayload.unpack(take(name))
    shares = all([probe.seen() for probe in payload.proofs])
    os.environ.update(payload.shared if shares else payload.elsewhere)
    sweeps = api.Sweeps.open()
    Tokens(sweeps.journal.store).adopt(
        payload.token, OWNER, ("admin",), f"{OWNER}'s token", time.time()
    )
    folder = sweeps.home.path / "server"
    folder.mkdir(0o700, exist_ok=True)
    certificate, key = folder / "cluster-cert.pem", folder / "cluster-key.pem"
    certificate.write_text(payload.certificate)
    key.touch(0o600)
    key.write_text(payload.key)
    url = dashboard()
    host = urlsplit(url).hostname or ""
    operators = config.read()
    operators = replace(operators, loopback="token", hosts=(*operators.hosts, NAME))
    own = serving.is_own(host)
    listening = Listening(host if own else "0.0.0.0", payload.port, certificate, key)
    serving.serve(sweeps, listening, operators, cluster=url, begun=begun)
