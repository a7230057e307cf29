"""The search methods that have a name, and the loading of their classes."""

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
    """Return the class of a method, given by name or as the `module:Class` of a user's own."""
    module, colon, name = METHODS.get(method, method).partition(":")
    if not colon:
        raise ValueError(f"there is no search method {method!r}: {nearest(method, METHODS)}")
    try:
        loaded = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"search method {method!r} cannot be loaded: {error}") from error
    if not isinstance(loaded, type):
        raise ValueError(f"search method {method!r} is {loaded!r}; name a class")
    return loaded


def takes_several(kind: type) -> bool:
    """Return whether a method can search for several objectives.

    It can if it learns from the losses of all objectives, or from no results.
    """
    return getattr(kind, "takes_several", not getattr(kind, "uses_results", True))
