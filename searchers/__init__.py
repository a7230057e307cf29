"""Searchers propose configurations: `Space` says which there are, `create` makes a searcher.

Loaded on first use, so that `import searchers` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchers.domains import Choice, Constant, Float, Int
    from searchers.methods import METHODS
    from searchers.searcher import Observation, Optimizer, Proposal, Searcher, create
    from searchers.space import Space
    from searchers.values import SpaceError

_HOMES = {
    "searchers.domains": {"Choice", "Constant", "Float", "Int"},
    "searchers.methods": {"METHODS"},
    "searchers.searcher": {"Observation", "Optimizer", "Proposal", "Searcher", "create"},
    "searchers.space": {"Space"},
    "searchers.values": {"SpaceError"},
}
__all__ = [
    "METHODS",
    "Choice",
    "Constant",
    "Float",
    "Int",
    "Observation",
    "Optimizer",
    "Proposal",
    "Searcher",
    "Space",
    "SpaceError",
    "create",
]


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'searchers' has no attribute {name!r}")
