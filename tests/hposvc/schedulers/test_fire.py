"""FIRE: who copies whom, and that a population comes to its end whatever happens."""

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pbt_reference import Slots

from hposvc.schedulers.fire import Evaluation, Fire
from hposvc.schedulers.scheduler import Closed, Ordered, Paused, Plan, Report, SearchDone
from searchers import Space

LR = {"lr": {}}
ROLES = ["child", "parent", "child", "parent", "evaluator"]


class Watched:
    """A scheduler whose copies are noted with the roles of both."""

    def __init__(self, scheduler):
        self.scheduler, self.copies = scheduler, []

    def __getattr__(self, name):
        return getattr(self.scheduler, name)

    def next(self):
        move = self.scheduler.next()
        change = getattr(move, "change", None)
        if change is not None:
            role = self.scheduler._role
            self.copies.append((role(move.trial), role(change.donor), type(change)))
        return move


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    interval=st.integers(1, 4),
    last=st.integers(5, 16),
    members=st.integers(5, 16),
    slots=st.integers(1, 64),
    parents=st.sampled_from([0.2, 0.4, 0.6]),
    burn_in=st.integers(0, 4),
)
def test_a_population_comes_to_its_end_and_copies_only_within_its_rules(
    seed, interval, last, members, slots, parents, burn_in
):
    rng, plan = Random(seed), Plan(1, last, members, seed)
    policy = Fire(interval, LR, burn_in=burn_in, parents=parents)
    watched = Watched(policy.scheduler(plan))
    cluster = Slots(watched, plan, rng, slots)
    for _ in range(50_000):
        if len(cluster.running) < slots and rng.random() < 0.7:
            if isinstance(cluster.fill(), SearchDone):
                break
        elif cluster.running:
            cluster.happen()
        elif rng.random() < 0.001:
            cluster.close()
    else:
        pytest.fail("the sweep does not end")
    assert not cluster.running
    assert not cluster.paused
    assert sum(cluster.steps.values()) <= members * last
    for role, donor, change in watched.copies:
        assert (change is Evaluation) == (role == "evaluator")
        assert donor in {"child": ("child", "evaluator")}.get(role, ("parent",))


def test_every_share_of_the_population_has_all_roles():
    policy = Fire(1, LR)
    assert [policy.role(number) for number in range(10)] == ROLES * 2
    counted = Counter(Fire(1, LR, parents=0.25, evaluators=0.25).role(n) for n in range(400))
    assert counted == {"child": 200, "parent": 100, "evaluator": 100}


def begun(losses):
    """Return a population of ten that has reported these losses at step 1, in this order."""
    scheduler = Fire(1, LR).scheduler(Plan(1, 9, 10))
    for number in range(10):
        scheduler.apply(Ordered(f"t{number}", 9, {"lr": 10.0**-number}))
    scheduler.apply(Closed())
    for number, loss in enumerate(losses):
        report = Report(f"t{number}", 1, loss)
        scheduler.apply(report)
        if scheduler.judge(report).verdict == "pause":
            scheduler.apply(Paused(f"t{number}"))
    return scheduler


def test_a_parent_is_ranked_by_what_its_evaluator_came_to_and_not_by_its_loss():
    # Roles: c p c p e, twice. The parents' own losses are the worst of all.
    scheduler = begun([0.1, 9.0, 0.3, 8.0, 0.5, 0.2, 7.0, 0.4, 6.0, 0.6])
    assert scheduler.donors["t4"] in ("t1", "t3")  # as neither is among the best of its rivals
    assert not {"t1", "t3", "t6", "t8"} & scheduler.donors.keys()  # nothing is known of parents
    change = scheduler.change("t4", "t3")
    space = Space.from_dict({"lr": {"min": 1e-9, "max": 1.0, "log": True}}, ())
    assert change.values(space, {"lr": 0.5}, np.random.default_rng(0)) == {"lr": 1.0}  # of t0
    scheduler.apply(Ordered("t4", 9, {"lr": 1.0}, parent="t1"))
    scheduler.apply(Report("t4", 2, 0.05))
    assert scheduler.worth == {"t1": 0.05}
    assert "t4" not in scheduler.donors  # now among the best, it goes on as it is
    for number, parent in enumerate(("t3", "t6", "t8")):
        scheduler.apply(Ordered("t9", 9, {"lr": 1.0}, parent=parent))
        scheduler.apply(Report("t9", 2 + number, 1.0 + number))
    assert scheduler.worth == {"t1": 0.05, "t3": 1.0, "t6": 2.0, "t8": 3.0}
    scheduler.apply(Report("t1", 2, 9.5))
    scheduler.apply(Report("t8", 2, 5.0))
    assert "t1" not in scheduler.donors
    assert scheduler.donors["t8"] == "t1"  # though t1's own loss is worse
    scheduler.apply(Ordered("t8", 9, {"lr": 0.1}, parent="t1"))
    assert "t8" not in scheduler.worth  # of weights that it has no more


def test_evaluators_that_report_together_take_different_parents():
    scheduler = begun([0.1, 9.0, 0.3, 8.0, 0.5, 0.2, 7.0, 0.4, 6.0, 0.6])
    assert {scheduler.donors["t4"], scheduler.donors["t9"]} == {"t1", "t3"}


def test_a_parent_that_copies_while_it_is_evaluated_is_worth_nothing_yet():
    scheduler = begun([0.1, 9.0, 0.3, 8.0, 0.5, 0.2, 7.0, 0.4, 6.0, 0.6])
    for _ in range(2):  # an order, and a retry of it
        scheduler.apply(Ordered("t9", 9, {"lr": 1.0}, parent="t8"))
    assert scheduler.evaluations == {"t8": 1}
    scheduler.apply(Ordered("t8", 9, {"lr": 0.1}, parent="t1"))
    scheduler.apply(Report("t9", 2, 0.5))
    assert scheduler.worth == {}


def test_an_evaluator_that_diverges_speaks_against_its_parent():
    scheduler = begun([0.1, 9.0, 0.3, 8.0, 0.5, 0.2, 7.0, 0.4, 6.0, 0.6])
    scheduler.apply(Ordered("t4", 9, {"lr": 1.0}, parent="t1"))
    scheduler.apply(Report("t4", 2, float("inf")))
    assert scheduler.worth == {"t1": float("inf")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parents": 0.0}, "parents is 0.0; choose a share"),
        ({"evaluators": 1.5}, "evaluators is 1.5; choose a share"),
        ({"parents": 0.6, "evaluators": 0.4}, "leave no children"),
    ],
)
def test_shares_leave_members_for_each_part(options, message):
    with pytest.raises(ValueError, match=message):
        Fire(1, LR, **options)


def test_a_small_population_is_refused():
    space = Space.from_dict({"lr": {"min": 1e-3, "max": 1.0, "log": True}}, ())
    [problem] = Fire(1, LR).problems(space, Plan(1, 9, 4))
    assert "is 4, of which fire makes 0 of 1 evaluators" in str(problem)
    assert not [*Fire(1, LR).problems(space, Plan(1, 9, 5))]
    problems = [*Fire(1, LR, evaluators=0.01).problems(space, Plan(1, 9, 20))]
    assert len(problems) == 1


def test_an_evaluator_takes_all_shares_of_its_child():
    space = Space.from_dict({"mix": {"shares": 3}, "lr": {"min": 0.1, "max": 1.0}})
    rng = np.random.default_rng(0)
    parent, child = space.sample(rng), space.sample(rng)
    policy = Fire(2, {"mix": {}})
    taken = Evaluation("t1", policy, child).values(space, parent, rng)
    assert taken == {**child, "lr": parent["lr"]}
