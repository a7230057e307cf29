"""Submit sweeps, fork them, and train trials again.

No `operation` makes these routes: the same request sent again answers with its first sweep, files
and secrets come with it, and a driver elsewhere begins the sweep.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Header, Response
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, SecretStr

from hposvc.journal.submissions import Submission
from hposvc.server import submissions
from hposvc.server.access import Reader, Submitter
from hposvc.server.models import Accepted
from hposvc.server.problems import ApiError
from hposvc.server.routes.sweeps import SweepId, TrialId
from hposvc.server.service import Service, Serving
from hposvc.server.submissions import SubmissionRequest

router = APIRouter(tags=["sweeps"])

MAX_FILES = 2**20  # bytes of all `files`; an archive may be larger
MAX_SECRET = 2**16  # characters

Text = Annotated[str, Field(pattern=r"^[^\x00]*$")]  # a database has no NUL
Key = Annotated[Text | None, Header(min_length=1, max_length=250)]
Secret = Annotated[SecretStr, Field(min_length=1, max_length=MAX_SECRET)]


def check_files(files: dict[str, str] | None) -> dict[str, str] | None:
    """Return files that came in a body, once their size is checked."""
    parts = [*(files or {}), *(files or {}).values()]
    size = sum(len(part.encode(errors="replace")) for part in parts)
    if size > MAX_FILES:
        message = f"files: is {size} bytes in all, {MAX_FILES} are allowed"
        fix = "put them to /api/v1/archives/SHA256 as a zip, and give `archive`"
        raise ApiError(413, "too_large", message, key="files", fix=fix)
    return files


class SubmitBody(BaseModel):
    """A sweep to run."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "example": {
                "spec": {
                    "name": "line",
                    "trainable": "train.py:train",
                    "metric": {"name": "loss", "goal": "minimize"},
                    "parameters": {"lr": {"min": 1e-4, "max": 0.1, "log": True}},
                    "trials": {"max": 8},
                },
                "files": {
                    "train.py": "def train(config):\n    return {'loss': config['lr'] ** 2}\n"
                },
            }
        },
    )

    spec: dict[str, Any] | str = Field(description="The spec: a mapping, or its YAML text.")
    id: Text | None = Field(default=None, description="The sweep's id; null: NAME-DIGEST.")
    files: Annotated[dict[str, str] | None, AfterValidator(check_files)] = Field(
        default=None,
        description="Texts by their relative paths, 1 MiB in all; the spec's paths begin there.",
    )
    archive: str | None = Field(
        default=None,
        pattern="^[0-9a-f]{64}$",
        description="SHA-256 of a stored archive, in place of files.",
    )
    new: bool = Field(
        default=False, description="Make a new sweep, even if this one was submitted before."
    )
    secrets: dict[str, Secret] = Field(
        default={}, description="Values of the secrets that the spec names; they are never shown."
    )


class ForkBody(BaseModel):
    """A sweep that learns from another."""

    model_config = ConfigDict(extra="forbid", strict=True)

    set: dict[str, Any] = Field(
        default={}, description="Changes of the spec, by their dotted keys."
    )
    id: Text | None = Field(
        default=None, description="The new sweep's id; null: NAME and random digits."
    )
    secrets: dict[str, Secret] = Field(
        default={},
        description="Values of secrets; those of the first sweep are taken while it is not over.",
    )


class ReproBody(BaseModel):
    """How to train a trial again."""

    model_config = ConfigDict(extra="forbid", strict=True)

    accept_code: bool = Field(
        default=False, description="Train it even if the trainable's code has changed."
    )
    secrets: dict[str, Secret] = Field(default={}, description="As of a fork.")


@router.post("/sweeps", status_code=202)
def submit_sweep(
    caller: Submitter,
    service: Serving,
    body: SubmitBody,
    response: Response,
    idempotency_key: Key = None,
) -> Accepted:
    """Submit a sweep; the same sweep again answers with the first one."""
    if body.files is not None and body.archive is not None:
        message = "files: is given, and so is archive; leave one of them out"
        raise ApiError(400, "bad_request", message, key="files")
    request = SubmissionRequest(
        body.spec,
        body.id,
        body.files,
        body.archive,
        body.new,
        reveal(body.secrets),
        idempotency_key,
    )
    submission = submissions.submit(service, caller, request)
    return _accepted(service, submission, response)


@router.post("/sweeps/{id}/fork", status_code=202)
def fork_sweep(
    caller: Reader,
    service: Serving,
    sweep: SweepId,
    response: Response,
    body: ForkBody | None = None,
    idempotency_key: Key = None,
) -> Accepted:
    """Submit a new sweep with the spec of another, from whose trials it learns."""
    asked = body or ForkBody()
    row = service.find(caller, sweep)
    request = SubmissionRequest({}, asked.id, secrets=reveal(asked.secrets), key=idempotency_key)
    submission = submissions.fork(service, caller, row, asked.set, request)
    return _accepted(service, submission, response)


@router.post("/sweeps/{id}/trials/{t}/repro", status_code=202)
def reproduce_trial(
    caller: Reader,
    service: Serving,
    sweep: SweepId,
    trial: TrialId,
    response: Response,
    body: ReproBody | None = None,
) -> Accepted:
    """Train a trial again in a new sweep; `GET /sweeps/{id}/repro` of that compares the two."""
    asked = body or ReproBody()
    row, secrets = service.find(caller, sweep), reveal(asked.secrets)
    submission = submissions.reproduce(service, caller, row, trial, asked.accept_code, secrets)
    return _accepted(service, submission, response)


def reveal(secrets: Mapping[str, SecretStr]) -> dict[str, str]:
    """Return the values of secrets that came in a body."""
    return {name: value.get_secret_value() for name, value in secrets.items()}


def _accepted(service: Service, submission: Submission, response: Response) -> Accepted:
    row = service.sweeps.journal.find(submission.sweep)
    if row is None:
        message = f"{submission.sweep} was deleted a moment ago; send the request again"
        raise ApiError(409, "busy", message)
    response.headers["Location"] = f"/api/v1/sweeps/{row.id}"
    with service.folded.open(row) as folded:
        phase = folded.record().phase
    return Accepted(sweep=row.id, state=phase, operation=submission.operation)
