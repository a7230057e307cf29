"""A single trial whose values follow a fixed schedule."""

import pytest
from simulated_sweeps import Lab, at_desk, make_spec

from hposvc.events import Decided, Ordered

SCHEDULE = [
    {"after": 2, "values": {"lr": 0.02}, "seed_of": "t0007"},
    {"after": 5, "values": {"depth": 4}},
]
TWO = {"lr": 0.01, "depth": 3}


def replay(schedule=SCHEDULE, **sections):
    scheduler = {"type": "replay", "schedule": schedule, "seed_of": "t0003"}
    given = {"scheduler": scheduler, "trials": {"max": 1}, "parameters": TWO, **sections}
    return make_spec(fidelity={"max": 8}, **given)


def test_each_order_has_the_values_and_the_random_numbers_of_its_steps(tmp_path):
    lab = Lab.at(tmp_path)
    state = lab.run(replay())
    assert (state.state, state.trials.counts["COMPLETED"]) == ("COMPLETED", 1)
    orders = [event.order for event in lab.events() if isinstance(event, Ordered)]
    seen = [(order.first, order.params, order.seed_of, order.parent) for order in orders]
    assert seen == [
        (1, {"lr": 0.01, "depth": 3}, "t0003", None),
        (3, {"lr": 0.02, "depth": 3}, "t0007", None),
        (6, {"lr": 0.02, "depth": 4}, None, None),
    ]
    assert [order.start and order.start.step for order in orders] == [None, 2, 5]
    reasons = {event.reason for event in lab.events() if isinstance(event, Decided)}
    assert reasons == {"schedule"}


def test_a_retry_goes_on_with_the_values_of_its_steps():
    desk = at_desk(
        scheduler={"type": "replay", "schedule": SCHEDULE},
        trials={"max": 1},
        parameters=TWO,
        failure={"user_retries": 2},
    )
    first = desk.start()
    desk.report(first, 1, 0.5)
    desk.fail(first, "user")
    retry = desk.start()
    assert (retry.first, retry.seed_of, retry.milestones) == (2, None, (2, 5))
    desk.report(retry, 2, 0.5)
    desk.end(retry)
    second = desk.start()
    desk.report(second, 3, 0.5)
    desk.fail(second, "user")
    retry = desk.start()
    assert (retry.first, retry.params["lr"], retry.seed_of) == (4, 0.02, "t0007")


@pytest.mark.parametrize(("until", "firsts"), [(1, [1]), (2, [1]), (4, [1, 3]), (8, [1, 3, 6])])
def test_it_ends_where_it_is_told_to_though_trials_are_longer(tmp_path, until, firsts):
    lab = Lab.at(tmp_path)
    scheduler = {"type": "replay", "schedule": SCHEDULE, "until": until}
    state = lab.run(replay(scheduler=scheduler))
    trial = state.trials["t0001"]
    assert (state.state, trial.step, state.spec.last_step) == ("COMPLETED", until, 8)
    orders = [event.order for event in lab.events() if isinstance(event, Ordered)]
    assert [order.first for order in orders] == firsts
    assert orders[-1].until == until
    assert (trial.state, trial.reason) == (
        ("COMPLETED", "") if until == 8 else ("STOPPED", "until")
    )
