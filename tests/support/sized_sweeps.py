"""Simulated sweeps over sizes: their best learning rate falls with the width, or jumps."""

import math
from random import Random
from typing import Any

from simulated_sweeps import make_spec

from hposvc import spec as specs

WIDTHS = [256, 512, 1024, 2048]
SCALE = {"over": "width", "sizes": WIDTHS, "at_target": 2}
PARAMETERS = {
    "lr": {"min": 1e-5, "max": 1e-1, "log": True},
    "decay": {"min": 0.0, "max": 0.3},
}


def best_lr(width: float) -> float:
    """Return the best learning rate of a width: 0.01 of the smallest, 1e-3 of the largest."""
    return 10 ** (-2 - math.log2(width / 256) / 3)


def above(params: Any, best: float) -> float:
    """Return by how much the loss of a configuration lies above the best of its width."""
    off = math.log10(params["lr"]) - math.log10(best)
    return 0.05 * off**2 + 0.2 * (params["decay"] - 0.1) ** 2


def _loss(params: Any, best: float) -> dict[str, float]:
    noise = Random(f"{params}").gauss(0, 0.002)
    return {"loss": 3 * (params["width"] / 256) ** -0.1 + above(params, best) + noise}


def following(params: Any, step: int) -> tuple[dict[str, float], float]:
    """Return a loss whose best learning rate follows a power law of the width."""
    return _loss(params, best_lr(params["width"])), params["width"] / 256


def jumping(params: Any, step: int) -> tuple[dict[str, float], float]:
    """Return a loss whose best learning rate is another one between 512 and 1024."""
    best = 1e-2 if params["width"] <= 512 else 2e-4
    best = 1e-4 if params["width"] == 1024 else best
    return _loss(params, best), params["width"] / 256


def stepped(params: Any, step: int) -> tuple[dict[str, float], float]:
    """Return the loss of `following`; the levels of widths fall and rise in steps."""
    metrics, seconds = following(params, step)
    return {
        "loss": metrics["loss"] + {256: 3, 512: 2, 1024: 2.5, 2048: 1}[params["width"]]
    }, seconds


def scored(params: Any, step: int) -> tuple[dict[str, float], float]:
    """Return a score that is the higher the lower the loss of `following` is."""
    metrics, seconds = following(params, step)
    return {"score": 10 - metrics["loss"]}, seconds


def mixed(params: Any, step: int) -> tuple[dict[str, float], float]:
    """Return the loss of `following`, which is best with Adam and 60 % from the web."""
    worse = 0.3 * (params["optimizer"] == "sgd") + (params["mix.web"] - 0.6) ** 2
    metrics, seconds = following(params, step)
    return {"loss": metrics["loss"] + worse}, seconds


def failing(params: Any, step: int) -> tuple[dict[str, float], float]:
    """Return the loss of `following`; one trial in four fails, and high rates diverge."""
    if Random(f"{params['lr']}").random() < 0.25:
        raise RuntimeError("no luck")
    metrics, seconds = following(params, step)
    return ({"loss": math.nan} if params["lr"] > 0.05 else metrics), seconds


def broken(params: Any, step: int) -> tuple[dict[str, float], float]:
    """Fail."""
    raise RuntimeError("no luck")


def sized_spec(curve: str = "following", **sections: Any) -> specs.SweepSpec:
    """Return the spec of forty simulated trials over four widths."""
    return make_spec(
        **{
            "engine": {"type": "simulate", "curve": f"sized_sweeps:{curve}"},
            "parameters": PARAMETERS,
            "scale": SCALE,
            "fidelity": None,
            "trials": {"max": 40, "parallel": 2},
            "tracking": {"send_to": []},
            **sections,
        }
    )
