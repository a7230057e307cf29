"""Checkpoints in an object store behind a URL, such as s3://, gs:// or abfs://, through fsspec.

Only stores whose servers this machine's configuration names are opened, and none that a URL leads
to by itself, such as http://HOST: whoever wrote a spec may be hostile.

A store has no rename. Files are uploaded first and the manifest last, and only then is the
checkpoint recorded; a reader compares every byte with the record, so that an incomplete checkpoint
is never loaded.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

MARK = "://"
PROBE = ".probe"
BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "oss", "oci")
ACCOUNTS = ("abfs", "abfss", "oci")  # whose URLs may begin with BUCKET@ACCOUNT
EXTRAS = {"s3": "s3", "s3a": "s3"}  # hposvc's extras, by the protocols that need them
PART = re.compile(r"[^/\\?#*\[\]{}%:@\s\x00-\x1f\x7f-\x9f]+")  # of a URL, between slashes


class StoreFailed(OSError):
    """A store can't be reached, or refuses a request."""


def is_url(location: str) -> bool:
    """Return whether this is the URL of a store, and not a folder."""
    return MARK in location


def check_url(url: str) -> None:
    """Check that this is the URL of a store usable from here, without contacting the store.

    Raises:
        ValueError: says what to give instead.
    """
    import fsspec

    protocol, _, rest = url.partition(MARK)
    if protocol in ("file", "local"):
        raise ValueError(f"{url} is a folder; give {rest} itself")
    if protocol not in BUCKETS:
        near = get_close_matches(protocol, BUCKETS, n=1, cutoff=0.5)
        stores = ", ".join(f"{name}{MARK}" for name in BUCKETS)
        hint = f"did you mean {near[0]}{MARK}? " if near else ""
        raise ValueError(f"has {protocol[:20]}{MARK}; {hint}Give a folder, or one of {stores}")
    if not rest.strip("/"):
        raise ValueError(f"{url} names no bucket or folder; give {protocol}{MARK}BUCKET/PATH")
    _check_parts(protocol, rest)
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        extra = EXTRAS.get(protocol)
        remedy = f"pip install 'hposvc[{extra}]'" if extra else "install what it names"
        raise ValueError(f"{url}: {error}; {remedy}") from error


def _check_parts(protocol: str, rest: str) -> None:
    """Check that each part of a URL stands for itself: no pattern, query, password, or way up."""
    bucket, *folders = rest.rstrip("/").split("/")
    names = bucket.split("@", 1) if protocol in ACCOUNTS else [bucket]
    for name in (*names, *folders):
        if name in (".", "..") or not PART.fullmatch(name):
            # A password may be in it, so it is not repeated.
            message = "write names between slashes, without . and .., spaces and ?#*[]{}%:@\\"
            account = ", but for BUCKET@ACCOUNT" if protocol in ACCOUNTS else ""
            raise ValueError(f"is no plain {protocol}{MARK}BUCKET/PATH; {message}{account}")


def upload(url: str, folder: Path, last: str | None = None) -> None:
    """Upload a folder's files, replacing files of the same names.

    Args:
        last: the file to upload after all others.
    """
    with _opened(url, "write") as (system, path):
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        names = [file.relative_to(folder).as_posix() for file in files]
        _make_folders(url, system, {f"{path}/{name}".rpartition("/")[0] for name in names})
        for name in sorted(names, key=lambda name: name == last):
            system.put_file(str(folder / name), f"{path}/{name}")


def fetch(url: str, names: Iterable[str], folder: Path) -> None:
    """Download these files into a folder; files missing in the store are left out.

    Raises:
        ValueError: a name leads out of the folder.
    """
    with _opened(url, "read") as (system, path):
        for name in names:
            target = folder / name
            if Path(name).is_absolute() or ".." in Path(name).parts:
                raise ValueError(f"{name!r} leads out of the checkpoint")
            target.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                system.get_file(f"{path}/{name}", str(target))


def delete(url: str, first: str) -> None:
    """Delete all files under a URL, one of them first; a second call does no harm."""
    with _opened(url, "delete") as (system, path):
        names = list(_names(system, path))
        for name in sorted(names, key=lambda name: name != first):
            system.rm_file(f"{path}/{name}")
        if system.exists(path):
            system.rm(path, recursive=True)


def delete_folders(url: str, should_delete: Callable[[tuple[str, ...]], bool], depth: int) -> None:
    """Delete the folders at this depth for whose parts below the URL `should_delete` is true."""
    with _opened(url, "delete") as (system, path):
        folders = {tuple(name.split("/")[:depth]) for name in _names(system, path)}
        for parts in sorted(filter(should_delete, folders)):
            system.rm("/".join((path, *parts)), recursive=True)


def claim(url: str, name: str, owner: str) -> str:
    """Write the folder's owner into a file there, unless the folder belongs to somebody else.

    Returns:
        the reason why it cannot be claimed, for people; empty: the folder is now the owner's.
    """
    current_owner = find_owner(url, name)
    if current_owner is not None:
        # What stands there is not repeated: it may be any file of others.
        return "" if current_owner == owner else "it belongs to another journal"
    with _opened(url, "write") as (system, path):
        if system.exists(path) and system.ls(path, detail=False):
            return "it is not empty"
        _make_folders(url, system, {path})
        system.pipe_file(f"{path}/{name}", owner.encode())
    return ""


def find_owner(url: str, name: str) -> str | None:
    """Return the owner written by `claim`; None: nobody claimed the folder."""
    with _opened(url, "read") as (system, path), suppress(FileNotFoundError):
        return str(system.cat_file(f"{path}/{name}").decode("utf-8", "replace"))
    return None


def disclaim(url: str, name: str) -> None:
    """Delete the file written by `claim`; a second call does no harm."""
    with _opened(url, "delete") as (system, path), suppress(FileNotFoundError):
        system.rm_file(f"{path}/{name}")


def sizes(url: str, depth: int) -> dict[str, int]:
    """Return the bytes in each folder at this depth, by its path relative to the URL."""
    bytes_by_folder: dict[str, int] = {}
    with _opened(url, "read") as (system, path):
        start = len(path) + 1
        for name, entry in system.find(path, detail=True).items():
            parts = name[start:].split("/")
            if len(parts) > depth:
                folder = "/".join(parts[:depth])
                bytes_by_folder[folder] = bytes_by_folder.get(folder, 0) + int(entry["size"] or 0)
    return bytes_by_folder


def probe(url: str) -> None:
    """Check that this process can write, read and delete files there."""
    with _opened(url, "write, read and delete") as (system, path):
        _make_folders(url, system, {path})
        system.pipe_file(f"{path}/{PROBE}", b"hposvc")
        if system.cat_file(f"{path}/{PROBE}") != b"hposvc":
            raise StoreFailed(f"storage {url}: what is written there is not what is read")
        system.rm_file(f"{path}/{PROBE}")


@contextmanager
def _opened(url: str, verb: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of a URL, with an empty cache, and the path in it.

    Raises:
        StoreFailed: in place of the store's own kind of error.
    """
    import fsspec

    try:
        system, path = fsspec.url_to_fs(url)
        system.invalidate_cache()  # others write there too
        yield system, path.rstrip("/")
    except StoreFailed:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise StoreFailed(f"storage {url}: can't {verb}: {reason}") from error


def _make_folders(url: str, system: Any, folders: Iterable[str]) -> None:
    """Make folders, except in object stores, which would create a bucket from a mistyped name."""
    if url.partition(MARK)[0] not in BUCKETS:
        for folder in folders:
            system.makedirs(folder, exist_ok=True)


def _names(system: Any, path: str) -> Iterable[str]:
    """Return the paths of all files below a path, relative to it."""
    start = len(path) + 1
    return [name[start:] for name in system.find(path)]
