"""Runtime environments of Ray: what Ray prepares on each node before processes of a sweep start."""

import re
from collections.abc import Mapping
from typing import Any

KEYS = (
    *("pip", "uv", "conda", "image_uri", "py_modules", "py_executable", "env_vars"),
    *("working_dir", "excludes", "worker_process_setup_hook", "config", "nsight"),
)
URI = re.compile(r"[a-z][a-z0-9+.-]*://")


def is_uri(text: str) -> bool:
    """Return whether a working_dir or a module is to be fetched, rather than sent from here."""
    return URI.match(text) is not None


def problem(environment: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return what Ray refuses of an environment: the key, and why; None: nothing.

    Paths and names of packages are not looked up.
    """
    from ray.runtime_env import RuntimeEnv

    several = {"": environment}  # keys that do not go together
    each = {key: {key: value} for key, value in environment.items() if key != "excludes"}
    for key, part in {**each, **several}.items():
        try:
            RuntimeEnv(**part)
        except Exception as error:  # noqa: BLE001 - Ray's checks raise what they please
            [why, *_] = f"{error}".strip().splitlines() or [type(error).__name__]
            return key, why
    return None
