"""E-mail by SMTP, to a real server on this machine."""

import socket
import ssl

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult
from certificates import write_certificate

from hposvc.tracking.messages import Message
from hposvc.tracking.smtp import MailServer
from hposvc.tracking.webhook import NotSent

TEAM = ("team@example.org", "boss@example.org")
MESSAGE = Message("s.1.2.0", "done", "s-1", "s", "p", 0.0, "COMPLETED – 3 trials", "COMPLETED")


class Mailbox:
    def __init__(self):
        self.mails = []
        self.answer = "250 taken"

    async def handle_DATA(self, server, session, envelope):
        self.mails.append((envelope.rcpt_tos, envelope.content.decode(), session.ssl is not None))
        return self.answer


@pytest.fixture
def mailbox():
    box = Mailbox()

    def start(**options):
        with socket.create_server(("127.0.0.1", 0)) as free:  # Controller can't take port 0
            box.port = free.getsockname()[1]
        box.controller = Controller(box, hostname="127.0.0.1", port=box.port, **options)
        box.controller.start()
        return box

    box.start = start
    yield box
    box.controller.stop()


def refusal(server, recipients=TEAM):
    with pytest.raises(NotSent) as caught:
        server.send(MESSAGE, recipients)
    return caught.value


def test_each_recipient_gets_the_message(mailbox):
    port = mailbox.start().port
    server = MailServer.read(f"smtp://127.0.0.1:{port}?from=bot@example.org")
    assert server.send(MESSAGE, TEAM) == "taken by 127.0.0.1"
    ((recipients, text, _),) = mailbox.mails
    assert recipients == list(TEAM)
    assert "From: hposvc <bot@example.org>" in text
    assert "Message-ID: <s.1.2.0@hposvc>" in text


@pytest.mark.parametrize(("answer", "again"), [("451 later", True), ("554 spam", False)])
def test_a_refusal_is_final_or_passes_as_the_server_says(mailbox, answer, again):
    port = mailbox.start().port
    mailbox.answer = answer
    error = refusal(MailServer.read(f"smtp://127.0.0.1:{port}?from=bot@example.org"))
    assert (f"{error}", error.again) == (f"127.0.0.1: {answer}", again)


def test_encryption_and_a_password_are_used(mailbox, tmp_path, monkeypatch):
    certificate, key = write_certificate(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", f"{certificate}")
    encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    encryption.load_cert_chain(certificate, key)
    logins = []

    def check(server, session, envelope, mechanism, data):
        logins.append((data.login, data.password))
        return AuthResult(success=data.password == b"pa:ss", handled=False)

    mailbox.start(tls_context=encryption, authenticator=check, auth_required=True)
    url = f"localhost:{mailbox.port}?from=bot@example.org"
    MailServer.read(f"smtp://bot:pa%3Ass@{url}").send(MESSAGE, TEAM)
    assert [encrypted for *_, encrypted in mailbox.mails] == [True]
    error = refusal(MailServer.read(f"smtp://bot:wrong@{url}"))
    assert not error.again
    assert "wrong" not in f"{error}"
    assert logins[0] == (b"bot", b"pa:ss")


def test_a_certificate_that_nobody_vouches_for_is_refused(mailbox, tmp_path):
    certificate, key = write_certificate(tmp_path, "localhost")
    encryption = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    encryption.load_cert_chain(certificate, key)
    port = mailbox.start(tls_context=encryption).port
    error = refusal(MailServer.read(f"smtp://localhost:{port}?from=bot@example.org"))
    assert "CERTIFICATE_VERIFY_FAILED" in f"{error}"
    assert mailbox.mails == []


@pytest.mark.parametrize("url", ["", "mail.example.org", "http://x", "smtp://", "smtp://x:y:z"])
def test_a_setting_that_names_no_server_says_how_it_is_written(url):
    with pytest.raises(NotSent, match="give smtp://USER:PASSWORD@HOST:587") as caught:
        MailServer.read(url)
    assert not caught.value.again


def test_the_password_is_not_printed():
    assert "pass" not in repr(MailServer.read("smtps://bot:pass@mail.example.org"))
