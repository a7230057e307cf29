"""Serve the application on an address of this machine."""

import fcntl
import ipaddress
import os
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import urlsplit

import uvicorn

from hposvc import api
from hposvc.errors import SpecError, fail
from hposvc.journal.claims import publish_rules
from hposvc.journal.home import PRIVATE
from hposvc.server import config
from hposvc.server.app import create_app
from hposvc.server.child_drivers import ChildDrivers
from hposvc.server.cluster_drivers import ClusterDrivers
from hposvc.server.service import Listening, Service
from hposvc.server.supervisor import Supervisor
from hposvc.spec.user_code import forbid_user_code

SHUTDOWN_S = 2  # for answers that are being given when the server is to end


def serve(
    sweeps: api.Sweeps,
    listening: Listening,
    operators: config.Config,
    drivers: int | None = None,
    cluster: str | None = None,
    read_only: bool = False,
    begun: Callable[[str], None] = lambda url: None,
) -> None:
    """Answer requests until SIGTERM or Ctrl-C; no code of users is imported from here on.

    Args:
        operators: the content of the operator's file.
        drivers: at once; None: as the operator's file says, or one for each CPU.
        cluster: the dashboard of the Ray cluster whose jobs drive the sweeps, http://HEAD:8265;
            None: processes of this machine drive them.
        read_only: refuse what changes something, and drive no sweep; another server may serve
            the home beside it.
        begun: called with the server's URL once it listens.

    Raises:
        SpecError: the address may not be served so, or is taken; another server serves this home.
        JobsError: the cluster does not answer.
    """
    check(listening)
    pages = _pages(listening, cluster)
    supervisor = None if read_only else _supervisor(sweeps, operators, drivers, cluster, pages)
    if not read_only:
        publish_rules(sweeps.journal.store, asdict(operators.queue))
    with closing(_listen(listening)) as listener:
        listening = replace(listening, port=listener.getsockname()[1])
        service = Service(sweeps, supervisor, operators, listening, read_only)
        forbid_user_code()
        server = uvicorn.Server(
            uvicorn.Config(
                create_app(service),
                log_level="warning",
                access_log=False,
                # uvicorn would take others where they happen to be installed.
                loop="asyncio",
                http="h11",
                ws="none",
                server_header=False,
                timeout_graceful_shutdown=SHUTDOWN_S,
                ssl_certfile=listening.tls_cert,
                ssl_keyfile=listening.tls_key,
                limit_concurrency=operators.requests.connections,
                # Without these, uvicorn believes any process of this machine that says who calls.
                proxy_headers=listening.behind_proxy,
                forwarded_allow_ips=[*operators.proxies] if listening.behind_proxy else [],
            )
        )
        with nullcontext() if read_only else alone(sweeps.home.path, listening.url):
            begun(listening.url)
            server.run([listener])


def _pages(listening: Listening, cluster: str | None) -> str:
    """Return the URL of this server's pages; on all addresses, that of the cluster's head."""
    head = urlsplit(cluster or "").hostname
    return (replace(listening, host=head) if listening.is_wildcard and head else listening).url


def _supervisor(
    sweeps: api.Sweeps,
    operators: config.Config,
    drivers: int | None,
    cluster: str | None,
    pages: str,
) -> Supervisor:
    """Return what starts the drivers of sweeps.

    Args:
        pages: URL of the server, for those who look at Ray's dashboard.
    """
    at_once = drivers or operators.drivers.max or max(2, os.cpu_count() or 1)
    rules = operators.notify.environment
    drivers_of_sweeps = (
        ClusterDrivers(sweeps, cluster, rules, pages)
        if cluster
        else ChildDrivers(sweeps.home, {**os.environ, **rules})
    )
    return Supervisor(sweeps, drivers_of_sweeps, at_once)


@contextmanager
def alone(home: Path, url: str) -> Iterator[None]:
    """Keep other servers off the home while the block runs.

    Raises:
        SpecError: another process serves the home; the message names it.
    """
    folder = home / "server"
    folder.mkdir(PRIVATE, exist_ok=True)
    with (folder / "serving.txt").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            message = f"{home} is served already, by {file.read() or 'another process'}"
            raise fail(message, "--home", fix="use that server, or give another home") from None
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} at {url}")
        file.flush()
        yield


def _listen(listening: Listening) -> socket.socket:
    """Return a socket that listens on the address.

    Raises:
        SpecError: another process listens there, or the address is not this machine's.
    """
    host, port = listening.host, listening.port
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        message = f"{host}:{port} can't be listened on: {error.strerror}"
        raise fail(message, "--port", fix="give another --port, or --host") from None
    # Connections inherit it. asyncio sets it for sockets that name their protocol, as these do not,
    # and each answer on a kept connection then took 46 ms in place of 1: it waited for an ACK.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listener


def check(listening: Listening) -> None:
    """Check that nobody on the network can read what is sent to this address.

    Raises:
        SpecError: the address is not this machine's own, and nothing does TLS; the certificate or
            its key can't be used.
    """
    if (listening.tls_cert is None) != (listening.tls_key is None):
        missing = "tls-key" if listening.tls_key is None else "tls-cert"
        raise _refused("is missing; TLS needs both a certificate and its key", missing)
    for option, file in (("tls-cert", listening.tls_cert), ("tls-key", listening.tls_key)):
        if file is not None and not file.is_file():
            raise _refused(f"{file} is no file; give one in PEM form", option)
    if listening.tls_cert is not None and listening.behind_proxy:
        raise _refused("with --tls-cert: the proxy does TLS; give one of them", "behind-proxy")
    if listening.tls_cert is None and not listening.behind_proxy and not is_own(listening.host):
        raise _refused(
            f"{listening.host or 'all'}: others reach this address, and without TLS they can read "
            "tokens on their way; give --tls-cert and --tls-key, or --behind-proxy if a proxy in "
            "front of this server does TLS, or --host 127.0.0.1 and an SSH tunnel",
            "host",
        )
    if listening.tls_cert is not None:
        _check_certificate(listening.tls_cert, listening.tls_key)


def _check_certificate(cert: Path, key: Path | None) -> None:
    """Check that the files hold a certificate and its key, without a password.

    Raises:
        SpecError: they do not, or can't be read.
    """
    try:
        # Without a password, OpenSSL would ask the terminal for that of a key.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password="")
    except OSError as error:  # ssl.SSLError among them
        why = error.strerror or f"{error}"
        message = f"{cert} and {key} can't be used: {why}"
        wanted = "give a certificate in PEM form and its key, which has no password"
        raise _refused(f"{message}; {wanted}", "tls-cert") from None


def _refused(message: str, option: str) -> SpecError:
    return fail(message, f"--{option}")


def is_own(host: str) -> bool:
    """Return whether only processes of this machine reach an address."""
    if not host:
        return False  # all addresses
    try:
        addresses = {ipaddress.ip_address(info[4][0]) for info in socket.getaddrinfo(host, None)}
    except OSError as error:
        raise _refused(f"{host} is no address of this machine: {error.strerror}", "host") from None
    return all(address.is_loopback for address in addresses)
