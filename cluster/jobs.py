"""Jobs of a Ray cluster, over the REST API of its dashboard: submit, ask, stop, read the log.

This is what Ray's own client calls, without Ray: nothing is imported for it, it never waits without
end, and an address that is given is not overridden by RAY_ADDRESS. Checked against Ray 2.60.
"""

import hashlib
import json
import os
import secrets
import time
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.message import Message
from http.client import HTTPException
from pathlib import Path
from typing import IO, Any, Literal, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlsplit

ANSWER_S = 30.0
PATIENCE_S, RETRY_S = 30.0, 0.5  # for a dashboard that was there, and how often it is asked again
UPLOAD_S = 600.0
MOST_BYTES = 100 * 2**20  # that a dashboard takes at a time
# How names of packages begin in Ray; others are refused.
PACKAGE = "_ray_pkg_"
# What Ray would quote of a parcel if it could not store it is this, not what is inside.
SEAL = b"a parcel of hposvc\n"

Found = TypeVar("Found")
Phase = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]


class JobsError(Exception):
    """No dashboard answers, or it refuses."""


class TooLarge(JobsError):
    """A package is more than a dashboard takes."""


@dataclass(frozen=True)
class Job:
    """A job, as the cluster has it."""

    id: str
    state: Phase
    message: str  # why it is in this state
    exit_code: int | None  # of its command, once it has ended by itself
    metadata: Mapping[str, str]

    @property
    def ended(self) -> bool:
        """Whether nothing of it runs any more."""
        return self.state not in ("PENDING", "RUNNING")


@dataclass(frozen=True)
class Jobs:
    """The jobs of one cluster."""

    url: str
    token: str | None = field(default=None, repr=False)

    @classmethod
    def at(cls, address: str, environment: Mapping[str, str] = os.environ) -> "Jobs":
        """Those of the cluster whose dashboard is at this address, http://HEAD:8265.

        Raises:
            JobsError: nobody answers, somebody else does, or the token is not the one.
        """
        jobs = cls(_url(address), find_token(environment))
        version = jobs._ask("GET", "/api/version")
        if not isinstance(version, dict) or "ray_version" not in version:
            raise jobs._stranger()
        return jobs

    def find(self, job: str) -> Job | None:
        """The job with this submission id."""
        try:
            found = self._ask("GET", f"/api/jobs/{quote(job)}")
        except _Absent:
            return None
        return _job(found)

    def find_all(self, label: str, value: str) -> list[Job]:
        """The jobs that have this in their metadata, oldest first."""
        listed = [
            job
            for job in self._ask("GET", "/api/jobs/")
            if job["submission_id"] and (job.get("metadata") or {}).get(label) == value
        ]
        return [_job(job) for job in sorted(listed, key=lambda job: job.get("start_time") or 0)]

    def submit(
        self, job: str, command: str, runtime_env: Mapping[str, object], metadata: Mapping[str, str]
    ) -> bool:
        """Start a job; False: there is one of this id, though it may have ended."""
        body = {
            "entrypoint": command,
            "submission_id": job,
            "runtime_env": dict(runtime_env),
            "metadata": dict(metadata),
        }
        try:
            self._ask("POST", "/api/jobs/", json.dumps(body).encode())
        except JobsError:
            # Ray answers an id that is taken with a stack, and no code of its own.
            if self.find(job) is None:
                raise
            return False
        return True

    def log(self, job: str) -> str:
        """What the job's command has written so far."""
        try:
            return str(self._ask("GET", f"/api/jobs/{quote(job)}/logs").get("logs") or "")
        except _Absent:
            return ""

    def stop(self, job: str) -> None:
        """Ask for its end: SIGTERM, and SIGKILL after Ray's 3 seconds."""
        self._ask("POST", f"/api/jobs/{quote(job)}/stop")

    def forget(self, job: str) -> None:
        """Take a job that has ended off the list, which makes its id free; its log stays."""
        self._ask("DELETE", f"/api/jobs/{quote(job)}")

    def upload(self, archive: bytes) -> str:
        """Make a zip archive known to all nodes; the URI by which a runtime_env names it.

        Raises:
            TooLarge: it is more than a dashboard takes.
        """
        name = f"{PACKAGE}{hashlib.sha1(archive).hexdigest()}.zip"
        if not self._holds(name):
            self._put(name, archive, UPLOAD_S)
        return f"gcs://{name}"

    def send(self, content: bytes) -> str:
        """Hand over a parcel, which one job may take (parcels.py) under the name returned.

        It lies in the memory of the head and is no part of any job, so that no page, log or answer
        of Ray shows it; one that nobody takes is thrown away after ten minutes.
        """
        name = f"{PACKAGE}{secrets.token_hex(20)}.zip"
        self._holds(name)  # asking is what starts the ten minutes
        self._put(name, SEAL + content, ANSWER_S)
        return name

    def _holds(self, name: str) -> bool:
        try:
            self._ask("GET", f"/api/packages/gcs/{name}")
        except _Absent:
            return False
        return True

    def _put(self, name: str, content: bytes, timeout_s: float) -> None:
        if len(content) >= MOST_BYTES:
            size = f"{len(content) / 2**20:.0f} MiB"
            raise TooLarge(f"{size} compressed; Ray takes {MOST_BYTES // 2**20} MiB at most")
        self._ask("PUT", f"/api/packages/gcs/{name}", content, timeout_s)

    def _ask(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float = ANSWER_S
    ) -> Any:
        """The JSON that comes back; None where there is none."""
        request = urllib.request.Request(f"{self.url}{path}", body, method=method)
        request.add_header("Content-Type", "application/json" if method == "POST" else "text/plain")
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with _opener().open(request, timeout=timeout_s) as answer:
                text = answer.read()
        except HTTPError as error:
            raise self._refusal(error) from error
        except (OSError, HTTPException, ValueError) as error:
            why = getattr(error, "reason", error)
            raise JobsError(
                f"no Ray dashboard answers at {self.url}: {why}; "
                "give the head's address as http://HEAD:8265"
            ) from error
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            raise self._stranger() from error

    def _refusal(self, error: HTTPError) -> JobsError:
        if error.code == 401:
            return JobsError(
                f"{self.url} wants a token; set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to its file"
            )
        if error.code == 403:
            return JobsError(
                f"{self.url} takes another token; RAY_AUTH_TOKEN (or the file that "
                "RAY_AUTH_TOKEN_PATH names) must hold the cluster's own"
            )
        text = error.read().decode(errors="replace").strip()
        if error.code == 404 and "does not exist" in text:
            return _Absent(text)
        if error.code < 500:
            return self._stranger()
        last = text.splitlines()[-1] if text else error.reason
        return JobsError(f"{self.url} refuses: {last}")

    def _stranger(self) -> JobsError:
        return JobsError(
            f"{self.url} answers, but is no Ray dashboard; give the head's, http://HEAD:8265"
        )


def patiently(ask: Callable[[], Found]) -> Found:
    """The answer of a dashboard that answered before and may be away for a moment.

    Raises:
        JobsError: it stays away.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            return ask()
        except JobsError:
            if time.monotonic() > deadline:
                raise
        time.sleep(RETRY_S)


def find_token(environment: Mapping[str, str] = os.environ) -> str | None:
    """The cluster's token, where Ray looks for it; None: there is none.

    Raises:
        JobsError: a file is named that can't be read.
    """
    if environment.get("RAY_AUTH_MODE") == "disabled":
        return None
    if environment.get("RAY_AUTH_TOKEN"):
        return environment["RAY_AUTH_TOKEN"].strip()
    given = environment.get("RAY_AUTH_TOKEN_PATH")
    file = Path(given or "~/.ray/auth_token").expanduser()
    try:
        return file.read_text().strip() or None
    except OSError as error:
        if given:
            raise JobsError(f"RAY_AUTH_TOKEN_PATH: {file} can't be read") from error
        return None


class _Absent(JobsError):
    """The dashboard does not have it."""


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A token is for the address that was given, and for no other."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message,
        newurl: str,
    ) -> None:  # fmt: skip
        return None


def _job(found: Mapping[str, Any]) -> Job:
    return Job(
        found["submission_id"],
        found["status"],
        found.get("message") or "",
        found.get("driver_exit_code"),
        found.get("metadata") or {},
    )


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_NoRedirects)


def _url(address: str) -> str:
    url = address if "://" in address else f"http://{address}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise JobsError(
            f"{address} is no address of a dashboard; give the head's as http://HEAD:8265"
        )
    return url.rstrip("/")
