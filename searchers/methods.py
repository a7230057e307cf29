"""The search methods that have a name."""

import importlib

from searchers.names import nearest

METHODS = {
    "auto": "searchers.auto:Auto",
    "gp": "searchers.gp.searcher:GaussianProcess",
    "grid": "searchers.grid:Grid",
    "random": "searchers.random_search:Random",
    "sobol": "searchers.sobol:Sobol",
    "tpe": "searchers.optuna_samplers:TPE",
}
LATER = frozenset({"cmaes", "nsga2"})


def load(method: str) -> type:
    """The class of a method by its name, or by `module:Class` for one of the user's own."""
    if method in LATER:
        raise ValueError(f"search method {method!r} is not there yet; use one of {_known()}")
    module, colon, name = METHODS.get(method, method).partition(":")
    if not colon:
        raise ValueError(f"there is no search method {method!r}: {nearest(method, METHODS)}")
    try:
        found = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"search method {method!r} cannot be loaded: {error}") from error
    if not isinstance(found, type):
        raise ValueError(f"search method {method!r} is {found!r}; name a class")
    return found


def _known() -> str:
    return ", ".join(sorted(METHODS))
