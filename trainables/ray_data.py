"""The shards of Ray Data's datasets that `ray.train.get_dataset_shard` returns.

An actor on the node of a rank makes the datasets and splits them: Ray ends a stream with the
process that made it (2.60), and ranks end their orders at unlike moments. It serves all orders of a
slot; tasks on CPUs that the slot leaves free fill the streams.
"""

import os
import sys
import uuid
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from trainables.worker import Params, ReportError, Worker

SET_BY_RAY = "RAY_"
NAMESPACE = "hposvc-datasets"  # in which ranks find the actor, whoever connected them to Ray
_actors: dict[str, Any] = {}  # of this process's slot, by name; a handle keeps an actor alive


def find_shard(shards: Mapping[str, Any], name: str | None) -> Any:
    """Return a shard by the name of its dataset.

    Raises:
        ReportError: there is no dataset of that name.
    """
    if name is not None and name in shards:
        return shards[name]
    if not shards:
        fix = f"the spec has none; add datasets: {{{name or 'train'}: FILE.py:FUNCTION}}"
    else:
        nearest = get_close_matches(str(name), shards, n=1, cutoff=0.0)[0]
        fix = f"the spec's datasets are {', '.join(shards)}; the nearest is {nearest}"
    raise ReportError(f"ray.train.get_dataset_shard({name!r}): {fix}")


def shards(worker: Worker, resolve: Callable[[str], Callable[..., Any]]) -> Mapping[str, Any]:
    """Return this rank's shard of each dataset, by name.

    Args:
        resolve: returns the function that a reference names.

    Raises:
        ReportError: there is no cluster.
    """
    if not worker.datasets:
        return {}
    if not ray.is_initialized():
        if "RAY_ADDRESS" not in os.environ:
            raise ReportError(
                "datasets: Ray Data works on a Ray cluster, and this rank is on none; take "
                "engine: ray, or set RAY_ADDRESS where ranks run to the cluster's address"
            )
        ray.init(namespace=NAMESPACE, log_to_driver=False)
    known = next(iter(_actors), f"datasets-{uuid.uuid4().hex}")
    name = worker.link.once("datasets", lambda: known)
    if name not in _actors:
        node = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        variables = {
            name: text for name, text in os.environ.items() if not name.startswith(SET_BY_RAY)
        }
        _actors[name] = (
            ray.remote(_Streams)
            .options(
                name=name,
                namespace=NAMESPACE,
                get_if_exists=True,
                num_cpus=0,
                scheduling_strategy=node,
            )
            .remote(sys.path, os.getcwd(), variables, resolve)  # noqa: PTH109
        )
    order = (worker.trial, worker.order)
    asked = _actors[name].shards.remote(
        order, worker.rank, worker.world_size, dict(worker.params), dict(worker.datasets)
    )
    found: Mapping[str, Any] = ray.get(asked)
    return found


def leave(worker: Worker) -> None:
    """Say that this rank reads no more in its order; the last one ends the order's streams."""
    for actor in _actors.values():
        actor.leave.remote((worker.trial, worker.order), worker.rank)


class _Streams:
    """The streams of a slot's present order, in a process that has its ranks' surroundings."""

    def __init__(
        self,
        path: list[str],
        folder: str,
        variables: Mapping[str, str],
        resolve: Callable[[str], Callable[..., Any]],
    ) -> None:
        sys.path[:] = path
        os.environ.update(variables)
        os.chdir(folder)
        self._resolve = resolve
        self._order: object = None
        self._readers: set[int] = set()
        self._split: list[dict[str, Any]] = []

    def shards(
        self, order: object, rank: int, ranks: int, params: Params, makers: Mapping[str, str]
    ) -> Mapping[str, Any]:
        """Return the shards of a rank; an iterator, in place of a dataset, is for every rank."""
        from ray.data import DataIterator
        from ray.train import DataConfig

        if self._order != order:
            self._split = []  # ends those of an order that failed
            made = {name: self._resolve(make)(dict(params)) for name, make in makers.items()}
            whole = {name: each for name, each in made.items() if isinstance(each, DataIterator)}
            to_split = {name: each for name, each in made.items() if name not in whole}
            split = DataConfig().configure(to_split, ranks, None, None)
            self._split = [{**whole, **part} for part in split]
            self._order, self._readers = order, set(range(ranks))
        return self._split[rank]

    def leave(self, order: object, rank: int) -> None:
        """End the streams with their last reader."""
        if self._order == order:
            self._readers.discard(rank)
            if not self._readers:
                self._split, self._order = [], None
