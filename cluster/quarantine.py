"""Quarantine of nodes, on which nothing new may start: a file per node, which people may delete.

Each file is put in place by a rename: no reader sees a partial file, and writers do not conflict.
"""

import re
import tempfile
from contextlib import suppress
from pathlib import Path

FOLDER = "quarantine"
NAME = re.compile(r"[\w][\w.:-]*")


class BadName(ValueError):
    """The text cannot be the name of a node."""

    exit_code = 2  # of the command line: bad usage


class NotHeld(LookupError):
    """The node is not in quarantine."""

    exit_code = 4  # of the command line: not found


def hold(home: Path, node: str, reason: str) -> None:
    """Put a node into quarantine, until `lift`.

    Args:
        node: its name, as shown by Ray and `hposvc cluster status`.
        reason: for people.

    Raises:
        BadName: `node` cannot be a name.
    """
    file = _file(home, node)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as draft:
        draft.write(reason.encode("utf-8", "backslashreplace"))
    Path(draft.name).replace(file)


def lift(home: Path, node: str) -> None:
    """Release a node from quarantine.

    Raises:
        BadName: `node` cannot be a name.
        NotHeld: it is not in quarantine.
    """
    file = _file(home, node)
    try:
        file.unlink()
    except FileNotFoundError:
        nodes = ", ".join(held(home)) or "none"
        raise NotHeld(f"{node}: it is not held; held are: {nodes}") from None


def held(home: Path) -> dict[str, str]:
    """Return the nodes in quarantine, each with the reason."""
    reasons = {}
    for file in sorted((home / FOLDER).glob("*.txt")):
        with suppress(FileNotFoundError):  # it was lifted just now
            reasons[file.stem] = file.read_text("utf-8")
    return reasons


def _file(home: Path, node: str) -> Path:
    if not NAME.fullmatch(node):
        raise BadName(f"node {node!r}: a name has letters, digits and . : _ - alone")
    return home / FOLDER / f"{node}.txt"
