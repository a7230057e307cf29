"""The provenance of a sweep: commit, user and installed packages."""

import getpass
import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from hposvc.errors import SpecError
from hposvc.spec.git_trees import Git
from hposvc.spec.parsing.document import to_yaml

FILES = ("spec.yaml", "environment.txt")  # of a sweep's own run


def tags(folder: Path) -> dict[str, str]:
    """Return MLflow's own tags for the user, the program, and the commit of a working folder.

    The tag `hposvc.dirty` says whether committed files have been changed. Untracked files do not
    count, since results lie there too.
    """
    run_tags = {
        "mlflow.user": user(),
        "mlflow.source.name": "hposvc",
        "mlflow.source.type": "LOCAL",
    }
    git = Git(folder)
    with suppress(SpecError):  # there is no git, no repository, or no commit
        run_tags["mlflow.source.git.commit"] = git.run("rev-parse", "HEAD")
        changed = git.run("diff", "--name-only", "HEAD")
        run_tags["hposvc.dirty"] = "true" if changed else "false"
    return run_tags


def user() -> str:
    """Return the name of this process's user."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container whose user id has no name
        return "unknown"


def files(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the spec as a file for `hposvc run`, and the versions of all installed packages."""
    return dict(zip(FILES, (to_yaml(spec), _packages()), strict=True))


def _packages() -> str:
    versions = {
        f"{package.metadata['Name']}=={package.version}" for package in metadata.distributions()
    }
    version = sys.version.split()[0]
    return "\n".join([f"# Python {version}", *sorted(versions, key=str.lower)]) + "\n"
