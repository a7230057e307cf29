"""Paths in a spec: relative paths begin in the spec's folder; a frozen spec has absolute ones only.

The folder is the value of the key `folder` if the spec has it, otherwise the folder of the spec's
file; for a spec from Python or from standard input it is the working directory.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from cluster.runtime_env import files_in, is_uri, with_files
from hposvc.errors import KeyPath
from hposvc.spec.environment import FILE_PREFIX
from hposvc.spec.registry import FILE_REFERENCE
from trainables import load
from trainables.contract import PICKLE, is_url

SQLITE = "sqlite:///"
IN_RAY_JOB = "/runtime_resources/working_dir_files/_ray_pkg_"  # in the path of its working folder
Key = tuple[str, ...]  # of a spec, as ("engine", "curve")
COMMANDS: tuple[Key, ...] = (("command",), ("serve", "command"), ("serve", "load"))

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
    if IN_RAY_JOB in f"{top}" and top == Path.cwd():
        # Ray unpacks a job's files into a folder of its session, which is another one on each
        # cluster; there each process of the job begins in it.
        return _located({**data, "folder": None}, top, STORES)
    located = _located({**data, "folder": f"{top}"}, top, PATHS)
    environment = located.get("environment")
    if isinstance(environment, Mapping):
        located["environment"] = _with_secrets(_with_files(environment, top), top)
        if environment.get("working_dir") not in (None, f"{top}"):
            for place, text in [each for key in COMMANDS for each in texts_at(located, key)]:
                located = replace_text(located, place, _locate_item(text, place[-1], top))
    return located


def _located(
    data: dict[str, object], top: Path, paths: Mapping[Key, Callable[[str, Path], str]]
) -> dict[str, object]:
    for path, absolute in paths.items():
        for place, text in texts_at(data, path):
            data = replace_text(data, place, absolute(text, top))
    return data


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


def _sent(place: str, folder: Path) -> str:
    return place if is_uri(place) else _folder(place, folder)


def _with_files(environment: Mapping[str, object], folder: Path) -> Mapping[str, object]:
    """Return the section `environment` with absolute names of files in `runtime_env`."""
    given = environment.get("runtime_env")
    if not isinstance(given, Mapping):
        return environment
    files = {key: _absolute(text, folder) for key, text in files_in(given).items()}
    return {**environment, "runtime_env": with_files(given, files)}


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


def _locate_item(item: str, at: str | int, folder: Path) -> str:
    """Return an item of a command that runs outside the spec's folder, a file as absolute path."""
    if at == 0 and "/" not in item:  # a program on PATH
        return item
    with suppress(OSError, ValueError):  # a whole script is too long for a name
        if (folder / item).is_file():
            return _absolute(item, folder)
    return item


# The keys that name code of users: a reference, or a list of them. Other words are built in.
CODE: tuple[Key, ...] = (
    ("trainable",),
    ("datasets",),
    ("engine", "curve"),
    ("search", "method"),
    ("scheduler", "type"),
    ("tracking", "send_to"),
    ("stop", "rules"),
)
STORES: dict[Key, Callable[[str, Path], str]] = {
    ("storage",): _storage,
    ("tracking", "uri"): _database,
}
# The keys that hold a path, each with the function that makes it absolute.
PATHS: dict[Key, Callable[[str, Path], str]] = {
    **dict.fromkeys((*CODE, ("parameters", "space")), _reference),
    **STORES,
    ("environment", "working_dir"): _folder,
    ("environment", "runtime_env", "working_dir"): _sent,
    ("environment", "runtime_env", "py_modules"): _sent,
}


def code_references(data: Mapping[str, object]) -> dict[KeyPath, str]:
    """Return the references to code of users in the data of a spec, by their paths."""
    entries = (entry for key in CODE for entry in texts_at(data, key))
    return {path: text for path, text in entries if ":" in text}


def texts_at(data: Mapping[str, object], key: Key) -> Iterator[tuple[KeyPath, str]]:
    """Yield the text at a key of a spec, or the texts of the list or mapping there, with paths."""
    value: object = data
    for name in key:
        value = value.get(name) if isinstance(value, Mapping) else None
    if isinstance(value, str):
        yield key, value
    items = enumerate(value) if isinstance(value, list | tuple) else ()
    for name_, text in value.items() if isinstance(value, Mapping) else items:
        if isinstance(text, str):
            yield (*key, name_), text


def replace_text(data: Mapping[str, object], path: KeyPath, text: str) -> dict[str, object]:
    """Return the data of a spec with another text at a path that `texts_at` yields."""
    name, *inner = path
    value: object = text
    if inner and isinstance(held := data[f"{name}"], Mapping):
        value = replace_text(held, tuple(inner), text)
    elif inner and isinstance(held, list | tuple):
        value = [text if number == inner[0] else item for number, item in enumerate(held)]
    return {**data, f"{name}": value}


def store_url(sweep: str, storage: str | None) -> str | None:
    """Return the URL of a sweep's part of a store; None: its storage is a folder."""
    if storage is None or not is_url(storage):
        return None
    return f"{storage.rstrip('/')}/{sweep}"


def checkpoints_url(sweep: str, storage: str | None) -> str | None:
    """Return the URL of a sweep's checkpoints; None: they are in its folder."""
    url = store_url(sweep, storage)
    return None if url is None else f"{url}/checkpoints"
