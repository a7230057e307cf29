"""Differences between MLflow and the journal."""

import math

from hypothesis import given
from hypothesis import strategies as st
from outboxes import mlflow_outbox, send_all

from hposvc.journal.home import Home
from hposvc.journal.journal import Journal, SweepRow
from hposvc.tracking.diff import compare_points
from hposvc.tracking.projection import Entry, Point


def tell(home: Home, row: SweepRow, journal: Journal) -> None:
    send_all(mlflow_outbox(home, row, journal))


def held(tracked, row: SweepRow) -> dict[str, object]:
    """Return everything that hposvc sends, without the ids of runs."""
    return {
        name: (run.info.status, run.info.end_time, run.data.params, tracked.points(run))
        for name, run in tracked.runs(row.id).items()
    }


POINTS = st.lists(
    st.builds(
        Point,
        st.just("loss"),
        st.sampled_from([0.0, 1.0, math.nan, math.inf]),
        st.integers(1, 2),
        st.integers(1, 2),
    ),
    max_size=4,
)


@given(POINTS, POINTS)
def test_points_agree_only_where_they_are_the_same_and_telling_mends_what_it_is_said_to(due, held):
    def as_set(points: list[Point]) -> set[str]:
        return {repr(point) for point in points}

    entry = Entry(points=due)
    differences = list(compare_points("t0001", "loss", held, entry, entry))
    assert bool(differences) == (as_set(due) != as_set(held))
    present = {(point.time, point.step) for point in held}
    missing = [point for point in due if (point.time, point.step) not in present]  # Tracker.missing
    repairs = as_set([*held, *missing]) == as_set(due)
    assert [difference.remedy for difference in differences] == [
        "tell" if repairs else "renew" for _ in differences
    ]
