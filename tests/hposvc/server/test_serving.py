"""On which addresses the server listens, and how; it ends at once, and leaves its drivers."""

import datetime
import ipaddress
import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager, suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from real_server import Served, ending_drivers
from waiting import until

from hposvc import api
from hposvc.errors import SpecError
from hposvc.events import Attached
from hposvc.journal.lease import holder
from hposvc.server import serving
from hposvc.server.service import Listening
from hposvc.server.serving import check


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.5"])
def test_an_address_of_this_machine_alone_needs_no_tls(host):
    check(Listening(host, 8900))


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1"])
def test_any_other_address_needs_tls_here_or_in_a_proxy(host, tmp_path):
    with pytest.raises(SpecError, match=r"--host: .*--tls-cert and --tls-key, or --behind-proxy"):
        check(Listening(host, 8900))
    check(Listening(host, 8900, behind_proxy=True))
    cert, key = write_certificate(tmp_path)
    check(Listening(host, 8900, cert, key))


def test_files_that_are_no_certificate_with_its_key_are_refused(tmp_path):
    cert, key = write_certificate(tmp_path)
    with pytest.raises(SpecError, match=r"--tls-cert: .* can't be used: .*PEM form"):
        check(Listening("0.0.0.0", 8900, key, cert))
    (tmp_path / "other").mkdir()
    _, another = write_certificate(tmp_path / "other")
    with pytest.raises(SpecError, match=r"--tls-cert: .* can't be used: .*mismatch"):
        check(Listening("0.0.0.0", 8900, cert, another))


@pytest.mark.long
def test_a_server_with_tls_knows_its_callers_and_believes_no_header_about_them(tmp_path):
    cert, key = write_certificate(tmp_path)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "hposvc", "serve", "--host", "0.0.0.0", "--port", str(port)]
    command += ["--tls-cert", str(cert), "--tls-key", str(key)]
    environment = {key: value for key, value in os.environ.items() if "HPOSVC" not in key}
    environment["HPOSVC_HOME"] = str(tmp_path / "home")
    server = subprocess.Popen(command, env=environment)
    try:
        context = ssl.create_default_context(cafile=str(cert))

        def ask(path, **headers):
            request = urllib.request.Request(f"https://127.0.0.1:{port}{path}", headers=headers)
            try:
                with urllib.request.urlopen(request, context=context, timeout=30) as response:
                    return response.status
            except urllib.error.HTTPError as error:
                return error.code

        def healthy():
            assert server.poll() is None
            with suppress(urllib.error.URLError):
                return ask("/healthz") == 200

        until(healthy)
        assert ask("/api/v1/me") == 200  # a caller on this machine
        assert ask("/api/v1/me", **{"X-Forwarded-For": "127.0.0.1"}) == 401
        assert ask("/api/v1/me", Authorization="Bearer hpo_wrong") == 401
        assert ask("/api/v1/me", Host="evil.example") == 403
        assert ask("/api/v1/me", Origin="https://evil.example") == 403
    finally:
        server.terminate()
        server.wait(30)


def write_certificate(folder):
    """Write a certificate for 127.0.0.1, signed by itself, and return it and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    addresses = [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    cert = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(addresses), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "cert.pem", folder / "key.pem"
    paths[0].write_bytes(cert.public_bytes(serialization.Encoding.PEM))
    private = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    paths[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, private, plain))
    return paths


CODE = """
import time
from pathlib import Path

def train(params, worker):
    for step in worker.steps():
        while step > 1 and not Path(__file__).with_name("go").exists():
            time.sleep(0.02)
        worker.report(step, {"loss": params["x"] + 1 / step})
"""
ENDS_S = 10.0  # on a busy machine; without waits that end, it would be a minute


@contextmanager
def server(home):
    running = Served(home)
    try:
        yield running.process, running.url
    finally:
        running.kill()


@pytest.fixture
def home(tmp_path):
    with ending_drivers(tmp_path / "home"):
        yield tmp_path / "home"


def post(url, body):
    request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
    request.add_header("Content-Type", "application/json")
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.loads(answer.read())


def get(url):
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.loads(answer.read())


@pytest.mark.long
def test_a_server_ends_at_once_and_its_sweep_goes_on_under_the_next_one(home, tmp_path):
    files = tmp_path / "files"
    files.mkdir()
    (files / "waiting_code.py").write_text(CODE)
    spec = {
        **{"name": "s", "engine": "local", "trainable": f"{files}/waiting_code.py:train"},
        **{"metric": {"name": "loss", "goal": "minimize"}, "fidelity": {"max": 3}},
        **{"parameters": {"x": {"min": 0.0, "max": 6.0}}, "trials": {"max": 1}},
        **{"resources": {"workers": 1}, "training": {"strategy": "single"}},
        "tracking": {"send_to": []},
    }
    with server(home) as (process, url):
        name = post(f"{url}/api/v1/sweeps", {"spec": spec})["sweep"]
        sweeps = api.Sweeps.open(home)
        until(lambda: holder(sweeps.journal.store, name).state == "alive", "driven")
        driver = holder(sweeps.journal.store, name).place
        with (
            pytest.raises(SpecError, match=rf"is served already, by process {process.pid} .*{url}"),
            serving.alone(home, "http://127.0.0.1:1"),
        ):
            pass
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(ENDS_S)
        assert time.monotonic() - began < ENDS_S
    assert holder(sweeps.journal.store, name).place == driver
    with server(home) as (process, url):
        (files / "go").touch()
        until(lambda: get(f"{url}/api/v1/sweeps/{name}")["state"] == "COMPLETED", "completed")
        process.send_signal(signal.SIGINT)
        process.wait(ENDS_S)
    attached = [event for _, event in sweeps.journal.read(name) if isinstance(event, Attached)]
    assert [event.driver for event in attached] == [driver]


def test_a_home_is_served_by_one_server_and_by_another_when_that_has_ended(tmp_path):
    with (
        serving.alone(tmp_path, "http://127.0.0.1:8900"),
        pytest.raises(
            SpecError, match=r"is served already, by process .* at http://127.0.0.1:8900"
        ),
        serving.alone(tmp_path, "http://127.0.0.1:8901"),
    ):
        pass
    with serving.alone(tmp_path, "http://127.0.0.1:8901"):
        assert "8901" in (tmp_path / "server" / "serving.txt").read_text()


def test_a_port_that_is_taken_is_refused(sweeps):
    with serving._listen(Listening("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            SpecError, match=rf"127.0.0.1:{port} can't be listened on: Address already"
        ):
            serving._listen(Listening("127.0.0.1", port))


def test_an_answer_is_sent_at_once():
    with serving._listen(Listening("127.0.0.1", 0)) as listener:
        caller = socket.create_connection(listener.getsockname())
        connection, _ = listener.accept()
        with caller, connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
