"""Run a trial from the tree of its code variant, which is unpacked beside its archive.

A process runs one variant in all its life: modules that it has imported can't be exchanged.
"""

import os
import sys
import tarfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from trainables.load import LoadError

if TYPE_CHECKING:
    from trainables.runtime.assignment import Assignment


@dataclass(frozen=True)
class CodeVariants:
    """The parameter that chooses the code of a trial, and the code of each of its values."""

    parameter: str
    trees: Mapping[str, str]  # the hash of each value's files
    archives: str  # the folder of `HASH.tar`
    live: str  # the folder whose place the trees take; empty: the working folder

    def enter(self, variant: str) -> Callable[[str], str]:
        """Change into a variant's tree to import from it; return what moves paths there.

        Raises:
            LoadError: the archive is missing.
        """
        live = Path(self.live or Path.cwd())
        tree = unpack(Path(self.archives, f"{self.trees[variant]}.tar").absolute())

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
        return move

    def without(self, assignment: "Assignment") -> "Assignment":
        """Return an assignment without the parameter, which the code itself does not take."""
        params = {**assignment.order.params}
        del params[self.parameter]
        return replace(assignment, order=replace(assignment.order, params=params))


def unpack(archive: Path) -> Path:
    """Return the folder with the files of an archive.

    Raises:
        LoadError: there is no such archive.
    """
    tree = archive.with_suffix("")
    if not tree.is_dir():
        try:
            with tarfile.open(archive) as files, TemporaryDirectory(dir=archive.parent) as draft:
                files.extractall(f"{draft}/tree", filter="tar")
                with suppress(OSError):  # another process was faster
                    Path(draft, "tree").rename(tree)
        except FileNotFoundError as error:
            raise LoadError(f"the frozen code {archive} is gone") from error
    return tree
