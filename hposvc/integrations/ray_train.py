"""A sweep of what an existing `TorchTrainer` of Ray Train trains.

trainer = TorchTrainer(train_loop_per_worker, train_loop_config={"epochs": 9, "lr": 1e-3}, ...)
hposvc.ray.from_trainer(
    trainer, parameters={"lr": {"min": 1e-5, "max": 1e-1, "log": True}}, metric=..., ...
).run()
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

import ray.data
from ray.train import DataConfig
from ray.train.torch import TorchConfig
from ray.train.v2.api.config import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from hposvc.errors import fail, shown
from hposvc.python.sweep import Sweep
from hposvc.spec.parsing.foreign_domains import declared
from trainables.contract import Params

TUNE_CALLBACK = "TuneReportCallback"  # which passes reports on to Tune; the sweep has them anyway
OWN_NAME = "ray_train_run-"  # beginning of the name that Ray gives to a run without one
FOREVER = 10_000  # retries, for Ray's -1


def from_trainer(
    trainer: DataParallelTrainer, *, parameters: Mapping[str, Any] | None = None, **sections: Any
) -> Sweep:
    """Return the sweep over the training loop of a TorchTrainer, with its settings.

    Settings come from the trainer's `ScalingConfig` (resources), `RunConfig` (name, storage,
    retries, checkpoints, the workers' runtime environment), its datasets and its
    `train_loop_config`; sections of a spec that are given here take their place.

    Args:
        parameters: what to search, by the names in `train_loop_config`, as in a spec or as domains
            of Ray Tune. Other entries of `train_loop_config` stay as they are; domains in it are
            searched too.
        sections: of a spec, such as `metric`, `fidelity` and `scheduler`.

    Raises:
        SpecError: the trainer has something that a trial has no place for.
    """
    if not isinstance(trainer, DataParallelTrainer) or not isinstance(
        trainer.backend_config, TorchConfig
    ):
        fix = "give a ray.train.torch.TorchTrainer"
        raise fail(f"is {type(trainer).__name__}", "trainer", fix=fix)
    if trainer.validation_config is not None:
        fix = "evaluate in the loop, and report the metrics"
        raise fail("runs beside the trainer", "validation_config", fix=fix)
    searched = dict(parameters or {})
    if searched.keys() == {"train_loop_config"}:  # as Tune's param_space has it
        searched = dict(searched["train_loop_config"])
    constants, others = _divide(trainer.train_loop_config or {})
    loop: Any = trainer.train_loop_per_worker
    made: dict[str, Any] = {
        "parameters": _joined(constants, searched),
        "resources": dict(_resources(cast(ScalingConfig, trainer.scaling_config))),
        **dict(_run_sections(cast(RunConfig, trainer.run_config))),
    }
    backend = trainer.backend_config.backend
    if backend not in (None, "nccl" if made["resources"]["gpus_per_worker"] else "gloo"):
        fix = "leave it out: ranks have NCCL on GPUs, and gloo on CPUs"
        raise fail(f"is {backend}", "torch_config", "backend", fix=fix)
    if trainer.datasets:
        config = trainer.data_config
        if type(config) is not DataConfig or config._user_execution_options is not None:
            fix = "set the options in a function that makes the dataset: dataset.context"
            raise fail("has options of its own", "dataset_config", fix=fix)
        split = config._datasets_to_split
        made["datasets"] = {
            name: _Dataset.of(name, data, split == "all" or name in split)
            for name, data in trainer.datasets.items()
        }
    return Sweep(_Loop(loop, others) if others else loop, **{**made, **sections})


def _divide(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the entries that a spec can hold as parameters, and the others."""
    parameters: dict[str, Any] = {}
    others: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping) and _has_domain(value):
            parameters[name], left = _divide(value)
            others |= {name: left} if left else {}
        elif _has_domain(value) or isinstance(value, bool | int | float | str):
            parameters[name] = value
        else:
            others[name] = value
    return parameters, others


def _has_domain(value: Any) -> bool:
    """Return whether a value is a domain of Ray Tune or Optuna, or a mapping that holds one."""
    if isinstance(value, Mapping):
        return any(map(_has_domain, value.values()))
    return declared(value) is not value


def _resources(scaling: ScalingConfig) -> Iterator[tuple[str, Any]]:
    workers = scaling.num_workers
    if scaling.use_tpu or scaling.topology:
        raise fail("asks for TPUs", "scaling_config", fix="trials train on CPUs and GPUs")
    if isinstance(workers, tuple):
        yield "workers", {"min": workers[0], "max": workers[1]}
    else:
        yield "workers", max(workers, 1)  # 0 is one in Ray's own process
    yield "cpus_per_worker", scaling.num_cpus_per_worker or 1
    yield "gpus_per_worker", scaling.num_gpus_per_worker
    custom = dict(scaling.additional_resources_per_worker)
    if memory := custom.pop("memory", None):
        yield "memory_per_worker", int(memory)
    yield "custom", custom
    if scaling.accelerator_type:
        yield "accelerator", scaling.accelerator_type
    if labels := scaling.label_selector:
        each = [labels] if isinstance(labels, Mapping) else labels
        if any(label != each[0] for label in each):
            fix = "give one for all workers"
            raise fail("has unlike labels", "scaling_config", "label_selector", fix=fix)
        yield "labels", dict(each[0])
    yield "placement", f"{scaling.placement_strategy}".lower()


def _run_sections(run: RunConfig) -> Iterator[tuple[str, Any]]:
    for callback in run.callbacks or ():
        if type(callback).__name__ != TUNE_CALLBACK:
            message = f"{type(callback).__name__} is called by Ray Train's controller"
            fix = "remove it; hposvc docs other-trackers, hposvc docs notifications"
            raise fail(message, "run_config", "callbacks", fix=fix)
    if run.storage_filesystem is not None:
        fix = "give storage_path as a URL, with the store in the environment"
        raise fail("can't be sent to trials", "run_config", "storage_filesystem", fix=fix)
    if run.name and not run.name.startswith(OWN_NAME):
        yield "name", run.name
    if run.storage_path and run.storage_path != RunConfig().storage_path:
        yield "storage", str(run.storage_path)
    if run.worker_runtime_env:
        yield "environment", {"runtime_env": dict(run.worker_runtime_env)}
    failures, kept = run.failure_config, run.checkpoint_config
    if failures is not None and failures != FailureConfig():
        most = failures.max_failures if failures.max_failures >= 0 else FOREVER
        lost = failures.max_preemption_failures
        preempted = "unlimited" if lost < 0 else lost
        retries = {"user_retries": most, "infra_retries": most}
        yield "failure", {**retries, "preempt_retries": preempted}
    if kept is not None and kept.num_to_keep:
        ranked = kept.checkpoint_score_attribute is not None
        yield "checkpoints", {"keep_best" if ranked else "keep_last": kept.num_to_keep}
    if kept is not None and kept.checkpoint_score_attribute:
        goal = "maximize" if kept.checkpoint_score_order == "max" else "minimize"
        yield "metric", {"name": kept.checkpoint_score_attribute, "goal": goal}


@dataclass(frozen=True)
class _Loop:
    """A training loop with the entries of its config that are no parameters."""

    loop: Callable[[dict[str, Any]], Any]
    others: Mapping[str, Any]

    def __call__(self, config: Params) -> Any:
        return self.loop(_joined(self.others, config))


def _joined(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    joined = {**below, **above}
    for name in below.keys() & above.keys():
        if isinstance(below[name], Mapping) and isinstance(above[name], Mapping):
            joined[name] = _joined(below[name], above[name])
    return joined


@dataclass(frozen=True)
class _Dataset:
    """Makes a dataset of a trainer, in another process."""

    make: Callable[[], Any]
    split: bool

    @classmethod
    def of(cls, name: str, data: Any, split: bool) -> "_Dataset":
        """Return the maker of a dataset, or of what a function returns.

        Raises:
            SpecError: the dataset is in the memory of this process.
        """
        if not isinstance(data, ray.data.Dataset):
            return cls(data, split)
        with suppress(ValueError):
            return cls(_Lineage(data.serialize_lineage()), split)
        fix = "give a function that makes it, or read it from files"
        raise fail(f"is {shown(data)}, of this Ray session alone", "datasets", name, fix=fix)

    def __call__(self, params: Params) -> Any:
        data = self.make()
        return data if self.split else data.iterator()


@dataclass(frozen=True)
class _Lineage:
    content: bytes

    def __call__(self) -> Any:
        return ray.data.Dataset.deserialize_lineage(self.content)
