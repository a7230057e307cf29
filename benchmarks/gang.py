"""A Tune class trainable with ranks, written plainly: what people do without a service like ours.

The trial's own process starts the ranks in its placement group; they join one gloo group, which
lives as long as they do. With `reuse_actors`, processes and group stay for the next trial.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Protocol

import ray
import torch.distributed as dist
from ray import tune
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

LOCALHOST = "127.0.0.1"


class Work(Protocol):
    """One trial on one rank."""

    def step(self, number: int) -> dict[str, float]:
        """Train for one step; the metrics."""


class Rank:
    """One process of a trial."""

    def __init__(self, rank: int, world_size: int, work: type) -> None:
        self.rank, self.world_size, self.work = rank, world_size, work
        self.trial: Work | None = None
        self.number = 0

    def listen(self) -> int:
        """Rank 0 opens the store where all meet; its port."""
        self.store = dist.TCPStore(LOCALHOST, 0, None, True, wait_for_workers=False)
        return int(self.store.port)

    def join(self, port: int) -> None:
        """Join the process group."""
        if self.rank > 0:
            self.store = dist.TCPStore(LOCALHOST, port, None, False)
        dist.init_process_group(
            "gloo", store=self.store, rank=self.rank, world_size=self.world_size
        )

    def begin(self, config: Mapping[str, Any]) -> None:
        """Start a trial."""
        self.trial, self.number = self.work(config, self.rank), 0

    def step(self) -> dict[str, float]:
        """The trial's next step."""
        assert self.trial is not None
        self.number += 1
        return self.trial.step(self.number)


class Gang(tune.Trainable):
    """A trial on several ranks; a subclass says what each rank does."""

    work: ClassVar[type]  # built with the trial's config and the rank

    def setup(self, config: dict[str, Any]) -> None:
        resources, group = self.trial_resources, ray.util.get_current_placement_group()
        assert resources is not None
        assert group is not None
        bundles, strategy = resources.bundles, PlacementGroupSchedulingStrategy(group)
        self.ranks: list[Any] = [
            ray.remote(Rank)
            .options(num_cpus=bundle["CPU"], scheduling_strategy=strategy)
            .remote(rank, len(bundles), self.work)
            for rank, bundle in enumerate(bundles)
        ]
        port = ray.get(self.ranks[0].listen.remote())
        ray.get([rank.join.remote(port) for rank in self.ranks])
        self.reset_config(config)

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        ray.get([rank.begin.remote(new_config) for rank in self.ranks])
        return True

    def step(self) -> dict[str, float]:
        metrics: dict[str, float] = ray.get([rank.step.remote() for rank in self.ranks])[0]
        return metrics

    def cleanup(self) -> None:
        for rank in self.ranks:
            ray.kill(rank)


def resources(ranks: int, cpus: float) -> tune.PlacementGroupFactory:
    """A bundle a rank; the trial's own process takes none."""
    return tune.PlacementGroupFactory([{"CPU": 0.0}, *[{"CPU": cpus}] * ranks])
