"""Jobs of a Ray cluster, over the REST API of its dashboard: submit, find, stop, read the log.

These are the calls of Ray's own client, without Ray: nothing needs importing, every wait has a
timeout, and RAY_ADDRESS does not override a given address. Checked against Ray 2.60.
"""

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from urllib.parse import quote, urlsplit

from cluster.retries import retry

if TYPE_CHECKING:
    import httpx

ANSWER_S = 30.0
PATIENCE_S, RETRY_S = 30.0, 0.5  # total and interval of retries if a dashboard stops answering
UPLOAD_S = 600.0
MOST_BYTES = 100 * 2**20  # that a dashboard accepts in one request
# Ray's prefix of package names; it refuses others.
PACKAGE = "_ray_pkg_"
# If Ray could not store a payload, its error would quote this beginning instead of the content.
SEAL = b"a payload of hposvc\n"

Result = TypeVar("Result")
Phase = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]


class JobsError(Exception):
    """No dashboard answers, or it refuses the request."""

    exit_code = 5  # of the command line: out of reach


class PackageTooLarge(JobsError):
    """A package is larger than a dashboard accepts."""


@dataclass(frozen=True)
class Job:
    """A job, as recorded by the cluster."""

    id: str
    state: Phase
    message: str  # the reason for the state
    exit_code: int | None  # of its command, once it has ended by itself
    metadata: Mapping[str, str]

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self.state not in ("PENDING", "RUNNING")


@dataclass(frozen=True)
class Jobs:
    """The jobs of one cluster."""

    url: str
    token: str | None = field(default=None, repr=False)

    @classmethod
    def at(cls, address: str, environment: Mapping[str, str] = os.environ) -> "Jobs":
        """Return the jobs of the cluster with its dashboard at this address, http://HEAD:8265.

        Raises:
            JobsError: nothing answers, or something else than a dashboard, or the token is wrong.
        """
        jobs = cls(_url(address), find_token(environment))
        if "ray_version" not in jobs.get("/api/version", dict):
            raise jobs._not_a_dashboard_error()
        return jobs

    def find(self, job: str) -> Job | None:
        """Return the job with this submission id; None: there is no such job."""
        try:
            return _parse_job(self.get(f"/api/jobs/{quote(job)}", dict))
        except _NotFound:
            return None

    def find_all(self, label: str, value: str | None = None) -> list[Job]:
        """Return the jobs with this label in their metadata, oldest first.

        Args:
            value: of the label; None: any.
        """
        matching = [
            job
            for job in self.get("/api/jobs/", list)
            if job["submission_id"] and label in (metadata := job.get("metadata") or {})
            if value in (None, metadata[label])
        ]
        return [
            _parse_job(job) for job in sorted(matching, key=lambda job: job.get("start_time") or 0)
        ]

    def submit(
        self,
        job: str,
        command: str,
        runtime_env: Mapping[str, object],
        metadata: Mapping[str, str],
        needs: Mapping[str, object] = MappingProxyType({}),
    ) -> bool:
        """Start a job; return False if the id is already taken, even by a job that has ended.

        Args:
            needs: of the command: `entrypoint_num_cpus`, `entrypoint_label_selector`, ... as Ray
                calls them; empty: it runs on the head.
        """
        body = {
            "entrypoint": command,
            "submission_id": job,
            "runtime_env": dict(runtime_env),
            "metadata": dict(metadata),
            **needs,
        }
        try:
            self._ask("POST", "/api/jobs/", json.dumps(body).encode())
        except JobsError:
            # Ray answers for a taken id with a stack trace, and no error code of its own.
            if self.find(job) is None:
                raise
            return False
        return True

    def log(self, job: str) -> str:
        """Return the output of the job's command so far."""
        try:
            return str(self.get(f"/api/jobs/{quote(job)}/logs", dict).get("logs") or "")
        except _NotFound:
            return ""

    def stop(self, job: str) -> None:
        """Stop a job: Ray sends SIGTERM, and SIGKILL after 3 seconds."""
        self._ask("POST", f"/api/jobs/{quote(job)}/stop")

    def upload(self, archive: bytes) -> str:
        """Upload a zip archive for all nodes, and return its URI for a runtime_env.

        Raises:
            TooLarge: the archive is larger than a dashboard accepts.
        """
        name = f"{PACKAGE}{hashlib.sha1(archive).hexdigest()}.zip"
        if not self._has_package(name):
            self._upload_package(name, archive, UPLOAD_S)
        return f"gcs://{name}"

    def send(self, content: bytes) -> str:
        """Upload a secret payload for one job, and return the name to take it (secret_transfer.py).

        The payload is in the memory of the head and belongs to no job, so no page, log or response
        of Ray shows it; if nothing takes it, Ray deletes it after ten minutes.
        """
        name = f"{PACKAGE}{secrets.token_hex(20)}.zip"
        self._has_package(name)  # this request starts the ten minutes
        self._upload_package(name, SEAL + content, ANSWER_S)
        return name

    def _has_package(self, name: str) -> bool:
        try:
            self._ask("GET", f"/api/packages/gcs/{name}")
        except _NotFound:
            return False
        return True

    def _upload_package(self, name: str, content: bytes, timeout_s: float) -> None:
        if len(content) >= MOST_BYTES:
            size = f"{len(content) / 2**20:.0f} MiB"
            raise PackageTooLarge(f"{size} compressed; Ray takes {MOST_BYTES // 2**20} MiB at most")
        self._ask("PUT", f"/api/packages/gcs/{name}", content, timeout_s)

    def get(self, path: str, shape: type[Result]) -> Result:
        """Return the JSON at a path, in the shape that a dashboard gives it; a proxy may not."""
        answer = self._ask("GET", path)
        if not isinstance(answer, shape):
            raise self._not_a_dashboard_error()
        return answer

    def _ask(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float = ANSWER_S
    ) -> Any:
        """Send a request and return the JSON of the response; None: it is empty."""
        import httpx  # takes a quarter of a second, for which no other verb waits

        headers = {"Content-Type": "application/json" if method == "POST" else "text/plain"}
        if self.token:  # which no redirect takes elsewhere: httpx follows none
            headers["Authorization"] = f"Bearer {self.token}"
        url = f"{self.url}{path}"
        try:
            answer = httpx.request(method, url, content=body, headers=headers, timeout=timeout_s)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
            raise JobsError(
                f"no Ray dashboard answers at {self.url}: {error}; "
                "give the head's address as http://HEAD:8265"
            ) from error
        if not answer.is_success:
            raise self._refusal(answer)
        try:
            return answer.json() if answer.content else None
        except ValueError as error:
            raise self._not_a_dashboard_error() from error

    def _refusal(self, answer: "httpx.Response") -> JobsError:
        if answer.status_code == 401:
            return JobsError(
                f"{self.url} wants a token; set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH to its file"
            )
        if answer.status_code == 403:
            return JobsError(
                f"{self.url} takes another token; RAY_AUTH_TOKEN (or the file that "
                "RAY_AUTH_TOKEN_PATH names) must hold the cluster's own"
            )
        text = answer.text.strip()
        if answer.status_code == 404 and "does not exist" in text:
            return _NotFound(text)
        if answer.status_code < 500:
            return self._not_a_dashboard_error()
        last = text.splitlines()[-1] if text else answer.reason_phrase
        return JobsError(f"{self.url} refuses: {last}")

    def _not_a_dashboard_error(self) -> JobsError:
        return JobsError(
            f"{self.url} answers, but is no Ray dashboard; give the head's, http://HEAD:8265"
        )


def with_retries(ask: Callable[[], Result]) -> Result:
    """Return the answer of a dashboard, which may be down for a moment.

    Raises:
        JobsError: the dashboard still does not answer after PATIENCE_S.
    """

    def is_passing(error: Exception, waited_s: float) -> bool:
        return isinstance(error, JobsError) and waited_s < PATIENCE_S

    return retry(ask, is_passing, (RETRY_S,))


def find_token(environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the cluster's token from where Ray looks for it; None: there is no token.

    Raises:
        JobsError: the file named by RAY_AUTH_TOKEN_PATH can't be read.
    """
    if environment.get("RAY_AUTH_MODE") == "disabled":
        return None
    if environment.get("RAY_AUTH_TOKEN"):
        return environment["RAY_AUTH_TOKEN"].strip()
    path = environment.get("RAY_AUTH_TOKEN_PATH")
    file = Path(path or "~/.ray/auth_token").expanduser()
    try:
        return file.read_text().strip() or None
    except OSError as error:
        if path:
            raise JobsError(f"RAY_AUTH_TOKEN_PATH: {file} can't be read") from error
        return None


class _NotFound(JobsError):
    """The dashboard does not have the requested item."""


def _parse_job(found: Mapping[str, Any]) -> Job:
    return Job(
        found["submission_id"],
        found["status"],
        found.get("message") or "",
        found.get("driver_exit_code"),
        found.get("metadata") or {},
    )


def _url(address: str) -> str:
    url = address if "://" in address else f"http://{address}"
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise JobsError(
            f"{address} is no address of a dashboard; give the head's as http://HEAD:8265"
        )
    return url.rstrip("/")
