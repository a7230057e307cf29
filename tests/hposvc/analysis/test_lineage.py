"""The lineage of weights, and the fixed schedule that trains them again."""

import pytest
from simulated_sweeps import Lab, at_desk, spec_of

from hposvc import spec as specs
from hposvc.analysis.lineage import (
    LineageSegment,
    ancestry,
    replay_spec,
    replays_exactly,
    winner_lineage,
)
from hposvc.backends.local import LocalBackend

PBT = {"type": "pbt", "interval": 2, "quantile": 0.5, "mutate": {"lr": {}}}


@pytest.fixture
def desk():
    """Return a population of two: t0001 is at step 3 when t0002, at step 2, copies it."""
    made = at_desk(scheduler=PBT, fidelity={"max": 6}, trials={"max": 2, "parallel": 2})
    strong, weak = made.start(lr=0.01), made.start(lr=0.02)
    for step in (1, 2):
        made.report(strong, step, 0.2)
    for step in (1, 2):
        made.report(weak, step, 0.5)
    made.report(strong, 3, 0.2)
    made.end(weak)
    copy = made.start()
    assert (copy.trial, copy.first, copy.start.step) == ("t0002", 3, 3)
    made.report(copy, 3, 0.1)
    return made


def test_weights_are_followed_back_through_copies(desk):
    copied = desk.state.trials["t0002"].params
    line = winner_lineage(desk.state)
    assert line == [
        LineageSegment("t0001", 1, 3, {"lr": 0.01}),
        LineageSegment("t0002", 3, 3, copied),
    ]
    assert not replays_exactly(line)  # the donor was a step ahead
    own = ancestry(desk.state, "t0002", 2)
    assert own == [LineageSegment("t0002", 1, 2, {"lr": 0.02})]
    assert replays_exactly(own)
    assert winner_lineage(at_desk().state) == []


def test_a_replay_is_as_long_as_the_weights_were_trained(desk):
    line = winner_lineage(desk.state)
    spec = replay_spec("s-1", desk.state.spec, line)
    assert spec["fidelity"]["max"] == 3 + 4  # three of the donor's, and 3 to 6
    assert spec["parameters"] == {"lr": 0.01}
    values = {"lr": line[1].params["lr"]}
    assert spec["scheduler"] == {
        "type": "replay",
        "seed_of": "t0001",
        "schedule": [{"after": 3, "values": values, "seed_of": "t0002"}],
    }


def test_the_weights_of_the_best_step_are_the_winner_s():
    """Weights that a trial copied after its best step are not part of the winner's lineage."""
    metric = {"name": "loss", "goal": "minimize", "select": "best"}
    desk = at_desk(scheduler=PBT, metric=metric, trials={"max": 2, "parallel": 2})
    first, second = desk.start(lr=0.01), desk.start(lr=0.02)
    for step, losses in enumerate([(0.5, 0.1), (0.4, 0.6)], 1):
        for order, loss in zip((first, second), losses, strict=True):
            desk.report(order, step, loss)
    desk.end(second)
    copy = desk.start()
    assert (copy.trial, copy.parent) == ("t0002", "t0001")
    desk.report(copy, 3, 0.3)
    assert winner_lineage(desk.state) == [LineageSegment("t0002", 1, 1, {"lr": 0.02})]
    assert replay_spec("s-1", desk.state.spec, winner_lineage(desk.state))["fidelity"]["max"] == 9


def train(spec, folder):
    """Run a sweep in this process."""
    folder.mkdir()
    return Lab.at(folder).run(spec, backend=LocalBackend)


def test_a_replay_trains_the_same_weights_bit_by_bit(tmp_path):
    """Digits, with dropout, a learning-rate schedule, and values that change between segments."""
    mutate = {"lr": {"min": 1e-3}, "dropout": [0.1, 0.2, 0.3]}
    spec = spec_of(
        "trainables.zoo.digits:DigitsCNN",
        engine="local",
        metric={"name": "val/loss", "goal": "minimize"},
        fidelity={"max": 4},
        parameters={
            "lr": {"min": 1e-4, "max": 1e-1, "log": True},
            "dropout": {"min": 0.0, "max": 0.5},
            **{"width": 8, "batch": 256},
        },
        initial=[{"lr": 0.01}, {"lr": 0.02}, {"lr": 1e-4}],
        scheduler={**PBT, "interval": 1, "mutate": mutate},
        trials={"max": 3},
    )
    state = train(spec, tmp_path / "population")
    lines = [ancestry(state, trial, step) for trial in state.trials for step in (2, 3, 4)]
    line = max((line for line in lines if replays_exactly(line)), key=len)
    assert len({segment.trial for segment in line}) >= 2, "one of them copied another"
    again = train(specs.load(replay_spec("s", spec, line)), tmp_path / "replay")
    (trial,) = again.trials.values()
    place = 0
    for segment in line:
        original = state.trials[segment.trial].steps
        for step in range(segment.first, segment.last + 1):
            place += 1
            assert trial.steps[place] == original[step]
