"""Checkpoints that are complete or absent: manifest, fsync, one rename. Without torch.

A checkpoint is a folder. Its manifest.json lists every file with size and SHA-256; the manifest's
own SHA-256 is the checkpoint's checksum, so one string vouches for all bytes.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

MANIFEST = "manifest.json"
SCRATCH = ".scratch"  # under the checkpoint folder, so that a rename never crosses file systems


@dataclass(frozen=True)
class Saved:
    """A durable checkpoint: it survives a crash of the machine from the moment this exists."""

    step: int
    path: str  # absolute
    checksum: str  # SHA-256 of the manifest
    size: int  # bytes, manifest included
    within: int = 0  # updates of the next step that it holds as well; 0: it is of whole steps

    @property
    def place(self) -> tuple[int, int]:
        """How far it is: whole steps, and updates of the next."""
        return self.step, self.within


@dataclass(frozen=True)
class Period:
    """How often a checkpoint is kept, where not by steps: one of the two."""

    updates: int | None = None  # of the optimizer
    seconds: float | None = None


Every = int | Period  # steps between checkpoints, or a period


class CheckpointDamaged(Exception):
    """A checkpoint's bytes are not those that were saved."""

    def __init__(self, file: Path, expected: str, found: str) -> None:
        super().__init__(
            f"checkpoint {file}: expected {expected}, found {found}; "
            "the file was changed or lost after it was saved, start from another checkpoint"
        )
        self.file, self.expected, self.found = file, expected, found


def copy(folder: Path, target: Path) -> Path:
    """Copy into a folder that is there; a link becomes what it leads to, one to nowhere nothing."""
    return Path(shutil.copytree(folder, target, ignore=_leading_nowhere, dirs_exist_ok=True))


def _leading_nowhere(folder: str, names: list[str]) -> list[str]:
    # copytree(ignore_dangling_symlinks=True) takes relative links from the working folder (3.11).
    paths = [Path(folder, name) for name in names]
    return [path.name for path in paths if path.is_symlink() and not path.exists()]


def store(folder: Path, target: Path, step: int, within: int = 0) -> Saved:
    """Move a finished folder to `target`, durably; a torn write is never visible under that name.

    Args:
        folder: on the file system of `target`; it is gone afterwards.
        target: ends in the order's id and the step, so it names one checkpoint for ever.
        within: updates of the next step that it holds as well.

    Raises:
        FileExistsError: `target` is there already.
    """
    if target.exists():
        raise FileExistsError(f"checkpoint {target} exists already; a checkpoint never changes")
    saved = replace(seal(folder, target, step), within=within)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    _sync(target.parent)
    _sync(target.parent.parent)
    return saved


def seal(folder: Path, target: Path, step: int) -> Saved:
    """Write the manifest of a folder that will be renamed to `target`, and force all to disk."""
    (folder / MANIFEST).unlink(missing_ok=True)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    listed = {
        path.relative_to(folder).as_posix(): {"sha256": _sha256(path), "size": path.stat().st_size}
        for path in files
    }
    text = json.dumps({"step": step, "files": listed}, indent=1, sort_keys=True).encode()
    (folder / MANIFEST).write_bytes(text)
    for path in [*files, folder / MANIFEST]:
        _sync(path)
    for path in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        _sync(path)
    size = len(text) + sum(path.stat().st_size for path in files)
    return Saved(step, str(target.absolute()), hashlib.sha256(text).hexdigest(), size)


def verify(saved: Saved) -> Path:
    """The checkpoint's folder, once every byte has been compared with what was saved.

    Raises:
        CheckpointDamaged: with the first file that differs.
    """
    folder = Path(saved.path)
    manifest = folder / MANIFEST
    _compare(manifest, saved.checksum)
    for name, entry in json.loads(manifest.read_bytes())["files"].items():
        _compare(folder / name, entry["sha256"])
    return folder


def check(folder: Path) -> None:
    """Compare a folder with its own manifest; who else made it is not known.

    Raises:
        CheckpointDamaged: with the first file that differs.
    """
    for name, entry in json.loads((folder / MANIFEST).read_bytes())["files"].items():
        _compare(folder / name, entry["sha256"])


def remove(saved: Saved) -> None:
    """Delete a checkpoint; its name vanishes first, so nobody finds half of it.

    Twice is fine, and finishes what a process that died here had begun.
    """
    folder = Path(saved.path)
    doomed = folder.with_name(f".removed-{folder.name}")
    if folder.exists():
        folder.rename(doomed)
    if doomed.exists():
        shutil.rmtree(doomed)


def keep_only(folder: Path, paths: Collection[str]) -> None:
    """Delete what is under the checkpoint folder but for these: nobody else may write there.

    A process that was killed leaves checkpoints that nobody heard of, and halves of others. Only
    trial and name count: the folder may be called otherwise than when they were saved.
    """
    kept = {Path(path).parts[-2:] for path in paths}
    for found in folder.glob("*/*"):
        if found.parts[-2:] not in kept:
            shutil.rmtree(found, ignore_errors=True)


def _compare(file: Path, expected: str) -> None:
    found = f"SHA-256 {_sha256(file)}" if file.is_file() else "no such file"
    if found != f"SHA-256 {expected}":
        raise CheckpointDamaged(file, f"SHA-256 {expected}", found)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
