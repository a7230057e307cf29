"""Runtime environments of Ray: what Ray prepares on each node before processes of a sweep start."""

import re
from collections.abc import Mapping
from typing import Any

KEYS = (
    *("pip", "uv", "conda", "image_uri", "py_modules", "py_executable", "env_vars"),
    *("working_dir", "excludes", "worker_process_setup_hook", "config", "nsight"),
)
FILE_KEYS = {"pip", "uv", "conda"}  # whose value may be the name of a file
URI = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_uri(text: str) -> bool:
    """Return whether a working_dir or a module is to be fetched, rather than sent from here."""
    return URI.match(text) is not None


def files_in(environment: Mapping[str, Any]) -> dict[str, str]:
    """Return the files of packages that an environment names, by key."""
    files = {}
    for key in FILE_KEYS & environment.keys():
        value = environment[key]
        text = value.get("packages") if isinstance(value, Mapping) and key != "conda" else value
        # A text is always a file for pip and uv, and mostly an environment's name for conda.
        if isinstance(text, str) and (key != "conda" or text.endswith((".yml", ".yaml"))):
            files[key] = text
    return files


def with_files(environment: Mapping[str, Any], files: Mapping[str, str]) -> dict[str, Any]:
    """Return an environment with other names of the files that `files_in` finds."""
    changed = {
        key: {**environment[key], "packages": text}
        if isinstance(environment[key], Mapping)
        else text
        for key, text in files.items()
    }
    return {**environment, **changed}


def read(environment: Mapping[str, Any]) -> dict[str, Any]:
    """Return an environment as Ray reads it, with the content of files that it names."""
    from ray.runtime_env import RuntimeEnv

    return dict(RuntimeEnv(**environment))


def problem(environment: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what Ray refuses of an environment: the key, and why; None: nothing.

    Files that it names must exist; names of packages are not looked up.
    """
    several = {"": environment}  # keys that do not go together
    each = {key: {key: value} for key, value in environment.items() if key != "excludes"}
    for key, part in {**each, **several}.items():
        try:
            read(part)
        except Exception as error:  # noqa: BLE001 - Ray's checks raise what they please
            [why, *_] = f"{error}".strip().splitlines() or [type(error).__name__]
            return key, why
    return None
