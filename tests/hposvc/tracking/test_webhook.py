"""One request to a webhook. If these tests fail, a hostile URL reaches what only we may reach."""

import base64
import hashlib
import hmac
import socket
import ssl
import threading

import pytest
from certificates import write_certificate
from receivers import receiver

from hposvc.tracking import webhook
from hposvc.tracking.addresses import Allowed
from hposvc.tracking.webhook import NotSent, post, signature

HERE = Allowed.read("public,127.0.0.1")
NOBODY = Allowed.read("")


def refusal(url, allowed=NOBODY):
    with pytest.raises(NotSent) as caught:
        post(url, b"{}", {}, allowed)
    return caught.value


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]"),
        *("[::ffff:127.0.0.1]", "0", "169.254.169.254", "%31%32%37.0.0.1", "①②⑦.0.0.1"),
    ],
)
def test_however_a_host_is_written_loopback_is_not_reached(host):
    with receiver() as room:
        port = room.url.split(":")[2].split("/")[0]
        refusal(f"http://{host}:{port}/")
        assert room.received == []


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "gopher://127.0.0.1/x", "ftp://example.org/", "http://", "x"),
        *("http://user:sesame@example.org/", "http://example.org/\r\nX: y", "http://a b/"),
        *("http://example.org:99999/", "http://[::1/", "https://" + "a" * 3000),
    ],
)
def test_other_schemes_and_broken_urls_are_refused_without_being_repeated(url):
    error = refusal(url, HERE)
    assert not error.again
    assert "passwd" not in f"{error}"
    assert "sesame" not in f"{error}"


def test_the_connection_goes_to_the_address_that_was_checked(monkeypatch):
    """The name server's second answer would be another one."""
    answers = iter(["127.0.0.1", "169.254.169.254"])
    resolved = []

    def resolve(host, port, *rest, **options):
        resolved.append(host)
        address = next(answers) if host == "rebind.example" else host
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with receiver() as room:
        url = room.url.replace("127.0.0.1", "rebind.example")
        assert post(url, b"{}", {}, HERE) == "HTTP 200: ok"
        ((headers, _),) = room.received
        assert headers["host"].startswith("rebind.example:")
    assert resolved.count("rebind.example") == 1


def test_the_certificate_must_be_that_of_the_hosts_name(monkeypatch, tmp_path):
    certificate, key = write_certificate(tmp_path, "hook.example")
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}")
    monkeypatch.setattr(webhook, "_certificates", ssl.create_default_context)
    resolve = socket.getaddrinfo
    monkeypatch.setattr(
        socket, "getaddrinfo", lambda _, *rest, **k: resolve("127.0.0.1", *rest, **k)
    )
    with receiver() as room:
        encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        encryption.load_cert_chain(certificate, key)
        room.encrypt(encryption)
        port = room.url.split(":")[2]
        assert post(f"https://hook.example:{port}", b"{}", {}, HERE) == "HTTP 200: ok"
        error = refusal(f"https://other.example:{port}", HERE)
    assert "not valid for 'other.example'" in f"{error}"
    assert len(room.received) == 1


def test_one_address_that_is_not_public_among_several_refuses_the_host(monkeypatch):
    answers = [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 80))
        for address in ("93.184.215.14", "10.0.0.1")
    ]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: answers)
    assert (
        "two.example at 10.0.0.1 may not be reached: only public addresses"
        in f"{refusal('http://two.example/')}"
    )


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status):
    with receiver() as other, receiver(statuses=[status]) as room:
        room.headers["Location"] = other.url
        error = refusal(room.url, HERE)
        assert f"HTTP {status} leads elsewhere" in f"{error}"
        assert not error.again
        assert other.received == []


@pytest.mark.parametrize(
    ("status", "again"), [(400, False), (404, False), (410, False), (429, True), (500, True)]
)
def test_what_may_pass_is_tried_again_and_nothing_else(status, again):
    with receiver(statuses=[status], text="no\x00\x1b[31m such\nhook") as room:
        error = refusal(room.url, HERE)
    assert f"{error}" == f"HTTP {status}: no [31m such hook"
    assert error.again is again


def test_a_receiver_can_ask_for_a_pause():
    with receiver(statuses=[503], headers={"Retry-After": "7"}) as room:
        assert refusal(room.url, HERE).after_s == 7.0


def test_of_an_endless_answer_little_is_read_and_less_is_shown():
    with receiver(statuses=[500], text="x" * 5_000_000) as room:
        assert len(f"{refusal(room.url, HERE)}") < 250


def test_a_receiver_that_never_answers_costs_the_limit_and_no_more(monkeypatch):
    monkeypatch.setattr(webhook, "LIMIT_S", 0.2)
    with receiver(release=threading.Event()) as room:
        error = refusal(room.url, HERE)
    assert (f"{error}", error.again) == ("no answer within 0.2 s", True)


def test_a_receiver_that_trickles_its_answer_costs_the_limit_and_no_more(monkeypatch):
    monkeypatch.setattr(webhook, "LIMIT_S", 0.3)
    done = threading.Event()

    def trickle(listener):
        connection, _ = listener.accept()
        with connection:
            while not done.wait(0.05):
                connection.sendall(b"H")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=trickle, args=(listener,))
        thread.start()
        error = refusal(f"http://127.0.0.1:{listener.getsockname()[1]}/", HERE)
        done.set()
        thread.join()
    assert error.again


def test_nobody_there_is_tried_again_and_the_path_is_not_told():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = refusal(f"http://127.0.0.1:{port}/services/T0/B0/secret", HERE)
    assert error.again
    assert "secret" not in f"{error}"


def test_a_proxy_of_the_environment_is_not_asked(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:9")
    with receiver() as room:
        assert post(room.url, b"{}", {}, HERE) == "HTTP 200: ok"


def test_the_signature_is_that_of_standard_webhooks():
    key = b"0123456789"
    secret = f"whsec_{base64.b64encode(key).decode()}"
    head = signature(secret, "s.1", b'{"a":1}', 1700000000.4)
    digest = hmac.new(key, b's.1.1700000000.{"a":1}', hashlib.sha256).digest()
    assert head == {
        "webhook-id": "s.1",
        "webhook-timestamp": "1700000000",
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
    assert signature("0123456789", "s.1", b'{"a":1}', 1700000000.4) == head
    with pytest.raises(NotSent, match="no base64"):
        signature("whsec_!", "s.1", b"", 0.0)
