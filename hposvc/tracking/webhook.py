"""Post a message to a webhook, signed if it has a secret."""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping

import httpx

from hposvc.errors import shorten
from hposvc.spec.notify import check_url
from hposvc.tracking.messages import plain

HOSTS = "HPOSVC_NOTIFY_HOSTS"  # the variable with the only hosts to reach; unset: any
LIMIT_S = 15.0  # to connect, and for each part of an answer
LONGEST_S = 300.0  # that a receiver may ask to wait
SHOWN = 200  # characters of an answer in a message
SECRET_PREFIX = "whsec_"  # of a secret in base64, by standardwebhooks.com
TRY_AGAIN = frozenset({408, 425, 429})  # statuses below 500 that may pass


class NotSent(Exception):
    """A message was not sent; the text holds neither the URL's path nor a secret."""

    def __init__(self, reason: str, again: bool, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.again = again  # whether another attempt may succeed
        self.after_s = after_s  # seconds that the receiver asked to wait


def post(url: str, body: bytes, headers: Mapping[str, str], variables: Mapping[str, str]) -> str:
    """Send a body of JSON, and return what the receiver answered, for people.

    Raises:
        NotSent: the URL is refused, or nobody took the message.
    """
    head = {"User-Agent": "hposvc", "Content-Type": "application/json", **headers}
    try:
        target = httpx.URL(check_url(url))
        check_host(target.host, variables)
        with httpx.stream("POST", target, content=body, headers=head, timeout=LIMIT_S) as answer:
            begin = next(answer.iter_raw(), b"")[: 4 * SHOWN]  # no more: it may have no end
    except (ValueError, httpx.InvalidURL):
        raise NotSent("the address is no https://HOST/PATH, or holds a password", False) from None
    except httpx.HTTPError as error:
        text = f"{error}".replace(url, "URL")
        raise NotSent(plain(f"{type(error).__name__}: {text}", SHOWN), again=True) from None
    text = plain(begin.decode("utf-8", "replace"), SHOWN)
    answered = f"HTTP {answer.status_code}{f': {text}' if text else ''}"
    if answer.is_success:
        return answered
    wait = answer.headers.get("Retry-After", "")
    after_s = float(wait) if wait.isascii() and wait.isdigit() else 0.0
    raise NotSent(answered, may_pass(answer.status_code), min(after_s, LONGEST_S))


def check_host(host: str, variables: Mapping[str, str]) -> None:
    """Check that the operator of a server allows a host.

    Raises:
        NotSent: the operator does not.
    """
    if HOSTS in variables and host.lower() not in variables[HOSTS].lower().split(","):
        reason = f"{shorten(host)} is not among the `notify.hosts` of the server's file"
        raise NotSent(reason, again=False)


def may_pass(status: int) -> bool:
    """Return whether the same request may get another answer later."""
    return status >= 500 or status in TRY_AGAIN


def signature(secret: str, message: str, body: bytes, now: float) -> dict[str, str]:
    """Return the headers that prove to a receiver with the same secret who sent a body.

    Source: standardwebhooks.com, HMAC-SHA256 over `id.timestamp.body`.
    """
    timestamp = f"{now:.0f}"
    signed = f"{message}.{timestamp}.".encode() + body
    digest = hmac.new(_key(secret), signed, hashlib.sha256).digest()
    return {
        "webhook-id": message,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


def _key(secret: str) -> bytes:
    if secret.startswith(SECRET_PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(SECRET_PREFIX), validate=True)
        except binascii.Error:
            raise NotSent("the secret begins with whsec_, and is no base64", again=False) from None
    return secret.encode()
