"""From one DDP trial to the next on two ranks: ours, a naive class trainable, a nested trainer.

Every measurement gives gaps in seconds, by what came before: `warm` (a trial that ended), `raise`
(one rank raised), `kill` (one rank was killed). A gap goes from rank 0's last report of a trial
to rank 0's first of the next.
"""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tiny
import tuning
from apart import Figures, answer
from gang import Gang, resources
from ray import train, tune
from ray.train.torch import TorchTrainer
from ray.tune.integration.ray_train import TuneReportCallback
from rays import joined_ray, own_ray
from sweeps import run
from train_loop import train_loop_per_worker

from hposvc.events import Ended, Event, Failed, Reported

CPUS = 1.0  # a rank
DRIVER_CPUS = 0.1  # a function trainable can't have none; its trainer's ranks get so much less


def ours(warm: int, raised: int = 0, killed: int = 0, trainable: str = "tiny:train") -> Figures:
    """`Sweep.run`; `driver` has the gaps as the journal has them, from an order's end."""
    fates = tiny.plan(warm, raised, killed)
    with own_ray():
        events = run(
            trainable=trainable,
            metric={"name": "loss", "goal": "minimize"},
            fidelity={"max": tiny.STEPS},
            parameters={"fate": {"values": ["fine", "raise", "kill"]}, "lr": 0.1},
            initial=[{"fate": fate} for fate in fates],
            search="random",
            trials={"max": len(fates), "parallel": 1},
            resources={"workers": tiny.RANKS, "cpus_per_worker": CPUS},
            failure={"infra_retries": 0},
        )
    reports = [
        (event.trial, event.metrics["at"]) for event in events if isinstance(event, Reported)
    ]
    return {"ranks": gaps(reports, fates), "driver": _from_end(events, fates)}


def naive(warm: int, raised: int, killed: int) -> Figures:
    """A class trainable with its ranks, actors reused."""
    return _gang(tiny.plan(warm, raised, killed), reuse=True)


def naive_cold(warm: int) -> Figures:
    """The same, actors not reused."""
    return _gang(tiny.plan(warm, 0, 0), reuse=False)


def nested(warm: int) -> Figures:
    """Ray Train's TorchTrainer within a function trainable, as Ray's guide has it."""
    nested = tune.with_resources(_nested, {"cpu": DRIVER_CPUS})
    # It ends of itself: one that Tune stops keeps its placement group (ray#54305).
    return _tune(nested, tiny.plan(warm, 0, 0), reuse=False)


def gaps(reports: Iterable[tuple[str, float]], fates: Sequence[tiny.Fate]) -> Figures:
    """Gaps between trials, by the fate of the earlier one.

    Args:
        reports: trial and time of each report, in order.
        fates: of the trials, in the order in which they ran.
    """
    first: dict[str, float] = {}
    last: dict[str, float] = {}
    for trial, at in reports:
        first.setdefault(trial, at)
        last[trial] = at
    found = zip(fates, list(last.values())[:-1], list(first.values())[1:], strict=False)
    return _by_fate((fate, after - before) for fate, before, after in found)


def _from_end(events: Iterable[Event], fates: Sequence[tiny.Fate]) -> Figures:
    """Gaps from the end of each order, as the driver hears of it, to the next first report."""
    found: list[float] = []
    ended: float | None = None
    for event in events:
        if isinstance(event, Ended | Failed):
            ended = event.time
        elif isinstance(event, Reported) and ended is not None:
            found.append(event.time - ended)
            ended = None
    return _by_fate(zip(fates, found, strict=False))


def _by_fate(pairs: Iterable[tuple[tiny.Fate, float]]) -> Figures:
    found: dict[str, list[float]] = {"warm": [], "raise": [], "kill": []}
    for fate, gap in pairs:
        found["warm" if fate == "fine" else fate].append(gap)
    return found


class TinyGang(Gang):
    """The tiny model as a class trainable."""

    work = tiny.Training


def _gang(fates: Sequence[tiny.Fate], reuse: bool) -> Figures:
    gang = tune.with_resources(TinyGang, resources(tiny.RANKS, CPUS))
    return _tune(gang, fates, reuse, stop={"training_iteration": tiny.STEPS})


def _tune(trainable: Any, fates: Sequence[tiny.Fate], reuse: bool, **run: Any) -> Figures:
    config = tune.TuneConfig(reuse_actors=reuse, max_concurrent_trials=1)
    space = {"fate": tune.grid_search(list(fates)), "lr": 0.1}
    with joined_ray():
        diary = tuning.fit(trainable, space, config, **run)
    reports = [(trial, result["at"]) for _, trial, result in diary.results]
    return {"ranks": gaps(reports, fates)}


def _nested(config: dict[str, Any]) -> None:
    """One trial: a trainer of its own."""
    trainer = TorchTrainer(
        train_loop_per_worker,
        train_loop_config=config,
        scaling_config=train.ScalingConfig(
            num_workers=tiny.RANKS, resources_per_worker={"CPU": CPUS - DRIVER_CPUS}
        ),
        run_config=train.RunConfig(
            name=tune.get_context().get_trial_id(),
            storage_path=str(Path(os.environ["HPOSVC_HOME"]) / "train"),
            callbacks=[TuneReportCallback()],  # type: ignore[no-untyped-call,list-item]
        ),
    )
    trainer.fit()


if __name__ == "__main__":
    answer({"ours": ours, "naive": naive, "naive_cold": naive_cold, "nested": nested})
