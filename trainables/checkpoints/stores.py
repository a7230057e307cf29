"""Checkpoints in a store behind a URL: s3://, gs://, abfs:// and whatever else fsspec knows.

A store has no rename. Files go up first and the manifest last, and only then is the checkpoint on
record; a reader compares every byte with the record, so what is torn is never loaded.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Any

MARK = "://"
PROBE = ".probe"
OWN = ("file", "local", "memory")  # of a machine or a process: no other one sees it
BUCKETS = ("s3", "s3a", "gs", "gcs", "abfs", "abfss", "adl", "az", "oss", "oci", "r2", "b2")
EXTRAS = {"s3": "s3", "s3a": "s3"}  # ours, by the protocols that need them


class StoreFailed(OSError):
    """A store can't be reached, or refuses what was asked of it."""


def is_url(place: str) -> bool:
    """Whether it is a store, and no folder."""
    return MARK in place


def check_url(url: str) -> None:
    """See that this is the URL of a store that can be used from here; asks nobody.

    Raises:
        ValueError: with what to give instead.
    """
    import fsspec

    protocol, _, rest = url.partition(MARK)
    if protocol in ("file", "local"):
        raise ValueError(f"{url} is a folder; give {rest} itself")
    if protocol in OWN:
        raise ValueError(f"{url} is of one process alone; give a folder, or a store such as s3://")
    known = [name for name in fsspec.available_protocols() if name not in OWN]
    if protocol not in known:
        near = get_close_matches(protocol, known, n=3, cutoff=0.0)
        raise ValueError(f"{url}: there is no store {protocol}://; there are {', '.join(near)} ...")
    if not rest.strip("/"):
        raise ValueError(f"{url} names no bucket or folder; give {protocol}{MARK}BUCKET/PATH")
    try:
        fsspec.get_filesystem_class(protocol)
    except ImportError as error:
        extra = EXTRAS.get(protocol)
        remedy = f"pip install 'hposvc[{extra}]'" if extra else "install what it names"
        raise ValueError(f"{url}: {error}; {remedy}") from error


def upload(url: str, folder: Path, last: str | None = None) -> None:
    """Put a folder's files there; what is there under their names is replaced.

    Args:
        last: the file that goes when all others are there.
    """
    with _opened(url, "write") as (system, path):
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        names = [file.relative_to(folder).as_posix() for file in files]
        _make_folders(url, system, {f"{path}/{name}".rpartition("/")[0] for name in names})
        for name in sorted(names, key=lambda name: name == last):
            system.put_file(str(folder / name), f"{path}/{name}")


def fetch(url: str, names: Iterable[str], folder: Path) -> None:
    """Get these files into a folder; those that are not there are left out.

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
    """Delete all that is there, one file before the others; twice is fine."""
    with _opened(url, "delete") as (system, path):
        names = list(_names(system, path))
        for name in sorted(names, key=lambda name: name != first):
            system.rm_file(f"{path}/{name}")
        if system.exists(path):
            system.rm(path, recursive=True)


def keep_only(url: str, kept: Collection[tuple[str, ...]], depth: int) -> None:
    """Delete what is there but for the folders at this depth whose last names are these."""
    with _opened(url, "delete") as (system, path):
        found = {tuple(name.split("/")[:depth]) for name in _names(system, path)}
        for parts in sorted(found - set(kept)):
            system.rm("/".join((path, *parts)), recursive=True)


def sizes(url: str, depth: int) -> dict[str, int]:
    """Bytes in each folder at this depth, by its name from there; empty: nothing is there."""
    found: dict[str, int] = {}
    with _opened(url, "read") as (system, path):
        start = len(path) + 1
        for name, entry in system.find(path, detail=True).items():
            parts = name[start:].split("/")
            if len(parts) > depth:
                folder = "/".join(parts[:depth])
                found[folder] = found.get(folder, 0) + int(entry["size"] or 0)
    return found


def probe(url: str) -> None:
    """See that this process can write, read and delete there."""
    with _opened(url, "write, read and delete") as (system, path):
        _make_folders(url, system, {path})
        system.pipe_file(f"{path}/{PROBE}", b"hposvc")
        if system.cat_file(f"{path}/{PROBE}") != b"hposvc":
            raise StoreFailed(f"storage {url}: what is written there is not what is read")
        system.rm_file(f"{path}/{PROBE}")


@contextmanager
def _opened(url: str, verb: str) -> Iterator[tuple[Any, str]]:
    """The file system of a URL, which remembers nothing, and the path in it.

    Raises:
        StoreFailed: each store has errors of its own.
    """
    import fsspec

    try:
        system, path = fsspec.url_to_fs(url)
        system.invalidate_cache()  # others write there too
        yield system, path.rstrip("/")
    except StoreFailed:
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        raise StoreFailed(f"storage {url}: can't {verb}: {said}") from error


def _make_folders(url: str, system: Any, folders: Iterable[str]) -> None:
    """Where there are such things. Of an object store it would make a bucket that was mistyped."""
    if url.partition(MARK)[0] not in BUCKETS:
        for folder in folders:
            system.makedirs(folder, exist_ok=True)


def _names(system: Any, path: str) -> Iterable[str]:
    """Of all files below a path, from there."""
    start = len(path) + 1
    return [name[start:] for name in system.find(path)]
