"""Secrets that came with a submitted sweep: a file of each sweep, readable by its user alone.

They are in no database and no log. The file is there until the sweep is over or deleted; the
sweep's driver gets them as variables of its process.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

from hposvc.journal.home import PRIVATE, Home


def write_draft(home: Home, values: Mapping[str, str]) -> Path:
    """Write secrets to a new file that belongs to no sweep yet, for `adopt`."""
    folder = home.path / "server" / "secrets"
    for made in (folder.parent, folder):
        made.mkdir(PRIVATE, exist_ok=True)
    draft = folder / f".{os.urandom(8).hex()}"
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(dict(values), file)
    return draft


def adopt(home: Home, sweep: str, draft: Path) -> None:
    """Make a draft the secrets of a sweep."""
    draft.replace(_file(home, sweep))


def read(home: Home, sweep: str) -> dict[str, str]:
    """Return the values of a sweep's secrets, by name; empty: none came with it."""
    try:
        values: dict[str, str] = json.loads(_file(home, sweep).read_text())
    except FileNotFoundError:
        return {}
    return values


def holders(home: Home) -> list[str]:
    """Return the sweeps that have secrets."""
    return sorted(path.stem for path in (home.path / "server" / "secrets").glob("[!.]*.json"))


def delete_drafts(home: Home) -> None:
    """Delete the drafts that a server left that is dead now."""
    for draft in (home.path / "server" / "secrets").glob(".*"):
        draft.unlink(missing_ok=True)


def delete(home: Home, sweep: str) -> None:
    """Delete the secrets of a sweep, if it has any."""
    _file(home, sweep).unlink(missing_ok=True)


def _file(home: Home, sweep: str) -> Path:
    return home.path / "server" / "secrets" / f"{sweep}.json"
