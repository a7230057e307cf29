import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchers import Float, Int, SpaceError


def test_a_float_is_affine_in_the_value_or_in_its_logarithm():
    assert Float(-1.0, 3.0).to_unit(1.0) == 0.5
    assert Float(1e-4, 1.0, log=True).to_unit(1e-2) == pytest.approx(0.5)
    assert Float(1e-4, 1.0, log=True).from_unit(0.25) == 1e-3


@pytest.mark.parametrize(
    ("domain", "values"),
    [
        (Int(3, 9, step=3), [3, 6, 9]),
        (Int(3, 10, step=3), [3, 6, 9]),
        (Float(0.0, 1.0, step=0.25), [0.0, 0.25, 0.5, 0.75, 1.0]),
        (Float(0.1, 0.3, step=0.1), [0.1, 0.2, 0.3]),
        (Float(0.1, 0.3, step=0.2), [0.1, 0.3]),
    ],
)
def test_stepped_values_own_one_cell_each(domain, values):
    count = len(values)
    assert list(domain.grid(1)) == values
    assert domain.count == count
    assert [domain.to_unit(value) for value in values] == [(i + 0.5) / count for i in range(count)]
    assert [domain.from_unit((i + 0.01) / count) for i in range(count)] == values
    assert [domain.from_unit((i + 0.99) / count) for i in range(count)] == values


def test_on_a_log_scale_a_whole_number_has_the_share_of_its_cell():
    domain = Int(1, 8, log=True)
    rng = np.random.default_rng(0)
    drawn = [domain.from_unit(rng.random()) for _ in range(20_000)]
    edges = np.log([0.5, *(n + 0.5 for n in range(1, 9))])
    share_V = np.diff(edges) / (edges[-1] - edges[0])
    counts_V = np.bincount(drawn, minlength=9)[1:]
    assert np.abs(counts_V / 20_000 - share_V).max() < 0.015


@settings(max_examples=200, deadline=None)
@given(
    low=st.integers(1, 10**11),
    span=st.integers(1, 10**11),
    share=st.floats(0, 1),
    log=st.booleans(),
)
def test_the_largest_whole_numbers_survive_the_unit_interval(low, span, share, log):
    domain = Int(low, low + span, log)
    value = low + int(share * span)
    assert domain.from_unit(domain.to_unit(value)) == value


@settings(max_examples=200, deadline=None)
@given(
    low=st.floats(1e-300, 1e300),
    factor=st.floats(1.001, 1e6),
    unit=st.floats(0, 1),
    log=st.booleans(),
)
def test_a_float_survives_the_unit_interval_exactly_at_any_scale(low, factor, unit, log):
    domain = Float(low, min(low * factor, 1e307), log)
    value = domain.from_unit(unit)
    assert domain.low <= value <= domain.high
    assert domain.from_unit(domain.to_unit(value)) == value


@pytest.mark.parametrize(
    ("domain", "value", "moved"),
    [
        (Float(1.0, 100.0), 50.0, {40.0, 60.0}),
        (Float(1e-6, 1.0, log=True), 1e-3, {8e-4, 1.2e-3}),
        (Float(0.0, 1.0, step=0.5), 0.5, {0.0, 1.0}),
        (Int(1, 100), 100, {80, 100}),
        (Int(-5, 5), 0, {-1, 1}),
    ],
)
def test_a_move_is_a_fifth_or_at_least_a_step(domain, value, moved):
    rng = np.random.default_rng(0)
    assert {domain.moved(value, rng) for _ in range(50)} == moved


def test_a_value_off_the_step_is_told_the_nearest():
    assert Int(16, 256, step=16).problem(50) == "is 50, off the step of 16; the nearest is 48"
    assert (
        Float(0.0, 1.0, step=0.1).problem(0.25)
        == "is 0.25, off the step of 0.1; the nearest is 0.3"
    )
    assert Float(0.0, 1.0, step=0.1).problem(0.1 + 0.2) is None


HUGE = [
    Float(1e-160, 1e160, log=True),
    Float(5e-324, 1.7e308, log=True),
    Float(1e-320, 1.0, log=True),
    Float(0.0, 1.7976931348623157e308),
    Float(1e307, 1.7e308, step=1e307),
    Float(1e-310, 1e-309, step=1e-310),
    Float(5e-324, 1e-322, step=5e-324, log=True),
    Float(float(2**63), float(2**64), log=True),
    Int(1, 10**12, log=True),
]


@pytest.mark.parametrize("domain", HUGE)
@given(unit=st.floats(0.0, 1.0), seed=st.integers(0, 2**32 - 1))
def test_a_range_up_to_the_ends_of_the_floats_is_searched_whole(domain, unit, seed):
    value = domain.from_unit(unit)
    assert domain.problem(value) is None
    assert domain.from_unit(domain.to_unit(value)) == value
    if domain.count is None:
        assert domain.to_unit(value) == pytest.approx(unit, abs=1e-9) or domain.low < 1e-300
    assert domain.problem(domain.moved(value, np.random.default_rng(seed))) is None


@pytest.mark.parametrize("domain", HUGE[:4])
def test_the_grid_of_a_huge_range_is_spread(domain):
    values = domain.grid(5)
    assert [*values] == sorted({*values})
    assert [domain.to_unit(value) for value in values] == pytest.approx([0, 0.25, 0.5, 0.75, 1])


@pytest.mark.parametrize(
    ("low", "high", "log"),
    [
        (1.0, 1.0 + 1e-13, False),
        (1.0, 1.0 + 1e-13, True),
        (1e16, 1e16 + 4, True),
        (-1e300, -1e300 * (1 - 1e-14), False),
    ],
)
def test_a_range_of_less_than_the_digits_of_its_values_is_refused(low, high, log):
    with pytest.raises(SpaceError, match="is too narrow for 12 digits"):
        Float(low, high, log=log)
