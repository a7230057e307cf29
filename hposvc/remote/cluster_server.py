"""The server of a Ray cluster: a job there, which the first submit starts and which stays.

Whoever has the cluster's token can run anything on it. So token, certificate and key of the server
are derived from that token: each client of the cluster knows them, and trusts this certificate
alone. A cluster without a token is open to all who reach its dashboard, and so is its server, which
listens where the dashboard does.
"""

import datetime
import hmac
import socket
import ssl
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from cluster import local
from cluster.jobs import Job, Jobs, with_retries
from cluster.retries import retry
from hposvc.errors import OutOfReach
from hposvc.journal.home import Home
from hposvc.journal.tokens import PREFIX
from hposvc.remote import jobs as remote_jobs
from hposvc.remote.archive import EMPTY_ARCHIVE
from hposvc.remote.http import Http, trusting
from hposvc.remote.job_payload import (
    NAME,
    ServerPayload,
    SharedFolderProbe,
    folder_of,
    variables_of,
)
from hposvc.remote.jobs import dial, job_error
from hposvc.remote.server.connection import ServedSweeps

SCHEME = "ray+"  # of the URL of a cluster's server, before that of the dashboard
LABEL = "hposvc.server"  # metadata key of the server's job
PORT_KEY, VERSION_KEY = "hposvc.port", "hposvc.version"  # more keys
PORT = 8900  # of the server on a cluster elsewhere, so that tunnels know it
START_S, POLL_S = 120.0, 0.5  # for the server to listen; between two looks
VALID = (datetime.datetime(2020, 1, 1), datetime.datetime(2120, 1, 1))  # the certificate


@dataclass(frozen=True)
class Identity:
    """Token, certificate and key by which a cluster's server and its clients know each other."""

    token: str
    certificate: str  # with `key`, in PEM form
    key: str

    @classmethod
    def of(cls, secret: str) -> "Identity":
        """Derive it from the cluster's token; the same token gives the same, on any machine."""
        seeds = [
            hmac.digest(secret.encode(), f"hposvc server: {use}".encode(), "sha256")
            for use in ("token", "key")
        ]
        key = Ed25519PrivateKey.from_private_bytes(seeds[1])
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
        certificate = (
            x509.CertificateBuilder(name, name, key.public_key(), 1, *VALID)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, None)
        )
        text = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        return cls(
            PREFIX + urlsafe_b64encode(seeds[0]).decode().rstrip("="),
            certificate.public_bytes(serialization.Encoding.PEM).decode(),
            text.decode(),
        )

    def trust(self) -> ssl.SSLContext:
        """Return what trusts this certificate alone, whatever the host is called."""
        context = ssl.create_default_context(cadata=self.certificate)
        context.check_hostname = False
        return context


def at(url: str, token: str | None = None, home: Path | None = None) -> ServedSweeps:
    """Return the server at a URL, or for ray+http://HEAD:8265 that of a Ray cluster.

    Args:
        token: of a server; None: see `find_token`. A cluster's server knows the cluster's token.
        home: None: HPOSVC_HOME, or ~/.hposvc.

    Raises:
        SpecError: the URL is none of a server, or the file of the token can't be read.
        JobsError, OutOfReach: see `find`.
    """
    if url.startswith(SCHEME):
        return find(Home.of(home), url.removeprefix(SCHEME))
    return ServedSweeps.at(url, token, home)


def find(home: Home, address: str | None) -> ServedSweeps:
    """Return the server of the cluster whose dashboard is at an address.

    Args:
        home: of this machine.
        address: None: this home's own cluster.

    Raises:
        JobsError: no dashboard answers, or it wants another token.
        OutOfReach: nobody has submitted to the cluster yet, so it has no server.
    """
    jobs = dial(home, address)
    job = _running(jobs)
    if job is None:
        message = f"{jobs.url} has no server of hposvc, so no sweeps"
        raise OutOfReach(message, fix=f"`hposvc submit SPEC --address {jobs.url}` starts one")
    return _server(home, jobs, job)


def find_or_start(home: Home, address: str | None, say: Callable[[str], None]) -> ServedSweeps:
    """Return the server of a cluster like `find`; start it if there is none.

    Its journal and tracker are those of this home, if they are on servers or the head sees their
    folders; else they are in the home of the user that runs Ray on the head.

    Raises:
        JobsError: no dashboard answers, or it wants another token.
        SpecError: the server refuses to start.
        OutOfReach: it can't be reached.
    """
    jobs = dial(home, address)
    job = _running(jobs)
    if job is not None:
        server = _server(home, jobs, job)
        _await(jobs, job, server)
        return server
    say(f"starting a server on {jobs.url}")
    variables = variables_of(home)
    folders = {name: folder_of(variables[name]) for name in ("HPOSVC_DB", "MLFLOW_TRACKING_URI")}
    proofs = [
        SharedFolderProbe.write("home", folder)
        for folder in dict.fromkeys([home.path, *folders.values()])
        if folder is not None
    ]
    elsewhere = {name: text for name, text in variables.items() if folders.get(name) is None}
    shared = {**variables, "HPOSVC_HOME": str(home.path)}
    try:
        job = _start(home, jobs, tuple(proofs), shared, elsewhere)
        server = _server(home, jobs, job)
        _await(jobs, job, server)
    finally:
        for proof in proofs:  # which a head that does not see them leaves here
            proof.delete()
    return server


def _running(jobs: Jobs) -> Job | None:
    job = remote_jobs.latest(jobs, LABEL, NAME)
    return None if job is None or job.ended else job


def _start(
    home: Home,
    jobs: Jobs,
    proofs: tuple[SharedFolderProbe, ...],
    shared: Mapping[str, str],
    elsewhere: Mapping[str, str],
) -> Job:
    own_cluster = local.find(home.path)
    is_own = own_cluster is not None and own_cluster.dashboard == jobs.url
    port = _free_port() if is_own else PORT
    identity = Identity.of(jobs.token or "")
    keys = (identity.token, identity.certificate, identity.key)
    payload = ServerPayload(port, *keys, proofs, shared, elsewhere)
    command = remote_jobs.command("cluster-server", jobs.send(payload.pack()))
    environment = remote_jobs.runtime_env(jobs, EMPTY_ARCHIVE)
    metadata = {PORT_KEY: f"{port}", VERSION_KEY: version("hposvc")}
    return remote_jobs.start(jobs, LABEL, NAME, command, environment, metadata)


def _server(home: Home, jobs: Jobs, job: Job) -> ServedSweeps:
    if job.metadata[VERSION_KEY] != version("hposvc"):
        raise OutOfReach(
            f"the server on {jobs.url} is hposvc {job.metadata[VERSION_KEY]}, and this is "
            f"{version('hposvc')}",
            fix=f"use that, or stop the job {job.id}: another submit starts it anew, and no sweep "
            "notices",
        )
    url = f"https://{urlsplit(jobs.url).hostname}:{job.metadata[PORT_KEY]}"
    identity = Identity.of(jobs.token or "")
    client = trusting(url, identity.trust(), NAME)
    return ServedSweeps(Http(url, identity.token, client, f"{SCHEME}{jobs.url}"), home)


def _await(jobs: Jobs, job: Job, server: ServedSweeps) -> None:
    """Wait until the server answers.

    Raises:
        OutOfReach: its job ends, or its port can't be reached from here.
        SpecError: the job refuses to serve.
    """

    def is_passing(error: Exception, waited_s: float) -> bool:
        if not isinstance(error, OutOfReach):
            return False
        current = with_retries(partial(jobs.find, job.id))
        if current is None or current.ended:
            raise job_error(current or job, jobs.log(job.id)) from None
        if waited_s > START_S:
            port = job.metadata[PORT_KEY]
            raise OutOfReach(
                f"{server.http.name}: its job {job.id} runs, but port {port} does not answer",
                fix="if you reach the dashboard through a tunnel, forward that port too: "
                f"ssh -L 8265:127.0.0.1:8265 -L {port}:127.0.0.1:{port} HEAD",
            ) from None
        return True

    retry(partial(server.http.get, "/healthz"), is_passing, (POLL_S,))


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        return int(listener.getsockname()[1])
