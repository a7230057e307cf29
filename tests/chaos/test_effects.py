"""Processes die right before and right after each effect that crosses to another process."""

import shutil
import signal

import aftermath
import pytest
from terminal import GONE_S, HERE, ROUNDS, Terminal, until

from cluster import own_ray
from hposvc import api
from hposvc import spec as specs
from hposvc.events import Failed

pytestmark = [pytest.mark.ray, pytest.mark.long]

TRIALS = 6
EFFECTS = [
    "order",
    pytest.param("decision", marks=pytest.mark.full),
    *(["turn", "deletion"] if ROUNDS > 3 else []),
]
MOMENTS = ["before", "after"]
LATER = ["after", pytest.param("before", marks=pytest.mark.full)]  # what was done is not done again
KILLED = -signal.SIGKILL


@pytest.fixture(scope="module")
def terminal(tmp_path_factory, empty_mlflow):
    """A home whose Ray stays up from test to test, as another sweep would keep it."""
    home = tmp_path_factory.mktemp("home")
    shutil.copy(empty_mlflow, home / "mlflow.db")
    opened = Terminal(home)
    with own_ray.start(home / "ray"):
        yield opened
    own_ray.await_end(home / "ray")
    opened.sweep_up()


def create(terminal, monkeypatch, function="fragile:steady", **sections):
    """A sweep of six trials with rungs, on two slots, that nobody drives yet."""
    monkeypatch.syspath_prepend(str(HERE))
    spec = {
        "trainable": function,
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": 9},
        "parameters": {"lr": {"min": 1e-4, "max": 1e-1, "log": True}},
        "search": "random",
        "scheduler": "asha",
        "trials": {"max": TRIALS, "parallel": 2},
        "resources": {"cpus_per_worker": 0.5},
    }
    return api.create(api.Sweeps.open(terminal.home), specs.load({**spec, **sections})).id


def drive(terminal, sweep, effect, moment):
    """Drive the sweep until the fatal call; the driver's exit code."""
    return terminal.start_python("-m", "driver", str(terminal.home), sweep, effect, moment).end()


@pytest.mark.parametrize("effect", EFFECTS)
def test_the_driver_may_die_around_an_effect(terminal, monkeypatch, effect):
    """Killed right before one, resumed, killed right after one, resumed: nothing lost or twice."""
    sweep = create(terminal, monkeypatch)
    for moment in MOMENTS:
        code, said = drive(terminal, sweep, effect, moment)
        assert code == KILLED, said
    assert terminal.start("resume", sweep).end()[0] == 0
    aftermath.check(terminal.home, sweep, TRIALS)
    until(lambda: not terminal.ranks(), "no rank is left", GONE_S)


@pytest.mark.parametrize("moment", LATER)
def test_a_rank_may_die_around_the_rename_of_a_checkpoint(terminal, monkeypatch, tmp_path, moment):
    """A checkpoint is there whole or not at all, and counts only once it is reported."""
    given = {"lr": {"min": 1e-4, "max": 1e-1}, "moment": moment, "mark": str(tmp_path / "mark")}
    sweep = create(terminal, monkeypatch, "fragile:dies_at_rename", parameters=given)
    code, said = terminal.start("resume", sweep).end()
    assert code == 0, said
    aftermath.check(terminal.home, sweep, TRIALS)
    events = [event for _, event in terminal.journal.read(sweep)]
    (failure,) = [event for event in events if isinstance(event, Failed)]
    assert failure.cause == "infra"
    retry = next(
        event.order
        for event in events[events.index(failure) :]
        if event.kind == "ordered" and event.order.trial == failure.trial
    )
    assert retry.start is not None
    assert retry.first == 2, "the checkpoint of step 2 was not reported"


@pytest.mark.parametrize("moment", LATER)
def test_the_recorder_may_die_around_a_batch(terminal, monkeypatch, moment):
    """What MLflow was told twice is there once; what it was not told comes later."""
    sweep = create(terminal, monkeypatch)
    code, said = drive(terminal, sweep, "batch", moment)
    assert code == 0, said
    assert (terminal.home / f"{sweep}.{moment}").exists()
    aftermath.check(terminal.home, sweep, TRIALS)
