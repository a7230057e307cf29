"""From the folder that a rank writes into to the place where its order's checkpoints are kept."""

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainables.checkpoints import checkpoint, stores
from trainables.checkpoints.checkpoint import SCRATCH, Entry, Saved


@dataclass(frozen=True)
class Keeper:
    """Of one rank during one order."""

    folder: Path  # of the sweep's checkpoints, or of scratch alone where there is a store
    url: str | None  # of the store
    trial: str
    order: int
    rank: int

    @property
    def home(self) -> Path:
        """Where this rank's scratch folders are."""
        return self.folder / SCRATCH / f"{self.trial}-{self.order}-{self.rank}"

    def scratch(self) -> Path:
        """A fresh folder on the file system of the checkpoints."""
        self.home.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self.home))

    def keep(self, step: int, within: int, folder: Path) -> Saved:
        """Make a finished folder durable; one of `scratch` is moved, any other copied.

        Raises:
            StoreFailed: the store can't be reached, or refuses.
        """
        if not folder.is_relative_to(self.home):
            folder = checkpoint.copy(folder, self.scratch())
        name = _name(self.order, step, within)
        if self.url is None:
            return checkpoint.store(folder, self.folder / self.trial / name, step, within)
        return checkpoint.send(folder, f"{self.url}/{self.trial}/{name}", step, within)

    def send_part(self, step: int, within: int, folder: Path) -> dict[str, Entry]:
        """Put this rank's part of a checkpoint into the store; returns what rank 0 is to vouch for.

        Raises:
            StoreFailed: the store can't be reached, or refuses.
        """
        part = checkpoint.contents(folder)
        stores.upload(f"{self.url}/{self.trial}/{_name(self.order, step, within)}", folder)
        shutil.rmtree(folder)
        return part

    def drop(self, folder: Path) -> None:
        """Do without it; what is not ours stays where it is."""
        if folder.is_relative_to(self.home):
            shutil.rmtree(folder)

    def close(self) -> None:
        """Drop what is left of the scratch folders."""
        shutil.rmtree(self.home, ignore_errors=True)


def _name(order: int, step: int, within: int) -> str:
    return f"{order}-{step}.{within}" if within else f"{order}-{step}"
