"""Keras in a sweep: a callback that reports, stops, and goes on from the last epoch.

model.fit(x, y, validation_data=held_out, epochs=27, callbacks=[hposvc.keras.Report()])
"""

import shutil
from collections.abc import Mapping
from tempfile import TemporaryDirectory

from keras.callbacks import BackupAndRestore

from trainables import get_checkpoint, is_in_sweep, report

FILE = "latest.weights.h5"  # of the model and its optimizer, as BackupAndRestore calls it


class Report(BackupAndRestore):  # type: ignore[misc]
    """Reports each epoch to the sweep with a checkpoint, and ends a trial that is to stop.

    The metrics are those of `fit`'s logs: loss, val_loss, val_accuracy. A trial that goes on
    starts `fit` at the epoch behind its checkpoint, with the weights of model and optimizer.
    Outside a sweep the metrics are printed, and nothing is written.

    Args:
        save: give a checkpoint with each report; otherwise a trial that is paused begins anew.
    """

    def __init__(self, save: bool = True) -> None:
        self._folder = TemporaryDirectory(prefix="hposvc-")
        super().__init__(self._folder.name, delete_checkpoint=False)
        self._save = save and is_in_sweep()

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        """Load the trial's checkpoint, if there is one."""
        if (checkpoint := get_checkpoint()) is not None:
            shutil.copytree(checkpoint, self._folder.name, dirs_exist_ok=True)
            super().on_train_begin(logs)

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        """Report the epoch.

        Raises:
            StopTrial: the trial ends here, or waits at a rung.
        """
        metrics = logs or {}
        if self._save:
            super().on_epoch_end(epoch, logs)
            report(metrics, checkpoint=self._folder.name)
        else:
            report(metrics)
