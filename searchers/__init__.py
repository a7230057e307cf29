"""Search methods, which propose configurations of a `Space`; `create` makes an optimizer.

This is the door of the package: hposvc takes names from elsewhere in it only where pyproject.toml
says so. Names are loaded on first use, so that `import searchers` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from searchers.bounds import AT_ONCE as AT_ONCE
    from searchers.bounds import COUNT as COUNT
    from searchers.bounds import STEPS as STEPS
    from searchers.bounds import AtMost as AtMost
    from searchers.bounds import annotations_of as annotations_of
    from searchers.bounds import bounds_in as bounds_in
    from searchers.branches import Leaf as Leaf
    from searchers.distributions import SIGMAS as SIGMAS
    from searchers.distributions import Normal as Normal
    from searchers.distributions import draw as draw
    from searchers.distributions import ends_of as ends_of
    from searchers.domains import Choice as Choice
    from searchers.domains import Constant as Constant
    from searchers.domains import Domain as Domain
    from searchers.domains import Tied as Tied
    from searchers.domains import has_lists as has_lists
    from searchers.explain.explanation import Explanation as Explanation
    from searchers.fidelity import NO_FAULT as NO_FAULT
    from searchers.grid import Grid as Grid
    from searchers.methods import METHODS as METHODS
    from searchers.methods import load_method as load_method
    from searchers.methods import takes_several as takes_several
    from searchers.names import closest as closest
    from searchers.names import is_name as is_name
    from searchers.names import nearest as nearest
    from searchers.names import our_name as our_name
    from searchers.novelty import SeenConfigs as SeenConfigs
    from searchers.objectives import Objectives as Objectives
    from searchers.objectives import are_finite as are_finite
    from searchers.optimizer import Best as Best
    from searchers.optimizer import Exhausted as Exhausted
    from searchers.optimizer import Optimizer as Optimizer
    from searchers.optimizer import create as create
    from searchers.options import build_searcher as build_searcher
    from searchers.options import check_searcher as check_searcher
    from searchers.pace import LEARNING as LEARNING
    from searchers.pace import WITHOUT_RESULTS as WITHOUT_RESULTS
    from searchers.pace import Pace as Pace
    from searchers.pareto import dominates as dominates
    from searchers.pareto import hypervolume as hypervolume
    from searchers.pareto import spread_order as spread_order
    from searchers.pareto import spreading as spreading
    from searchers.ranges import MIN_MOVE as MIN_MOVE
    from searchers.ranges import Float as Float
    from searchers.ranges import Int as Int
    from searchers.searcher import REPEAT_OF as REPEAT_OF
    from searchers.searcher import TRIED as TRIED
    from searchers.searcher import Finite as Finite
    from searchers.searcher import Observation as Observation
    from searchers.searcher import Proposal as Proposal
    from searchers.searcher import Searcher as Searcher
    from searchers.searcher import call_rng as call_rng
    from searchers.searcher import suggest_fixed as suggest_fixed
    from searchers.space import Space as Space
    from searchers.syntax import check_count as check_count
    from searchers.syntax import parameters_of as parameters_of
    from searchers.syntax import read_declared as read_declared
    from searchers.syntax import read_domain as read_domain
    from searchers.ties import are_tied as are_tied
    from searchers.translation import constant_names as constant_names
    from searchers.translation import names_by_role as names_by_role
    from searchers.translation import translate_params as translate_params
    from searchers.values import Params as Params
    from searchers.values import SpaceError as SpaceError
    from searchers.values import Value as Value
    from searchers.values import as_cell as as_cell
    from searchers.values import as_text as as_text
    from searchers.values import copied as copied
    from searchers.values import identity as identity
    from searchers.values import is_number as is_number
    from searchers.values import is_scalar as is_scalar
    from searchers.values import is_structured as is_structured
    from searchers.values import is_value as is_value
    from searchers.values import refusal as refusal
    from searchers.warm_start import warm_startable_methods as warm_startable_methods
    from searchers.warm_start import warm_started as warm_started

_NAMES = {
    "searchers.bounds": "AT_ONCE COUNT STEPS AtMost annotations_of bounds_in",
    "searchers.branches": "Leaf",
    "searchers.distributions": "SIGMAS Normal draw ends_of",
    "searchers.domains": "Choice Constant Domain Tied has_lists",
    "searchers.explain.explanation": "Explanation",
    "searchers.fidelity": "NO_FAULT",
    "searchers.grid": "Grid",
    "searchers.methods": "METHODS load_method takes_several",
    "searchers.names": "closest is_name nearest our_name",
    "searchers.novelty": "SeenConfigs",
    "searchers.objectives": "Objectives are_finite",
    "searchers.optimizer": "Best Exhausted Optimizer create",
    "searchers.options": "build_searcher check_searcher",
    "searchers.pace": "LEARNING WITHOUT_RESULTS Pace",
    "searchers.pareto": "dominates hypervolume spread_order spreading",
    "searchers.ranges": "MIN_MOVE Float Int",
    "searchers.searcher": "REPEAT_OF TRIED Finite Observation Proposal Searcher"
    " call_rng suggest_fixed",
    "searchers.space": "Space",
    "searchers.syntax": "check_count parameters_of read_declared read_domain",
    "searchers.ties": "are_tied",
    "searchers.translation": "constant_names names_by_role translate_params",
    "searchers.values": "Params SpaceError Value as_cell as_text copied identity refusal"
    " is_number is_scalar is_structured is_value",
    "searchers.warm_start": "warm_startable_methods warm_started",
}
MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module 'searchers' has no attribute {name!r}")
    return getattr(import_module(MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted(MODULES)
