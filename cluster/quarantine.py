"""Nodes that nothing new is to start on: a file for each in a home, which people may delete too.

One file a node, put in place by a rename: no reader finds half of it, and no two writers meet.
"""

import json
import re
import tempfile
from pathlib import Path

FOLDER = "quarantine"
NAME = re.compile(r"[\w][\w.:-]*")


class BadName(ValueError):
    """No node is called so."""


def hold(home: Path, node: str, reason: str) -> None:
    """Start nothing new on a node, until it is lifted.

    Args:
        node: its name, as Ray and `hposvc cluster status` have it.
        reason: for people.

    Raises:
        BadName: it is no name of a node.
    """
    file = _file(home, node)
    file.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as made:
        json.dump({"node": node, "reason": reason}, made)
    Path(made.name).replace(file)


def lift(home: Path, node: str) -> bool:
    """Let things start there again; whether it was held.

    Raises:
        BadName: it is no name of a node.
    """
    file = _file(home, node)
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    return True


def held(home: Path) -> dict[str, str]:
    """The nodes that are held, each with the reason."""
    found = {}
    for file in sorted((home / FOLDER).glob("*.json")):
        try:
            told = json.loads(file.read_text())
        except FileNotFoundError:  # it was lifted just now
            continue
        found[str(told["node"])] = str(told["reason"])
    return found


def _file(home: Path, node: str) -> Path:
    if not NAME.fullmatch(node):
        raise BadName(f"node {node!r}: a name has letters, digits and . : _ - alone")
    return home / FOLDER / f"{node}.json"
