"""The search methods that have a name."""

import importlib

from searchers.names import nearest

METHODS = {
    "auto": "searchers.auto:Auto",
    "cmaes": "searchers.evolution:CMAES",
    "gp": "searchers.gp.searcher:GaussianProcess",
    "grid": "searchers.grid:Grid",
    "nsga2": "searchers.optuna_samplers:NSGA2",
    "random": "searchers.random_search:Random",
    "sobol": "searchers.sobol:Sobol",
    "tpe": "searchers.optuna_samplers:TPE",
}


def load(method: str) -> type:
    """The class of a method by its name, or by `module:Class` for one of the user's own."""
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


def takes_several(kind: type) -> bool:
    """Whether a method can search for several objectives: it learns from all, or from none."""
    return getattr(kind, "takes_several", not getattr(kind, "uses_results", True))
