"""Studies of Vizier in a home: what Vizier's own tests do not ask."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter

import optuna
import pytest
import real_server
from google.protobuf.wrappers_pb2 import DoubleValue
from vizier.client import client_abc
from vizier.service import pyvizier as vz

import hposvc
from hposvc.integrations.vizier.problem import ALGORITHMS
from searchers.methods import load, takes_several

PROCESSES, EACH = 3, 4
WORKER = """
import sys
from vizier.service import pyvizier as vz
import hposvc
client, count, hangs = sys.argv[1], int(sys.argv[2]), sys.argv[3] == "hang"
study = hposvc.vizier.Study.from_owner_and_id("me", "shared")
for _ in range(count):
    (trial,) = study.suggest(client_id=client)
    trial.add_measurement(vz.Measurement({"loss": 1.0}, steps=1))
    print(trial.id, flush=True)
    if hangs:
        sys.stdin.read()
    trial.complete(vz.Measurement({"loss": trial.parameters["x"]}))
"""
GOALS = {"minimize": vz.ObjectiveMetricGoal.MINIMIZE, "maximize": vz.ObjectiveMetricGoal.MAXIMIZE}


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HPOSVC_HOME", f"{tmp_path / 'home'}")
    return tmp_path / "home"


def config(algorithm="RANDOM_SEARCH", goals=("minimize",), **options):
    made = vz.StudyConfig(algorithm=algorithm, **options)
    made.search_space.root.add_float_param("x", 0.0, 1.0)
    for number, goal in enumerate(goals):
        name = f"loss{number or ''}"
        made.metric_information.append(vz.MetricInformation(name=name, goal=GOALS[goal]))
    return made


def study(given=None, study_id="shared", **place):
    given = config() if given is None else given
    return hposvc.vizier.Study.from_study_config(given, owner="me", study_id=study_id, **place)


def at(*losses, steps=0, **others):
    metrics = {f"loss{number or ''}": loss for number, loss in enumerate(losses)}
    return vz.Measurement({**metrics, **others}, steps=steps)


def add(to, x, *losses, **others):
    return to.add_trial(vz.Trial(parameters={"x": x}).complete(at(*losses, **others)))


def test_a_trial_has_the_parameters_of_its_branch_in_their_external_types():
    given = config()
    root = given.search_space.root
    root.add_float_param("learning rate", 1e-4, 1.0, scale_type=vz.ScaleType.LOG)
    root.add_int_param("width[0]", 1, 5)
    root.add_int_param("width[1]", 1, 5)
    root.add_int_param("one", 3, 3)
    root.add_discrete_param("size", [16, 32, 64])
    root.add_bool_param("biased")
    kind = root.add_categorical_param("kind", ["sgd", "adam", "lamb"])
    kind.select_values(["sgd"]).add_float_param("momentum", 0.0, 0.99)
    kind.select_values(["adam", "lamb"]).add_float_param("beta", 0.5, 1.0)
    always = {"x", "learning rate", "width", "one", "size", "biased", "kind"}
    seen = Counter()
    for trial in study(given).suggest(count=30):
        found = trial.parameters
        seen[found["kind"]] += 1
        assert found.keys() == {*always, "momentum" if found["kind"] == "sgd" else "beta"}
        assert isinstance(found["biased"], bool)
        assert found["size"] in (16, 32, 64)
        assert isinstance(found["size"], int)
        assert found["one"] == 3
        assert [type(width) for width in found["width"]] == [int, int]
        assert 1e-4 <= found["learning rate"] <= 1
    assert len(seen) == 3
    assert study(given).materialize_study_config().search_space == given.search_space


def test_a_name_with_different_ranges_is_refused():
    given = config()
    kind = given.search_space.root.add_categorical_param("kind", ["a", "b"])
    kind.select_values(["a"]).add_float_param("rate", 0.0, 1.0)
    kind.select_values(["b"]).add_float_param("rate", 0.0, 2.0)
    with pytest.raises(ValueError, match=r"search_space.rate: stands in several places"):
        study(given)


@pytest.mark.parametrize("algorithm", [*ALGORITHMS, "tpe"])
def test_each_algorithm_searches(algorithm):
    given = config(algorithm)
    given.search_space.root.add_float_param("y", 0.0, 1.0)
    made = study(given)
    for _ in range(5):
        for trial in made.suggest(count=2):
            x, y = trial.parameters["x"], trial.parameters["y"]
            trial.complete(at((x - 0.3) ** 2 + y))
    found = {tuple(trial.parameters.values()) for trial in made.trials()}
    assert len(found) == 10


def test_an_algorithm_that_is_not_there_is_refused_with_those_that_are():
    with pytest.raises(ValueError, match="there is no search method 'BOCS': known: auto, cmaes"):
        study(config("BOCS"))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_an_algorithm_searches_several_objectives_or_says_which_do(algorithm):
    given = config(algorithm, ["minimize", "maximize"])
    if not takes_several(load(ALGORITHMS[algorithm])):
        with pytest.raises(ValueError, match="takes one objective, and there are 2"):
            study(given)
        return
    made = study(given)
    for _ in range(4):
        for trial in made.suggest(count=2):
            trial.complete(at(trial.parameters["x"], trial.parameters["x"]))
    assert len(list(made.optimal_trials())) == len(list(made.trials())) > 3
    assert len(list(made.optimal_trials(count=3))) == 3


def test_the_searcher_learns_from_what_trials_were_told():
    made = study(config("GAUSSIAN_PROCESS_BANDIT"))
    for _ in range(15):
        (trial,) = made.suggest()
        trial.complete(at((trial.parameters["x"] - 0.3) ** 2))
    (best,) = made.optimal_trials()
    assert best.parameters["x"] == pytest.approx(0.3, abs=0.01)


def test_the_first_trial_has_the_default_values():
    given = config()
    given.search_space.root.add_int_param("layers", 1, 9, default_value=4)
    first, second = study(given).suggest(count=2)
    assert first.parameters["layers"] == 4
    assert first.parameters != second.parameters


def test_when_every_configuration_was_proposed_there_are_no_more():
    given = vz.StudyConfig(algorithm="GRID_SEARCH")
    given.search_space.root.add_categorical_param("kind", ["a", "b", "c"])
    given.metric_information.append(vz.MetricInformation(name="loss", goal=GOALS["minimize"]))
    made = study(given)
    assert len(made.suggest(count=5)) == 3
    assert made.suggest(client_id="another") == []


def test_the_best_trials_are_those_that_keep_the_thresholds():
    given = config(goals=["maximize"])
    safe = vz.MetricInformation(name="seconds", goal=GOALS["minimize"], safety_threshold=1.0)
    given.metric_information.append(safe)
    made = study(given)
    add(made, 0.1, 3.0, seconds=0.5)
    add(made, 0.2, 5.0, seconds=1.5)
    add(made, 0.3, 4.0, seconds=1.0)
    add(made, 0.4, 9.0)  # nobody knows its seconds
    add(made, 0.5, float("nan"), seconds=0.5)
    assert [trial.id for trial in made.optimal_trials()] == [3]
    assert [trial.id for trial in made.optimal_trials(count=9)] == [3, 1]
    seen = optuna.load_study(study_name=made.resource_name, storage=hposvc.optuna.Storage())
    assert seen.best_trial.number + 1 == 3


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"x": 2.0}, "x: is 2.0, outside 0.0 to 1.0"),
        ({"x": "a"}, "x: could not convert"),
        ({"x": 0.5, "y": 1}, "y: the search space has no such parameter"),
        ({}, "x: is missing"),
    ],
)
def test_a_trial_outside_the_space_is_refused(parameters, message):
    made = study()
    with pytest.raises(ValueError, match=message):
        made.add_trial(vz.Trial(parameters=parameters))
    with pytest.raises(ValueError, match=message):
        made.request(vz.TrialSuggestion(parameters))
    assert list(made.trials()) == []


def test_a_measurement_comes_back_as_it_was():
    (trial,) = study().suggest()
    first = vz.Measurement(
        {"loss": vz.Metric(1 / 3, std=0.1), "other": 1e300}, elapsed_secs=0.7, steps=3
    )
    trial.add_measurement(first)
    assert trial.materialize().measurements == [first]
    assert trial.complete() == first
    assert trial.materialize().final_measurement == first
    assert trial.materialize(include_all_measurements=False).measurements == []


def test_metadata_is_kept_by_namespace_also_of_a_trial_that_has_ended():
    made = study()
    trial = add(made, 0.1, 1.0)
    for place, read in (
        (made, lambda: made.materialize_problem_statement().metadata),
        (trial, lambda: trial.materialize().metadata),
    ):
        delta = vz.Metadata(key="plain")
        delta.ns("a").ns("b:c")["key"] = DoubleValue(value=1 / 3)
        place.update_metadata(delta)
        place.update_metadata(vz.Metadata(other="later"))
        assert read()["key"] == "plain"
        assert read()["other"] == "later"
        assert read().ns("a").ns("b:c").get_proto("key", cls=DoubleValue).value == 1 / 3


def test_a_trial_that_falls_behind_is_to_stop_if_the_study_says_so():
    stopping = vz.AutomatedStoppingConfig.default_stopping_spec()
    for made, expected in (
        (study(config(automated_stopping_config=stopping), "stops"), True),
        (study(study_id="does not"), False),
    ):
        for number in range(5):
            (trial,) = made.suggest()
            trial.add_measurement(at(0.1 * number, steps=1))
            assert not trial.check_early_stopping()
            trial.complete()
        (trial,) = made.suggest()
        trial.add_measurement(at(9.0, steps=1))
        assert trial.check_early_stopping() is expected
        assert (trial.materialize().status == vz.TrialStatus.STOPPING) is expected
        trial.complete()
        assert trial.materialize().status == vz.TrialStatus.COMPLETED


def test_of_those_who_complete_a_trial_together_the_first_stands():
    (trial,) = study().suggest()
    meeting = threading.Barrier(2)
    answers = []

    def complete(loss):
        own = study().get_trial(trial.id)
        meeting.wait()
        try:
            answers.append(own.complete(at(loss)))
        except ValueError as error:
            answers.append(error)

    threads = [threading.Thread(target=complete, args=[loss]) for loss in (1.0, 2.0)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    final = trial.materialize().final_measurement
    assert len(answers) == 2
    assert all(answer == final for answer in answers if not isinstance(answer, ValueError))
    assert any(answer == final for answer in answers)
    (seen,) = optuna.load_study(
        study_name="owners/me/studies/shared", storage=hposvc.optuna.Storage()
    ).trials
    assert seen.value == final.metrics["loss"].value


def test_a_misspelt_metric_is_refused_with_the_nearest_name():
    (trial,) = study().suggest()
    with pytest.raises(ValueError, match=r"has los and no loss; did you mean 'loss'\?"):
        trial.complete(vz.Measurement({"los": 0.5}))
    assert trial.materialize().status == vz.TrialStatus.ACTIVE
    assert trial.complete(vz.Measurement({"loss": 0.5, "time": 3.0})).metrics["loss"].value == 0.5


def test_a_measurement_of_nothing_is_a_trial_that_diverged():
    (trial,) = study().suggest()
    trial.complete(vz.Measurement())
    assert trial.materialize().status == vz.TrialStatus.COMPLETED
    assert not [*study().optimal_trials()]


def test_a_requested_trial_goes_to_one_of_the_clients_that_ask_together():
    made = study()
    for number in range(6):
        made.request(vz.TrialSuggestion({"x": number / 10}))
    meeting = threading.Barrier(3)
    given = {}

    def ask(client):
        own = study()
        meeting.wait()
        given[client] = own.suggest(count=2, client_id=client)

    threads = [threading.Thread(target=ask, args=[client]) for client in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(trial.id for trials in given.values() for trial in trials) == [1, 2, 3, 4, 5, 6]


def test_a_measurement_of_a_trial_that_optuna_has_ended_is_not_lost_in_silence():
    (trial,) = study().suggest()
    storage = hposvc.optuna.Storage()
    seen = optuna.load_study(study_name="owners/me/studies/shared", storage=storage).trials[0]
    storage.set_trial_state_values(seen._trial_id, optuna.trial.TrialState.FAIL)
    with pytest.raises(ValueError, match="trial 1 was ended through Optuna"):
        trial.complete(at(1.0))


def test_an_optuna_study_that_is_not_of_vizier_is_not_found():
    storage = hposvc.optuna.Storage()
    optuna.create_study(study_name="owners/me/studies/other", storage=storage)
    with pytest.raises(client_abc.ResourceNotFoundError, match="not created through Vizier"):
        hposvc.vizier.Study.from_owner_and_id("me", "other")
    with pytest.raises(client_abc.ResourceNotFoundError, match="there is no study"):
        hposvc.vizier.Study.from_owner_and_id("me", "none")
    with pytest.raises(ValueError, match=r"owner is 'a/b'"):
        hposvc.vizier.Study.from_owner_and_id("a/b", "none")


def start(client, count, last):
    words = [sys.executable, "-c", WORKER, client, f"{count}", last]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.full
def test_processes_share_a_study_and_one_that_is_killed_gets_its_trial_again():
    made = study()
    victim = start("victim", 1, "hang")
    assert victim.stdout.readline() == "1\n"
    os.kill(victim.pid, signal.SIGKILL)
    victim.communicate()
    workers = [start(f"client {number}", EACH, "go") for number in range(PROCESSES)]
    ids = [int(line) for each in workers for line in each.communicate(timeout=300)[0].split()]
    assert sorted(ids) == [*range(2, 2 + PROCESSES * EACH)]
    begun = made.get_trial(1).materialize()
    assert begun.status == vz.TrialStatus.ACTIVE
    assert begun.measurements == [at(1.0, steps=1)]
    again = start("victim", 1, "go")
    assert again.communicate(timeout=300)[0] == "1\n"
    trials = list(made.trials().get())
    assert {trial.status for trial in trials} == {vz.TrialStatus.COMPLETED}
    for trial in trials:
        loss = trial.final_measurement.metrics["loss"].value
        assert loss == trial.parameters.get_value("x")


def test_a_server_keeps_studies_as_a_home_does(tmp_path):
    with real_server.serving(tmp_path / "served") as server:
        made = study(place=server.url)
        (trial,) = made.suggest(client_id="here")
        trial.complete(at(0.5))
        again = made.from_resource_name(made.resource_name, place=server.url)
        assert [each.materialize() for each in again.trials()] == [trial.materialize()]
    at_home = made.from_resource_name(made.resource_name, place=tmp_path / "served")
    assert [each.id for each in at_home.optimal_trials()] == [1]
