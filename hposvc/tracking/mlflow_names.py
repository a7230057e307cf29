"""The names and values that MLflow takes; this file does not import MLflow."""

import hashlib
import posixpath
import re
from dataclasses import replace

from hposvc.tracking.projection import DESCRIPTION, RunContent
from searchers import as_text
from trainables.contract import encodable

NESTING = "mlflow.parentRunId"  # MLflow's tag for the run under which a run is nested
NOTE = "mlflow.note.content"  # MLflow's tag for a run's description
MOST_TEXT = 6000  # characters of a param; MLflow cuts longer ones, and refuses longer names
MOST_NAME = 250
DIGITS = 6  # of the hash in a changed name
CHANGED = re.compile(rf"-[0-9a-f]{{{DIGITS}}}$")  # the end of names that this file makes


def legal_name(name: str) -> str:
    """Return the name as MLflow has it: itself, if MLflow takes it.

    Otherwise characters that MLflow refuses become underscores, and a hash of what was changed
    follows, so that `recall@10` and `recall%10` stay apart, also from `recall_10`, in every sweep
    alike. Places are counted from the end: `recall@10` and `best/recall@10` have the same hash.
    """
    plain = _plain(name)
    if plain == name and not CHANGED.search(name):
        return name
    kept = MOST_NAME - DIGITS - 1
    pairs = enumerate(zip(name, plain, strict=False))
    changes = [(len(name) - place, was) for place, (was, now) in pairs if was != now]
    hashed = encodable(f"{changes}{name[kept:]}").encode()
    return f"{plain[:kept]}-{hashlib.sha256(hashed).hexdigest()[:DIGITS]}"


def _plain(name: str) -> str:
    """Return the name with underscores in place of what MLflow refuses."""
    plain = re.sub(r"[^/\w.\- :]", "_", name)
    if plain != posixpath.normpath(plain) or plain.startswith("/"):
        plain = plain.replace("/", "_")
    if plain in ("", ".") or plain.startswith(".."):
        plain = f"_{plain}"
    return plain[:MOST_NAME]


def legal_entry(entry: RunContent) -> RunContent:
    """Return an entry as MLflow holds it: legal names, and params as text."""
    tags = {NOTE if name == DESCRIPTION else name: text for name, text in entry.tags.items()}
    return replace(
        entry,
        params={
            legal_name(name): as_text(value)[:MOST_TEXT] for name, value in entry.params.items()
        },
        tags={legal_name(name): text[:MOST_TEXT] for name, text in tags.items()},
        points=[point._replace(name=legal_name(point.name)) for point in entry.points],
    )
