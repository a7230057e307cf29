"""How many orders that do nothing a second: our two engines, and Ray Tune's two forms."""

import time
from typing import Any

import noop
import tuning
from apart import Figures, answer
from pace import CpuClock, pace
from ray import tune
from rays import joined_ray, own_ray
from sweeps import run, times_of

SPACE = {"lr": {"min": 1e-5, "max": 1e-1, "log": True}}
CORES = 2.0  # that the slots share


def ours(orders: int, slots: int, engine: str = "ray") -> Figures:
    """`Sweep.run`, with the journal and the recorder."""
    with own_ray(), CpuClock() as clock:
        events = run(
            trainable="noop:train",
            engine=engine,
            metric={"name": "loss", "goal": "minimize"},
            parameters={**SPACE, "slots": slots},
            search="random",
            trials={"max": orders, "parallel": slots},
            resources={"cpus_per_worker": CORES / slots},
        )
        returned = time.time()
    ends = times_of(events, "ended")
    return {**pace(ends, slots, clock), "close_s": returned - times_of(events, "finished")[0]}


def ours_on_tune(orders: int, slots: int) -> Figures:
    """The same with `engine: tune`."""
    return ours(orders, slots, "tune")


def tune_function(orders: int, slots: int) -> Figures:
    """A function trainable."""

    def train(config: dict[str, Any]) -> None:
        tune.report({"loss": noop.loss(config)})

    return _tune(train, orders, slots)


def tune_class(orders: int, slots: int) -> Figures:
    """A class trainable."""

    class Noop(tune.Trainable):
        def step(self) -> dict[str, Any]:
            return {"loss": noop.loss(self.config), "done": True}

        def reset_config(self, new_config: dict[str, Any]) -> bool:
            self.config = new_config
            return True

    return _tune(Noop, orders, slots)


def _tune(trainable: Any, orders: int, slots: int) -> Figures:
    config = tune.TuneConfig(
        num_samples=orders,
        reuse_actors=True,
        max_concurrent_trials=slots,
        metric="loss",
        mode="min",
    )
    with joined_ray(), CpuClock() as clock:
        diary = tuning.fit(
            tune.with_resources(trainable, {"cpu": CORES / slots}),
            {"lr": tune.loguniform(1e-5, 1e-1), "slots": slots},
            config,
        )
    return pace(diary.ends, slots, clock)


if __name__ == "__main__":
    answer(
        {
            "ours": ours,
            "ours_on_tune": ours_on_tune,
            "function": tune_function,
            "class": tune_class,
        }
    )
