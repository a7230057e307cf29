"""Paths in a spec: relative paths begin in the spec's folder; a frozen spec has absolute ones only.

The folder is the value of the key `folder` if the spec has it, otherwise the folder of the spec's
file; for a spec from Python or from standard input it is the working directory.
"""

import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from hposvc.spec.environment import FILE_PREFIX
from hposvc.spec.types import FILE_REFERENCE
from trainables import load
from trainables.load import PICKLE
from trainables.storage.stores import is_url

SQLITE = "sqlite:///"

_spec_folders: set[str] = set()  # folders that specs put on sys.path


def folder_of(file: Path) -> Path:
    """Return the folder in which the relative paths of a spec's file begin."""
    if not file.is_file() or file.is_relative_to("/dev") or file.is_relative_to("/proc"):
        return Path.cwd()  # a pipe
    return file.parent.resolve()


def locate(data: Mapping[str, object], folder: Path) -> dict[str, object]:
    """Return the data of a spec with absolute paths; other or misspelt values stay as they are.

    A spec whose `folder` is null was packed for a cluster: its paths begin in the working directory
    of each rank.

    Args:
        folder: the folder of the spec's file.
    """
    own_folder = data.get("folder", "")
    if own_folder is None or not isinstance(own_folder, str):
        return dict(data)
    top = Path(_folder(own_folder, folder)) if own_folder else folder
    located = {**data, "folder": f"{top}"}
    for name, absolute in TOP_PATHS.items():
        if isinstance(value := data.get(name), str):
            located[name] = absolute(value, top)
    for (section, name), absolute in SECTION_PATHS.items():
        values = data.get(section)
        if isinstance(values, Mapping) and isinstance(value := values.get(name), str):
            located[section] = {**values, name: absolute(value, top)}
    environment = located.get("environment")
    if isinstance(environment, Mapping):
        located["environment"] = _with_secrets(environment, top)
        works_in, items = environment.get("working_dir"), data.get("command")
        if works_in not in (None, f"{top}") and isinstance(items, list):
            located["command"] = [_locate_item(item, at, top) for at, item in enumerate(items)]
    return located


def import_first(folder: str) -> None:
    """Put a folder first on sys.path, before all other modules of the same names.

    A process that imports no code of users leaves sys.path as it is; so does `import_too`.
    """
    if load.packages_allowed is not None:
        return
    if folder not in sys.path:
        _spec_folders.add(folder)
    sys.path[:] = [folder, *(entry for entry in sys.path if entry != folder)]


def import_too(folder: str | None) -> None:
    """Put a folder on sys.path, and move the folders of other specs to the end.

    A folder that was on the path before any spec named it keeps its place there.

    Args:
        folder: None: the modules that the spec needs are on the path already.
    """
    if load.packages_allowed is not None:
        return
    before_specs = [entry for entry in sys.path if entry not in _spec_folders]
    others = [entry for entry in sys.path if entry in _spec_folders and entry != folder]
    if folder is not None and folder not in before_specs and Path(folder).is_dir():
        _spec_folders.add(folder)
        before_specs.insert(0, folder)
    sys.path[:] = [*before_specs, *others]


def _absolute(path: str, folder: Path) -> str:
    """Return an absolute path; a `~` stays, for each user's own home on each machine."""
    if path.startswith("~"):
        return path
    joined = folder / path
    with suppress(OSError, ValueError, RuntimeError):
        # Links are followed in the folders only: a link to a file stands for its own place.
        return (
            f"{joined.resolve() if joined.name == '..' else joined.parent.resolve() / joined.name}"
        )
    return path


def _folder(path: str, folder: Path) -> str:
    """Return the absolute path of a folder on this machine, with `~` expanded."""
    with suppress(RuntimeError):  # no such user
        path = f"{Path(path).expanduser()}"
    return _absolute(path, folder)


def _reference(reference: str, folder: Path) -> str:
    if reference.startswith(PICKLE):
        return f"{PICKLE}{_absolute(reference.removeprefix(PICKLE), folder)}"
    if not FILE_REFERENCE.fullmatch(reference):
        return reference
    file, _, name = reference.rpartition(":")
    return f"{_absolute(file, folder)}:{name}"


def _storage(storage: str, folder: Path) -> str:
    return storage if not storage or is_url(storage) else _absolute(storage, folder)


def _database(uri: str, folder: Path) -> str:
    file = uri.removeprefix(SQLITE)
    named = file != uri and file and not file.startswith((":", "file:"))
    return f"{SQLITE}{_absolute(file, folder)}" if named else uri


def _with_secrets(environment: Mapping[str, object], folder: Path) -> dict[str, object]:
    secrets = environment.get("secrets")
    if isinstance(secrets, Mapping):
        located: object = _secrets(secrets, folder)
    elif isinstance(secrets, list):
        located = [
            _secrets(secret, folder) if isinstance(secret, Mapping) else secret
            for secret in secrets
        ]
    else:
        return dict(environment)
    return {**environment, "secrets": located}


def _secrets(places: Mapping[object, object], folder: Path) -> dict[object, object]:
    return {
        name: f"{FILE_PREFIX}{_absolute(place.removeprefix(FILE_PREFIX), folder)}"
        if isinstance(place, str) and place.startswith(FILE_PREFIX) and place != FILE_PREFIX
        else place
        for name, place in places.items()
    }


def _locate_item(item: object, at: int, folder: Path) -> object:
    """Return an item of a command that runs outside the spec's folder, a file as absolute path."""
    if not isinstance(item, str) or (at == 0 and "/" not in item):  # a program on PATH
        return item
    with suppress(OSError, ValueError):  # a whole script is too long for a name
        if (folder / item).is_file():
            return _absolute(item, folder)
    return item


# The keys that hold a path, each with the function that makes it absolute.
TOP_PATHS: dict[str, Callable[[str, Path], str]] = {"trainable": _reference, "storage": _storage}
SECTION_PATHS: dict[tuple[str, str], Callable[[str, Path], str]] = {
    ("engine", "curve"): _reference,
    ("parameters", "space"): _reference,
    ("tracking", "uri"): _database,
    ("environment", "working_dir"): _folder,
}


def store_url(sweep: str, storage: str | None) -> str | None:
    """Return the URL of a sweep's part of a store; None: its storage is a folder."""
    if storage is None or not is_url(storage):
        return None
    return f"{storage.rstrip('/')}/{sweep}"


def checkpoints_url(sweep: str, storage: str | None) -> str | None:
    """Return the URL of a sweep's checkpoints; None: they are in its folder."""
    url = store_url(sweep, storage)
    return None if url is None else f"{url}/checkpoints"
