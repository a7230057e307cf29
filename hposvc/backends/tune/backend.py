"""The Ray Tune backend: a pool whose slots are the trials of a Tune experiment.

Tune requests the resources of each slot and holds them in a trial of its own. The ranks in them and
their orders are the pool's. Tune decides nothing.
"""

from collections.abc import Sequence

from hposvc.backends.backend import Setting
from hposvc.backends.ray.pool import RayPool
from hposvc.backends.tune.experiment import Experiment, TuneSlot
from hposvc.events import BackendEvent
from hposvc.spec.sections import Resources
from trainables.contract import SlotConfig
from trainables.storage.checkpoint import TUNE_FOLDER


class RayTune(RayPool):
    """A backend with slots in the trials of a Tune experiment."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self._experiment = Experiment(setting.sweep, setting.folder / TUNE_FOLDER, self._max_slots)

    def events(self, timeout_s: float) -> Sequence[BackendEvent]:
        self._experiment.check()
        return super().events(timeout_s)

    def _make_slot(self, name: str, config: SlotConfig, resources: Resources) -> TuneSlot:
        board, runtime_env = self._cluster.switchboard, self._cluster.runtime_env
        trials = self._experiment.trials
        return TuneSlot(name, config, resources, board, self._post, runtime_env, trials=trials)

    def _leave_cluster(self) -> None:
        self._experiment.end()
        super()._leave_cluster()
