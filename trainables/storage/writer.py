"""Move checkpoints from a rank's scratch folder to the folder or store where they are kept."""

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from trainables.storage import checkpoint, stores
from trainables.storage.checkpoint import SCRATCH, Entry, Saved


@dataclass(frozen=True)
class CheckpointWriter:
    """The writer of one rank's checkpoints during one order."""

    folder: Path  # of the sweep's checkpoints; of scratch files only if there is a store
    url: str | None  # of the store; None: checkpoints are kept in the folder
    trial: str
    order: int
    rank: int

    @property
    def scratch_root(self) -> Path:
        """The folder of this rank's scratch folders."""
        return self.folder / SCRATCH / f"{self.trial}-{self.order}-{self.rank}"

    def scratch(self) -> Path:
        """Make a fresh folder on the file system of the checkpoints."""
        self.scratch_root.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self.scratch_root))

    def keep(self, step: int, within: int, folder: Path) -> Saved:
        """Make a finished folder durable; a folder made by `scratch` is moved, any other copied.

        Raises:
            StoreFailed: the store can't be reached, or refuses.
        """
        if not folder.is_relative_to(self.scratch_root):
            folder = checkpoint.copy(folder, self.scratch())
        name = _name(self.order, step, within)
        if self.url is None:
            return checkpoint.store(folder, self.folder / self.trial / name, step, within)
        return checkpoint.send(folder, f"{self.url}/{self.trial}/{name}", step, within)

    def send_part(self, step: int, within: int, folder: Path) -> dict[str, Entry]:
        """Upload this rank's part of a checkpoint; return its files for rank 0's manifest.

        Raises:
            StoreFailed: the store can't be reached, or refuses.
        """
        part = checkpoint.hash_files(folder)
        stores.upload(f"{self.url}/{self.trial}/{_name(self.order, step, within)}", folder)
        shutil.rmtree(folder)
        return part

    def keep_files(self, folder: Path) -> Path:
        """Return a folder with the same files that lasts as long as this rank's order.

        Args:
            folder: a checkpoint, or another rank's scratch folder, which is deleted with its order.

        Raises:
            OSError: the folder is gone, or its file system has no hard links.
        """
        if not folder.is_relative_to(self.folder / SCRATCH) or folder.is_relative_to(
            self.scratch_root
        ):
            return folder
        linked = self.scratch()
        return Path(shutil.copytree(folder, linked, copy_function=os.link, dirs_exist_ok=True))

    def drop(self, folder: Path) -> None:
        """Delete a folder if it is one of this rank's scratch folders."""
        if folder.is_relative_to(self.scratch_root):
            shutil.rmtree(folder)

    def close(self) -> None:
        """Delete the remaining scratch folders."""
        shutil.rmtree(self.scratch_root, ignore_errors=True)


def _name(order: int, step: int, within: int) -> str:
    return f"{order}-{step}.{within}" if within else f"{order}-{step}"
