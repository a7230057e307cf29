"""What `ray.tune` and `ray.train` ask for within a trial, answered by our worker.

Imported only for code that uses one of them, which then runs unchanged. Their functions ask modules
of Ray for the session of this process. There is no public way to set it (Ray 2.60), so the modules'
variables are replaced while the function runs.
"""

import importlib
import platform
import shutil
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import ray
from ray import tune
from ray.runtime_context import RuntimeContext
from ray.train import Checkpoint
from ray.train._internal import session as of_tune
from ray.train.v2._internal.execution import train_fn_utils as of_train
from ray.train.v2._internal.execution.storage import StorageContext
from ray.train.v2.api.context import LocalTrainContext
from ray.train.v2.api.preemption import PreemptionInfo
from ray.train.v2.api.report_config import CheckpointUploadMode
from ray.train.v2.api.reported_checkpoint import ReportedCheckpoint, ReportedCheckpointStatus

from trainables import ray_data
from trainables.functions import Read
from trainables.ray_checkpoints import gather, merge, name_folder, named_folder
from trainables.session import Session
from trainables.storage import stores
from trainables.storage.checkpoint import Saved
from trainables.worker import ReportError, Worker

Resolve = Callable[[str], Callable[..., Any]]
VALIDATION = (
    "ray.train.report: validation runs beside a trainer, and a trial has none; leave it out, "
    "evaluate in the function, and report the metrics"
)


@contextmanager
def in_session(resolve: Resolve, session: Session, worker: Worker) -> Iterator[Read]:
    """Let functions of ray.tune and ray.train use the worker's session within the block.

    Args:
        resolve: returns the function that a reference names.
    """
    if "torch" in sys.modules:  # other parts of ray.train use it as if it were imported
        importlib.import_module("ray.train.torch")
    tune_session: Any = _TuneSession(session, worker)
    context = _TrainContext(worker, tune_session)
    before = of_tune._session, of_train._train_fn_utils, ray.get_runtime_context
    of_tune._session = tune_session
    of_train.set_train_fn_utils(_TrainSession(session, worker, context, resolve))
    if not ray.is_initialized():  # as it is where ranks are no actors: it would start a cluster
        ray.get_runtime_context = lambda: _NoCluster(worker)
    try:
        yield lambda returned: dict(flat(returned))
    finally:
        ray_data.leave(worker)
        of_tune._session, utils, ray.get_runtime_context = before
        of_train.set_train_fn_utils(utils)


def flat(result: Mapping[str, Any], but: Collection[str] = ()) -> Iterator[tuple[str, Any]]:
    """Yield the values of a result, nested ones by path.

    Args:
        but: names to leave out.
    """
    for name, value in result.items():
        if name in but:
            continue
        if isinstance(value, Mapping):
            yield from ((f"{name}/{inner}", number) for inner, number in flat(value))
        else:
            yield name, value


def sweep_of(worker: Worker) -> str:
    """Return the id of the worker's sweep, after which the sweep's folder is named."""
    return worker.checkpoints.parent.name


@dataclass
class _TuneSession:
    """A session with the attributes that ray.tune's functions read, under Tune's names."""

    session: Session
    worker: Worker

    def report(self, metrics: Mapping[str, Any], checkpoint: Any = None) -> None:
        values = dict(flat(metrics))
        if checkpoint is None:
            self.session.report(values, None, None)
            return
        with checkpoint.as_directory() as folder:
            self.session.report(values, None, Path(folder))

    @property
    def loaded_checkpoint(self) -> Any:
        folder = self.session.get_checkpoint()
        return None if folder is None else tune.Checkpoint.from_directory(str(folder))

    @property
    def world_rank(self) -> int:
        """The rank. Tune's own sessions have none, by which ray.train knows them and refuses."""
        return self.worker.rank

    @property
    def trial_name(self) -> str:
        return self.worker.trial

    @property
    def trial_id(self) -> str:
        return self.worker.trial

    @property
    def experiment_name(self) -> str:
        return sweep_of(self.worker)

    @cached_property
    def trial_dir(self) -> str:
        return str(self.worker.scratch())

    @property
    def trial_resources(self) -> Any:
        return tune.PlacementGroupFactory([{"CPU": 1}])


class _TrainContext(LocalTrainContext):
    """What `ray.train.get_context` returns."""

    def __init__(self, worker: Worker, tune_session: _TuneSession) -> None:
        rank, hosts = worker.rank, worker.hosts or ("",) * worker.world_size
        neighbours = [peer for peer, host in enumerate(hosts) if host == hosts[rank]]
        super().__init__(
            experiment_name=sweep_of(worker),
            world_size=worker.world_size,
            world_rank=rank,
            local_rank=neighbours.index(rank),
            local_world_size=len(neighbours),
            node_rank=list(dict.fromkeys(hosts)).index(hosts[rank]),
        )
        self._worker, self._tune = worker, tune_session

    def get_trial_name(self) -> str:
        return self._tune.trial_name

    def get_trial_id(self) -> str:
        return self._tune.trial_id

    def get_trial_dir(self) -> str:
        return self._tune.trial_dir

    def get_trial_resources(self) -> Any:
        return self._tune.trial_resources

    def get_storage(self) -> StorageContext:
        return self._storage

    @cached_property
    def _storage(self) -> StorageContext:
        """A scratch folder of the order: checkpoints that are reported from it are moved."""
        return StorageContext(self._worker.scratch(), self.experiment_name)


@dataclass
class _TrainSession(of_train.TrainFnUtils):
    """What the functions of ray.train call."""

    session: Session
    worker: Worker
    context: _TrainContext
    resolve: Resolve
    # The kept checkpoints of this order, with their metrics.
    kept: list[tuple[Saved, dict[str, Any]]] = field(default_factory=list)

    def report(
        self,
        metrics: Mapping[str, Any],
        checkpoint: Checkpoint | None = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
        delete_local_checkpoint_after_upload: bool | None = None,
        checkpoint_upload_fn: Callable[[Checkpoint, str], Checkpoint] | None = None,
        validation: object = False,
    ) -> None:
        """Report the next step; what the ranks report as checkpoints is stored as one.

        It is stored when this returns, whatever the upload mode; see `merge`.
        """
        if validation:
            raise ReportError(VALIDATION)
        worker, step, values = self.worker, self.worker.next_step, dict(flat(metrics))
        delete = delete_local_checkpoint_after_upload
        if delete is None:
            delete = checkpoint_upload_mode.default_delete_local_checkpoint_after_upload()
        with ExitStack() as stack:
            if delete and checkpoint is not None and Path(checkpoint.path).is_absolute():
                stack.callback(shutil.rmtree, checkpoint.path, ignore_errors=True)
            folder, kept = None, False
            if gather(worker, lambda: worker.takes(step))[0]:
                if checkpoint is not None and checkpoint_upload_fn is not None:
                    name = checkpoint_dir_name or f"checkpoint_{step:06d}"
                    checkpoint = checkpoint_upload_fn(checkpoint, name)
                if checkpoint is not None:
                    folder = Path(stack.enter_context(checkpoint.as_directory()))
                folder, kept = merge(worker, step, folder)
            if folder is not None and checkpoint_dir_name is not None:
                folder = name_folder(worker, folder, checkpoint_dir_name)
            self.session.report(values, None, folder)
            if kept and (saved := gather(worker, lambda: worker.saved)[0]) is not None:
                self.kept.append((saved, values))

    def get_checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint of this order; before it, the one that the order began with.

        Its folder has the name that the report gave it.
        """
        if self.kept:
            return self._fetched(self.kept[-1][0])
        folder = self.session.get_checkpoint()
        return None if folder is None else self._named(folder)

    def _fetched(self, saved: Saved) -> Checkpoint:
        """Return a checkpoint of this order, from the store if there is one."""
        return self._named(
            self.worker.fetched(saved) if stores.is_url(saved.path) else Path(saved.path)
        )

    def _named(self, folder: Path) -> Checkpoint:
        return Checkpoint(f"{named_folder(self.worker, folder)}")

    def get_all_reported_checkpoints(
        self, consistency_mode: object = None, timeout_s: float | None = None
    ) -> list[ReportedCheckpoint]:
        """Return those of this order that still exist, as `checkpoints` of the spec keeps them.

        From a store only the last one is fetched.
        """
        present = [
            (saved, metrics)
            for saved, metrics in self.kept
            if saved == self.kept[-1][0] or Path(saved.path).is_dir()
        ]
        status = ReportedCheckpointStatus.COMMITTED
        return [
            ReportedCheckpoint(self._fetched(saved), metrics, status) for saved, metrics in present
        ]

    def get_dataset_shard(self, dataset_info: Any) -> Any:
        return ray_data.find_shard(self._shards, dataset_info.dataset_name)

    @cached_property
    def _shards(self) -> Mapping[str, Any]:
        return ray_data.shards(self.worker, self.resolve)

    def get_context(self) -> _TrainContext:
        return self.context

    def get_preemption_info(self) -> PreemptionInfo | None:
        """Return the ranks whose processes were told to end, by the names of their nodes."""
        told = gather(self.worker, lambda: platform.node() if self.worker.notice.given else "")
        nodes = {node: [rank for rank, at in enumerate(told) if at == node] for node in told}
        nodes.pop("", None)
        return PreemptionInfo(None, nodes) if nodes else None

    def is_distributed(self) -> bool:
        """Return False: then Ray asks torch for the device, and not the cluster.

        A rank sees no other GPU than its own.
        """
        return False

    def barrier(self) -> None:
        gather(self.worker, lambda: None)

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        return gather(self.worker, lambda: data if self.worker.rank == 0 else None)[0]


class _NoCluster(RuntimeContext):
    """The runtime context where there is no cluster: its job is the sweep."""

    def __init__(self, worker: Worker) -> None:
        super().__init__(ray._private.worker.global_worker)
        self._sweep = sweep_of(worker)

    def get_job_id(self) -> str:
        return self._sweep
