"""Requests to a server: the token, time limits, tries, and its errors as exceptions of ours.

A request that can't reach the server is tried again: until the server has answered once for a few
seconds, so that a wrong URL is reported soon; from then on for a minute, in which a server may
start again. A request that is no repetition of itself, such as one for more trials, is sent again
only if the server did not get it, or answered that it did nothing.
"""

import os
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from cluster.retries import retry
from hposvc.errors import (
    Busy,
    Denied,
    LeaseLost,
    NotFound,
    OutOfReach,
    Problem,
    SpecError,
    StoreError,
    SweepOver,
    fail,
)
from hposvc.events import NOTHING

if TYPE_CHECKING:
    import httpx

API = "/api/v1"
CONNECT_S = 5.0  # time limit of a connection
ANSWER_S = 60.0  # time limit of an answer, beyond the time for which the server was asked to wait
PATIENCE_S = 3.0  # for a server that has not answered yet
RESTART_S = 60.0  # for a server that has answered before
PAUSES_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # between two tries; the last one again and again
UNAVAILABLE = (429, 503)  # with Retry-After: the same request may be answered later
# Class of each code of an error; of others, which are about the server itself, OutOfReach.
ERRORS: Mapping[str, Callable[[str], Exception]] = {
    "not_found": NotFound,
    "busy": Busy,
    "lease_lost": LeaseLost,
    "sweep_over": SweepOver,
    "forbidden": Denied,
    "store_out_of_reach": StoreError,
}
# Codes of errors in what was asked for.
WRONG = ("spec_error", "bad_request", "id_taken", "too_large", "path_outside")
TOKEN, TOKEN_FILE = "HPOSVC_TOKEN", "HPOSVC_TOKEN_FILE"


class _ErrorAnswer(Exception):
    """A server has answered, with an error."""

    def __init__(self, response: "httpx.Response") -> None:
        super().__init__(response.status_code)
        self.response = response
        wait = response.headers.get("Retry-After", "")
        passes = response.status_code in UNAVAILABLE and wait.isdigit()
        # Seconds after which the same request may be answered; None: it will not be.
        self.after_s = min(float(wait), RESTART_S) if passes else None


class Http:
    """A server's API at a URL."""

    def __init__(
        self,
        url: str,
        token: str | None = None,
        client: "httpx.Client | None" = None,
        name: str | None = None,
    ) -> None:
        """Make no request yet.

        Args:
            url: http://HOST:PORT, or https://HOST.
            token: None: no token is sent.
            client: sends the requests; None: one for the URL.
            name: by which people call the server, as `--server` takes it; None: the URL.

        Raises:
            SpecError: the URL is none of a server.
        """
        import httpx  # takes a quarter of a second, which verbs without a server need not wait for

        self.url = url.rstrip("/")
        if urlsplit(self.url).scheme not in ("http", "https") or not urlsplit(self.url).hostname:
            raise fail(f"is {url!r}", "--server", fix="give http://HOST:8900, or https://HOST")
        if self.url.endswith(API):
            message = f"is {url!r}; leave out {API}, which is added to each request"
            raise fail(message, "--server")
        self.name = name or self.url
        self._client = client or httpx.Client(base_url=self.url)
        if token is not None:
            self._client.headers["Authorization"] = f"Bearer {token}"
        self._transport_errors = httpx.TransportError
        self._unsent = (httpx.ConnectError, httpx.ConnectTimeout)
        self._answered = False

    def get(
        self,
        path: str,
        query: Mapping[str, object] = NOTHING,
        wait_s: float = 0.0,
        work_s: float = 0.0,
    ) -> Any:
        """Return the JSON at a path of the API; a query's None is left out.

        Args:
            wait_s: for how long the server may wait for news.
            work_s: for how long the server may work on the answer.
        """
        given = {name: value for name, value in query.items() if value is not None}
        if wait_s:
            given["wait"] = wait_s
        return self._send("GET", path, True, wait_s + work_s, params=given).json()

    def content(self, path: str) -> bytes:
        """Return the file at a path of the API."""
        return self._send("GET", path, True).content

    def post(
        self,
        path: str,
        body: Mapping[str, object],
        repeatable: bool = False,
        key: str | None = None,
    ) -> Any:
        """Post a body as JSON, and return the answer's JSON.

        Args:
            repeatable: the same request sent twice does what it does once.
            key: by which the server knows a request that is sent twice; None: it knows none.
        """
        headers = {} if key is None else {"Idempotency-Key": key}
        repeatable = repeatable or key is not None
        return self._send("POST", path, repeatable, json=dict(body), headers=headers).json()

    def put(self, path: str, content: bytes) -> None:
        """Put a file."""
        self._send("PUT", path, True, content=content)

    def delete(self, path: str) -> Any:
        """Delete what is at a path, and return the answer's JSON."""
        return self._send("DELETE", path, False).json()

    def _send(
        self, method: str, path: str, repeatable: bool, wait_s: float = 0.0, **content: Any
    ) -> "httpx.Response":
        """Return the response to a request.

        Raises:
            SpecError, NotFound, Busy, Denied, StoreError, OutOfReach: the server said so.
            OutOfReach: the server does not answer.
        """
        place = path if path.startswith("/") else f"{API}/{path}"
        limits = (CONNECT_S, ANSWER_S + wait_s, ANSWER_S, ANSWER_S)  # connect, read, write, pool

        def ask() -> "httpx.Response":
            response = self._client.request(method, place, timeout=limits, **content)
            self._answered = True
            if not response.is_success:
                raise _ErrorAnswer(response)
            return response

        def is_passing(error: Exception, waited_s: float) -> bool:
            if waited_s > (RESTART_S if self._answered else PATIENCE_S):
                return False
            if isinstance(error, _ErrorAnswer):
                return error.after_s is not None
            return isinstance(error, self._unsent if not repeatable else self._transport_errors)

        try:
            return retry(ask, is_passing, PAUSES_S)
        except _ErrorAnswer as refusal:
            raise self._error(refusal.response) from None
        except self._transport_errors as error:
            raise OutOfReach(self._describe_silence(error)) from error

    def _describe_silence(self, error: Exception) -> str:
        why = f"{error}" or type(error).__name__
        fix = (
            "start one there by `hposvc serve`, or leave out --server (HPOSVC_SERVER) to work "
            "without one"
        )
        if "CERTIFICATE_VERIFY_FAILED" in why:
            fix = "if you trust its certificate, name the file of it in SSL_CERT_FILE"
        elif "WRONG_VERSION_NUMBER" in why or "RECORD_LAYER_FAILURE" in why:
            fix = "it speaks without TLS: give http:// in place of https://"
        elif self.url.startswith("http://") and "disconnected without" in why:
            fix = "if it speaks TLS, give https:// in place of http://"
        return f"{self.name}: no hposvc server answers ({why}); {fix}"

    def _error(self, response: "httpx.Response") -> Exception:
        """Return the error that a response describes."""
        try:
            entries = response.json()["errors"]
        except (ValueError, KeyError, TypeError):
            is_page = response.text.lstrip().startswith("<")  # which says nothing on a terminal
            text = "" if is_page else ": " + " ".join(response.text.split())[:200]
            return OutOfReach(
                f"{self.url}: {response.status_code} {response.reason_phrase}{text}; this is no "
                "answer of an hposvc server: check the URL, and the proxy if there is one"
            )
        return error_of(entries)


def error_of(entries: Sequence[Mapping[str, Any]]) -> Exception:
    """Return a server's errors as the exception that the same mistake raises without a server."""
    text, code = "\n".join(f"{entry['message']}" for entry in entries), entries[0]["code"]
    if code == "unauthorized":
        message = f"give the server's token in {TOKEN}, or in a file that {TOKEN_FILE} names"
        return Denied(f"{text}; {message}")
    if code in WRONG:
        return SpecError(map(_problem, entries))
    fixes = [fix for entry in entries if (fix := entry.get("fix")) and fix not in text]
    text = "; ".join([text, *fixes])
    return ERRORS.get(code, OutOfReach)(text)


def find_token() -> str | None:
    """Return the token in HPOSVC_TOKEN, or in the file that HPOSVC_TOKEN_FILE names; None: neither.

    Raises:
        SpecError: the file can't be read.
    """
    if os.environ.get(TOKEN):
        return os.environ[TOKEN].strip()
    if not os.environ.get(TOKEN_FILE):
        return None
    file = Path(os.environ[TOKEN_FILE]).expanduser()
    try:
        return file.read_text().strip()
    except OSError as error:
        message = f"{file} can't be read: {error.strerror}; write the server's token into it"
        raise fail(message, TOKEN_FILE) from error


def trusting(url: str, trust: ssl.SSLContext, host: str) -> "httpx.Client":
    """Return a client for a server whose certificate says more than its address.

    Args:
        host: by which the server is called, whatever the URL's is.
    """
    import httpx

    return httpx.Client(base_url=url, verify=trust, headers={"Host": host})


def _problem(entry: Mapping[str, Any]) -> Problem:
    """Return the problem that an entry describes, with the text of its message."""
    text, key, file = str(entry["message"]), entry.get("key"), entry.get("file") or ""
    fix = str(entry.get("fix") or "")
    position = [file, entry.get("line"), entry.get("column")]
    place = ":".join(f"{part}" for part in position if part not in (None, ""))
    begin = f"--set {key}: " if file == "--set" else "".join(f"{it}: " for it in (place, key) if it)
    message = text.removeprefix(begin).removesuffix(f"; {fix}")
    problem = Problem((key,) if key else (), message, fix, place=place)
    return problem if f"{problem}" == text else Problem((), text)
