"""Steps of a Task in each unit, and the updates that they take."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainables.length import COUNTED, ENDLESS, Length, parts_of_epoch

SIZES = st.integers(1, 50), st.integers(1, 200)  # of a batch, and samples


def of(unit: str, batch: int, samples: int, steps: int = 100) -> Length:
    return Length(unit, steps, batch, -(-samples // batch), samples)


@given(*SIZES, st.integers(0, 500))
def test_samples_and_updates_are_each_others_inverse(batch, samples, updates):
    length = of("sample", batch, samples)
    assert length.updates_of(length.samples(updates)) == updates
    assert length.updates(length.samples(updates)) == updates


@given(*SIZES, st.integers(1, 5000))
def test_a_step_in_samples_is_complete_with_the_update_that_reaches_it(batch, samples, step):
    length = of("sample", batch, samples)
    updates = length.updates(step)
    assert length.samples(updates - 1) < step <= length.samples(updates)


@given(*SIZES, st.integers(1, 10), st.integers(0, 5))
def test_parts_divide_an_epoch_completely_and_evenly(batch, samples, parts, epochs):
    updates = -(-samples // batch)
    if parts > updates:
        with pytest.raises(ValueError, match=f"an epoch has {updates} updates"):
            of(f"epoch/{parts}", batch, samples)
        return
    length = of(f"epoch/{parts}", batch, samples)
    ends = [length.updates(epochs * parts + part) for part in range(parts + 1)]
    assert ends[0] == epochs * updates
    assert ends[-1] == (epochs + 1) * updates
    sizes = {later - earlier for earlier, later in itertools.pairwise(ends)}
    assert max(sizes) - min(sizes) <= 1


@given(*SIZES, st.sampled_from(["epoch", "epoch/1", "step", "update", "sample"]), st.data())
def test_progress_rises_from_0_to_1(batch, samples, unit, data):
    steps = data.draw(st.integers(1, 40))
    length = of(unit, batch, samples, steps)
    last = length.updates(steps)
    shares = [length.progress(updates, 0.0) for updates in range(last + 1)]
    assert shares == sorted(shares)
    assert shares[0] == 0.0
    assert shares[-1] >= 1.0
    assert all(share < 1.0 for share in shares[:-1])


def test_progress_in_tokens_is_their_share():
    assert of("token", 4, 10, steps=1000).progress(7, 250.0) == 0.25


@pytest.mark.parametrize(("given", "nearest"), [("updates", "update"), ("tokens", "token")])
def test_another_unit_is_refused_with_the_nearest(given, nearest):
    with pytest.raises(ValueError, match=f"is '{given}', .* did you mean '{nearest}'"):
        parts_of_epoch(given)


def test_units_are_epochs_their_parts_or_counted():
    assert [parts_of_epoch(unit) for unit in ("epoch", "step", "epoch/10")] == [1, 1, 10]
    assert [parts_of_epoch(unit) for unit in COUNTED] == [None, None, None]
    with pytest.raises(ValueError, match="epoch/0"):
        parts_of_epoch("epoch/0")


def test_samples_that_never_end_have_no_epochs():
    with pytest.raises(ValueError, match="a stream without length"):
        Length("epoch", 3, 8, ENDLESS, ENDLESS * 8)
    assert Length("update", 3, 8, ENDLESS, ENDLESS * 8).samples(5) == 40
