"""Data prepared once per node, by the first process that asks; available offline afterwards."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

from trainables.storage.checkpoint import hash_files
from trainables.storage.file_lock import locked


def prepared(
    folder: Path | str, build: Callable[[Path], object], checksum: str | None = None
) -> Path:
    """Return the folder after `build` has filled it, in this call or an earlier one.

    One process builds while the others wait. A build that fails or is killed leaves no folder: it
    works in another folder beside this one, which is renamed once it is complete.

    Args:
        build: downloads, unpacks or tokenises into the empty folder passed to it.
        checksum: the `checksum_of` that the result must have; None: any.

    Raises:
        ValueError: nothing was built, or the result has another checksum.
    """
    folder = Path(folder).absolute()
    if not folder.is_dir():
        with locked(_sibling(folder, "lock")):
            if not folder.is_dir():
                return _build(folder, build, checksum)
    if checksum is None:
        return folder
    record = _sibling(folder, "sha256")  # of the built folder: computing it anew may take long
    actual = record.read_text() if record.exists() else checksum_of(folder)
    if actual != checksum:
        raise ValueError(
            f"prepared: {folder} has checksum {actual}, not {checksum}; remove it, so that it is "
            "built again, or correct the checksum"
        )
    return folder


def checksum_of(folder: Path | str) -> str:
    """Return a SHA-256 over the names and contents of all files in a folder."""
    return hashlib.sha256(json.dumps(hash_files(Path(folder))).encode()).hexdigest()


def _build(folder: Path, build: Callable[[Path], object], checksum: str | None) -> Path:
    unfinished = _sibling(folder, "building")
    shutil.rmtree(unfinished, ignore_errors=True)  # left by a process that was killed
    unfinished.mkdir()
    try:
        build(unfinished)
        if not any(unfinished.iterdir()):
            raise ValueError(
                f"prepared: the build of {folder} left nothing in the folder that it was given"
            )
        if checksum is not None and (actual := checksum_of(unfinished)) != checksum:
            raise ValueError(
                f"prepared: the build of {folder} has checksum {actual}, not {checksum}; what it "
                "reads has changed: correct the checksum, or its source"
            )
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    record = _sibling(folder, "sha256")
    record.unlink(missing_ok=True)
    if checksum is not None:
        record.write_text(checksum)
    return unfinished.rename(folder)


def _sibling(folder: Path, kind: str) -> Path:
    return folder.with_name(f".{folder.name}.{kind}")
