"""Fingerprints of a sweep's code: checksums of its trainable, to notice when it changes."""

import hashlib
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from hposvc import spec as specs
from hposvc.errors import fail
from hposvc.spec import SweepSpec
from trainables import load

CODE_SUFFIXES = (".py", ".sh", ".R", ".jl", ".js", ".lua", ".pl", ".rb")  # suffixes of programs


def describe(spec: SweepSpec) -> dict[str, Any]:
    """Return the record of the trainable for the journal: its name or command, and checksums.

    Raises:
        SpecError: the trainable's file does not exist.
    """
    if spec.variants is not None:  # frozen
        return {"variants": spec.variants.trees}
    if spec.command is not None:
        files = _command_files(spec)
        return {
            "command": list(spec.program_items),
            "sha256": {item: checksum(file) for item, file in files.items()},
        }
    if spec.trainable is None:
        return {}
    code = {"trainable": spec.trainable, "sha256": _source_hash(spec.trainable, "trainable")}
    made = {make: _source_hash(make, "datasets", name) for name, make in spec.datasets.items()}
    return {**code, "datasets": made} if made else code


def _source_hash(reference: str, *path: str) -> str:
    try:
        return load.source_hash(reference)
    except load.LoadError as error:
        raise fail(str(error).removeprefix("trainable "), *path) from error


def fingerprint(spec: SweepSpec) -> dict[str, str]:
    """Return the checksum of each source that ranks load: of a trainable, or of named programs.

    Raises:
        SpecError: the trainable's file does not exist.
    """
    if spec.variants is not None:
        return {}
    if spec.command is not None:
        files = _command_files(spec).items()
        return {item: checksum(file) for item, file in files if _is_code(file)}
    code = describe(spec)
    return {code["trainable"]: code["sha256"]} | code.get("datasets", {}) if code else {}


def _command_files(spec: SweepSpec) -> dict[str, Path]:
    """Return the files that are items of the command, and the programs named within items."""
    command, folder = spec.program_items, Path(spec.works_in or "")
    within = files_in_command(command, folder).items()
    return files_among(command, folder) | {name: file for name, file in within if _is_code(file)}


def _is_code(file: Path) -> bool:
    """Return whether a file is a program: a command may also name files that trials write."""
    return file.suffix in CODE_SUFFIXES or os.access(file, os.X_OK)


def files_in_command(command: Sequence[str], folder: Path) -> dict[str, Path]:
    """Return the files that a command names: as an item, in a line for a shell, or by `-m`."""
    words = [word for item in command for word in item.split()]
    modules = [name.replace(".", "/") for flag, name in pairwise(words) if flag == "-m"]
    scripts = [f"{module}{end}" for module in modules for end in (".py", "/__main__.py")]
    return files_among([*command, *words, *scripts], folder)


def files_among(command: Sequence[str], folder: Path) -> dict[str, Path]:
    """Return the items of a command that name files in `folder`, each with its file."""
    paths = {}
    for item in command:
        with suppress(OSError, ValueError):  # a whole script is too long for a name
            if (folder / item).is_file():
                paths[item] = folder / item
    return paths


def checksum(file: Path) -> str:
    """Return the SHA-256 of a file."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def check_unchanged(sweep: str, frozen: Mapping[str, Any], code: Mapping[str, Any]) -> None:
    """Check that the trainable has not changed since the sweep began.

    Args:
        sweep: the sweep's id.
        frozen: the sweep's spec, from the journal.
        code: the result of `describe` when the sweep began, from the journal.

    Raises:
        SpecError: its source changed since the sweep began.
    """
    spec = specs.restore(frozen)
    if describe(spec) != code:
        message = f"{spec.runnable} changed since {sweep} began"
        fix = "go on with the new code by --accept-code, or put the old one back"
        raise fail(message, spec.runnable_key, fix=fix)
