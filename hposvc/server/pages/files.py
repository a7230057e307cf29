"""The files of pages, which a browser may keep for ever because their names change."""

from fastapi import APIRouter, Response

from hposvc.errors import NotFound, shown
from hposvc.server.pages import assets

router = APIRouter()
KEPT = {"Cache-Control": "public, max-age=31536000, immutable"}


@router.get(assets.URL + "{name}")
async def get_file(name: str) -> Response:
    """Return a file of the pages."""
    asset = assets.find(name)
    if asset is None:
        raise NotFound(f"{shown(name)}: there is no such file", "load the page again")
    return Response(asset.content, media_type=asset.media_type, headers=KEPT)
