"""Train one configuration on n ranks. Names load on first use; importing this loads no torch."""

from typing import TYPE_CHECKING

from trainables.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from trainables.data import Data as Data
    from trainables.data import Tensors as Tensors
    from trainables.session import get_checkpoint as get_checkpoint
    from trainables.session import is_in_sweep as is_in_sweep
    from trainables.session import report as report
    from trainables.stop_signals import StopTrial as StopTrial
    from trainables.storage.checkpoint import CheckpointDamaged as CheckpointDamaged
    from trainables.task import Task as Task
    from trainables.training import Training as Training
    from trainables.worker import ReportError as ReportError
    from trainables.worker import Saved as Saved
    from trainables.worker import Worker as Worker
else:
    __getattr__, __dir__ = lazy_imports(__name__)
    __all__ = __dir__()
