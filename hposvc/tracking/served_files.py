"""The files of a run that a tracking server hands out.

The server that the operator names gets MLflow's own settings of access, passwords and tokens among
them. Another one, which a spec names, gets none of them.
"""

import json
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from io import BytesIO
from tempfile import SpooledTemporaryFile
from typing import IO, TYPE_CHECKING, Any

import requests
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request
from urllib3.exceptions import HTTPError
from urllib3.util import parse_url

from hposvc.errors import NotFound, shown
from hposvc.tracking.mlflow_client import TrackerError, mlflow_errors
from hposvc.tracking.mlflow_server import hide_passwords
from hposvc.tracking.run_files import (
    MOST_ENTRIES,
    Listing,
    LoggedFile,
    TooLarge,
    too_large,
    without_odd,
)

if TYPE_CHECKING:
    from requests import Response

WAIT_S = 3.0  # for a connection, and between two parts of an answer
LIST = "/api/2.0/mlflow/artifacts/list"
MOST_LISTED = 1 << 20  # bytes of a list
PART = 1 << 16  # bytes
IN_MEMORY = 1 << 20  # bytes of a file; a larger one waits on the disk
PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True)
class ServedFiles:
    """The files of a run on a tracking server."""

    uri: str
    run: str
    until: float  # by the monotonic clock; nothing is waited for after that
    operators: str  # the URI of the MLflow server that the operator names

    def entries(self, folder: str) -> Listing:
        """Return what is in a folder."""
        asked = {"run_id": self.run, **({"path": folder} if folder else {})}
        content = BytesIO()
        with self._get(LIST, asked) as response:
            self._check(response)
            self._copy(response, "a list of files", MOST_LISTED, content)
        try:
            answer = json.loads(content.getvalue())
            listed = answer.get("files", [])
            files = [_logged(each) for each in listed[:MOST_ENTRIES]]
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise TrackerError(f"{self._name}: its list of files makes no sense") from error
        sound = [file for file in files if file is not None]
        is_whole = len(listed) <= MOST_ENTRIES and not answer.get("next_page_token")
        return without_odd(Listing(sound, is_whole, len(files) - len(sound)))

    def open(self, path: str, most: int) -> IO[bytes]:
        """Fetch a file, and open it: it can be sent slowly without keeping MLflow waiting."""
        with self._get("/get-artifact", {"run_uuid": self.run, "path": path}) as response:
            if response.status_code in (400, 404, 500):  # MLflow's, for files that are not there
                raise NotFound(f"{shown(path)}: MLflow has no such file of this trial")
            self._check(response)
            with ExitStack() as undo:
                fetched: IO[bytes] = undo.enter_context(SpooledTemporaryFile(IN_MEMORY))
                self._copy(response, path, most, fetched)
                undo.pop_all()
        fetched.seek(0)
        return fetched

    @property
    def _name(self) -> str:
        return hide_passwords(f"MLflow at {self.uri}")

    @contextmanager
    def _get(self, path: str, asked: Mapping[str, str]) -> "Iterator[Response]":
        """Ask the server, once, and go nowhere else: an answer may lead to another host."""
        left_s = self.until - time.monotonic()
        if left_s <= 0:
            raise TrackerError(f"{self._name} is too slow")
        settings = {
            "params": dict(asked),
            "timeout": min(WAIT_S, left_s),
            "stream": True,
            "allow_redirects": False,
        }
        try:
            with mlflow_errors(self.uri), self._ask(path, settings) as response:
                yield response
        except (HTTPError, ValueError) as error:  # an address or an answer that makes no sense
            raise TrackerError(hide_passwords(f"{self._name}: {error}")) from error

    def _ask(self, path: str, settings: dict[str, Any]) -> "Response":
        # Compressed, a small answer may be as large as the memory.
        headers = {"Accept-Encoding": "identity"}
        if self.is_operators:
            response: Response = http_request(  # type: ignore[no-untyped-call]
                get_default_host_creds(self.uri),  # type: ignore[no-untyped-call]
                path,
                "GET",
                max_retries=0,
                raise_on_status=False,
                extra_headers=headers,
                **settings,
            )
            return response
        with requests.Session() as session:
            session.trust_env = False  # .netrc has passwords
            return session.get(f"{self.uri.rstrip('/')}{path}", headers=headers, **settings)

    @property
    def is_operators(self) -> bool:
        """Whether the server is the one that the operator names."""
        return _origin(self.uri) == _origin(self.operators)

    def _check(self, response: "Response") -> None:
        if response.status_code in (401, 403) and not self.is_operators:
            why = "the server's credentials are for MLFLOW_TRACKING_URI alone"
            raise TrackerError(f"{self._name} answers {response.status_code}: {why}")
        if response.status_code != 200:
            raise TrackerError(f"{self._name} answers {response.status_code}")
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise TrackerError(f"{self._name} compresses its answers; that is not allowed here")

    def _copy(self, response: "Response", name: str, most: int, target: IO[bytes]) -> None:
        """Copy an answer.

        Raises:
            TooLarge: it has more bytes than `most`.
            TrackerError: it takes too long.
        """
        left = most
        # Not `iter_content`, which waits for a whole part however slowly its bytes come.
        while part := response.raw.read1(PART, decode_content=False):
            left -= len(part)
            if left < 0:
                raise TooLarge(too_large(name, most))
            target.write(part)
            if time.monotonic() > self.until:
                raise TrackerError(f"{self._name} is too slow: {shown(name)}")


def _origin(uri: str) -> tuple[str | None, str | None, int | None]:
    """Return scheme, host and port of an address, as the library that connects to it reads them."""
    parsed = parse_url(uri.strip())
    return parsed.scheme, parsed.host, parsed.port or PORTS.get(parsed.scheme or "")


def _logged(listed: Mapping[str, Any]) -> LoggedFile | None:
    """Return an entry of MLflow's list; None: its size makes no sense."""
    try:
        size = int(listed.get("file_size", 0))
    except (ValueError, OverflowError):  # NaN, Infinity
        return None
    is_sound = 0 <= size < 1 << 63
    return LoggedFile(f"{listed['path']}", size, bool(listed.get("is_dir"))) if is_sound else None
