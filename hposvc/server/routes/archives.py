"""Archives of the files that a submitted sweep needs."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse
from pydantic import BaseModel

from hposvc.errors import NotFound
from hposvc.journal import submissions
from hposvc.server.access import ReaderOrAgent, Submitter
from hposvc.server.routes.sweeps import SweepId
from hposvc.server.service import Serving

router = APIRouter(tags=["archives"])

ZIP = {"content": {"application/zip": {"schema": {"type": "string", "format": "binary"}}}}
Sha256 = Annotated[str, InPath(pattern="^[0-9a-f]{64}$", description="Of the zip, in hex.")]


class Stored(BaseModel):
    """An archive that the server has."""

    archive: str
    created: bool


@router.put(
    "/archives/{sha256}",
    status_code=201,
    responses={200: {"model": Stored, "description": "It was there already."}},
    openapi_extra={"requestBody": {"required": True, **ZIP}},
)
async def put_archive(
    caller: Submitter, service: Serving, sha256: Sha256, request: Request, response: Response
) -> Stored:
    """Store a zip of plain files, for sweeps to come."""
    created = await service.archives.receive(sha256, request.stream())
    response.status_code = 201 if created else 200
    return Stored(archive=sha256, created=created)


@router.get("/sweeps/{id}/archive", response_class=FileResponse, responses={200: ZIP})
def get_archive(caller: ReaderOrAgent, service: Serving, sweep: SweepId) -> Any:
    """Return the files of a sweep as a zip, for its agents."""
    row = service.find(caller, sweep)
    submission = submissions.find(service.sweeps.journal.store, row.id)
    if submission is None or submission.archive is None:
        raise NotFound(f"{row.id} came without files")
    path = service.archives.zip(submission.archive)
    if not path.is_file():
        raise NotFound(f"the files of {row.id} are gone", "submit it anew with `new`")
    return FileResponse(path, media_type="application/zip", filename=f"{row.id}.zip")
