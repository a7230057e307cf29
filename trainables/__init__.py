"""Train one configuration on n ranks. Names load on first use; importing this loads no torch."""

import importlib
from typing import TYPE_CHECKING

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

MODULES = {
    "CheckpointDamaged": "trainables.storage.checkpoint",
    "Data": "trainables.data.sources",
    "ReportError": "trainables.worker",
    "Saved": "trainables.storage.checkpoint",
    "StopTrial": "trainables.stop_signals",
    "Task": "trainables.task",
    "Tensors": "trainables.data.sources",
    "Training": "trainables.training",
    "Worker": "trainables.worker",
    "get_checkpoint": "trainables.session",
    "is_in_sweep": "trainables.session",
    "report": "trainables.session",
}


def __getattr__(name: str) -> object:
    """Load a public name from its module (PEP 562)."""
    if name not in MODULES:
        raise AttributeError(f"module trainables has no attribute {name!r}")
    return getattr(importlib.import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(MODULES)
