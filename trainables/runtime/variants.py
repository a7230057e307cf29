"""Run a trial in the folder of its version of the code.

A process runs one version in all its life: modules that it has imported can't be exchanged.
"""

import os
import platform
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainables.load import LoadError

if TYPE_CHECKING:
    from trainables.runtime.assignment import Assignment


@dataclass(frozen=True)
class CodeVariants:
    """The parameter that chooses the code of a trial, and the code of each of its values."""

    parameter: str
    folders: Mapping[str, str]  # the files of each value
    live: str  # the folder whose place they take; empty: the working folder

    def enter(self, variant: str, trainable: str) -> str:
        """Change into a version's folder to import from it; return the trainable's name there.

        Raises:
            LoadError: the folder is missing.
        """
        live, tree = Path(self.live or Path.cwd()), Path(self.folders[variant]).absolute()
        if not tree.is_dir():
            raise LoadError(f"the code of {variant}, {tree}, is not on {platform.node()}")

        def move(text: str) -> str:
            path = Path(text)
            installed = path.is_relative_to(sys.prefix) and not live.is_relative_to(sys.prefix)
            installed |= not {"site-packages", "dist-packages"}.isdisjoint(path.parts)
            stays = installed or not path.is_relative_to(live)
            return text if stays else f"{tree / path.relative_to(live)}"

        sys.path[:] = dict.fromkeys([f"{tree}", *map(move, sys.path)])
        inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        os.environ["PYTHONPATH"] = os.pathsep.join([f"{tree}", *map(move, inherited)])
        os.chdir(tree)
        return move(trainable)

    def without(self, assignment: "Assignment") -> "Assignment":
        """Return an assignment without the parameter, which the code itself does not take."""
        params = {**assignment.order.params}
        del params[self.parameter]
        return replace(assignment, order=replace(assignment.order, params=params))
