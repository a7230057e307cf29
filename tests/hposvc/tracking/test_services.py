"""Messages by apprise: to a receiver on this machine, and what an operator forbids."""

import io
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from receivers import receiver
from waiting import until

from hposvc.tracking import services
from hposvc.tracking.messages import Message
from hposvc.tracking.services import FIXED, SERVICES, send
from hposvc.tracking.webhook import HOSTS, NotSent

MESSAGE = Message("s.1.2.0", "done", "s-1", "s", "p", 0.0, "COMPLETED – 3 trials", "COMPLETED")


def address(room):
    """Return the address of a receiver, as one of apprise's, with a secret in it."""
    return room.url.replace("http://", "json://bot:sesame@")


def refusal(url, variables):
    with pytest.raises(NotSent) as caught:
        send(url, MESSAGE, variables)
    return caught.value


def test_a_service_gets_the_message():
    with receiver() as room:
        assert send(address(room), MESSAGE, {}) == "taken by json"
    (body,) = room.bodies
    assert body["title"] == "[hposvc] s-1: COMPLETED – 3 trials"
    assert body["message"].splitlines()[-1] == "look: hposvc status s-1"


@pytest.mark.parametrize(("status", "again"), [(404, False), (429, True), (503, True)])
def test_a_refusal_passes_or_not_and_tells_no_secret(status, again, caplog, monkeypatch):
    caplog.set_level(logging.DEBUG, "apprise")
    printed = io.StringIO()
    monkeypatch.setattr(logging.getLogger(), "handlers", [logging.StreamHandler(printed)])
    with receiver(statuses=[status], text="sesame") as room:
        error = refusal(address(room), {})
    assert (f"{error}", error.again) == (f"json: HTTP {status}", again)
    assert "sesame" not in printed.getvalue()


def test_services_that_are_told_at_once_keep_their_answers_apart():
    release = threading.Event()
    with (
        receiver(statuses=[404], release=release) as one,
        receiver(statuses=[503], release=release) as other,
        ThreadPoolExecutor(2) as pool,
    ):
        refusals = [pool.submit(refusal, address(room), {}) for room in (one, other)]
        until(lambda: one.received and other.received)
        release.set()
        assert [f"{each.result()}" for each in refusals] == ["json: HTTP 404", "json: HTTP 503"]


def test_nobody_there_is_tried_again_and_no_address_is_told():
    error = refusal("json://bot:sesame@127.0.0.1:9/secret", {})
    assert (f"{error}", error.again) == ("json did not take it", True)


def test_a_service_that_does_not_answer_costs_the_limit_and_no_more(monkeypatch):
    monkeypatch.setattr(services, "LIMIT_S", 0.5)
    with receiver(release=threading.Event()) as room:
        begun = time.monotonic()
        error = refusal(f"{address(room)}?rto=600", {})
        assert time.monotonic() - begun < 10.0
        room.release.set()
    assert error.again


@pytest.mark.parametrize("url", ["slack://bad", "nothing://x", "no address"])
def test_what_apprise_does_not_know_is_no_address(url):
    error = refusal(url, {})
    assert "no address of apprise" in f"{error}"
    assert not error.again


@pytest.mark.parametrize(
    ("url", "services", "hosts", "reason"),
    [
        ("json://a.example/x", FIXED, "a.example", "json is not among the `notify.services`"),
        ("JSON://a.example/x", FIXED, "a.example", "json is not among the `notify.services`"),
        ("syslog://", FIXED, "", "syslog is not among"),
        ("json://b.example/x", ["json"], "a.example", "b.example is not among"),
        ("json://a.example/x", ["json"], "public", "a.example is not among"),
        ("mailto://u:p@a.example?smtp=b.example", ["mailto"], "a.example", "b.example is not"),
        ("mailto://u:p@a.example?SMTP=b.example", ["mailto"], "a.example", "b.example is not"),
        ("slack://T/B/C/?template=/etc/passwd", FIXED, "", "may not read files"),
        ("slack://T/B/C/#c?Template=/etc/passwd", FIXED, "", "may not read files"),
        ("slack://T/B/C/?a=b;%2574emplate=/etc/passwd", FIXED, "", "may not read files"),
        ("slack://T/B/C", [], "", "file: none"),
    ],
)
def test_an_operator_says_which_services_and_hosts_there_are(url, services, hosts, reason):
    error = refusal(url, {SERVICES: ",".join(services), HOSTS: hosts})
    assert reason in f"{error}"
    assert not error.again


def test_an_operator_may_allow_a_service_on_a_host():
    with receiver() as room:
        allowed = {SERVICES: "json", HOSTS: "127.0.0.1"}
        assert send(address(room), MESSAGE, allowed) == "taken by json"


def test_no_service_that_is_allowed_unasked_takes_a_host_from_its_address():
    import apprise

    details = {
        scheme: each["details"]
        for each in apprise.Apprise().details()["schemas"]
        for scheme in (*(each["protocols"] or ()), *(each["secure_protocols"] or ()))
    }
    for scheme in FIXED:
        assert not any("{host" in template for template in details[scheme]["templates"])
