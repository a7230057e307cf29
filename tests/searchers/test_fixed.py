"""`ask(fixed=...)`: the given values are kept, and conditions, ties and constraints hold.

Ax loses fixed values beside constraints (facebook/Ax#4651).
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import Space, create
from searchers.methods import METHODS
from searchers.optimizer import Exhausted
from searchers.space import SpaceError

NUMBERS = {
    "lr": {"min": 1e-5, "max": 1e-1, "log": True},
    "a": {"min": 0.0, "max": 1.0},
    "b": {"min": 0.0, "max": 1.0},
    "c": {"min": 0.0, "max": 1.0},
    "layers": {"min": 1, "max": 6, "step": 1},
}
CONDITIONAL = {
    **NUMBERS,
    "opt": {"values": ["sgd", "adam", "lion"]},
    "momentum": {"min": 0.0, "max": 0.99, "when": {"opt": ["sgd"]}},
    "nesterov": {"values": [True, False], "when": {"opt": ["sgd"]}},
    "beta": {"min": 0.8, "max": 0.999, "when": {"opt": ["adam", "lion"]}},
    "net": {"values": [{"width": 8, "depth": 2}, {"width": 32, "depth": 1}]},
    "heads": {"values": [1, 2, 4], "ordered": True, "when": {"width": 32}},
}
SPACES = {
    "conditions": Space.from_dict(CONDITIONAL),
    "constraints": Space.from_dict(CONDITIONAL, ["a + b + c <= 1", "layers * width <= 96"]),
    "little is allowed": Space.from_dict(NUMBERS, ["a + b + c <= 0.05", "a < b", "b < c"]),
    "categories": Space.from_dict({name: {"values": [0, 1, 2]} for name in "pqrs"}, ["p <= q"]),
}


def told(method, space, trials, seed):
    """Return an optimizer with the results of some trials, one of which failed."""
    optimizer = create(method, space, seed=seed)
    rng = np.random.default_rng(seed)
    for number in range(trials):
        params = space.sample(rng)
        loss = sum(space.encode(params) ** 2) + rng.normal(0.0, 0.01)
        optimizer.add(params, None if number == 3 else loss)
    return optimizer


@pytest.mark.parametrize("name", SPACES)
@pytest.mark.parametrize("method", METHODS)
@settings(max_examples=3, deadline=None)
@given(seed=st.integers(0, 10**6), trials=st.sampled_from([0, 6]), data=st.data())
def test_fixed_values_are_kept_and_the_space_holds(method, name, seed, trials, data):
    space = SPACES[name]
    whole = space.sample(np.random.default_rng(seed))
    names = data.draw(st.sets(st.sampled_from(sorted(whole)), min_size=1))
    fixed = {key: whole[key] for key in names}
    optimizer = told(method, space, trials, seed)
    try:
        asked = optimizer.ask(2, fixed=fixed)
    except Exhausted:  # by right, where what is left is few
        part = space.fix(fixed)
        tried = [space.key(seen.params) for seen in optimizer.history]
        others = [part.sample(np.random.default_rng(number)) for number in range(20)]
        assert method == "grid" or all(space.key(params) in tried for params in others)
        return
    for trial in asked:
        assert {key: trial.params[key] for key in names} == fixed
        space.validate(trial.params)
    assert len({space.key(trial.params) for trial in asked}) == len(asked)


@pytest.mark.parametrize("method", METHODS)
def test_asks_with_fixed_values_do_not_disturb_those_without(method):
    """All of a small space is proposed once, whichever asks fix a value."""
    space = Space.from_dict({"p": {"values": [0, 1, 2]}, "q": {"values": [0, 1, 2]}})
    optimizer = create(method, space, seed=1)
    for number in range(9):
        tried = [seen.params for seen in optimizer.history]
        left = next(params for params in space.grid(1) if params not in tried)
        fixed = {"p": left["p"]} if number % 2 else None
        optimizer.tell(optimizer.ask(fixed=fixed), float(number))
    assert len({space.key(seen.params) for seen in optimizer.history}) == 9
    with pytest.raises(Exhausted, match=r"with \{'p': 1\}"):
        optimizer.ask(fixed={"p": 1})


def test_the_best_of_the_rest_is_proposed():
    """Where x is fixed, the best y depends on it."""
    space = Space.from_dict({"x": {"min": 0.0, "max": 1.0}, "y": {"min": 0.0, "max": 1.0}})
    optimizer = create("gp", space, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(40):
        params = space.sample(rng)
        optimizer.add(params, (params["y"] - params["x"]) ** 2)
    for x in (0.2, 0.5, 0.8):
        assert optimizer.ask(fixed={"x": x}).params["y"] == pytest.approx(x, abs=0.1)


def test_a_grid_takes_a_fixed_value_between_its_points():
    space = Space.from_dict({"x": {"min": 0.0, "max": 1.0}, "q": {"values": ["a", "b"]}})
    optimizer = create("grid", space)
    asked = optimizer.ask(5, fixed={"x": 0.123})
    assert [trial.params for trial in asked] == [{"x": 0.123, "q": "a"}, {"x": 0.123, "q": "b"}]
    assert optimizer.ask().params == {"x": 0.0, "q": "a"}


@pytest.mark.parametrize(
    ("fixed", "words"),
    [
        ({"momentun": 0.5}, "did you mean 'momentum'"),
        ({"lr": 1.0}, "outside"),
        ({"momentum": 0.5, "opt": "adam"}, "active only when"),
        ({"a": 0.9, "b": 0.9}, "does not hold"),
        ({"width": 8, "depth": 1}, "no choice of net"),
    ],
)
def test_values_that_no_configuration_has_are_refused(fixed, words):
    optimizer = create("gp", SPACES["constraints"])
    with pytest.raises(SpaceError, match=words):
        optimizer.ask(fixed=fixed)


class Stubborn:
    """A method that ignores the space that it is given."""

    def suggest(self, space, history, n, rng):
        from searchers.searcher import Proposal

        return [Proposal({"p": 0, "q": 0})]


def test_a_method_that_does_not_keep_fixed_values_is_named():
    space = Space.from_dict({"p": {"values": [0, 1]}, "q": {"values": [0, 1]}})
    optimizer = create(f"{__file__}:Stubborn", space)
    with pytest.raises(ValueError, match="Stubborn proposed"):
        optimizer.ask(fixed={"p": 1})


def test_conditions_with_one_way_to_be_met_are_fixed_too():
    space = SPACES["conditions"]
    assert space.fix({"nesterov": True}).fixed == {"opt": "sgd", "nesterov": True}
    assert space.fix({"heads": 2}).fixed["width"] == 32
    assert "opt" not in space.fix({"beta": 0.9}).fixed
