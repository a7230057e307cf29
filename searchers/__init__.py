"""Search methods, which propose configurations of a `Space`; `create` makes an optimizer.

Names are loaded on first use, so that `import searchers` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchers.distributions import Normal
    from searchers.domains import Choice, Constant, Float, Int
    from searchers.explain.explanation import Explanation
    from searchers.methods import METHODS
    from searchers.optimizer import Best, Exhausted, Optimizer, create
    from searchers.searcher import Observation, Proposal, Searcher
    from searchers.space import Space
    from searchers.values import SpaceError

_NAMES_BY_MODULE = {
    "searchers.distributions": {"Normal"},
    "searchers.domains": {"Choice", "Constant", "Float", "Int"},
    "searchers.explain.explanation": {"Explanation"},
    "searchers.methods": {"METHODS"},
    "searchers.optimizer": {"Best", "Exhausted", "Optimizer", "create"},
    "searchers.searcher": {"Observation", "Proposal", "Searcher"},
    "searchers.space": {"Space"},
    "searchers.values": {"SpaceError"},
}
__all__ = [
    "METHODS",
    "Best",
    "Choice",
    "Constant",
    "Exhausted",
    "Explanation",
    "Float",
    "Int",
    "Normal",
    "Observation",
    "Optimizer",
    "Proposal",
    "Searcher",
    "Space",
    "SpaceError",
    "create",
]


def __getattr__(name: str) -> Any:
    for module, names in _NAMES_BY_MODULE.items():
        if name in names:
            return getattr(import_module(module), name)
    raise AttributeError(f"module 'searchers' has no attribute {name!r}")
