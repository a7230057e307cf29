"""At a rung's barrier: all slots are idle at once, then each gets an order; by engine.

A gap goes from the moment when the last order of a rung is over, as the driver hears of it, to a
slot's first report of the next rung. Orders do nothing; journal and controller are not in it.
"""

import os
from pathlib import Path

from apart import Figures, answer
from rays import own_ray

from hposvc import spec as specs
from hposvc.backends.backend import Backend, Setting
from hposvc.events import Ended, Reported
from hposvc.spec import registry
from hposvc.spec.engines import ENGINES
from trainables.order import Order

CORES = 2.0  # that the slots share
TURN_S = 0.05


def ray(slots: int, rungs: int) -> Figures:
    """The pool."""
    return _measure("ray", slots, rungs)


def tune(slots: int, rungs: int) -> Figures:
    """The Tune experiment."""
    return _measure("tune", slots, rungs)


def _measure(engine: str, slots: int, rungs: int) -> Figures:
    spec = specs.load(
        {
            "trainable": "noop:train",
            "engine": engine,
            "metric": {"name": "loss", "goal": "minimize"},
            "parameters": {"lr": 0.1, "slots": slots},
            "search": "random",
            "trials": {"max": 1, "parallel": slots},
            "resources": {"cpus_per_worker": CORES / slots},
        }
    )
    home = Path(os.environ["HPOSVC_HOME"])
    with own_ray():
        setting = Setting("barrier-1", spec, home / "sweep", home)
        backend: Backend = registry.resolve(ENGINES[engine].backend)(setting)
        try:
            _climb(backend, 0, slots)  # the slots start
            gaps = [_climb(backend, rung, slots) for rung in range(1, rungs + 1)]
        finally:
            backend.close()
    return {"slots": [gap for each in gaps for gap in each], "rungs": [max(each) for each in gaps]}


def _climb(backend: Backend, rung: int, slots: int) -> list[float]:
    """One rung; the gap of each slot."""
    begun = backend.now()
    given, over = 0, 0
    first: dict[int, float] = {}
    while over < slots:
        for _ in range(min(backend.capacity(), slots - given)):
            given += 1
            number = rung * slots + given
            params = {"lr": 0.1, "slots": slots}
            backend.start(Order(number, f"t{number:04d}", params, None, 1, 1), {})
        for event in backend.events(TURN_S):
            over += isinstance(event, Ended)
            if isinstance(event, Reported):
                first[event.order] = event.time - begun
    return list(first.values())


if __name__ == "__main__":
    answer({"ray": ray, "tune": tune})
