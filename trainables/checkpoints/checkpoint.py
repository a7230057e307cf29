"""Checkpoints that are complete or absent: manifest, fsync, one rename. Without torch.

A checkpoint is a folder. Its manifest.json lists every file with size and SHA-256; the manifest's
own SHA-256 is the checkpoint's checksum, so one string vouches for all bytes.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from pathlib import Path

from trainables.checkpoints import stores

MANIFEST = "manifest.json"
ELSEWHERE = (
    "elsewhere.json"  # files that other ranks have put into the store: goes into the manifest
)
SCRATCH = ".scratch"  # under the checkpoint folder, so that a rename never crosses file systems


@dataclass(frozen=True)
class Saved:
    """A durable checkpoint: it survives a crash of the machine from the moment this exists."""

    step: int
    path: str  # absolute, or the URL of a folder in a store
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


Entry = dict[str, str | int]  # of a file in a manifest: sha256, size
Every = int | Period  # steps between checkpoints, or a period


class CheckpointDamaged(Exception):
    """A checkpoint's bytes are not those that were saved."""

    def __init__(self, file: Path | str, expected: str, found: str) -> None:
        super().__init__(
            f"checkpoint {file}: expected {expected}, found {found}; "
            "the file was changed or lost after it was saved, start from another checkpoint"
        )
        self.file, self.expected, self.found = str(file), expected, found


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


def send(folder: Path, url: str, step: int, within: int = 0) -> Saved:
    """Move a finished folder into a store; what is torn on its way is on no record.

    Args:
        url: ends in the order's id and the step, so it names one checkpoint for ever.
        within: updates of the next step that it holds as well.

    Raises:
        StoreFailed: the store can't be reached, or refuses.
    """
    saved = replace(seal(folder, url, step), within=within)
    stores.upload(url, folder, last=MANIFEST)
    shutil.rmtree(folder)
    return saved


def contents(folder: Path) -> dict[str, Entry]:
    """Size and SHA-256 of each file, by its name from the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"sha256": _sha256(path), "size": path.stat().st_size}
        for path in files
    }


def seal(folder: Path, target: Path | str, step: int) -> Saved:
    """Write the manifest of a folder that will be moved to `target`, and force all to disk."""
    (folder / MANIFEST).unlink(missing_ok=True)
    elsewhere: dict[str, Entry] = {}
    if (noted := folder / ELSEWHERE).exists():
        elsewhere = json.loads(noted.read_bytes())
        noted.unlink()
    listed = contents(folder)
    files = [folder / name for name in listed]
    listed |= elsewhere
    text = json.dumps({"step": step, "files": listed}, indent=1, sort_keys=True).encode()
    (folder / MANIFEST).write_bytes(text)
    for path in [*files, folder / MANIFEST]:
        _sync(path)
    for path in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        _sync(path)
    size = len(text) + sum(int(entry["size"]) for entry in listed.values())
    place = str(target.absolute()) if isinstance(target, Path) else target
    return Saved(step, place, hashlib.sha256(text).hexdigest(), size)


def _temporary() -> Path:
    return Path(tempfile.mkdtemp(prefix="hposvc-"))


def verify(saved: Saved, scratch: Callable[[], Path] = _temporary) -> Path:
    """A folder of the checkpoint's, once every byte has been compared with what was saved.

    Args:
        scratch: makes an empty folder, into which a store's are fetched; left to the caller.

    Raises:
        CheckpointDamaged: with the first file that differs.
        StoreFailed: the store can't be reached, or refuses.
    """
    if not stores.is_url(saved.path):
        _compare(Path(saved.path) / MANIFEST, saved.checksum)
        check(Path(saved.path))
        return Path(saved.path)
    folder = scratch()
    try:
        # What else there is under that name is not fetched: nobody vouches for it.
        stores.fetch(saved.path, [MANIFEST], folder)
        _compare(folder / MANIFEST, saved.checksum)
        stores.fetch(saved.path, json.loads((folder / MANIFEST).read_bytes())["files"], folder)
        check(folder)
    except CheckpointDamaged as error:
        name = Path(error.file).relative_to(folder).as_posix()
        raise CheckpointDamaged(f"{saved.path}/{name}", error.expected, error.found) from None
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
    if stores.is_url(saved.path):
        stores.delete(saved.path, first=MANIFEST)
        return
    folder = Path(saved.path)
    doomed = folder.with_name(f".removed-{folder.name}")
    if folder.exists():
        folder.rename(doomed)
    if doomed.exists():
        shutil.rmtree(doomed)


def keep_only(place: Path | str, paths: Collection[str]) -> None:
    """Delete what is under the checkpoint folder but for these: nobody else may write there.

    A process that was killed leaves checkpoints that nobody heard of, and halves of others. Only
    trial and name count: the folder may be called otherwise than when they were saved.
    """
    kept = {Path(path).parts[-2:] for path in paths}
    if isinstance(place, str):
        stores.keep_only(place, kept, depth=2)
        return
    for found in place.glob("*/*"):
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
