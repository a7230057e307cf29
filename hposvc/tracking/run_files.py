"""The files that a trial's code logged to its MLflow run, read within limits of time and size.

The embedded MLflow keeps them in a folder of the home; a tracking server hands them out. Their
names are those that the code chose, so a path is checked before anything is read.
"""

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO, Protocol
from urllib.parse import urlsplit

from hposvc.errors import NotFound, StoreError, shown
from hposvc.journal.home import Home
from hposvc.spec import registry
from hposvc.tracking.mlflow_server import hide_passwords, quiet_mlflow

MOST_FILES, MOST_FOLDERS = 200, 20  # that are listed
MOST_ENTRIES = 1000  # of a folder that are looked at
DEADLINE_S = 6.0  # for all that is asked of a run's files together
SERVED = "hposvc.tracking.served_files:ServedFiles"  # loads mlflow, which takes seconds
# A link in place of the last component is not followed; a pipe is not waited for.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
FOLDER = FILE | os.O_DIRECTORY


class TooLarge(StoreError):
    """A file is larger than what may be read of it."""


@dataclass(frozen=True)
class LoggedFile:
    """A file or a folder of a run."""

    path: str  # relative to the run's files, with slashes
    size: int  # in bytes; 0 for a folder
    is_folder: bool = False

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]


@dataclass
class Listing:
    """The files of a run or of one of its folders, or as many as are listed."""

    files: list[LoggedFile] = field(default_factory=list)
    is_whole: bool = True
    odd: int = 0  # files and folders left out since their names or sizes make no sense


class RunFiles(Protocol):
    """The files of a run, wherever they are."""

    def entries(self, folder: str) -> Listing:
        """Return what is in a folder; the empty path is that of all.

        Raises:
            StoreError: it can't be read now.
        """

    def open(self, path: str, most: int) -> IO[bytes]:
        """Open a file, whose end can be sought.

        Raises:
            NotFound: there is no such file.
            TooLarge: it has more bytes than `most`.
            StoreError: it can't be read now.
        """


@dataclass(frozen=True)
class FilesInFolder:
    """Files in a folder of this machine, out of which no path and no link leads.

    Whoever writes there may exchange folders for links at any moment. So nothing is looked up by
    its whole path: each component is opened within the folder opened before it.
    """

    base: Path  # the operator's, who may have made it a link
    root: str  # of the files, relative to the base

    def entries(self, folder: str) -> Listing:
        """Return what is in a folder, without links; nothing if there is no such folder."""
        try:
            opened = self._open(folder and check_path(folder), FOLDER)
        except NotFound:
            return Listing()
        try:
            with os.scandir(opened) as children:
                found = Listing(list(_logged(folder, islice(children, MOST_ENTRIES))))
                found.is_whole = next(children, None) is None
        finally:
            os.close(opened)
        found.files.sort(key=lambda file: file.path)
        return without_odd(found)

    def open(self, path: str, most: int) -> IO[bytes]:
        """Open a file."""
        opened = self._open(check_path(path), FILE)
        try:
            status = os.fstat(opened)
            if not stat.S_ISREG(status.st_mode):
                raise _missing(path)
            if status.st_size > most:
                raise TooLarge(too_large(path, most))
            return os.fdopen(opened, "rb")
        except BaseException:
            os.close(opened)
            raise

    def exists(self) -> bool:
        """Return whether there is such a folder."""
        try:
            os.close(self._open("", FOLDER))
        except NotFound:
            return False
        return True

    def _open(self, path: str, flags: int) -> int:
        """Return the descriptor of a file or folder below the root.

        Raises:
            NotFound: there is none, or a link is in the way.
        """
        *folders, last = f"{self.root}/{path}".rstrip("/").split("/")
        try:
            folder = os.open(self.base, FOLDER & ~os.O_NOFOLLOW)
        except OSError as error:
            raise _missing(path) from error
        try:
            for name in folders:
                inner = os.open(name, FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            return os.open(last, flags, dir_fd=folder)
        except OSError as error:
            raise _missing(path) from error
        finally:
            os.close(folder)


def open_files(home: Home, uri: str, run: str) -> RunFiles:
    """Return the files of a run.

    Args:
        uri: MLflow's address.

    Raises:
        StoreError: files of such an MLflow can't be read here.
    """
    address = urlsplit(uri)
    if address.scheme in ("http", "https"):
        # A query or fragment, even an empty one, would swallow the path that is asked for.
        if "?" in uri or "#" in uri:
            raise StoreError(f"MLflow's address has a query or a fragment: {hide_passwords(uri)}")
        quiet_mlflow()
        until = time.monotonic() + DEADLINE_S
        served: RunFiles = registry.resolve(SERVED)(uri, run, until, home.tracking_uri)
        return served
    files = FilesInFolder(home.artifacts, f"{check_path(run)}/artifacts")
    if uri != home.embedded_uri and not files.exists():
        raise StoreError(f"MLflow at {hide_passwords(uri)} has no server that hands out files")
    return files


def list_files(files: RunFiles) -> Listing:
    """Return the files of a run, those of upper folders first."""
    listing, folders = Listing(), [""]
    for _ in range(MOST_FOLDERS):
        if not folders:
            break
        found = files.entries(folders.pop(0))
        folders += [entry.path for entry in found.files if entry.is_folder]
        listing.files += [entry for entry in found.files if not entry.is_folder]
        listing.odd += found.odd
        listing.is_whole &= found.is_whole
    listing.is_whole &= not folders and len(listing.files) <= MOST_FILES
    del listing.files[MOST_FILES:]
    return listing


def read_file(files: RunFiles, path: str, most: int) -> bytes:
    """Return the content of a file; the errors are those of `RunFiles.open`."""
    with files.open(path, most) as file:
        return file.read(most)


def check_path(path: str) -> str:
    """Return a path that names a file below a folder, on every system.

    Raises:
        NotFound: it could lead elsewhere.
    """
    parts = path.split("/")
    odd = any(part in ("", ".", "..") for part in parts) or not path.isprintable()
    if odd or "\\" in path or len(path) > 1000:
        raise _missing(path)
    return path


def without_odd(listing: Listing) -> Listing:
    """Return a listing without the paths that could lead elsewhere, which are counted."""
    files = [file for file in listing.files if _is_plain(file.path)]
    return Listing(files, listing.is_whole, listing.odd + len(listing.files) - len(files))


def too_large(path: str, most: int) -> str:
    """Say that a file has more than `most` bytes."""
    return f"{shown(path)} is larger than {most >> 20} MiB; open it in MLflow"


def _is_plain(path: str) -> bool:
    try:
        check_path(path)
    except NotFound:
        return False
    return True


def _logged(folder: str, children: Iterator[os.DirEntry[str]]) -> Iterator[LoggedFile]:
    """Yield the files and folders among what is in a folder."""
    prefix = f"{folder}/" if folder else ""
    for child in children:
        try:
            status = child.stat(follow_symlinks=False)
        except OSError:  # it went
            continue
        if stat.S_ISDIR(status.st_mode):
            yield LoggedFile(f"{prefix}{child.name}", 0, True)
        elif stat.S_ISREG(status.st_mode):
            yield LoggedFile(f"{prefix}{child.name}", status.st_size)


def _missing(path: str) -> NotFound:
    return NotFound(f"{shown(path)}: the trial logged no such file")
