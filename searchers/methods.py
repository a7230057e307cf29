"""The search methods that have a name, and the loading of their classes."""

import hashlib
import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

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


def load_method(method: str) -> type:
    """Return the class of a method, by name or as `module:Class` or `path/to/file.py:Class`."""
    place, colon, name = METHODS.get(method, method).rpartition(":")
    if not colon:
        raise ValueError(f"there is no search method {method!r}: {nearest(method, METHODS)}")
    try:
        if place.endswith(".py"):
            loaded = getattr(_load_file(Path(place)), name)
        else:
            loaded = getattr(importlib.import_module(place), name)
    except (ImportError, AttributeError, OSError) as error:
        raise ValueError(f"search method {method!r} cannot be loaded: {error}") from error
    if not isinstance(loaded, type):
        raise ValueError(f"search method {method!r} is {loaded!r}; name a class")
    return loaded


def _load_file(path: Path) -> ModuleType:
    """Load a file as a module, once for each content; trainables/load.py names it alike."""
    path = path.expanduser().absolute()
    unique = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:12]
    name = f"{path.stem}_{unique}"
    if name in sys.modules:
        return sys.modules[name]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # it ends in .py
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def takes_several(kind: type) -> bool:
    """Return whether a method can search for several objectives.

    It can if it learns from the losses of all objectives, or from no results.
    """
    return getattr(kind, "takes_several", not getattr(kind, "uses_results", True))
