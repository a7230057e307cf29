"""The files of submitted sweeps: zips, and the folders with their content, by SHA-256.

An archive may hold folders and plain files, and nothing that could write elsewhere or fill a disk:
no links, no names that lead out, no two names that some disk takes for one. It is unpacked beside
its final place, so that it is there whole or not at all.
"""

import errno
import hashlib
import io
import os
import shutil
import stat
import struct
import unicodedata
import zipfile
import zlib
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from starlette.concurrency import run_in_threadpool

from hposvc import api
from hposvc.errors import Problem, shorten
from hposvc.journal.home import PRIVATE, as_store_errors, sign
from hposvc.server.problems import ApiError, PathOutside
from hposvc.text import format_bytes

MAX_BYTES = 64 * 2**20  # of an archive
END, END_64 = struct.Struct("<4s4H2LH"), b"PK\x06\x07"  # a zip's end, and what zip64 has before it
MAX_COMMENT = 2**16
ENTRY_BYTES = 1024  # of a name and its attributes in a zip's directory, at most on average
CHUNK = 2**20
DAMAGED = (  # what zipfile raises for a file that is no zip, or is damaged
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError),
    *(NotImplementedError, RuntimeError, OverflowError, MemoryError),
)


@dataclass(frozen=True)
class Limits:
    """The most that an archive may hold."""

    archive: int = MAX_BYTES  # bytes of the zip
    files: int = 10_000
    total: int = 512 * 2**20  # bytes when unpacked
    ratio: int = 100  # of the unpacked size to the zip's
    free: int = 10 * 2**20  # unpacked bytes for which no ratio is asked
    depth: int = 20  # folders above a file
    name: int = 255  # bytes of a file's or folder's name
    path: int = 1024  # bytes of a whole path


class Archives:
    """The archives of a home."""

    def __init__(self, sweeps: api.Sweeps, limits: Limits = Limits()) -> None:
        self._zips, self._folders = sweeps.home.archives, sweeps.home.unpacked
        self._journal, self._limits = f"{sweeps.journal.store}", limits

    def find(self, sha256: str) -> Path | None:
        """Return the folder of an archive's files; None: there is no such archive.

        It is kept for an hour from now on, though no sweep uses it yet.
        """
        archive, folder = self.zip(sha256), self._folders / sha256
        try:
            os.utime(archive)
        except FileNotFoundError:
            return None
        return folder if folder.is_dir() else None

    def zip(self, sha256: str) -> Path:
        """Return the path of an archive's zip."""
        return self._zips / f"{sha256}.zip"

    async def receive(self, sha256: str, chunks: AsyncIterator[bytes]) -> bool:
        """Store an archive; return False if it is there already.

        Raises:
            ApiError: it is too large, has another SHA-256, or is no archive of plain files.
            PathOutside: a name leads out of the archive.
        """
        already_there = self.find(sha256) is not None
        with self._draft() as draft:
            with draft.open("wb") as file:
                await self._write(file, chunks)
            if not already_there:
                await run_in_threadpool(self._store, sha256, draft)
        return not already_there

    def add(self, files: Mapping[str, str]) -> str:
        """Store files as an archive, and return its SHA-256.

        Args:
            files: texts by their paths.

        Raises:
            ApiError, PathOutside: see `receive`.
        """
        names = sorted(files)
        _check_names(names, self._limits, "files")
        content = _zip_texts({name: files[name] for name in names})
        sha256 = hashlib.sha256(content).hexdigest()
        if self.find(sha256) is None:
            with self._draft() as draft:
                draft.write_bytes(content)
                self._store(sha256, draft)
        return sha256

    async def _write(self, file: BinaryIO, chunks: AsyncIterator[bytes]) -> None:
        size = 0
        async for chunk in chunks:
            size += len(chunk)
            if size > self._limits.archive:
                raise _too_large(f"is larger than {format_bytes(self._limits.archive)}")
            await run_in_threadpool(file.write, chunk)

    def _store(self, sha256: str, draft: Path) -> None:
        """Unpack a received zip, and move both to their places."""
        with draft.open("rb") as file:
            actual = hashlib.file_digest(file, "sha256").hexdigest()
        if actual != sha256:
            raise _refused(f"has the SHA-256 {actual}, not {sha256}", "send it again")
        folder = self._folders / f".{draft.name}"
        try:
            folder.mkdir(PRIVATE)
            _unpack(draft, folder, self._limits)
            try:
                folder.rename(self._folders / sha256)
            except OSError:  # another request was faster
                if not (self._folders / sha256).is_dir():
                    raise
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        draft.replace(self.zip(sha256))

    @contextmanager
    def _draft(self) -> Iterator[Path]:
        """Give the path of a new file among the zips, and delete it if it is still there."""
        for folder in (self._zips.parent, self._zips, self._folders):
            folder.mkdir(PRIVATE, exist_ok=True)
        sign(self._zips.parent, self._journal)  # for `gc`
        draft = self._zips / f".{os.urandom(8).hex()}"
        try:
            with as_store_errors(self._zips, self._folders):
                yield draft
        finally:
            draft.unlink(missing_ok=True)


def _zip_texts(files: Mapping[str, str]) -> bytes:
    """Zip texts into an archive that depends on names and contents alone."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)  # with the constant date 1980
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            try:
                archive.writestr(entry, text.encode())
            except UnicodeEncodeError as error:
                raise _refused(
                    f"{shorten(name)} is no text: {error.reason}", source="files"
                ) from error
    return buffer.getvalue()


def _unpack(file: Path, folder: Path, limits: Limits) -> None:
    """Unpack a zip into an empty folder, within the limits.

    Raises:
        ApiError: it is no zip, is damaged, or breaks a limit.
        PathOutside: a name leads out of the folder.
    """
    try:
        _check_directory(file, limits)
        with zipfile.ZipFile(file) as archive:
            entries = archive.infolist()
            _check_entries(entries, file.stat().st_size, limits)
            for entry in entries:
                _extract(archive, entry, folder)
    except PathOutside:
        raise
    except DAMAGED as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the disk's; EINVAL comes of an offset that lies outside the zip
        raise _refused(f"is no zip that can be read: {error}") from error


def _check_directory(file: Path, limits: Limits) -> None:
    """Check the size of a zip's directory, which zipfile reads whole."""
    with file.open("rb") as raw:
        size = raw.seek(0, os.SEEK_END)
        raw.seek(max(0, size - END.size - MAX_COMMENT - len(END_64) - 16))
        tail = raw.read()
    at = len(tail) - END.size
    if at < 0 or tail[at : at + 4] != b"PK\x05\x06" or tail[-2:] != b"\0\0":
        at = tail.rfind(b"PK\x05\x06")
    if at < 0 or at + END.size > len(tail):
        raise zipfile.BadZipFile("it has no end record")
    directory = END.unpack_from(tail, at)[5]
    if tail[max(0, at - 20) :].startswith(END_64) or directory > limits.files * ENTRY_BYTES:
        raise _too_large(f"has more than {limits.files} files")


def _check_entries(entries: Sequence[zipfile.ZipInfo], size: int, limits: Limits) -> None:
    if len(entries) > limits.files:
        raise _too_large(f"has {len(entries)} files; {limits.files} are allowed")
    total = sum(entry.file_size for entry in entries)
    if total > limits.total:
        raise _too_large(
            f"unpacks to {format_bytes(total)}; {format_bytes(limits.total)} are allowed"
        )
    if total > limits.free and total > limits.ratio * size:
        raise _too_large(f"unpacks to {total // size} times its size; {limits.ratio} are allowed")
    # zipfile itself cuts a name at a zero byte.
    _check_names([entry.orig_filename for entry in entries], limits, "archive")
    for entry in entries:
        name, kind = shorten(entry.orig_filename), stat.S_IFMT(entry.external_attr >> 16)
        if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
            raise _refused(f"{name} is a link or a device", "send plain files and folders alone")
        if entry.flag_bits & 0x1:
            raise _refused(f"{name} is encrypted", "send it plain")
        if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise _refused(
                f"{name} is compressed in a way other than deflate", "zip it with deflate"
            )


def _check_names(names: Sequence[str], limits: Limits, source: str) -> None:
    """Check that each name is that of a file inside the folder, and no two are alike.

    Args:
        names: with slashes between folders; that of a folder ends with one.
        source: `files` or `archive`.
    """
    folders: set[str] = set()
    files: set[str] = set()
    for name in names:
        _check_name(name, limits, source)
        *above, _ = name.rstrip("/").split("/")
        key = _same_on_some_disk(name.rstrip("/"))
        parents = {_same_on_some_disk("/".join(above[:end])) for end in range(1, len(above) + 1)}
        is_folder = name.endswith("/")
        twice = key in files or (key in folders and not is_folder) or not files.isdisjoint(parents)
        if twice:
            message = "is there twice, or is a file and a folder, at least where case is ignored"
            raise _refused(f"{shorten(name)} {message}", "rename one", source)
        (folders if is_folder else files).add(key)
        folders |= parents


def _check_name(name: str, limits: Limits, source: str) -> None:
    parts = name.removesuffix("/").split("/")
    if name.startswith("/") or "\\" in name or ".." in parts or name[1:2] == ":":
        fix = "give a path relative to them, with '/'"
        raise PathOutside([Problem((source, name), "leads out of the sweep's files", fix)])
    if any(part in ("", ".") or not part.isprintable() for part in parts):
        raise _refused(f"'{shorten(name)}' is no name of a file", source=source)
    sizes = [len(part.encode(errors="replace")) for part in parts]
    too_long = max(sizes) > limits.name or sum(sizes) + len(parts) > limits.path
    if too_long or len(parts) > limits.depth:
        message = f"is too long, or more than {limits.depth} folders deep"
        raise _refused(f"'{shorten(name)}' {message}", source=source)


def _same_on_some_disk(path: str) -> str:
    """Return the path as a disk sees it that ignores case and forms of accents."""
    return unicodedata.normalize("NFC", path).casefold()


def _extract(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, folder: Path) -> None:
    path = folder / entry.filename
    if entry.is_dir():
        path.mkdir(PRIVATE, parents=True, exist_ok=True)
        return
    path.parent.mkdir(PRIVATE, parents=True, exist_ok=True)
    executable = entry.external_attr >> 16 & stat.S_IXUSR
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    # zipfile gives no more bytes than the entry declares.
    with (
        archive.open(entry) as source,
        os.fdopen(os.open(path, flags, 0o600 | executable), "wb") as out,
    ):
        shutil.copyfileobj(source, out, CHUNK)


def _refused(message: str, fix: str | None = None, source: str = "archive") -> ApiError:
    return ApiError(400, "bad_request", f"{source}: {message}", key=source, fix=fix)


def _too_large(message: str) -> ApiError:
    fix = "leave out what the sweep does not need"
    return ApiError(413, "too_large", f"archive: {message}", key="archive", fix=fix)
