"""Data that are made once on a node, by whoever comes first; then they are there, offline too."""

import fcntl
import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from trainables.checkpoints.checkpoint import contents


def prepared(
    folder: Path | str, build: Callable[[Path], object], checksum: str | None = None
) -> Path:
    """The folder with what `build` put into it, now or before.

    One process builds while the others wait. A build that fails or is killed leaves no folder: it
    works beside it, and what it made is renamed once it is complete.

    Args:
        build: downloads, unpacks, tokenises into the empty folder that it is given.
        checksum: what `checksum_of` must say of the result; None: whatever it is.

    Raises:
        ValueError: nothing was built, or something else than the checksum says.
    """
    folder = Path(folder).absolute()
    if not folder.is_dir():
        with locked(_beside(folder, "lock")):
            if not folder.is_dir():
                return _built(folder, build, checksum)
    if checksum is not None and (found := _recorded(folder)) != checksum:
        raise ValueError(
            f"prepared: {folder} has checksum {found}, not {checksum}; remove it, so that it is "
            "built again, or correct the checksum"
        )
    return folder


def checksum_of(folder: Path | str) -> str:
    """SHA-256 over the names and contents of all files in a folder."""
    return hashlib.sha256(json.dumps(contents(Path(folder))).encode()).hexdigest()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the file; wait while another process does. A process that dies lets go of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _built(folder: Path, build: Callable[[Path], object], checksum: str | None) -> Path:
    unfinished = _beside(folder, "building")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    unfinished.mkdir()
    try:
        build(unfinished)
        if not any(unfinished.iterdir()):
            raise ValueError(
                f"prepared: the build of {folder} left nothing in the folder that it was given"
            )
        if checksum is not None and (found := checksum_of(unfinished)) != checksum:
            raise ValueError(
                f"prepared: the build of {folder} has checksum {found}, not {checksum}; what it "
                "reads has changed: correct the checksum, or its source"
            )
    except BaseException:
        shutil.rmtree(unfinished)
        raise
    record = _beside(folder, "sha256")
    record.unlink(missing_ok=True)
    if checksum is not None:
        record.write_text(checksum)
    return unfinished.rename(folder)


def _recorded(folder: Path) -> str:
    """What the folder's checksum was when it was built; to read all of it again would take long."""
    record = _beside(folder, "sha256")
    return record.read_text() if record.exists() else checksum_of(folder)


def _beside(folder: Path, kind: str) -> Path:
    return folder.with_name(f".{folder.name}.{kind}")
