from searchers.gp.searcher import GaussianProcess
from searchers.methods import METHODS, load_method
from searchers.random_search import Random
from searchers.searcher import Observation
from searchers.warm_start import warm_startable_methods, warm_started

EARLIER = [Observation("t0001", {"x": 0.5}, loss=1.0, state="done")]


def test_a_searcher_that_learns_takes_earlier_results_and_others_stay_as_they_are():
    assert warm_started(GaussianProcess(), EARLIER) != GaussianProcess()
    searcher = Random()
    assert warm_started(searcher, EARLIER) is searcher


def test_the_methods_that_are_listed_are_those_that_have_the_method():
    named = warm_startable_methods()
    assert "gp" in named
    assert {name for name in METHODS if hasattr(load_method(name), "after")} == set(named)
