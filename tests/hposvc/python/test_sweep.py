import json
import threading

import pytest

from hposvc import Metric, NoValue, SpecError, Sweep
from hposvc.reporting.result import COLUMNS

CURVE = """
def valley(params, step):
    return {"loss": (params["x"] - 3) ** 2 + 1 / step}, 1.0

def wide(params, step):
    return {**valley(params, step)[0], "x": params["x"]}, 1.0

def broken(params, step):
    raise ValueError("no luck")
"""
SECTIONS = {
    "engine": {"type": "simulate", "curve": "curves_of_sweeps:valley"},
    "metric": Metric("loss", "minimize"),
    "fidelity": {"max": 3},
    "parameters": {"x": {"values": [1, 2, 3, 4], "ordered": True}, "step": {"values": [1, 2]}},
    "search": "grid",
    "budget": {"wall": "1h"},
    "tracking": {"send_to": []},
}


@pytest.fixture(autouse=True)
def curves(tmp_path, monkeypatch):
    (tmp_path / "curves_of_sweeps.py").write_text(CURVE)
    monkeypatch.syspath_prepend(str(tmp_path))


def test_the_result_has_the_best_and_a_row_a_trial(tmp_path):
    result = Sweep(name="valley", **SECTIONS).run(home=tmp_path / "home", progress=False)
    assert result.state == "COMPLETED"
    assert result.sweep.startswith("valley-")
    assert result.best.params["x"] == 3
    assert result.best.value == pytest.approx(1 / 3)
    assert result.best.step == 3
    assert result.best.checkpoint is None, "a simulated checkpoint has no files"
    frame = result.trials
    assert list(frame.columns) == [*COLUMNS, "x", "params.step"]
    assert len(frame) == 8
    assert frame.value.min() == result.best.value


def test_a_plan_says_what_it_will_cost(tmp_path):
    priced = Sweep(**SECTIONS, price={"worker_hour": 2.0, "currency": "EUR"})
    plan = priced.plan(seconds_per_step=60, home=tmp_path / "home")
    assert plan.forecast.trials.value == 8
    assert plan.money.value == pytest.approx(2 * plan.forecast.rank_hours.value)
    assert plan.data()["currency"] == "EUR"
    assert Sweep(**SECTIONS).plan(seconds_per_step=60, home=tmp_path / "home").money is None
    record = priced.run(home=tmp_path / "home", progress=False).record
    assert record.status().money == pytest.approx(record.state.rank_s / 1800)


def test_several_metrics_may_be_dataclasses_too(tmp_path):
    metrics = [Metric("loss", "minimize"), Metric("x", "maximize")]
    sections = {**SECTIONS, "metric": None, "metrics": metrics}
    engine = {"type": "simulate", "curve": "curves_of_sweeps:wide"}
    result = Sweep(**{**sections, "engine": engine}).run(home=tmp_path, progress=False)
    assert result.pareto["x"].tolist() == [3, 3, 4, 4]
    assert result.pareto["params.x"].tolist() == [3, 3, 4, 4]


def test_a_sweep_without_a_value_has_no_best(tmp_path):
    broken = {"type": "simulate", "curve": "curves_of_sweeps:broken"}
    result = Sweep(**{**SECTIONS, "engine": broken}).run(home=tmp_path, progress=False)
    assert result.state == "FAILED"
    with pytest.raises(NoValue, match=r"3 failed; `hposvc logs sweep-\w+` shows why; t0001: \S"):
        _ = result.best


def test_a_file_is_the_same_sweep_and_its_values_can_be_set(tmp_path):
    path = tmp_path / "spec.yaml"
    path.write_text(json.dumps({**SECTIONS, "metric": {"name": "loss", "goal": "minimize"}}))
    result = Sweep.load(path, set={"parameters.x": 1, "name": "mine"}).run(tmp_path, progress=False)
    assert result.sweep.startswith("mine-")
    assert len(result.trials) == 2
    with pytest.raises(SpecError, match=r"--set trials\.mx: no such key"):
        Sweep.load(path, set={"trials.mx": 3})


def test_it_runs_off_the_main_thread_and_shows_how_it_goes(tmp_path, capsys):
    results = []
    sweep = Sweep(name="valley", **SECTIONS)
    thread = threading.Thread(target=lambda: results.append(sweep.run(home=tmp_path)))
    thread.start()
    thread.join()
    assert results[0].best.params["x"] == 3
    captured = capsys.readouterr()
    assert "COMPLETED at 3/3 step, loss 0.33333" in captured.err
    assert captured.out == ""


def test_what_cannot_be_imported_by_name_is_pickled_under_its_checksum(tmp_path):
    scale = 2.0

    def train(params, worker):
        worker.report(1, {"loss": scale * params["x"]})

    sections = {"metric": SECTIONS["metric"], "parameters": {"x": {"values": [1, 2]}}}
    sections |= {"engine": "local", "trials": {"max": 2}, "tracking": {"send_to": []}}
    result = Sweep(train, **sections).run(tmp_path, progress=False)
    assert result.best.value == 2.0
    [file] = (tmp_path / "pickles").iterdir()
    assert result.record.row.spec["trainable"] == f"pickle:{file}"
    assert len(file.stem) == 64


def test_a_sweep_ends_when_its_money_is_spent(tmp_path):
    """A trial takes three seconds, and a second costs 0.5."""
    priced = {**SECTIONS, "budget": {"cost": 6}, "price": {"worker_hour": 1800}}
    sweep = Sweep(**priced, trials={"parallel": 2})
    result = sweep.run(home=tmp_path / "home", progress=False)
    status = result.record.status()
    assert (status.state, status.reason) == ("COMPLETED", "budget")
    assert 6 <= status.money < 6.1
    assert result.trials.money.sum() == pytest.approx(status.money)
    unpriced = Sweep(**SECTIONS).run(home=tmp_path / "home", progress=False)
    assert unpriced.trials.money.isna().all()
