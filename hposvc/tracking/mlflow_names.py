"""The names and values that MLflow takes; this file does not import MLflow."""

import posixpath
import re
from dataclasses import replace

from hposvc.tracking.projection import DESCRIPTION, Entry

NESTING = "mlflow.parentRunId"  # MLflow's tag for the run under which a run is nested
NOTE = "mlflow.note.content"  # MLflow's tag for a run's description
MOST_TEXT = 6000  # characters of a param; MLflow cuts longer ones, and refuses longer names
MOST_NAME = 250


def legal_name(name: str) -> str:
    """Return the name with characters that MLflow refuses replaced by underscores."""
    plain = re.sub(r"[^/\w.\- :]", "_", name)
    if plain != posixpath.normpath(plain) or plain.startswith("/"):
        plain = plain.replace("/", "_")
    if plain in ("", ".") or plain.startswith(".."):
        plain = f"_{plain}"
    return plain[:MOST_NAME]


def legal_entry(entry: Entry) -> Entry:
    """Return an entry as MLflow holds it: legal names, and params as text."""
    tags = {NOTE if name == DESCRIPTION else name: text for name, text in entry.tags.items()}
    return replace(
        entry,
        params={legal_name(name): str(value)[:MOST_TEXT] for name, value in entry.params.items()},
        tags={legal_name(name): text[:MOST_TEXT] for name, text in tags.items()},
        points=[point._replace(name=legal_name(point.name)) for point in entry.points],
    )
