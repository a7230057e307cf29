"""hposvc's searchers in a user's own Ray Tune experiment."""

import math
import pickle

import pytest
from ray import tune
from ray.tune.search import Searcher

from hposvc import TuneSearch
from searchers import Choice, Float, Space, create

SEVERAL = Space({"x": Float(0, 1)})
LR = {"lr": tune.loguniform(1e-4, 1.0)}


def begun(searcher="random", space=LR, **options):
    """Return a search that Tune has set up."""
    search = TuneSearch(searcher, **options)
    assert search.set_search_properties("loss", "min", space, run="any")
    return search


def history(search):
    return search._optimizer.history


def test_a_nested_space_comes_back_nested_and_in_its_own_values():
    shapes = [(64,), (64, 64)]
    space = {
        "model": {"shape": tune.choice(shapes), "opt/lr": tune.uniform(0, 1)},
        "batch": tune.qrandint(32, 64, 32),
        "fixed": 3,
    }
    search = begun("random", space)
    for trial in range(20):
        config = search.suggest(str(trial))
        assert config.keys() == {"model", "batch"}
        assert config["model"]["shape"] in shapes
        assert 0 <= config["model"]["opt/lr"] <= 1
        assert config["batch"] in (32, 64)


def test_values_count_at_their_step_and_a_stopped_trial_at_its_last():
    search = begun(time_attr="epoch")
    search.suggest("t")
    search.on_trial_result("t", {"loss": 3.0, "epoch": 1})
    search.on_trial_result("t", {"loss": 2.0, "epoch": 2.0})
    search.on_trial_complete("t", {"loss": 1.0, "epoch": 3})
    [seen] = history(search)
    assert (seen.state, seen.loss) == ("done", 1.0)
    assert seen.curve == ((1, 3.0), (2, 2.0), (3, 1.0))


@pytest.mark.parametrize(
    ("result", "error"),
    [
        (None, True),
        (None, False),
        ({"loss": 1.0}, True),
        ({"loss": "low", "training_iteration": 1}, False),
        ({"loss": math.nan, "training_iteration": 1}, False),
        ({"loss": True, "training_iteration": "one"}, False),
    ],
)
def test_a_trial_without_a_value_has_failed(result, error):
    search = begun()
    search.suggest("t")
    search.on_trial_complete("t", result, error=error)
    assert history(search)[0].state == "failed"
    assert search.suggest("u") is not None


def test_no_hook_raises_whatever_tune_tells():
    search = begun()
    search.suggest("t")
    for step in (1, 1, 0, -1, 1.5, math.nan, math.inf, None, True, "two"):
        search.on_trial_result("t", {"loss": 1.0, "training_iteration": step})
    search.on_trial_result("unknown", {"loss": 1.0, "training_iteration": 1})
    search.on_trial_complete("t", {"loss": 0.5})
    search.on_trial_complete("t", {"loss": 0.1})
    search.on_trial_result("t", {"loss": 0.1, "training_iteration": 7})
    search.on_trial_complete("unknown", error=True)
    [seen] = history(search)
    assert (seen.loss, len(seen.curve)) == (0.5, 1)


def test_a_space_that_is_used_up_is_finished():
    search = begun("random", {"k": tune.choice([1, 2])})
    assert sorted(search.suggest(str(trial))["k"] for trial in range(2)) == [1, 2]
    assert search.suggest("2") == Searcher.FINISHED


def test_a_searcher_with_a_space_of_its_own_keeps_its_conditions():
    space = Space({"opt": Choice(("sgd", "adam")), "m": Float(0, 1, when={"opt": ("sgd",)})})
    search = TuneSearch(create("random", space, goal="maximize"), metric="accuracy")
    assert search.mode == "max"
    assert search.set_search_properties(None, None, {"epochs": 3})
    for trial in range(20):
        config = search.suggest(str(trial))
        assert ("m" in config) == (config["opt"] == "sgd")


@pytest.mark.parametrize("method", ["gp", "tpe"])
def test_a_restored_search_goes_on_as_if_it_had_not_stopped(method, tmp_path):
    search = begun(method)
    for trial in range(12):
        search.on_trial_complete(str(trial), {"loss": search.suggest(str(trial))["lr"]})
    search.suggest("running")
    search.save(str(tmp_path / "state.pkl"))
    other = pickle.loads(pickle.dumps(TuneSearch(method)))
    other.set_search_properties("loss", "min", LR)
    other.restore(str(tmp_path / "state.pkl"))
    for tune_search in (search, other):
        tune_search.on_trial_complete("running", {"loss": 0.5})
    assert history(other) == history(search)
    assert [other.suggest(name) for name in "ab"] == [search.suggest(name) for name in "ab"]


def test_a_search_goes_on_in_a_second_experiment_over_the_same_space():
    search = begun()
    search.suggest("t")
    assert search.set_search_properties("loss", "min", LR)
    assert len(history(search)) == 1
    with pytest.raises(ValueError, match="it has searched another param_space"):
        search.set_search_properties("loss", "min", {"lr": tune.uniform(0, 1)})


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: TuneSearch("gpp"), "there is no search method 'gpp': did you mean 'gp'"),
        (lambda: TuneSearch(create("gp", Space({"x": Float(0, 1)}))), "metric is missing; a sear"),
        (
            lambda: TuneSearch(create("gp", Space({"x": Float(0, 1)})), metric="loss", mode="max"),
            "mode is max, but the goal of the searcher is to minimize",
        ),
        (
            lambda: TuneSearch(create("gp", SEVERAL, ["minimize"] * 2), metric="a", mode="min"),
            "the searcher has the goals ['minimize', 'minimize'], but Tune has one metric",
        ),
        (lambda: TuneSearch("gp", goal="maximize"), "goal is given; Tune calls it mode"),
        (lambda: TuneSearch("gp", initial="4"), "method 'gp': initial is '4'; give a whole"),
        (lambda: begun(space={"lr": 0.1}), "param_space has no range, so there is nothing to s"),
        (lambda: begun(space={"a": [tune.uniform(0, 1)]}), "param_space.a.0: stands in a list"),
        (
            lambda: TuneSearch().set_search_properties("loss", None, LR),
            "metric is loss, mode is None; give a name, and min or max",
        ),
        (
            lambda: TuneSearch(
                create("gp", Space({"x": Float(0, 1)})), metric="loss"
            ).set_search_properties("loss", "min", LR),
            "param_space has ranges (lr), and so has the searcher",
        ),
    ],
)
def test_what_cannot_be_searched_is_said_before_the_first_trial(make, message):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared
        make()
    assert str(caught.value).startswith(message)
