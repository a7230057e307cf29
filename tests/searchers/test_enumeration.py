from hypothesis import assume, given, settings
from hypothesis import strategies as st

from searchers import Choice, Constant, Float, Int, Space


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_size_counts_what_the_grid_lists_and_nothing_is_listed_twice(spaces, data):
    space = data.draw(spaces)
    assume(space.size is not None and space.size <= 3_000)
    free = Space(dict(space))
    listed = list(free.grid(1))
    assert len(listed) == free.size
    assert len({free.key(params) for params in listed}) == len(listed)
    for params in listed[:20]:
        free.validate(params)


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_the_grid_goes_on_behind_any_of_its_points(spaces, data):
    space = data.draw(spaces)
    listed = [params for params, _ in zip(space.grid(3), range(50), strict=False)]
    assume(listed)
    index = data.draw(st.integers(0, len(listed) - 1))
    rest = space.grid(3, after=listed[index])
    assert [params for params, _ in zip(rest, listed[index + 1 :], strict=False)] == listed[
        index + 1 :
    ]


def test_the_last_parameter_changes_fastest():
    space = Space({"a": Choice(("x", "y")), "b": Int(1, 2, when={"a": ("y",)}), "c": Constant(0)})
    assert list(space.grid(1)) == [
        {"a": "x", "c": 0},
        {"a": "y", "c": 0, "b": 1},
        {"a": "y", "c": 0, "b": 2},
    ]


def test_a_continuous_range_gets_the_points_asked_for_ends_included():
    space = Space({"lr": Float(1e-4, 1.0, log=True)})
    assert [params["lr"] for params in space.grid(5)] == [1e-4, 1e-3, 1e-2, 1e-1, 1.0]
    assert [params["lr"] for params in space.grid(1)] == [1e-2]


def test_the_grid_leaves_out_what_the_constraints_forbid():
    space = Space({"a": Int(1, 3), "b": Int(1, 3)}, ["a < b"])
    assert len(list(space.grid(1))) == 3


def test_a_thousand_dependent_parameters_are_too_many_to_count_and_are_listed():
    domains = {"root": Choice((0, 1))}
    domains |= {f"p{i}": Int(0, 1, when={"root": (1,)}) for i in range(999)}
    space = Space(domains)
    assert space.size is None
    assert len(next(iter(space.grid(1, after={"root": 0})))) == 1_000


def test_more_configurations_than_are_ever_listed_count_as_infinite():
    thousand = Choice(tuple(range(1_000)))
    assert Space({"a": Int(1, 100), "b": thousand}).size == 100_000
    assert Space({"a": Int(1, 101), "b": thousand}).size is None
    some = Int(1, 100, when={"b": tuple(range(500))})
    assert Space({"a": some, "b": thousand}).size == 500 * 100 + 500
    assert Space({"a": Int(1, 200, when={"b": tuple(range(500))}), "b": thousand}).size is None
