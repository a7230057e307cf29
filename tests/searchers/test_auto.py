"""`auto` proposes what its method would propose, and learns from everything that it can use."""

import numpy as np

from searchers import Observation, create
from searchers.auto import METHOD, Auto
from searchers.methods import load_method, takes_several


def test_the_note_says_which_method_proposed(digits):
    assert create("auto", digits).ask().note["method"] == METHOD


def test_it_proposes_what_the_method_would(digits):
    auto, named = create("auto", digits, seed=3), create(METHOD, digits, seed=3)
    for value in (3.0, 1.0, 2.0, 5.0, 4.0, 0.5):
        mine, theirs = auto.ask(), named.ask()
        assert mine.params == theirs.params
        auto.tell(mine, value)
        named.tell(theirs, value)


def test_the_method_learns_from_all_objectives(digits):
    """Otherwise `auto` would silently optimize the first objective alone."""
    assert takes_several(load_method(METHOD))


def test_earlier_trials_reach_the_method(digits):
    rng = np.random.default_rng(0)
    earlier = [
        Observation(str(i), digits.sample(rng), loss=float(i), state="done") for i in range(6)
    ]
    (proposal,) = Auto().after(earlier).suggest(digits, [], 1, rng)
    assert proposal.note["source"] == "earlier sweeps"
    assert proposal.note["method"] == METHOD
