"""Who can be held against each other: ours, and the peers that are installed.

Each peer proposes one configuration at a time and is told one loss at a time, whatever is pending.
Those that know no conditions always see every parameter; what is inactive is left out of the
configuration that is evaluated.
"""

from collections.abc import Callable
from typing import Any

from peers.method import Method
from peers.ours import Ours
from searchers import Space
from searchers.methods import load_method

OURS = ("gp", "tpe", "cmaes", "random", "sobol")
PEERS = {
    "optuna_tpe": "peers.optuna:TPE",
    "optuna_tpe_group": "peers.optuna:GroupTPE",
    "optuna_tpe_single": "peers.optuna:SingleTPE",
    "optuna_gp": "peers.optuna:GP",
    "optuna_cmaes": "peers.optuna:CMAES",
    "smac": "peers.smac:SMAC",
    "hebo": "peers.hebo:HEBO",
    "botorch": "peers.botorch:BoTorch",
    "ax": "peers.ax:Ax",
    "pycma": "peers.pycma:CMAES",
    "nevergrad": "peers.nevergrad:NGOpt",
}


def start(method: str, space: Space, seed: int, budget: int) -> Method:
    """Begin a search of `budget` evaluations.

    Args:
        method: one of ours or of the peers by name; or `module:Class`, of a searcher or of a
            `Method` that takes what this function takes.
    """
    kind: Callable[..., Any] = load_method(PEERS.get(method, method))
    if hasattr(kind, "suggest"):
        return Ours(kind(), space, seed)
    found: Method = kind(space, seed, budget)
    return found


def missing(method: str) -> str | None:
    """Why a method cannot be run here; None: it can."""
    try:
        load_method(PEERS.get(method, method))
    except ValueError as error:
        return str(error)
    return None
