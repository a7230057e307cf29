"""Search methods, which propose configurations of a `Space`; `create` makes an optimizer.

This is the door of the package: hposvc takes names from elsewhere in it only where pyproject.toml
says so. Names are loaded on first use, so that `import searchers` costs nothing.
"""

from typing import TYPE_CHECKING

from searchers.lazy_imports import lazy_imports

if TYPE_CHECKING:
    from searchers.across_sizes import AcrossSizes as AcrossSizes
    from searchers.across_sizes import Sizes as Sizes
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
    from searchers.shares import Share as Share
    from searchers.shares import Shares as Shares
    from searchers.size_law import LawTrials as LawTrials
    from searchers.size_law import SizeLaw as SizeLaw
    from searchers.size_law import regret as regret
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
    from searchers.warm_start import learns as learns
    from searchers.warm_start import warm_startable_methods as warm_startable_methods
    from searchers.warm_start import warm_started as warm_started
else:
    __getattr__, __dir__ = lazy_imports(__name__)
    __all__ = __dir__()
