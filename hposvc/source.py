"""What a sweep's trainable was when it began, so that a change of it is seen."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hposvc import spec as specs
from hposvc.journal import SweepRow
from hposvc.reading.problems import fail
from hposvc.spec import SweepSpec
from trainables import load


def describe(spec: SweepSpec) -> dict[str, Any]:
    """What the journal keeps of the trainable.

    Raises:
        SpecError: there is no such file.
    """
    if spec.command is not None:
        files = named(spec.command, Path())
        return {
            "command": list(spec.command),
            "sha256": {item: checksum(file) for item, file in files.items()},
        }
    if spec.trainable is None:
        return {}
    try:
        return {"trainable": spec.trainable, "sha256": load.source_hash(spec.trainable)}
    except load.LoadError as error:
        raise fail(str(error).removeprefix("trainable "), "trainable") from error


def named(command: Sequence[str], folder: Path) -> dict[str, Path]:
    """The items of a command that are names of files, seen from this folder, and these."""
    found = {}
    for item in command:
        with suppress(OSError, ValueError):  # a whole script is too long for a name
            if (folder / item).is_file():
                found[item] = folder / item
    return found


def checksum(file: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_unchanged(row: SweepRow) -> None:
    """See that the trainable is what it was.

    Raises:
        SpecError: its source changed since the sweep began.
    """
    spec = specs.restore(row.spec)
    if describe(spec) != row.code:
        message = (
            f"{spec.runs} changed since {row.id} began; "
            "go on with the new code by --accept-code, or put the old one back"
        )
        raise fail(message, "trainable" if spec.trainable else "command")
