"""Checkpoints that are complete or absent: manifest, fsync, one rename. Without torch.

A checkpoint is a folder. Its manifest.json lists every file with size and SHA-256; the manifest's
own SHA-256 is the checkpoint's checksum, so one string vouches for all bytes.
"""

import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from multiprocessing.util import Finalize
from pathlib import Path
from typing import ClassVar

from trainables.limits import Count, Text
from trainables.storage import stores

MANIFEST = "manifest.json"
# Lists files that other ranks have uploaded to the store; its content goes into the manifest.
PARTS_IN_STORE = "elsewhere.json"
TUNE_FOLDER = ".tune"  # in a sweep's folder: the files that Ray Tune writes of an experiment
FOREIGN = "agent:"  # before what a worker outside of hposvc calls its checkpoint
SCRATCH = ".scratch"  # under the checkpoint folder, so that a rename never crosses file systems


TRIAL = re.compile(r"t[0-9]+")
# ORDER-STEP, or ORDER-STEP.UPDATES for a checkpoint taken in the middle of a step
NAME = re.compile(r"(?:\.removed-)?([0-9]+)-[0-9]+(?:\.[0-9]+)?")
DRAFT = re.compile(r"t[0-9]+-([0-9]+)-(?:[0-9]+|given|config)")  # TRIAL-ORDER-RANK, under SCRATCH


@dataclass(frozen=True)
class Saved:
    """A durable checkpoint: once this object exists, it survives a crash of the machine."""

    __pydantic_config__: ClassVar[dict[str, str]] = {"extra": "forbid"}

    step: Count
    # Absolute, or the URL of a folder in a store; of a worker outside of hposvc: FOREIGN, and what
    # that calls it.
    path: Text
    checksum: Text = ""  # SHA-256 of the manifest; empty: unknown
    size: Count = 0  # bytes, manifest included; 0: unknown
    within: Count = 0  # updates of the step after `step` that it includes; 0: whole steps only

    @property
    def position(self) -> tuple[int, int]:
        """How far training had come: whole steps, and updates of the next step."""
        return self.step, self.within


@dataclass(frozen=True)
class Period:
    """The interval between checkpoints if not in steps; exactly one of the two is set."""

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

    def __reduce__(self) -> tuple[type["CheckpointDamaged"], tuple[str, str, str]]:
        return type(self), (self.file, self.expected, self.found)


def file_system_view() -> str:
    """Return a key shared by processes that see the same files; across machines keys differ."""
    mounts = Path("/proc/self/ns/mnt")
    if not mounts.exists():
        return platform.node()
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{boot} {os.readlink(mounts)}"  # noqa: PTH115 - it leads to no path


def copy(folder: Path, target: Path) -> Path:
    """Copy into an existing folder; replace links by their targets, and drop broken links."""
    return Path(shutil.copytree(folder, target, ignore=_broken_links, dirs_exist_ok=True))


def _broken_links(folder: str, names: list[str]) -> list[str]:
    # copytree(ignore_dangling_symlinks=True) takes relative links from the working folder (3.11).
    paths = [Path(folder, name) for name in names]
    return [path.name for path in paths if path.is_symlink() and not path.exists()]


def store(folder: Path, target: Path, step: int, within: int = 0) -> Saved:
    """Move a finished folder to `target`, durably; a torn write is never visible under that name.

    Args:
        folder: on the file system of `target`; it is gone afterwards.
        target: ends in the order's id and the step, so it names one checkpoint for ever.
        within: updates of the next step that the checkpoint includes.

    Raises:
        FileExistsError: `target` exists already.
    """
    if target.exists():
        raise FileExistsError(f"checkpoint {target} exists already; a checkpoint never changes")
    saved = replace(write_manifest(folder, target, step), within=within)
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    _sync(target.parent)
    _sync(target.parent.parent)
    return saved


def send(folder: Path, url: str, step: int, within: int = 0) -> Saved:
    """Move a finished folder into a store; an upload that breaks off is never recorded.

    Args:
        url: ends in the order's id and the step, so it names one checkpoint for ever.
        within: updates of the next step that the checkpoint includes.

    Raises:
        StoreFailed: the store can't be reached, or refuses.
    """
    saved = replace(write_manifest(folder, url, step), within=within)
    stores.upload(url, folder, last=MANIFEST)
    shutil.rmtree(folder)
    return saved


def hash_files(folder: Path) -> dict[str, Entry]:
    """Return the size and SHA-256 of each file, by its path relative to the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        path.relative_to(folder).as_posix(): {"sha256": _sha256(path), "size": path.stat().st_size}
        for path in files
    }


def write_manifest(folder: Path, target: Path | str, step: int) -> Saved:
    """Write the manifest of a folder that will be moved to `target`, and sync all files to disk."""
    (folder / MANIFEST).unlink(missing_ok=True)
    elsewhere: dict[str, Entry] = {}
    if (parts_list := folder / PARTS_IN_STORE).exists():
        elsewhere = json.loads(parts_list.read_bytes())
        parts_list.unlink()
    files_by_name = hash_files(folder)
    files = [folder / name for name in files_by_name]
    files_by_name |= elsewhere
    text = json.dumps({"step": step, "files": files_by_name}, indent=1, sort_keys=True).encode()
    (folder / MANIFEST).write_bytes(text)
    for path in [*files, folder / MANIFEST]:
        _sync(path)
    for path in [*(path for path in folder.rglob("*") if path.is_dir()), folder]:
        _sync(path)
    size = len(text) + sum(int(entry["size"]) for entry in files_by_name.values())
    location = str(target.absolute()) if isinstance(target, Path) else target
    return Saved(step, location, hashlib.sha256(text).hexdigest(), size)


def temporary_folder() -> Path:
    """Return a new folder, which is removed when this process ends."""
    folder = Path(tempfile.mkdtemp(prefix="hposvc-"))
    # Unlike atexit, this works in children of multiprocessing, and never removes a parent's folder.
    Finalize(None, shutil.rmtree, (folder,), {"ignore_errors": True}, exitpriority=-1)
    return folder


def verify(saved: Saved, scratch: Callable[[], Path] = temporary_folder) -> Path:
    """Compare every byte of a checkpoint with its record, and return a folder with its files.

    Args:
        scratch: makes an empty folder for files fetched from a store.

    Raises:
        CheckpointDamaged: with the first file that differs.
        StoreFailed: the store can't be reached, or refuses.
    """
    if saved.path.startswith(FOREIGN):
        raise CheckpointDamaged(saved.path, "a checkpoint of hposvc", "one of another program")
    if not stores.is_url(saved.path):
        _compare(Path(saved.path) / MANIFEST, saved.checksum)
        check(Path(saved.path))
        return Path(saved.path)
    folder = scratch()
    try:
        # Fetch no other files under that name: no checksum vouches for them.
        stores.fetch(saved.path, [MANIFEST], folder)
        _compare(folder / MANIFEST, saved.checksum)
        stores.fetch(saved.path, json.loads((folder / MANIFEST).read_bytes())["files"], folder)
        check(folder)
    except CheckpointDamaged as error:
        name = Path(error.file).relative_to(folder).as_posix()
        raise CheckpointDamaged(f"{saved.path}/{name}", error.expected, error.found) from None
    return folder


def check(folder: Path) -> None:
    """Compare a folder's files with its own manifest, for which nothing vouches.

    Raises:
        CheckpointDamaged: with the first file that differs.
    """
    for name, entry in json.loads((folder / MANIFEST).read_bytes())["files"].items():
        _compare(folder / name, entry["sha256"])


def remove(saved: Saved) -> None:
    """Delete a checkpoint; its name vanishes first, so nobody finds half of it.

    A second call does no harm, and finishes a deletion that a process began before it died.
    """
    if saved.path.startswith(FOREIGN):
        return  # whoever wrote it looks after it
    if stores.is_url(saved.path):
        stores.delete(saved.path, first=MANIFEST)
        return
    folder = Path(saved.path)
    removed = folder.with_name(f".removed-{folder.name}")
    if folder.exists():
        folder.rename(removed)
    if removed.exists():
        shutil.rmtree(removed)


def is_ours(parts: Sequence[str]) -> bool:
    """Return whether a path's last two parts are those of a checkpoint or draft of hposvc."""
    if len(parts) != 2:
        return False
    parent, name = parts
    pattern = DRAFT if parent == SCRATCH else NAME if TRIAL.fullmatch(parent) else None
    return pattern is not None and pattern.fullmatch(name) is not None


def find_ours(checkpoints: Path) -> list[Path]:
    """Return all checkpoints and drafts under a checkpoint folder; follow no links."""
    if checkpoints.is_symlink():
        return []
    folders = [
        folder for folder in checkpoints.glob("*") if folder.is_dir() and not folder.is_symlink()
    ]
    paths = (path for folder in folders for path in sorted(folder.iterdir()))
    return [path for path in paths if is_ours(path.parts[-2:]) and not path.is_symlink()]


def keep_only(checkpoints: Path | str, paths: Collection[str]) -> None:
    """Delete all checkpoints under a checkpoint folder but these; nobody else may write there.

    A killed process leaves checkpoints that were never reported, and parts of others. Paths are
    compared by trial and name only, as the folder may have moved since. Files and folders that are
    not named like checkpoints of hposvc stay.
    """
    kept_names = {Path(path).parts[-2:] for path in paths}
    if isinstance(checkpoints, str):
        stores.delete_folders(
            checkpoints, lambda parts: parts not in kept_names and is_ours(parts), depth=2
        )
        return
    for folder in find_ours(checkpoints):
        if folder.parts[-2:] not in kept_names:
            shutil.rmtree(folder, ignore_errors=True)


def _compare(file: Path, expected: str) -> None:
    actual = f"SHA-256 {_sha256(file)}" if file.is_file() else "no such file"
    if actual != f"SHA-256 {expected}":
        raise CheckpointDamaged(file, f"SHA-256 {expected}", actual)


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
