"""The rungs of successive halving."""

from hypothesis import given
from hypothesis import strategies as st

from hposvc.schedulers.scheduler import rungs

step_counts = st.integers(1, 10_000)


def test_rungs_of_the_paper():
    assert rungs(1, 81, 3) == (1, 3, 9, 27, 81)
    assert rungs(1, 100, 4) == (1, 4, 16, 64, 100)
    assert rungs(5, 5, 3) == (5,)


@given(step_counts, step_counts, st.integers(2, 10))
def test_rungs_grow_by_eta_and_stop_at_the_end(first, more, eta):
    last = first + more - 1
    steps = rungs(first, last, eta)
    assert steps[-1] == last
    assert steps[:-1] == tuple(first * eta**k for k in range(len(steps) - 1))
    assert all(step < last for step in steps[:-1])
    assert first * eta ** (len(steps) - 1) >= last


def test_powers_of_eta_give_no_rung_a_hair_before_the_end():
    for eta in range(2, 30):
        for power in range(1, 12):
            assert rungs(1, eta**power, eta) == tuple(eta**k for k in range(power + 1))
