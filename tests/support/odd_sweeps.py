"""Sweeps that break pages: empty, one trial, all failed, NaN, conditional parameters, a front."""

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from simulated_sweeps import Lab, make_several, make_spec

from hposvc import api
from hposvc.spec import SweepSpec

NASTY = "<b>no</b> luck & </script><script>alert(1)</script>"


def broken(params, step):
    raise RuntimeError(NASTY)


def not_a_number(params, step):
    return {"loss": math.nan}, 1.0


def infinite(params, step):
    """Return values that are infinite, huge and tiny."""
    return {"loss": (math.inf, 1e300, 1e-300)[step % 3]}, 1.0


def equal(params, step):
    return {"loss": 0.5}, 1.0


def _curve(name: str) -> dict[str, str]:
    return {"type": "simulate", "curve": f"odd_sweeps:{name}"}


FEW = {"max": 6, "parallel": 2}
CONDITIONAL = {
    "lr": {"min": 1e-5, "max": 1e-1, "log": True},
    "optimizer": {"values": ["sgd", "adam", None]},
    "momentum": {"min": 0.5, "max": 0.99, "when": {"optimizer": "sgd"}},
    "layers": {"min": 1, "max": 4},
}
# Specs by the name of the sweep; `empty` has no event.
SPECS: Mapping[str, Callable[[], SweepSpec]] = {
    "plain": lambda: make_spec(scheduler="asha", trials={"max": 30, "parallel": 4}),
    "empty": make_spec,
    "one": lambda: make_spec(trials={"max": 1, "parallel": 1}),
    "failed": lambda: make_spec(engine=_curve("broken"), trials=FEW),
    "nan": lambda: make_spec(engine=_curve("not_a_number"), trials=FEW),
    "infinite": lambda: make_spec(engine=_curve("infinite"), trials=FEW),
    "equal": lambda: make_spec(engine=_curve("equal"), trials=FEW),
    "conditional": lambda: make_spec(
        parameters=CONDITIONAL, scheduler="asha", trials={"max": 40, "parallel": 4}
    ),
    "front": make_several,
    "fixed": lambda: make_spec(parameters={"lr": 0.01}, trials={"max": 2, "parallel": 1}),
}


def record(folder: Path, *names: str) -> api.Sweeps:
    """Return a home in `folder` that has these sweeps; without names: all."""
    sweeps = api.Sweeps.open(folder)
    for name in names or SPECS:
        spec = SPECS[name]()
        api.create(sweeps, spec, name)
        if name != "empty":
            Lab(sweeps.journal, folder / "lab").run(spec, name)
    return sweeps
