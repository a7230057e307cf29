"""Options of search methods: their allowed values, and options that a space rules out."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest

from searchers import Float, Space, SpaceError, create
from searchers.options import build_searcher

LINE = Space({"x": Float(0.0, 1.0)})


@dataclass(frozen=True)
class Typed:
    """A searcher with an option of each kind, and an option of a kind that is not checked."""

    count: int = 1
    share: float = 0.5
    name: str = ""
    quick: bool = False
    by_name: Mapping[str, float] = field(default_factory=dict)
    limit: int | None = None

    def suggest(self, space, history, n, rng):
        return []


HERE = f"{__name__}:Typed"


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"count": "4"}, "count is '4'; give a whole number"),
        ({"count": True}, "count is True; give a whole number"),
        ({"share": "half"}, "share is 'half'; give a finite number"),
        ({"share": float("nan")}, "share is nan; give a finite number"),
        ({"name": 3}, "name is 3; give a text"),
        ({"by_name": ["lr"]}, r"by_name is \['lr'\]; give a mapping"),
        ({"cuont": 1}, "has no option 'cuont': did you mean 'count'"),
    ],
)
def test_a_value_of_another_kind_is_refused_by_the_options_name(option, message):
    """Otherwise a TypeError or AttributeError from inside the method says nothing of the option."""
    with pytest.raises(ValueError, match=message):
        build_searcher(HERE, option)


@pytest.mark.parametrize(
    "option",
    [
        {"count": np.int64(3)},
        {"share": np.float32(0.5)},
        {"by_name": {"lr": 1.0}},
        {"limit": 3},
    ],
)
def test_a_value_that_fits_is_passed_on_as_it_is(option):
    """A check that is too strict would refuse numpy's numbers, or types that it does not know."""
    ((name, value),) = option.items()
    assert getattr(build_searcher(HERE, option), name) is value


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"priors": ["x"]}, r"method 'gp': priors is \['x'\]; give a mapping"),
        ({"initial": "4"}, "method 'gp': initial is '4'; give a whole number"),
        ({"priors": {"x": 0.5}}, "priors: x is 0.5; write {value: V, width: W}"),
        ({"priors": {"x": {"value": 0.5, "widht": 1}}}, "priors: x is .*widht.*; write"),
    ],
)
def test_options_of_gp_are_checked_when_it_is_made(options, message):
    """The first proposal, or a model that fails much later, would be too late."""
    with pytest.raises(ValueError, match=message):
        create("gp", LINE, **options)


@pytest.mark.parametrize(
    ("priors", "message"),
    [
        ({"xx": {"value": 0.5}}, "priors.xx: is no parameter of this space; did you mean 'x'"),
        ({"x": {"value": 2.0}}, "priors.x.value: is 2.0, outside 0.0 to 1.0"),
    ],
)
def test_beliefs_that_the_space_cannot_hold_are_refused_when_the_searcher_is_made(priors, message):
    """Otherwise every proposal falls back to quasi-random search."""
    with pytest.raises(SpaceError, match=message):
        create("gp", LINE, priors=priors)


def test_a_check_of_the_users_own_searcher_is_asked():
    """`check` is called for any searcher whose options name parameters."""

    @dataclass(frozen=True)
    class Picky(Typed):
        def check(self, space):
            raise ValueError("only in two dimensions")

    globals()["Picky"] = Picky
    with pytest.raises(ValueError, match="only in two dimensions"):
        create(f"{__name__}:Picky", LINE)
