"""The seconds of a step are learned from timed trials, whatever step they stopped at."""

import numpy as np
import pytest

from searchers.gp.cost import learned_cost
from searchers.gp.encoding import Encoding, units
from searchers.gp.fits import MODELS
from searchers.searcher import Observation
from searchers.space import Float, Space

SPACE = Space({"x": Float(0.0, 1.0), "y": Float(0.0, 1.0)})


def columns(*configurations):
    encoding = Encoding.of(SPACE)
    return encoding.columns_of(encoding.snap(units(SPACE, configurations)))


def timed(seconds, **rest):
    """Return nine trials from one end of x to the other."""
    return [
        Observation(str(i), {"x": x, "y": 0.5}, loss=1.0, state="done", cost=seconds(x), **rest)
        for i, x in enumerate(np.linspace(0.0, 1.0, 9))
    ]


def cost(history):
    return learned_cost(SPACE, MODELS[0], history, 300, np.random.default_rng(0))


def test_dear_places_promise_less():
    """Otherwise improvement by second is improvement by trial."""
    term, _ = cost(timed(lambda x: 10.0 ** (2.0 * x)))
    cheap, dear = term(columns({"x": 0.2, "y": 0.5}, {"x": 0.7, "y": 0.5}))
    assert cheap - dear == pytest.approx(np.log(10.0), rel=0.1)


def test_two_timed_trials_are_too_few_and_running_ones_are_not_timed():
    history = timed(lambda _: 5.0)
    running = [Observation(str(i), {"x": 0.1 * i, "y": 0.5}, cost=5.0) for i in range(9)]
    assert cost([*history[:2], *running]) is None


def test_a_fit_that_the_notes_tell_of_is_kept():
    history = timed(lambda x: 1.0 + x)
    _, fitted = cost(history)
    note = {"model": MODELS[0].name, "fits": {"cost": fitted.note()}}
    again = cost([Observation("0", {"x": 0.5, "y": 0.5}, note), *history])
    assert again[1] == fitted


def test_a_trial_that_was_stopped_early_is_not_a_cheap_one():
    """Otherwise `per_second` would look for configurations that get stopped."""
    stopped = timed(lambda _: 3.0, curve=((1, 1.0),))[:4]
    finished = timed(lambda _: 81.0, curve=((27, 1.0),))[4:]
    term, _ = cost([*stopped, *finished])
    low, high = term(columns({"x": 0.1, "y": 0.5}, {"x": 0.9, "y": 0.5}))
    assert low == pytest.approx(high, abs=0.01)
