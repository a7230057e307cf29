"""Files of the pages that browsers keep: their names change with their content."""

import hashlib
import mimetypes
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hposvc.reporting import chart

FOLDERS = (Path(__file__).parent / "static", Path(chart.__file__).parent / "assets")
SUFFIXES = (".css", ".js", ".svg")
URL = "/static/"


@dataclass(frozen=True)
class Asset:
    """A file as it is served."""

    content: bytes
    media_type: str


@cache
def _assets() -> tuple[dict[str, str], dict[str, Asset]]:
    """Return the served name of each file, and each file by its served name."""
    names: dict[str, str] = {}
    files: dict[str, Asset] = {}
    for path in (path for folder in FOLDERS for path in sorted(folder.iterdir())):
        if path.suffix in SUFFIXES:
            content = path.read_bytes()
            digest = hashlib.sha256(content).hexdigest()[:12]
            served = f"{path.stem}.{digest}{path.suffix}"
            names[path.name] = served
            files[served] = Asset(content, mimetypes.guess_type(path.name)[0] or "text/plain")
    return names, files


def url(name: str) -> str:
    """Return the address of a file."""
    return URL + _assets()[0][name]


def find(served: str) -> Asset | None:
    """Return the file with this served name; None: there is none."""
    return _assets()[1].get(served)
