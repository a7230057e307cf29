"""Send a request to a webhook whose URL may be hostile.

The host is resolved once, every address is checked, and the connection goes to a checked address:
another answer of the name server in between changes nothing. No redirect is followed, the whole
request has a time limit, and of the answer at most `MOST_BYTES` are read.
"""

import asyncio
import base64
import binascii
import hashlib
import hmac
import socket
import ssl
from collections.abc import Mapping
from functools import cache

import httpx

from hposvc.errors import shorten
from hposvc.spec.notify import check_url
from hposvc.tracking.addresses import ALLOWED, Allowed
from hposvc.tracking.messages import plain

LIMIT_S = 15.0  # of a whole request, with the look-up of its host
MOST_BYTES = 4096  # read of an answer
SHOWN = 200  # characters of an answer in a message
SECRET_PREFIX = "whsec_"  # of a secret in base64, by standardwebhooks.com
TRY_AGAIN = frozenset({408, 425, 429})  # statuses below 500 that may pass


class NotSent(Exception):
    """A message was not sent; the text holds neither the URL's path nor a secret."""

    def __init__(self, reason: str, again: bool, after_s: float = 0.0) -> None:
        super().__init__(reason)
        self.again = again  # whether another attempt may succeed
        self.after_s = after_s  # seconds that the receiver asked to wait


def post(url: str, body: bytes, headers: Mapping[str, str], allowed: Allowed) -> str:
    """Send a body of JSON, and return what the receiver answered, for people.

    Raises:
        NotSent: the URL is refused, or nobody took the message.
    """
    try:
        check_url(url)
    except ValueError as error:
        raise NotSent(f"the address {error}", again=False) from None
    try:
        return asyncio.run(_within_limit(httpx.URL(url), body, headers, allowed))
    except TimeoutError:
        raise NotSent(f"no answer within {LIMIT_S:g} s", again=True) from None
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        text = f"{error}".replace(url, "URL") or "the connection broke"
        again = not isinstance(error, httpx.InvalidURL | UnicodeError)
        raise NotSent(plain(f"{type(error).__name__}: {text}", SHOWN), again) from None


async def _within_limit(
    url: httpx.URL, body: bytes, headers: Mapping[str, str], allowed: Allowed
) -> str:
    async with asyncio.timeout(LIMIT_S):
        port = url.port or {"http": 80, "https": 443}[url.scheme]
        address = await _resolve(url.host, port, allowed)
        return await _exchange(url, address, body, headers)


async def _resolve(host: str, port: int, allowed: Allowed) -> str:
    """Return an address of a host, once all its addresses are checked."""
    loop = asyncio.get_running_loop()
    try:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise NotSent(f"{shorten(host)} is not found: {error.strerror}", again=True) from None
    addresses = list(dict.fromkeys(f"{entry[4][0]}" for entry in found))
    for address in addresses:
        if not allowed.permits(host, address):
            raise NotSent(
                f"{shorten(host)} at {address} may not be reached: only {allowed}; for more, set "
                f"{ALLOWED}, or `notify` in the server's file",
                again=False,
            )
    return addresses[0]


async def _exchange(url: httpx.URL, address: str, body: bytes, headers: Mapping[str, str]) -> str:
    """Post to a checked address in the name of the URL's host."""
    head = {"Host": url.netloc.decode("ascii"), "User-Agent": "hposvc", **headers}
    head["Content-Type"] = "application/json"
    named = {"sni_hostname": url.raw_host.decode("ascii")}  # what the certificate must be for
    async with httpx.AsyncClient(
        verify=_certificates(), trust_env=False, follow_redirects=False, timeout=LIMIT_S
    ) as client:
        target = url.copy_with(host=address)
        request = client.build_request("POST", target, content=body, headers=head, extensions=named)
        answer = await client.send(request, stream=True)
        try:
            received = b""
            async for part in answer.aiter_raw(MOST_BYTES):
                received += part
                if len(received) >= MOST_BYTES:
                    break
        finally:
            await answer.aclose()
    return _judge(answer, received[:MOST_BYTES])


_certificates = cache(ssl.create_default_context)


def _judge(answer: httpx.Response, received: bytes) -> str:
    """Return an answer for people, if the receiver took the message."""
    text = plain(received.decode("utf-8", "replace"), SHOWN)
    answered = f"HTTP {answer.status_code}{f': {text}' if text else ''}"
    if answer.is_success:
        return answered
    if answer.is_redirect:
        reason = f"HTTP {answer.status_code} leads elsewhere; give the address that it leads to"
        raise NotSent(reason, again=False)
    again = answer.status_code >= 500 or answer.status_code in TRY_AGAIN
    wait = answer.headers.get("Retry-After", "")
    is_number = wait.isascii() and wait.isdigit() and len(wait) < 6
    raise NotSent(answered, again, float(wait) if is_number else 0.0)


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
