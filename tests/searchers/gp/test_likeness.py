"""Choices among mappings: the more alike two of them, the nearer they are."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import Optimizer
from searchers.gp.encoding import Encoding, units
from searchers.gp.kernels import Kernel
from searchers.gp.likeness import LABEL
from searchers.gp.priors import Belief, LogPrior
from searchers.gp.searcher import GaussianProcess
from searchers.space import Space

NUMBERS = st.one_of(
    st.integers(-1000, 1000),
    st.floats(-1e6, 1e6, allow_nan=False),
    st.sampled_from([1e-300, 1e300, -1e308, 1e16, 10**16 + 2, 5e-324]),
)
MAPPINGS = st.lists(
    st.tuples(NUMBERS, NUMBERS, st.sampled_from(["relu", "gelu", None, True])),
    min_size=2,
    max_size=8,
)


def space_of(rows, names=("layers", "width", "kind"), **more):
    mappings = [
        {"name": f"size {place}", **dict(zip(names, row, strict=True))}
        for place, row in enumerate(rows)
    ]
    return Space.from_dict({"size": {"values": mappings}, **more})


def columns(space, configurations):
    encoding = Encoding.of(space)
    return encoding.columns_of(encoding.snap(units(space, configurations)))


def distances(space, key="name"):
    """Return the squared distances between all values of the one choice."""
    rng = np.random.default_rng(0)
    x_VW = columns(space, [space.complete({key: value}, rng) for value in space[key].values])
    return ((x_VW[:, None] - x_VW[None]) ** 2).sum(axis=-1)


@settings(max_examples=60, deadline=None)
@given(rows=MAPPINGS)
def test_distances_are_between_equal_members_and_unlike_values(rows):
    d2_VV = distances(space_of(rows))
    np.testing.assert_array_equal(d2_VV, d2_VV.T)
    np.testing.assert_array_equal(np.diag(d2_VV), 0.0)
    apart = d2_VV[~np.eye(len(d2_VV), dtype=bool)]
    assert (apart >= LABEL - 1e-9).all()
    assert (apart <= 1.0 + 1e-9).all()


@settings(max_examples=60, deadline=None)
@given(rows=MAPPINGS, share=st.sampled_from([0.0, 0.3]), scale=st.floats(0.05, 20.0))
def test_the_kernel_over_all_values_is_positive_definite(rows, share, scale):
    space = space_of(rows, lr={"min": 1e-5, "max": 1e-1, "log": True})
    rng, encoding = np.random.default_rng(1), Encoding.of(space)
    names = space["name"].values
    x_ND = columns(space, [space.complete({"name": name}, rng) for name in (*names, *names)])
    k_NN = Kernel(encoding.parameter_D, share)(scale * x_ND, scale * x_ND)
    np.testing.assert_allclose(k_NN, k_NN.T, atol=1e-12)
    assert np.linalg.eigvalsh(k_NN).min() > -1e-10


@settings(max_examples=40, deadline=None)
@given(rows=MAPPINGS, data=st.data())
def test_the_order_of_values_and_of_members_does_not_matter(rows, data):
    order = data.draw(st.permutations(range(len(rows))))
    d2_VV = distances(space_of(rows))
    turned = space_of([rows[place] for place in order])
    np.testing.assert_allclose(distances(turned), d2_VV[np.ix_(order, order)], atol=1e-9)
    other = space_of([row[::-1] for row in rows], ("kind", "width", "layers"))
    np.testing.assert_allclose(distances(other), d2_VV, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(rows=MAPPINGS, factor=st.sampled_from([0.001, 0.5, 64, 1e6]))
def test_the_unit_of_a_number_does_not_matter(rows, factor):
    rows = [(layers, round(np.clip(width, -1e9, 1e9)), kind) for layers, width, kind in rows]
    scaled = [(layers, factor * width, kind) for layers, width, kind in rows]
    np.testing.assert_allclose(distances(space_of(scaled)), distances(space_of(rows)), atol=1e-6)


def test_numbers_lie_on_the_scale_that_spreads_them_more_evenly():
    doubled, even = ([64, 128, 256, 512], [100, 200, 300, 400])
    for values in (doubled, even):
        d2_VV = distances(space_of([(2, value, "a") for value in values]))
        np.testing.assert_allclose(
            np.sqrt(d2_VV[0, 1:] - LABEL) / np.sqrt(1 - LABEL), [1 / 3, 2 / 3, 1]
        )


@pytest.mark.parametrize(
    "values",
    [
        [{"name": "a", "kind": "x"}, {"name": "b", "kind": "x"}, {"name": "c", "kind": "y"}],
        [{"name": "a", "rate": 0.1}, {"name": "b", "rate": 0.1}, {"name": "c", "rate": 0.1}],
        ["a", "b", "c"],
        [16, 32, 64],
        [{"layers": 1}, {"layers": 2}, {"layers": 3}],
        [{"name": "a", "layers": 1}, {"name": "b", "layers": 2}, {"name": "c", "layers": None}],
    ],
)
def test_values_without_numbers_tied_to_them_are_all_one_apart(values):
    space = Space.from_dict({"name": {"values": values}})
    d2_VV = distances(space, space.searched[0])
    np.testing.assert_allclose(d2_VV, 1.0 - np.eye(3))


def test_ordered_values_are_steps_of_one_column():
    rows = [{"name": "s", "layers": 1}, {"name": "m", "layers": 2}, {"name": "l", "layers": 30}]
    space = Space.from_dict({"size": {"values": rows, "ordered": True}})
    np.testing.assert_allclose(np.sqrt(distances(space)[0]), [0, 1 / 3, 2 / 3])


def test_a_choice_that_is_inactive_is_in_the_middle_and_its_branches_stay_apart():
    rows = [{"name": "s", "layers": 1}, {"name": "m", "layers": 2}, {"name": "l", "layers": 3}]
    space = Space.from_dict(
        {
            "kind": {"values": ["net", "tree"]},
            "size": {"values": rows, "when": {"kind": "net"}},
            "rate": {"min": 0.0, "max": 1.0, "when": {"layers": [2, 3]}},
        }
    )
    rng, encoding = np.random.default_rng(0), Encoding.of(space)
    given_to = [{"kind": "tree"}, {"kind": "net", "name": "s"}, {"kind": "net", "name": "l"}]
    x_ND = columns(space, [space.complete(partial, rng) for partial in given_to])
    size, rate = space.searched.index("name"), space.searched.index("rate")
    np.testing.assert_array_equal(x_ND[0, encoding.parameter_D == size], 0.0)
    assert encoding.is_active(x_ND, size).tolist() == [False, True, True]
    assert encoding.is_active(x_ND, rate).tolist() == [False, False, True]


def test_a_belief_about_a_size_is_one_about_sizes_like_it():
    space = space_of([(2, 64, "a"), (3, 80, "a"), (12, 1024, "a")])
    prior = LogPrior.of(space, {"name": Belief("size 0", width=0.4)}, trials=10)
    rng = np.random.default_rng(0)
    at, near, far = prior(
        columns(space, [space.complete({"name": f"size {place}"}, rng) for place in range(3)])
    )
    assert at > near > far
    density = np.exp([at, near, far])
    assert density.mean() == pytest.approx(1.0)


def test_the_best_of_many_sizes_is_found_before_most_were_tried():
    """With all of them one apart, three of these four searches miss it."""
    rows = [(layers, 2**power, "a") for layers in range(1, 13) for power in range(4, 10)]
    for seed in range(4):
        optimizer = Optimizer(GaussianProcess(), space_of(rows), seed=seed)
        for _ in range(20):
            trial = optimizer.ask()
            layers, width = trial.params["layers"], trial.params["width"]
            optimizer.tell(trial, (layers - 7) ** 2 / 36 + float(np.log2(width) - 7) ** 2 / 9)
        assert min(seen.loss for seen in optimizer.history) == 0.0
