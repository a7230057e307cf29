"""E-mail through the SMTP server that HPOSVC_SMTP names, encrypted always."""

import smtplib
import ssl
from dataclasses import dataclass, field
from email.errors import MessageError
from socket import getfqdn
from urllib.parse import parse_qs, unquote, urlsplit

from hposvc.spec.notify import SMTP
from hposvc.tracking.messages import Message, plain
from hposvc.tracking.webhook import NotSent

LIMIT_S = 15.0  # of each answer of the server
HERE = ("localhost", "127.0.0.1", "::1")  # a server here may do without encryption
SHOWN = 200


@dataclass(frozen=True)
class MailServer:
    """An SMTP server. `smtp` is encrypted by STARTTLS, `smtps` from the beginning."""

    scheme: str
    host: str
    port: int
    sender: str
    user: str = ""
    password: str = field(default="", repr=False)

    @classmethod
    def read(cls, url: str) -> "MailServer":
        """Return the server of a URL.

        Raises:
            NotSent: the URL is none; the text does not hold it.
        """
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            parts, host, port = urlsplit(""), None, None
        if parts.scheme not in ("smtp", "smtps") or not host:
            form = "smtp://USER:PASSWORD@HOST:587?from=ADDRESS, or smtps://… for port 465"
            found = "is not set where the sweep's driver runs" if not url else "is no such URL"
            raise NotSent(f"{SMTP} {found}; give {form}", again=False)
        sender = parse_qs(parts.query).get("from", [f"hposvc@{getfqdn()}"])[0]
        return cls(
            parts.scheme,
            host,
            port or {"smtp": 587, "smtps": 465}[parts.scheme],
            sender,
            unquote(parts.username or ""),
            unquote(parts.password or ""),
        )

    def send(self, message: Message, recipients: tuple[str, ...]) -> str:
        """Send a message, and return what the server said, for people.

        Raises:
            NotSent: the server did not take it for all recipients.
        """
        try:
            mail = message.email(self.sender, recipients)
            with self._connect() as server:
                if self.user:
                    server.login(self.user, self.password)
                refused = server.send_message(mail)
        except smtplib.SMTPRecipientsRefused as error:
            refused = error.recipients
        except smtplib.SMTPResponseException as error:
            text = error.smtp_error
            said = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
            reason = plain(f"{self.host}: {error.smtp_code} {said}", SHOWN)
            raise NotSent(reason, again=error.smtp_code < 500) from None
        except (smtplib.SMTPNotSupportedError, MessageError, ValueError) as error:
            raise NotSent(plain(f"{self.host}: {error}", SHOWN), again=False) from None
        except (smtplib.SMTPException, OSError) as error:
            text = f"{type(error).__name__}: {error}"
            raise NotSent(plain(f"{self.host}: {text}", SHOWN), again=True) from None
        if refused:
            reasons = ", ".join(f"{name} ({code})" for name, (code, _) in refused.items())
            again = all(code < 500 for code, _ in refused.values())
            raise NotSent(plain(f"{self.host} refused {reasons}", SHOWN), again)
        return f"taken by {self.host}"

    def _connect(self) -> smtplib.SMTP:
        encryption = ssl.create_default_context()
        if self.scheme == "smtps":
            return smtplib.SMTP_SSL(self.host, self.port, timeout=LIMIT_S, context=encryption)
        server = smtplib.SMTP(self.host, self.port, timeout=LIMIT_S)
        try:
            server.ehlo()
            if self.host not in HERE or server.has_extn("starttls"):
                server.starttls(context=encryption)
        except (smtplib.SMTPException, OSError):
            server.close()
            raise
        return server
