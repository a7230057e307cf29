"""Where a sweep was started from: the commit, the user, the packages."""

import getpass
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.compat import StringIO

FILES = ("spec.yaml", "environment.txt")  # of a sweep's own run


def tags(folder: Path) -> dict[str, str]:
    """MLflow's own tags for the user, the program, and the commit that a working folder is at.

    `hposvc.dirty` says whether files of the commit were changed since; what git does not know of
    does not count, since results lie there too.
    """
    found = {"mlflow.user": _user(), "mlflow.source.name": "hposvc", "mlflow.source.type": "LOCAL"}
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return found
    changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
    dirty = {} if changed is None else {"hposvc.dirty": "true" if changed else "false"}
    return found | {"mlflow.source.git.commit": commit} | dirty


def files(spec: Mapping[str, Any]) -> dict[str, str]:
    """The spec, as a file that `hposvc run` takes, and the versions of everything installed."""
    text = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(dict(spec), text)
    return dict(zip(FILES, (text.getvalue(), _packages()), strict=True))


def _packages() -> str:
    versions = {f"{one.metadata['Name']}=={one.version}" for one in metadata.distributions()}
    version = sys.version.split()[0]
    return "\n".join([f"# Python {version}", *sorted(versions, key=str.lower)]) + "\n"


def _git(folder: Path, *arguments: str) -> str | None:
    """What git says of the folder; None outside a repository, or without git."""
    try:
        done = subprocess.run(
            # A look that takes no lock disturbs nobody.
            ["git", "--no-optional-locks", *arguments],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user: a container with a bare number
        return "unknown"
