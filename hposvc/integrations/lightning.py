"""Lightning's Trainer in a sweep: a callback that reports, stops and saves, and its ranks.

trainer = Trainer(max_epochs=27, callbacks=[hposvc.lightning.Report()], **hposvc.lightning.ranks())
trainer.fit(model, data, ckpt_path=hposvc.lightning.checkpoint())
"""

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lightning.fabric.plugins import ClusterEnvironment
from lightning.pytorch import Callback, LightningModule, Trainer

from trainables import get_checkpoint, is_in_sweep, report

FILE = "model.ckpt"


class Report(Callback):
    """Reports each validation to the sweep with a checkpoint, and ends a trial that is to stop.

    A step of the sweep is a validation during `fit`; without one, an epoch. Its metrics are all
    that the module has logged by then (`trainer.callback_metrics`). Outside a sweep they are
    printed, and no checkpoint is written.

    Args:
        save: give a checkpoint with each report; otherwise a trial that is paused begins anew.
    """

    def __init__(self, save: bool = True) -> None:
        self._save = save
        self._validated = False

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report a validation amid an epoch; one at its end waits for the epoch's own metrics."""
        if trainer.sanity_checking or trainer.state.fn != "fit":
            return
        self._validated = True
        if not trainer.is_last_batch:
            self._hand_over(trainer)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Report the validation at the end of an epoch, or the epoch if nothing is validated."""
        if self._validated or not trainer.enable_validation:
            self._hand_over(trainer)

    def _hand_over(self, trainer: Trainer) -> None:
        self._validated = False
        metrics = dict(trainer.callback_metrics)
        with TemporaryDirectory(prefix="hposvc-") as folder:
            if self._save and is_in_sweep():
                trainer.save_checkpoint(Path(folder, FILE))  # by every rank; the first writes
                report(metrics, checkpoint=folder)
            else:
                report(metrics)


class _Ranks(ClusterEnvironment):
    """The ranks of a trial, which exist already: each is a process with a device of its own."""

    @property
    def creates_processes_externally(self) -> bool:
        return True

    @property
    def main_address(self) -> str:
        return os.environ["MASTER_ADDR"]

    @property
    def main_port(self) -> int:
        return int(os.environ["MASTER_PORT"])

    @staticmethod
    def detect() -> bool:
        return False

    def world_size(self) -> int:
        return int(os.environ["WORLD_SIZE"])

    def set_world_size(self, size: int) -> None:
        pass  # the trial has as many as it has

    def global_rank(self) -> int:
        return int(os.environ["RANK"])

    def set_global_rank(self, rank: int) -> None:
        pass

    def local_rank(self) -> int:
        return 0  # each sees its own device only

    def node_rank(self) -> int:
        return self.global_rank()


def ranks() -> dict[str, Any]:
    """Return the Trainer's arguments for the trial's workers; with one worker, none.

    Lightning then trains with DDP among the processes of the trial, in place of starting its own.
    """
    workers = int(os.environ.get("WORLD_SIZE", "1"))
    if workers == 1 or not is_in_sweep():
        return {}
    return {"strategy": "ddp", "devices": 1, "num_nodes": workers, "plugins": [_Ranks()]}


def checkpoint() -> str | None:
    """Return the file to go on from, for `ckpt_path` of `fit`; None: start from scratch."""
    folder = get_checkpoint()
    return None if folder is None else str(folder / FILE)
