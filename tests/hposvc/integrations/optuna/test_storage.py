"""`hposvc.optuna.Storage`: Optuna, its plots and its dashboard see the sweeps of the journal."""

import json
import threading
import time

import optuna
import pytest
import real_server
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.trial import TrialState
from optuna_dashboard import wsgi
from waiting import until
from werkzeug.test import Client

import hposvc
from hposvc.integrations.optuna.recorded_sweeps import ReadOnly


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A home with a sweep of one metric under ASHA, and one of two metrics with a limit."""
    place = tmp_path_factory.mktemp("home")
    quick = {"engine": "local", "tracking": {"send_to": []}, "search": "random"}

    def curve(trial):
        x = trial.suggest_float("x", 0, 1)
        kind = trial.suggest_categorical("kind", ["a", "b"])
        if x > 0.8:
            raise ArithmeticError("too much")
        for epoch in range(9):
            trial.report(x + (kind == "a") + 1 / (epoch + 1), epoch)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x + (kind == "a") + 1 / 9

    def several(trial):
        x = trial.suggest_int("x", 1, 6)
        trial.set_constraint("memory", x - 3)
        return x, -x

    given = {"home": place, "progress": False, **quick}
    hposvc.optuna.run(
        curve, 20, name="curve", fidelity={"max": 9}, scheduler={"type": "asha", "eta": 2}, **given
    )
    hposvc.optuna.run(
        several,
        5,
        name="several",
        directions=["minimize", "maximize"],
        limits=["memory <= 0"],
        **given,
    )
    return place


@pytest.fixture(scope="module", params=["a home", "a server"])
def storage(home, request, tmp_path_factory):
    if request.param == "a home":
        yield hposvc.optuna.Storage(home)
        return
    with real_server.serving(home) as server, pytest.MonkeyPatch.context() as patch:
        patch.setenv("HPOSVC_HOME", f"{tmp_path_factory.mktemp('cache')}")
        yield hposvc.optuna.Storage(server.url)


@pytest.fixture
def names(storage):
    """The ids of the two sweeps, by their names."""
    return {each.rpartition("-")[0]: each for each in optuna.get_all_study_names(storage)}


@pytest.mark.parametrize("name", ["curve", "several"])
def test_a_sweep_is_the_study_that_its_export_is(name, names, storage, home):
    assert sorted(names) == ["curve", "several"]
    study = optuna.load_study(study_name=names[name], storage=storage)
    exported = hposvc.optuna.to_study(hposvc.load(names[name], home))
    assert study.directions == exported.directions
    assert study.metric_names == exported.metric_names
    for given, expected in zip(study.trials, exported.trials, strict=True):
        given._trial_id = expected._trial_id
        assert given == expected
    assert [trial.number for trial in study.best_trials] == [
        trial.number for trial in exported.best_trials
    ]
    states = {trial.state for trial in study.trials}
    if name == "curve":
        assert states == {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}


def test_ids_lead_back_and_stay_the_same(storage, home, names):
    again = hposvc.optuna.Storage(home)
    for name in names.values():
        study = storage.get_study_id_from_name(name)
        assert storage.get_study_name_from_id(study) == name
        assert again.get_study_id_from_name(name) == study
        for number, trial in enumerate(storage.get_all_trials(study)):
            assert trial._trial_id < 2**53
            assert storage.get_trial(trial._trial_id) == trial
            assert storage.get_trial_number_from_id(trial._trial_id) == number
            assert storage.get_trial_id_from_study_id_trial_number(study, number) == trial._trial_id
        with pytest.raises(KeyError):
            storage.get_trial(trial._trial_id + 1)
    with pytest.raises(KeyError):
        storage.get_study_id_from_name("nothing")
    with pytest.raises(KeyError):
        storage.get_all_trials(7)


def test_optuna_computes_with_it_and_plots_it(storage, names):
    study = optuna.load_study(study_name=names["curve"], storage=storage)
    shares = get_param_importances(study, evaluator=PedAnovaImportanceEvaluator())
    assert {*shares} == {"x", "kind"}
    assert optuna.visualization.plot_intermediate_values(study).data
    assert optuna.visualization.plot_parallel_coordinate(study).data
    front = optuna.load_study(study_name=names["several"], storage=storage)
    assert optuna.visualization.plot_pareto_front(front).data
    assert len(study.trials_dataframe()) == 20


def test_optuna_dashboard_shows_it(storage, names):
    dashboard = Client(wsgi(storage))
    listed = json.loads(dashboard.get("/api/studies").data)["study_summaries"]
    assert {each["study_name"] for each in listed} == {*names.values()}
    for each in listed:
        shown = json.loads(dashboard.get(f"/api/studies/{each['study_id']}?after=0").data)
        trials = storage.get_all_trials(each["study_id"])
        assert [row["state"] for row in shown["trials"]] == [
            {"PRUNED": "Pruned", "COMPLETE": "Complete", "FAIL": "Fail"}[trial.state.name]
            for trial in trials
        ]
        assert shown["best_trials"]
        assert (
            shown["objective_names"]
            == storage.get_study_system_attrs(each["study_id"])["study:metric_names"]
        )


def test_nothing_can_be_written_into_a_sweep(storage, names):
    study = optuna.load_study(study_name=names["several"], storage=storage)
    with pytest.raises(optuna.exceptions.DuplicatedStudyError):
        optuna.create_study(study_name=names["several"], storage=storage)
    with pytest.raises(ReadOnly, match=r"hposvc\.optuna\.run"):
        study.ask()
    writes = [
        lambda: study.ask(),
        lambda: study.add_trial(study.trials[0]),
        lambda: study.set_user_attr("a", 1),
        lambda: study.set_metric_names(["a", "b"]),
        lambda: optuna.delete_study(study_name=study.study_name, storage=storage),
        lambda: storage.set_trial_user_attr(study.trials[0]._trial_id, "a", 1),
        lambda: storage.set_trial_intermediate_value(study.trials[0]._trial_id, 1, 1.0),
        lambda: storage.set_trial_state_values(study.trials[0]._trial_id, TrialState.FAIL),
    ]
    for write in writes:
        with pytest.raises(ReadOnly):
            write()


def test_a_sweep_is_seen_while_it_runs(tmp_path):
    gate = tmp_path / "gate"
    storage = hposvc.optuna.Storage(tmp_path / "home")
    assert optuna.get_all_study_names(storage) == []

    def objective(trial):
        x = trial.suggest_float("x", 0, 1)
        for epoch in range(3):
            trial.report(x + epoch, epoch)
            while trial.number == 1 and not gate.exists():
                time.sleep(0.05)
        return x + 2

    sections = {"engine": "local", "tracking": {"send_to": []}, "search": "random"}
    run = threading.Thread(
        target=hposvc.optuna.run,
        args=(objective, 3),
        kwargs={**sections, "home": tmp_path / "home", "progress": False, "fidelity": {"max": 3}},
    )
    run.start()
    try:
        until(lambda: optuna.get_all_study_names(storage))
        (name,) = optuna.get_all_study_names(storage)
        study = optuna.load_study(study_name=name, storage=storage)
        until(lambda: [trial.last_step for trial in study.trials][:2] == [3, 1])
        ended, running = study.trials[:2]
        assert ended.state == TrialState.COMPLETE
        assert (running.state, running.value) == (TrialState.RUNNING, None)
        assert running.intermediate_values == {1: running.params["x"]}
        assert running.datetime_start is not None
        assert running.datetime_complete is None
    finally:
        gate.touch()
        run.join()
    assert [trial.state for trial in study.trials] == [TrialState.COMPLETE] * 3
    assert study.best_value == min(trial.value for trial in study.trials)
