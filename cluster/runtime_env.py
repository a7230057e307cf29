"""Runtime environments of Ray: what Ray prepares on each node before processes of a sweep start."""

import re
from collections.abc import Mapping
from typing import Any

KEYS = (
    *("pip", "uv", "conda", "image_uri", "py_modules", "py_executable", "env_vars"),
    *("working_dir", "excludes", "worker_process_setup_hook", "config", "nsight"),
)
FILE_KEYS = ("pip", "uv", "conda")  # whose value may be the name of a file
FILE_ENDS = (".txt", ".yml", ".yaml", ".toml")
URI = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_uri(text: str) -> bool:
    """Return whether a working_dir or a module is to be fetched, rather than sent from here."""
    return URI.match(text) is not None


def is_file(text: str) -> bool:
    """Return whether a text of FILE_KEYS names a file, rather than an environment of conda."""
    return text.endswith(FILE_ENDS)


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
