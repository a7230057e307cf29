"""One request to a webhook. If these tests fail, a hostile URL reaches what only we may reach."""

import base64
import hashlib
import hmac
import socket
import threading
from contextlib import suppress

import pytest
from receivers import receiver

from hposvc.tracking import webhook
from hposvc.tracking.webhook import HOSTS, NotSent, post, signature


def refusal(url, variables=None):
    with pytest.raises(NotSent) as caught:
        post(url, b"{}", {}, variables or {})
    return caught.value


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "[::1]"),
        *("[::ffff:127.0.0.1]", "0", "169.254.169.254", "%31%32%37.0.0.1", "①②⑦.0.0.1"),
    ],
)
def test_however_a_host_is_written_one_that_the_operator_does_not_name_is_not_reached(host):
    with receiver() as room:
        port = room.url.split(":")[2].split("/")[0]
        for hosts in ("", "a.example,b.example"):
            error = refusal(f"http://{host}:{port}/", {HOSTS: hosts})
            assert not error.again
        assert room.received == []


def test_a_host_that_the_operator_names_is_reached():
    with receiver() as room:
        variables = {HOSTS: "a.example,LOCALHOST"}
        assert post(room.url.replace("127.0.0.1", "localhost"), b"{}", {}, variables)
        assert room.bodies == [{}]


@pytest.mark.parametrize(
    "url",
    [
        *("file:///etc/passwd", "gopher://127.0.0.1/x", "ftp://example.org/", "http://", "x"),
        *("http://user:sesame@example.org/", "http://example.org/\r\nX: y", "http://a b/"),
        *("http://example.org:99999/", "http://[::1/", "https://" + "a" * 3000),
    ],
)
def test_other_schemes_and_broken_urls_are_refused_without_being_repeated(url):
    error = refusal(url)
    assert not error.again
    assert "passwd" not in f"{error}"
    assert "sesame" not in f"{error}"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(status):
    with receiver() as other, receiver(statuses=[status]) as room:
        room.headers["Location"] = other.url
        error = refusal(room.url)
        assert f"{error}".startswith(f"HTTP {status}")
        assert not error.again
        assert other.received == []


@pytest.mark.parametrize(
    ("status", "again"), [(400, False), (404, False), (410, False), (429, True), (500, True)]
)
def test_what_may_pass_is_tried_again_and_nothing_else(status, again):
    with receiver(statuses=[status], text="no\x00\x1b[31m such\nhook") as room:
        error = refusal(room.url)
    assert f"{error}" == f"HTTP {status}: no [31m such hook"
    assert error.again is again


def test_a_receiver_can_ask_for_a_pause():
    with receiver(statuses=[503], headers={"Retry-After": "7"}) as room:
        assert refusal(room.url).after_s == 7.0
        room.headers["Retry-After"] = "99999"
        assert refusal(room.url).after_s == webhook.LONGEST_S


def test_of_an_endless_answer_only_the_begin_is_read_and_less_is_shown():
    def answer_for_ever(listener):
        connection, _ = listener.accept()
        with connection, suppress(OSError):
            connection.sendall(b"HTTP/1.1 500 Wrong\r\n\r\n")
            while True:
                connection.sendall(b"x" * 1000)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer_for_ever, args=(listener,))
        thread.start()
        error = refusal(f"http://127.0.0.1:{listener.getsockname()[1]}/")
        thread.join()
    assert f"{error}".startswith("HTTP 500: xxx")
    assert len(f"{error}") < 250


def test_a_receiver_that_never_answers_costs_the_limit_and_no_more(monkeypatch):
    monkeypatch.setattr(webhook, "LIMIT_S", 0.2)
    with receiver(release=threading.Event()) as room:
        error = refusal(room.url)
    assert (f"{error}"[:11], error.again) == ("ReadTimeout", True)


def test_nobody_there_is_tried_again_and_the_path_is_not_told():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    error = refusal(f"http://127.0.0.1:{port}/services/T0/B0/secret")
    assert error.again
    assert "secret" not in f"{error}"


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
