"""Functions of Ray Train in whole sweeps of two ranks: of Ray's own examples, and of its guides."""

import pytest
from engines import Bench, steps

import hposvc
from hposvc.events import Ended, Failed, Ordered, Reported

pytestmark = [pytest.mark.ray, pytest.mark.long]

EXAMPLES = "ray.train.examples.pytorch"  # in Ray's own package
STOP = {"type": "asha", "eta": 2}
PROMOTE = {**STOP, "mode": "promote"}
HYPERBAND = {"type": "hyperband", "eta": 2}
PBT = {"type": "pbt", "interval": 2, "mutate": {"lr": {}}, "quantile": 0.5}
EPOCHS = 4


def run(trainable, home, failures=0, **sections):
    """Return the result of a sweep of four trials, and its events."""
    sections = {
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": EPOCHS, "unit": "epoch"},
        "trials": {"max": 4},
        "resources": {"workers": 2, "cpus_per_worker": 0.5},
        "tracking": {"send_to": []},
        **sections,
    }
    parameters = {"lr": {"min": 1e-4, "max": 0.3, "log": True}, "epochs": EPOCHS}
    initial = [{"lr": lr} for lr in (0.3, 0.1, 1e-4, 2e-4)]  # the last two are far worse
    sweep = hposvc.Sweep(trainable, parameters=parameters, initial=initial, **sections)
    result = sweep.run(home, progress=False)
    assert result.state == "COMPLETED"
    events = [*result.events()]
    assert len(of_kind(Failed, events)) == failures, of_kind(Failed, events)
    assert {event.warning for event in events if isinstance(event, Ended)} == {""}
    return result, events


def of_kind(kind, events):
    return [event for event in events if isinstance(event, kind)]


def test_an_example_of_ray_itself(tmp_path):
    result, events = run(f"{EXAMPLES}.torch_linear_example:train_func", tmp_path, scheduler=STOP)
    assert max(event.step for event in of_kind(Reported, events)) == EPOCHS
    assert (result.best.checkpoint / "model.pt").is_file()


def test_an_example_of_ray_with_its_data(tmp_path):
    run(
        f"{EXAMPLES}.torch_regression_example:train_func",
        tmp_path,
        scheduler=STOP,
        datasets={"train": "ray_loops:regression", "validation": "ray_loops:all_of_regression"},
        resources={"workers": 2, "cpus_per_worker": 1},
    )


@pytest.mark.parametrize("engine", ["ray", "local"])
@pytest.mark.parametrize("scheduler", [PROMOTE, HYPERBAND, PBT], ids=lambda given: given["type"])
@pytest.mark.parametrize("loop", ["torch_loop", "lightning_loop", "transformers_loop"])
def test_loops_of_the_guides_pause_copy_and_go_on(tmp_path, engine, scheduler, loop):
    metric = {"name": "eval_loss" if loop == "transformers_loop" else "loss", "goal": "minimize"}
    _, events = run(
        f"ray_loops:{loop}", tmp_path, metric=metric, scheduler=scheduler, engine=engine
    )
    orders = {event.order.id: event.order for event in of_kind(Ordered, events)}
    resumed = [order for order in orders.values() if order.start is not None]
    assert resumed  # from their own checkpoints, or from copies
    if scheduler is PBT:
        assert any(order.parent is not None for order in resumed)
    # Lightning and plain torch count epochs from 0, and transformers from 1.
    offset = 0 if loop == "transformers_loop" else 1
    for event in of_kind(Reported, events):
        assert event.metrics["epoch"] + offset == event.step
        if loop == "torch_loop":
            assert event.metrics["lr"] == orders[event.order].params["lr"]


@pytest.mark.parametrize("engine", ["ray", "tune"])
def test_datasets_are_streams_that_ranks_share(tmp_path, engine):
    _, events = run(
        "ray_loops:reading_loop",
        tmp_path,
        engine=engine,
        scheduler=PROMOTE,  # so some go on, and read anew
        datasets={"train": "ray_loops:rows", "whole": "ray_loops:all_rows"},
        resources={"workers": 2, "cpus_per_worker": 1},
    )
    reports = of_kind(Reported, events)
    assert {event.metrics["rows"] for event in reports} == {40.0}
    assert {event.metrics["sum"] for event in reports} == {sum(range(40))}
    assert {event.metrics["own"] for event in reports} == {20.0}
    assert {event.metrics["whole"] for event in reports} == {40.0}


@pytest.mark.parametrize("engine", ["ray", "local"])
def test_a_trial_whose_rank_is_killed_goes_on_from_its_checkpoint(tmp_path, engine):
    sections = {"trials": {"max": 2}, "engine": engine}
    _, events = run("ray_loops:dying_loop", tmp_path, failures=2, **sections)
    steps = [(event.trial, event.step) for event in of_kind(Reported, events)]
    assert sorted(steps) == [(f"t000{trial}", step) for trial in (1, 2) for step in (1, 2, 3, 4)]
    starts = [event.order.start for event in of_kind(Ordered, events)]
    assert [start.step for start in starts if start is not None] == [2, 2]


def test_agents_take_them_too(tmp_path):
    parameters = {"lr": 0.1, "epochs": 3}
    sections = {"trainable": "ray_loops:torch_loop", "parameters": parameters}
    bench = Bench.of("agents", 1, tmp_path / "sweep", tmp_path, **sections)
    try:
        events = bench.finish(bench.start(until=3, epochs=3))
        assert steps(events) == [1, 2, 3]
    finally:
        bench.backend.close()
