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


def tags(folder: Path) -> dict[str, str]:
    """MLflow's own tags for the user, the program, and the commit that a working folder is at."""
    found = {"mlflow.user": _user(), "mlflow.source.name": "hposvc", "mlflow.source.type": "LOCAL"}
    commit = _commit(folder)
    return found | ({} if commit is None else {"mlflow.source.git.commit": commit})


def files(spec: Mapping[str, Any]) -> dict[str, str]:
    """The spec, as a file that `hposvc run` takes, and the versions of everything installed."""
    text = StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(dict(spec), text)
    return {"spec.yaml": text.getvalue(), "environment.txt": _packages()}


def _packages() -> str:
    versions = {f"{one.metadata['Name']}=={one.version}" for one in metadata.distributions()}
    version = sys.version.split()[0]
    return "\n".join([f"# Python {version}", *sorted(versions, key=str.lower)]) + "\n"


def _commit(folder: Path) -> str | None:
    """The commit that the folder is at; None outside a repository."""
    try:
        done = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # no such user: a container with a bare number
        return "unknown"
