"""Where weights come from, and the fixed schedule that trains them again."""

import json

import pytest
from ruamel.yaml import YAML
from simulated_sweeps import Lab, at_desk, make_controller, make_spec

from hposvc import plugins
from hposvc import spec as specs
from hposvc.backends.backend import Setting
from hposvc.backends.local import Local
from hposvc.journal import Journal
from hposvc.lease import Lease
from hposvc.lineage import Stretch, ancestry, replay, straight, winner
from hposvc.proposer import Inline
from hposvc.runner import Runner
from hposvc.store import Store
from hposvc.views import schedule

PBT = {"type": "pbt", "interval": 2, "quantile": 0.5, "mutate": {"lr": {}}}


@pytest.fixture
def desk():
    """Two members; t0001 goes on to step 3 before t0002, at step 2, copies it."""
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
    line = winner(desk.state)
    assert line == [
        Stretch("t0001", 1, 3, {"lr": 0.01}),
        Stretch("t0002", 3, 3, copied),
    ]
    assert not straight(line)  # the donor was a step ahead
    own = ancestry(desk.state, "t0002", 2)
    assert own == [Stretch("t0002", 1, 2, {"lr": 0.02})]
    assert straight(own)
    assert winner(at_desk().state) == []


def test_a_replay_is_as_long_as_the_weights_were_trained(desk):
    line = winner(desk.state)
    spec = replay("s-1", desk.state.spec, line)
    assert spec["fidelity"]["max"] == 3 + 4  # three of the donor's, and 3 to 6
    assert spec["parameters"] == {"lr": 0.01}
    values = {"lr": line[1].params["lr"]}
    assert spec["scheduler"] == {
        "type": "replay",
        "seed_of": "t0001",
        "schedule": [{"after": 3, "values": values, "seed_of": "t0002"}],
    }


def test_what_is_exported_loads_and_says_what_it_is(desk):
    desk.state.spec.tags["ticket"] = 17
    line = winner(desk.state)
    spec = replay("s-1", desk.state.spec, line)
    text = schedule.text("s-1", desk.state, line, spec)
    assert YAML(typ="safe", pure=True).load(text) == json.loads(json.dumps(spec))
    assert "#   step 1 to 3: t0001's 1 to 3\n#   step 4 to 4: t0002's 3 to 3\n" in text
    assert "copied others that stood at another step" in text
    loaded, before = specs.load(spec), desk.state.spec
    same = ("metric", "engine", "resources", "training", "checkpoints", "failure", "seed", "tags")
    assert all(getattr(loaded, name) == getattr(before, name) for name in same)
    assert loaded.trials.max == 1


def test_the_weights_of_the_best_step_are_the_winner_s():
    """What the trial copied after its best step is no part of it."""
    metric = {"name": "loss", "goal": "minimize", "select": "best"}
    desk = at_desk(scheduler=PBT, metric=metric, trials={"max": 2, "parallel": 2})
    one, two = desk.start(lr=0.01), desk.start(lr=0.02)
    for step, losses in enumerate([(0.5, 0.1), (0.4, 0.6)], 1):
        for order, loss in zip((one, two), losses, strict=True):
            desk.report(order, step, loss)
    desk.end(two)
    copy = desk.start()
    assert (copy.trial, copy.parent) == ("t0002", "t0001")
    desk.report(copy, 3, 0.3)
    assert winner(desk.state) == [Stretch("t0002", 1, 1, {"lr": 0.02})]
    assert replay("s-1", desk.state.spec, winner(desk.state))["fidelity"]["max"] == 9


def test_a_parameter_that_became_active_on_the_way_is_given_from_the_start():
    line = [
        Stretch("t0001", 1, 2, {"kind": "adamw"}),
        Stretch("t0002", 3, 6, {"kind": "sgd", "momentum": 0.9}),
    ]
    spec = replay("s-1", make_spec(fidelity={"max": 6}), line)
    assert spec["parameters"] == {"kind": "adamw", "momentum": 0.9}
    assert spec["scheduler"]["schedule"][0]["values"] == {"kind": "sgd"}
    specs.load(spec)


def test_a_trial_that_copied_nobody_is_a_schedule_too(tmp_path):
    lab = Lab(Journal(Store(f"sqlite:///{tmp_path / 'x.db'}")), tmp_path)
    state = lab.run(make_spec(scheduler={"type": "asha"}))
    spec = replay("s", state.spec, winner(state))
    assert spec["scheduler"] == {"type": "replay", "seed_of": state.best, "schedule": []}
    again = lab.run(specs.load(spec), "again")
    assert again.trials["t0001"].steps == state.trials[state.best].steps


def train(spec, folder):
    """Run a sweep in this process."""
    journal = Journal(Store(f"sqlite:///{folder}.db"))
    return Runner(
        folder.name,
        make_controller(spec),
        Local(Setting(folder.name, spec, folder, folder)),
        Inline(spec, plugins.build(plugins.SEARCHERS, spec.search)),
        journal,
        Lease(journal.store, folder.name),
    ).run("here:1")


def test_a_replay_trains_the_same_weights_bit_by_bit(tmp_path):
    """Digits, with dropout, a schedule of the learning rate, and values that change on the way."""
    spec = specs.load(
        {
            "trainable": "trainables.zoo.digits:DigitsCNN",
            "engine": "local",
            "metric": {"name": "val/loss", "goal": "minimize"},
            "fidelity": {"max": 4},
            "parameters": {
                "lr": {"min": 1e-4, "max": 1e-1, "log": True},
                "dropout": {"min": 0.0, "max": 0.5},
                **{"width": 8, "batch": 256},
            },
            "initial": [{"lr": 0.01}, {"lr": 0.02}, {"lr": 1e-4}],
            "search": "random",
            "scheduler": {
                **PBT,
                "interval": 1,
                "mutate": {"lr": {"min": 1e-3}, "dropout": [0.1, 0.2, 0.3]},
            },
            "trials": {"max": 3},
        }
    )
    state = train(spec, tmp_path / "population")
    lines = [ancestry(state, trial, step) for trial in state.trials for step in (2, 3, 4)]
    line = max((line for line in lines if straight(line)), key=len)
    assert len({stretch.trial for stretch in line}) >= 2, "one of them copied another"
    again = train(specs.load(replay("s", spec, line)), tmp_path / "replay")
    (trial,) = again.trials.values()
    place = 0
    for stretch in line:
        original = state.trials[stretch.trial].steps
        for step in range(stretch.first, stretch.last + 1):
            place += 1
            assert trial.steps[place] == original[step]
