import math
from dataclasses import replace

import pytest

from searchers import Observation
from searchers.fidelity import comparable


def seen(id, curve=(), state="done", reason="", loss=None):
    if curve and loss is None and state == "done":
        loss = curve[-1][1]
    return Observation(id, {"x": id}, {}, loss, tuple(curve), state, reason)


def losses(history, enough, **options):
    return {seen.observation.id: seen.loss for seen in comparable(history, enough, **options)}


RUNGS = [  # a successive halving: a stops at 1, b at 3, c and d at 9
    seen("a", [(1, 0.9)], reason="rung"),
    seen("b", [(1, 0.8), (3, 0.7)], reason="rung"),
    seen("c", [(1, 0.7), (3, 0.6), (9, 0.3)]),
    seen("d", [(1, 0.6), (3, 0.5), (9, 0.4)]),
]


@pytest.mark.parametrize(
    ("enough", "expected"),
    [
        (1, {"c": 0.3, "d": 0.4}),
        (2, {"c": 0.3, "d": 0.4}),
        (3, {"b": 0.7, "c": 0.6, "d": 0.5}),
        (4, {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}),
        (99, {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.6}),
    ],
)
def test_losses_are_compared_at_the_highest_step_that_enough_have_reached(enough, expected):
    assert losses(RUNGS, enough) == expected


def test_stopped_trials_are_as_those_tell_that_went_on():
    found = losses(RUNGS, 2, with_stopped=True)
    assert found == pytest.approx({"a": 0.55, "b": 0.45, "c": 0.3, "d": 0.4})  # of .35, the mean
    assert losses(RUNGS, 4, with_stopped=True) == losses(RUNGS, 4)


@pytest.mark.parametrize("slope", [0.5, -0.05])
def test_who_was_stopped_is_worse_than_those_that_went_on_whether_losses_rise_or_fall(slope):
    ends = {"stopped": 1, "early": 3, "good": 9, "better": 9}
    history = [
        seen(name, [(step, 0.9 - 0.1 * place + slope * step) for step in range(1, end + 1)])
        for place, (name, end) in enumerate(ends.items())
    ]
    found = losses(history, 2, with_stopped=True)
    assert found == pytest.approx({name: 0.9 - 0.1 * i + 9 * slope for i, name in enumerate(ends)})


def test_who_beat_all_that_went_on_was_not_stopped_for_its_loss():
    history = [*RUNGS, seen("patient", [(1, 0.2)], reason="plateau")]
    assert "patient" not in losses(history, 2, with_stopped=True)


def test_each_objective_of_a_stopped_trial_is_as_it_would_have_been():
    def both(name, end, first, second):
        curve, other = ([(step, loss - step) for step in range(1, end)] for loss in (first, second))
        several = (curve[-1][1], other[-1][1])
        return replace(seen(name, curve, loss=None), losses=several, curves=(tuple(other),))

    history = [both("stopped", 2, 5.0, 7.0), both("whole", 10, 4.0, 1.0), both("too", 10, 3.0, 2.0)]
    scored = comparable(history, 2, with_stopped=True)
    found = {each.observation.id: each.losses for each in scored}
    assert found["stopped"] == pytest.approx((5.0 - 9, 7.0 - 9))
    assert found["whole"] == (4.0 - 9, 1.0 - 9)
    killed = replace(history[1], id="killed", state="failed", reason="infra", losses=())
    assert comparable([*history, killed], 2)[-1].losses == found["whole"]
    without = [replace(history[0], curves=()), *history[1:]]  # as earlier journals have it
    assert losses(without, 2, with_stopped=True).keys() == {"whole", "too"}


def test_one_running_trial_does_not_lower_the_step_for_all():
    history = [*RUNGS, seen("e", [(1, 0.5), (2, 0.4), (5, 0.2)], state="pending")]
    assert losses(history, 3) == {"b": 0.7, "c": 0.6, "d": 0.5, "e": 0.4}


def test_paused_trials_wait_at_a_step_that_counts():
    history = [seen(str(i), [(1, 1.0 - i / 10)], state="pending") for i in range(4)]
    assert len(losses(history, 3)) == 4


def test_failed_ones_are_the_worst_at_any_step_unless_it_was_not_their_fault():
    history = [
        *RUNGS,
        seen("nan", [(1, 0.1), (2, math.nan)], state="failed", reason="diverged"),
        seen("oom", state="failed", reason="oom"),
        seen("node", [(1, 0.5), (9, 0.2)], state="failed", reason="infra"),
        seen("early", state="failed", reason="infra"),
    ]
    assert losses(history, 3) == {"c": 0.3, "d": 0.4, "nan": None, "oom": None, "node": 0.2}


def test_values_told_without_a_step_are_compared_with_one_another():
    history = [seen(str(i), loss=float(i)) for i in range(5)]
    assert losses(history, 3) == {str(i): float(i) for i in range(5)}
    assert losses([*history, *RUNGS], 3) == losses(history, 3)
    assert losses([*history[:1], *RUNGS], 3).keys() == {"b", "c", "d"}
