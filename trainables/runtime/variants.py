"""Run a trial in the folder of its version of the code.

The process is replaced after each order: modules that it has imported can't be exchanged.
"""

import os
import platform
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from trainables.load import LoadError
from trainables.order import Order


@dataclass(frozen=True)
class CodeVariants:
    """The parameter that chooses the code of a trial, and where the code of each value is."""

    parameter: str
    place: str  # has the files of each version, in a folder named by its hash
    live: str  # the folder whose place they take; empty: the working folder

    def enter(self, trainable: str, order: Order) -> tuple[str, Order]:
        """Change into the folder of an order's version of the code, to import from it.

        Returns:
            the trainable there, and the order without the parameter.

        Raises:
            LoadError: the folder is missing.
        """
        params = {**order.params}
        version = params.pop(self.parameter)
        live, tree = Path(self.live or Path.cwd()), Path(self.place, order.tree).absolute()
        if not tree.is_dir():
            raise LoadError(f"the code of {version}, {tree}, is not on {platform.node()}")

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
        return move(trainable), replace(order, params=params)
