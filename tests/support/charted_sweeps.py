"""Sweeps to draw: ordinary ones of several schedulers, and odd ones that broke other tools."""

import math
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from simulated_sweeps import Lab, at_desk, make_several, make_spec

from hposvc.backends.simulate import Simulation
from hposvc.events import Attached, Event, Failed, Finished
from hposvc.spec import SweepSpec

Sweep = tuple[SweepSpec, list[Event]]
PARAMETERS: Mapping[str, Any] = {
    "lr": {"min": 1e-4, "max": 0.3, "log": True},
    "dropout": {"min": 0.0, "max": 0.6},
    "batch": {"values": [64, 128, 256], "ordered": True},
    "optimizer": {"values": ["sgd", "adamw"]},
    "momentum": {"min": 0.8, "max": 0.98, "when": {"optimizer": "sgd"}},
}
MIXTURE: Mapping[str, Any] = {
    "mix": {"shares": ["web", "code", "books"], "zeros": True},
    "experts": {"shares": 5, "total": 64, "step": 1},
}
ORDINARY = ("asha", "promote", "pbt", "median", "several", "many", "shares")
ODD = ("empty", "queued", "running", "one", "failed", "nan", "inf", "constant", "equal", "huge")


def accuracy(params, step):
    """Return an accuracy with noise; some configurations diverge, some raise."""
    rate = math.log10(params["lr"])
    rng = np.random.default_rng([int(params["dropout"] * 1e9), step])
    top = 0.96 - 0.035 * (rate + 2.6) ** 2 - 0.12 * abs(params["dropout"] - 0.25)
    pace = (10 ** (0.35 * rate + 1.1) * step / 9) ** 0.7
    if rate > -0.8 and step > 2:
        return {"accuracy": math.nan}, 40.0
    if params["dropout"] > 0.58:
        raise RuntimeError("CUDA error: device-side assert triggered")
    value = 0.1 + (top - 0.1) * (1 - math.exp(-pace)) + rng.normal(0, 0.006)
    return {"accuracy": value, "latency": 5 + params["batch"] / 50 + 40 * params["lr"]}, 60.0


def mixed(params, step):
    """Return a loss that is least without books, and with as many experts everywhere."""
    uneven = sum(abs(params[f"experts.s{number}"] - 64 / 5) for number in range(1, 6))
    return {"loss": (params["mix.web"] - 0.4) ** 2 + params["mix.books"] + uneven / 640}, 1.0


def by_first_share(params, step):
    """Return a loss that is least with nothing but the first share, where a trial has shares."""
    return {"loss": 1.0 - params.get("mix.source00", 0.0), "size": len(params)}, 1.0


def infinite(params, step):
    return {"loss": math.inf if step > 3 else 1.0 / step}, 1.0


def equal(params, step):
    return {"loss": 0.5}, 1.0


def huge(params, step):
    """Return losses over three hundred decades, and some near zero."""
    return {"loss": 10.0 ** (300 * math.log10(params["lr"] * 1e5) / 4) / step}, 1.0


def failing(params, step):
    raise RuntimeError("no such file: <data>")


def diverging(params, step):
    return {"loss": math.nan}, 1.0


class Unreliable(Simulation):
    """A simulation that loses an order now and then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._rng = random.Random(3)

    def events(self, timeout_s):
        if self._runs and self._rng.random() < 0.02:
            run = self._runs.pop(self._rng.choice(list(self._runs)))
            cause = self._rng.choice(["infra", "preempt", "oom"])
            return [Failed(self.now(), run.order.id, run.order.trial, cause, "node was lost")]
        return super().events(max(timeout_s, 0.2))


def realistic(**sections: Any) -> SweepSpec:
    """Return the spec of a sweep of 50 trials of a classifier."""
    return make_spec(
        **{
            "metric": {"name": "accuracy", "goal": "maximize"},
            "parameters": PARAMETERS,
            "fidelity": {"min": 1, "max": 27, "unit": "epoch"},
            "scheduler": {"type": "asha"},
            "trials": {"max": 50, "parallel": 6},
            "resources": {"workers": 2, "gpus_per_worker": 1},
            "engine": {"type": "simulate", "curve": "charted_sweeps:accuracy"},
            **sections,
        }
    )


def spec_of(name: str) -> SweepSpec:
    """Return the spec of a sweep that is simulated."""
    moved = {"lr": {"min": 1e-4, "max": 0.3, "log": True}}
    pbt = {"type": "pbt", "interval": 3, "mutate": moved}
    both = [{"name": "accuracy", "goal": "maximize"}, {"name": "latency", "goal": "minimize"}]
    match name:
        case "promote":
            return realistic(scheduler={"type": "asha", "mode": "promote"})
        case "pbt":
            return realistic(scheduler=pbt, trials={"max": 12, "parallel": 6})
        case "median":
            return realistic(scheduler="median", trials={"max": 20, "parallel": 6})
        case "several":
            return realistic(metric=None, metrics=both)
        case "many":
            return make_spec(trials={"max": 220, "parallel": 8}, scheduler="asha")
        case "shares":
            curve = {"type": "simulate", "curve": "charted_sweeps:mixed"}
            return make_spec(parameters=MIXTURE, engine=curve, trials={"max": 40, "parallel": 4})
        case "one":
            return realistic(trials={"max": 1, "parallel": 1})
        case "constant":
            return make_spec(parameters={"lr": 0.01}, trials={"max": 1, "parallel": 1})
    curves = {"failed": "failing", "nan": "diverging", "inf": "infinite"}
    if name in (*curves, "equal", "huge"):
        curve = f"charted_sweeps:{curves.get(name, name)}"
        return make_spec(engine={"type": "simulate", "curve": curve}, scheduler="asha")
    return realistic()


def sweep(name: str, folder: Path) -> Sweep:
    """Return the spec and the events of a sweep, which needs a folder of its own."""
    if name == "empty":
        return make_spec(), []
    if name == "queued":
        return make_several(), [Attached(5.0, "here:1"), Finished(9.0, "STOPPED", "user")]
    if name == "running":
        return _running()
    lab = Lab.at(folder)
    spec = spec_of(name)
    backend = Unreliable if name in ("asha", "promote", "pbt", "median") else Simulation
    lab.run(spec, backend=backend)
    events = lab.events()
    lab.journal.store.close()
    return spec, events


def _running() -> Sweep:
    """Return a sweep whose driver was lost once, with a running order."""
    desk = at_desk(scheduler={"type": "asha"})
    desk.happen(Attached(1.0, "here:1"))
    desk.time = 2.0
    first = desk.start()
    desk.time = 4.0
    desk.report(first, 1, 0.5)
    desk.happen(Attached(60.0, "here:2"))
    desk.time = 61.0
    second = desk.start(1e-2)
    desk.time = 65.0
    desk.report(second, second.first, 0.4)
    return desk.controller.state.spec, desk.log
