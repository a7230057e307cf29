"""PB2: members are copied as in PBT, and values are chosen as its docstrings promise."""

import math
from dataclasses import dataclass, field, replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moving_optimum import reached
from pbt_reference import Slots

from hposvc.schedulers.pb2 import (
    MAX_OUTCOMES,
    MAX_PENDING,
    IntervalOutcome,
    Pb2,
    Select,
    TrainingInterval,
)
from hposvc.schedulers.pbt import Pbt
from hposvc.schedulers.scheduler import Advance, Closed, Ordered, Paused, Plan, Report, SearchDone
from searchers.space import Space

LR = {"lr": {}}
SPACE = Space.from_dict(
    {
        "lr": {"min": 1e-5, "max": 1.0, "log": True},
        "layers": {"min": 1, "max": 9, "type": "int"},
        "decay": {"min": 0.0, "max": 1.0},
        "kind": {"values": ["sgd", "adam"]},
        "momentum": {"min": 0.0, "max": 0.9, "when": {"kind": "sgd"}},
    },
    ["lr * layers <= 2"],
)
MUTATE = {
    "lr": {"min": 1e-3, "max": 0.5},
    "layers": {"max": 6},
    "decay": [0.1, 0.2, 0.7],
    "kind": {},
    "momentum": {"min": 0.5},
}
UNIT = Space.from_dict({"x": {"min": 0.0, "max": 1.0}})


@dataclass
class Beside:
    """A population of bandits, compared with a population of PBT at every question."""

    bandits: object
    others: object
    facts: list = field(default_factory=list)
    copies = True

    def apply(self, fact):
        if isinstance(fact, Ordered):
            rng = np.random.default_rng(len(self.facts))
            fact = replace(fact, params=SPACE.sample(rng))
        self.facts.append(fact)
        self.bandits.apply(fact)
        self.others.apply(fact)

    def next(self):
        move, other = self.bandits.next(), self.others.next()
        if isinstance(move, Advance) and move.change is not None:
            assert move.change.donor == other.change.donor
            move, other = replace(move, change=None), replace(other, change=None)
        assert move == other
        return move

    def judge(self, report):
        decision = self.bandits.judge(report)
        assert decision == self.others.judge(report)
        return decision


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    interval=st.integers(1, 5),
    last=st.integers(2, 12),
    members=st.integers(2, 14),
    slots=st.integers(1, 20),
)
def test_it_ranks_and_copies_as_pbt_and_a_replay_knows_the_same(
    seed, interval, last, members, slots
):
    rng = Random(seed)
    plan = Plan(1, last, members, seed)
    policy = Pb2(interval, MUTATE)
    beside = Beside(policy.scheduler(plan), Pbt(interval, MUTATE).scheduler(plan))
    cluster = Slots(beside, plan, rng, slots)
    for _ in range(50_000):
        if len(cluster.running) < slots and rng.random() < 0.7:
            if isinstance(cluster.fill(), SearchDone):
                break
        elif cluster.running:
            cluster.happen()
    else:
        pytest.fail("the sweep does not end")
    again = policy.scheduler(plan)
    for fact in beside.facts:
        again.apply(fact)
    assert again == beside.bandits
    assert not again.intervals


@st.composite
def selections(draw):
    """Draw the situation of a member that must choose: any losses, divergences and values."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    scale = draw(st.sampled_from([0.0, 1e-300, 1.0, 1e300]))
    loss = st.one_of(st.just(0.5), st.floats(-scale, scale))

    def interval():
        params = SPACE.sample(rng)
        values = {name: params[name] for name in MUTATE if name in params}
        return TrainingInterval(draw(st.integers(0, 50)), values, draw(st.one_of(st.none(), loss)))

    ended = tuple(
        IntervalOutcome(
            past := interval(), past.start + 2, draw(st.one_of(loss, st.just(math.inf)))
        )
        for _ in range(draw(st.integers(0, 8)))
    )
    pending = tuple(interval() for _ in range(draw(st.integers(0, 3))))
    select = Select("t1", Pb2(2, MUTATE), draw(st.integers(2, 60)), draw(loss), ended, pending)
    return select, SPACE.sample(rng)


@settings(max_examples=40, deadline=None)
@given(selection=selections(), seed=st.integers(0, 2**32))
def test_whatever_was_told_the_values_are_within_the_bounds_of_mutate(selection, seed):
    select, params = selection
    with np.errstate(all="raise", under="ignore"):
        chosen = select.values(SPACE, params, np.random.default_rng(seed))
    SPACE.validate(chosen)
    assert 1e-3 <= chosen["lr"] <= 0.5
    assert 1 <= chosen["layers"] <= 6
    assert chosen["decay"] in (0.1, 0.2, 0.7)
    assert 0.5 <= chosen.get("momentum", 0.5) <= 0.9
    assert chosen == select.values(SPACE, params, np.random.default_rng(seed))


def outcomes_of(gains, start=4):
    """Return outcomes of intervals of two steps, with the given gain for each x."""
    return tuple(
        IntervalOutcome(TrainingInterval(start, {"x": x}, 1.0), start + 2, 1.0 - gain)
        for x, gain in gains.items()
    )


def choose(outcomes, pending=(), seed=0):
    select = Select("t1", Pb2(2, {"x": {}}), 6, 1.0, tuple(outcomes), tuple(pending))
    return select.values(UNIT, {"x": 0.05}, np.random.default_rng(seed))["x"]


def test_shares_are_explored_beside_the_numbers_that_a_model_chooses():
    space = Space.from_dict({"mix": {"shares": 3}, "lr": {"min": 1e-3, "max": 1.0, "log": True}})
    policy, rng = Pb2(2, {"mix": {}, "lr": {"min": 1e-3, "max": 1.0}}), np.random.default_rng(2)
    before = space.sample(rng)
    outcome = IntervalOutcome(TrainingInterval(0, {"lr": before["lr"]}, None), 2, 0.5)
    chosen = Select("t1", policy, 4, 0.5, (outcome,), ()).values(space, before, rng)
    space.validate(chosen)
    assert all(chosen[name] != before[name] for name in ("mix.s1", "lr"))


def test_it_chooses_where_the_gain_is_highest():
    places = np.linspace(0, 1, 25)
    assert choose(outcomes_of({x: -((x - 0.7) ** 2) for x in places})) == pytest.approx(
        0.7, abs=0.05
    )


def test_it_forgets_where_the_gain_once_was_highest():
    rng = np.random.default_rng(0)
    outcomes = [
        outcome
        for start in range(0, 20, 2)
        for outcome in outcomes_of(
            {x: -((x - 0.1 - start / 25) ** 2) for x in rng.random(6)}, start
        )
    ]
    select = Select("t1", Pb2(2, {"x": {}}), 20, 1.0, tuple(outcomes), ())
    assert select.values(UNIT, {"x": 0.1}, rng)["x"] > 0.65


def test_it_does_not_choose_what_others_try_now():
    """Nothing is known at both ends of the range; the second member goes to the other end."""
    outcomes = outcomes_of(dict.fromkeys((0.4, 0.45, 0.5, 0.55, 0.6), 0.1))
    first = choose(outcomes)
    second = choose(outcomes, [TrainingInterval(6, {"x": first}, 1.0)])
    assert abs(first - second) > 0.5


def test_it_avoids_where_members_diverged():
    gains = {x: 0.1 + 0.01 * x for x in (0.05, 0.1, 0.2, 0.3, 0.4, 0.45)}
    diverged = dict.fromkeys((0.6, 0.7, 0.8, 0.9, 1.0), -math.inf)
    assert choose(outcomes_of({**gains, **diverged})) < 0.6


def begun(members=5, policy=None, last=8):
    """Return a population whose members have just reported at step 2, the last as the worst."""
    scheduler = (policy or Pb2(2, LR)).scheduler(Plan(1, last, members))
    for number in range(1, members + 1):
        scheduler.apply(Ordered(f"t{number}", last, {"lr": 0.1 * number, "wide": 3}))
    scheduler.apply(Closed())
    for number in range(1, members + 1):
        scheduler.apply(Report(f"t{number}", 1, 9.0))
        scheduler.apply(Report(f"t{number}", 2, float(number)))
    return scheduler


def test_a_copy_begins_from_the_loss_of_its_donor():
    scheduler = begun()
    scheduler.apply(Paused("t5"))
    change = scheduler.next().change
    assert (change.donor, change.clock, change.loss) == ("t1", 2, 1.0)
    scheduler.apply(Ordered("t5", 8, {"lr": 0.7}, parent="t1"))
    assert scheduler.intervals["t5"] == TrainingInterval(2, {"lr": 0.7}, 1.0)
    scheduler.apply(Report("t5", 4, 0.75))
    assert scheduler.outcomes[-1] == IntervalOutcome(TrainingInterval(2, {"lr": 0.7}, 1.0), 4, 0.75)
    assert scheduler.intervals["t5"] == TrainingInterval(4, {"lr": 0.7}, 0.75)


def test_what_it_remembers_is_bounded():
    scheduler = begun(300, last=4)
    scheduler.apply(Paused("t300"))
    change = scheduler.next().change
    assert len(change.outcomes) == MAX_OUTCOMES
    assert len(change.pending) == MAX_PENDING
    assert change.outcomes[-1].after == 300.0
    assert change.pending[0].before == 299.0


def test_a_moving_optimum_is_followed_more_closely_than_by_pbt():
    """Compare log10 of the final loss, mean of six seeds; over 24 it is -1.91, and -1.62 by PBT."""
    numbers = {"lr": {}, "decay": {}}
    by_pbt, by_bandit = (
        np.mean([reached(kind(2, numbers, 0.25), seed) for seed in range(6)]) for kind in (Pbt, Pb2)
    )
    assert by_bandit < by_pbt - 0.1
