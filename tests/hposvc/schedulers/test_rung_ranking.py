"""The ranking of a rung by several metrics: fronts that are updated trial by trial."""

from hypothesis import given, settings
from hypothesis import strategies as st

from hposvc.schedulers.rung_ranking import Fronts, dominates
from searchers import pareto

grades = st.integers(0, 4).map(float)  # few values, so that ties and equal trials are common


def vectors(most=40):
    return st.integers(2, 4).flatmap(
        lambda metrics: st.lists(st.tuples(*[grades] * metrics), min_size=1, max_size=most)
    )


def filled(losses):
    rung = Fronts()
    for number, vector in enumerate(losses):
        rung.add(f"t{number}", vector)
    return rung


@settings(max_examples=300, deadline=None)
@given(vectors())
def test_fronts_kept_as_trials_come_are_those_of_sorting_them_all(losses):
    """A trial in the wrong front would be stopped, or let pass, for nothing."""
    ranks = pareto.fronts(losses)
    expected = [
        {f"t{n}" for n, rank in enumerate(ranks) if rank == level}
        for level in range(max(ranks) + 1)
    ]
    assert [set(front) for front in filled(losses).fronts] == expected


@settings(max_examples=200, deadline=None)
@given(vectors(20), st.integers(0, 20))
def test_the_best_are_the_first_of_the_order_and_all_that_none_dominates(losses, most):
    """`best` (promotion) and `is_among_best` (stopping) must not disagree."""
    rung = filled(losses)
    names = [f"t{number}" for number in range(len(losses))]
    first = set(rung.best(most))
    assert len(first) == min(most, len(losses))
    for name, mine in zip(names, losses, strict=True):
        free = not any(dominates(other, mine) for other in losses)
        assert rung.is_among_best(name, mine, most) == (free or name in first)


@settings(max_examples=300, deadline=None)
@given(vectors(), st.sets(st.integers(0, 39)), st.integers(0, 40))
def test_the_best_of_some_is_the_first_of_them_in_the_whole_order(losses, some, most):
    """Promotion looks at waiting trials only, and must still find the best of them."""
    rung, waiting = filled(losses), {f"t{number}" for number in some}
    ranked_waiting = [name for name in rung.best(most) if name in waiting]
    assert rung.best_of(waiting, most) == next(iter(ranked_waiting), None)


def test_a_front_is_spread_only_as_far_as_it_is_asked_for(monkeypatch):
    """Spreading every front completely at each arrival took 8 ms a trial at 1,000 trials."""
    drawn, spreading = [], pareto.spreading

    def watched(losses):
        for index in spreading(losses):
            drawn.append(index)
            yield index

    monkeypatch.setattr("hposvc.schedulers.rung_ranking.spreading", watched)
    rung = filled([(x, 99.0 - x) for x in map(float, range(100))])  # one wide front
    assert rung.best_of({"t50"}, 100) == "t50"
    assert rung.best_of({"elsewhere"}, 100) is None
    assert not drawn
    assert len(rung.best(3)) == len(drawn) == 3
    assert rung.best_of({"t0", "t99"}, 100) == "t0"
    assert len(drawn) < 3 + 4


def test_the_first_of_a_front_cover_it():
    """The trials that go on must not be neighbours in a corner of the front."""
    line = [(x, 10.0 - x) for x in map(float, range(11))]
    assert set(filled(line).best(3)) == {"t0", "t5", "t10"}
