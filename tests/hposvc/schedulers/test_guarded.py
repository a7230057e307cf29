"""A user's own scheduler. If these fail, its faults are told as bugs of hposvc."""

from dataclasses import dataclass

import numpy as np
import pytest

from hposvc.errors import PlugInFailed
from hposvc.schedulers.fifo import Fifo
from hposvc.schedulers.guarded import Guarded, begin_scheduler
from hposvc.schedulers.scheduler import (
    Advance,
    Closed,
    Decision,
    Left,
    NewTrial,
    Ordered,
    Paused,
    Plan,
    Report,
    TrialStop,
    Wait,
)
from searchers import Float, Space

PLAN = Plan(1, 9)
METHODS = ("next", "judge", "trials_to_stop", "max_concurrency")


class Answering:
    """A scheduler that gives the same answer to everything."""

    copies = False

    def __init__(self, answer):
        self.answer = answer

    def apply(self, fact):
        if isinstance(fact, Closed):
            raise KeyError("closed")

    def next(self):
        return self.answer

    def judge(self, report):
        return self.answer

    def trials_to_stop(self):
        return self.answer

    def max_concurrency(self):
        return self.answer


@dataclass(frozen=True)
class Changed:
    """A change of a trial's values."""

    donor: str | None = None
    x: object = 0.5

    def values(self, space, params, rng):
        if self.x == "raise":
            raise ZeroDivisionError("no value")
        return {**params, "x": self.x}


@dataclass(frozen=True)
class Mine:
    answer: object = None

    def scheduler(self, plan):
        if self.answer == "nothing":
            raise ValueError("no such plan")
        return Answering(self.answer)


def guarded(answer) -> Guarded:
    scheduler = begin_scheduler("mine:Mine", Mine(answer), PLAN)
    scheduler.apply(Ordered("t0001", 3))
    scheduler.apply(Paused("t0001"))
    scheduler.apply(Ordered("t0003", 3))
    return scheduler


def test_built_in_schedulers_are_not_guarded():
    assert not isinstance(begin_scheduler("fifo", Fifo(), PLAN), Guarded)


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        *((method, None) for method in METHODS),
        ("next", NewTrial(10)),
        ("next", NewTrial(None)),
        ("next", NewTrial(9, (0.5,))),
        ("next", Advance("t0002", 9)),
        ("next", Advance("t0001", 9, change=Changed("t0007"))),
        ("judge", Decision("go", "rung")),
        ("trials_to_stop", [TrialStop("t0002", "rung")]),
        ("max_concurrency", -1),
    ],
)
def test_a_wrong_answer_is_named_with_its_file_and_line(method, answer):
    report = [Report("t0001", 3, 0.5)] if method == "judge" else []
    said = r"scheduler\.type mine:Mine .*test_guarded\.py:\d+\); .*resume"
    with pytest.raises(PlugInFailed, match=said):
        getattr(guarded(answer), method)(*report)


def test_what_a_scheduler_raises_is_named_with_its_file_and_line():
    said = r"scheduler\.type mine:Mine raised KeyError: 'closed' \(.*test_guarded\.py:\d+\)"
    with pytest.raises(PlugInFailed, match=said):
        guarded(None).apply(Closed())
    with pytest.raises(PlugInFailed, match="raised ValueError: no such plan"):
        begin_scheduler("mine:Mine", Mine("nothing"), PLAN)


def test_a_scheduler_must_not_wait_where_nothing_runs():
    scheduler = begin_scheduler("mine:Mine", Mine(Wait()), PLAN)
    with pytest.raises(PlugInFailed, match="where no trial runs: nothing can change"):
        scheduler.next()
    scheduler.apply(Ordered("t0001", 3))
    assert scheduler.next() == Wait()
    scheduler.apply(Paused("t0001"))
    with pytest.raises(PlugInFailed, match="where no trial runs"):
        scheduler.next()
    scheduler.apply(Ordered("t0001", 9))
    scheduler.apply(Left("t0001"))
    with pytest.raises(PlugInFailed, match="where no trial runs"):
        scheduler.next()


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (2.0, r"returns .* from values of a change; return a configuration: x: "),
        ("raise", r"raised ZeroDivisionError: no value"),
    ],
)
def test_new_values_of_a_trial_are_held_to_the_space(x, said):
    space, rng = Space({"x": Float(0.0, 1.0)}), np.random.default_rng(0)
    move = guarded(Advance("t0001", 9, change=Changed("t0003"))).next()
    assert move.change.donor == "t0003"
    assert move.change.values(space, {"x": 0.1}, rng) == {"x": 0.5}
    move = guarded(Advance("t0001", 9, change=Changed(x=x))).next()
    with pytest.raises(PlugInFailed, match=rf"{said}.*test_guarded\.py:\d+"):
        move.change.values(space, {"x": 0.1}, rng)
