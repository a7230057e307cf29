"""`hposvc.optuna.Sampler`: our searchers in studies of Optuna, by the tests it has for samplers."""

import math

import optuna
import pytest
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.testing.pytest_samplers import (
    BasicSamplerTestCase,
    MultiObjectiveSamplerTestCase,
    RelativeSamplerTestCase,
    SingleOnlySamplerTestCase,
)
from optuna.trial import TrialState, create_trial

import hposvc
from searchers.methods import METHODS, load_method, takes_several
from searchers.random_search import Random

OPTIONS = {"grid": {"resolution": 11}}
FULL = pytest.mark.full
X = FloatDistribution(-5, 5)


def samplers(takes):
    """Return a fixture of a function that makes a sampler, for each method that is taken."""
    names = [name for name in sorted(METHODS) if takes(load_method(name))]
    quick = {"gp", "cmaes"}  # of some hundred tests each; the others come with the full tests

    @pytest.fixture(
        params=[name if name in quick else pytest.param(name, marks=FULL) for name in names]
    )
    def sampler(self, request):
        method = request.param
        return lambda: hposvc.optuna.Sampler(method, seed=0, **OPTIONS.get(method, {}))

    return sampler


@pytest.fixture(autouse=True)
def _quiet():
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    yield
    optuna.logging.set_verbosity(before)


@pytest.mark.filterwarnings("ignore:all configurations of")  # they ask for more than there are
class TestEveryMethod(BasicSamplerTestCase, RelativeSamplerTestCase):
    sampler = samplers(lambda method: True)


class TestSeveralObjectives(MultiObjectiveSamplerTestCase):
    sampler = samplers(takes_several)


class TestOneObjective(SingleOnlySamplerTestCase):
    sampler = samplers(lambda method: not takes_several(method))


def study_of(sampler, **options):
    return optuna.create_study(sampler=sampler, **options)


def bowl(trial):
    x, y = trial.suggest_float("x", -5, 5), trial.suggest_float("the second", -5, 5)
    return (x - 1) ** 2 + (y + 2) ** 2


class Seen(Random):
    """Remembers the history that it was shown."""

    histories: list = []  # noqa: RUF012  # shared on purpose: a sampler makes its own instance

    def suggest(self, space, history, n, rng):
        self.histories.append(history)
        return super().suggest(space, history, n, rng)


@pytest.fixture
def seen(monkeypatch):
    """Return a sampler that shows the histories it is given."""
    monkeypatch.setattr(Seen, "histories", [])
    monkeypatch.setitem(METHODS, "seen", "seen:Seen")
    monkeypatch.setattr("searchers.options.load_method", lambda method: Seen)
    return hposvc.optuna.Sampler("seen", seed=0)


def test_a_study_in_a_storage_is_continued_as_if_it_had_not_ended(tmp_path):
    def values(name, *parts):
        storage = f"sqlite:///{tmp_path}/{name}.db"
        for trials in parts:
            sampler = hposvc.optuna.Sampler("gp", seed=3)
            study = study_of(sampler, storage=storage, study_name="one", load_if_exists=True)
            study.optimize(bowl, n_trials=trials)
        return [trial.value for trial in study.trials]

    assert values("whole", 9) == values("parts", 4, 5)


def test_every_kind_of_trial_is_what_a_searcher_knows(seen):
    study = study_of(seen, direction="maximize")
    known = {"params": {"x": 1.0}, "distributions": {"x": X}}
    study.add_trials(
        [
            create_trial(**known, value=3.0, intermediate_values={1: 1.0, 4: 2.0}),
            create_trial(**known, state=TrialState.PRUNED, intermediate_values={2: 5.0, 1: 6.0}),
            create_trial(**known, state=TrialState.PRUNED),
            create_trial(**known, state=TrialState.FAIL),
            create_trial(**known, value=math.inf),
            create_trial(params={"y": 1}, distributions={"y": X}, state=TrialState.FAIL),
        ]
    )
    running = study.ask()
    running.suggest_float("x", -5, 5)
    running.report(7.0, step=1)
    study.ask().suggest_float("x", -5, 5)
    (complete, pruned, *failed, pending) = Seen.histories[-1]
    assert (complete.state, complete.loss, complete.curve) == ("done", -3.0, ((1, -1.0), (4, -3.0)))
    assert (pruned.state, pruned.reason, pruned.loss) == ("done", "rung", -5.0)
    assert pruned.curve == ((1, -6.0), (2, -5.0))
    assert [each.reason for each in failed] == ["failed", "failed", "diverged"]
    assert (pending.state, pending.curve) == ("pending", ((1, -7.0),))


def test_a_running_trial_is_known_before_it_asks_for_its_parameters(seen):
    study = study_of(seen)
    study.optimize(bowl, n_trials=1)
    waiting = [study.ask(), study.ask()]
    for trial in waiting:
        trial.suggest_float("x", -5, 5)
    assert [each.state for each in Seen.histories[-1]] == ["done", "pending"]
    assert (
        waiting[0].suggest_float("the second", -5, 5)
        == (
            Seen.histories[-1][1].params["p0"]  # parameters are sorted by name
        )
    )


def test_constraints_and_several_objectives_reach_the_searcher(seen):
    study = study_of(seen, directions=["minimize", "maximize"])
    for limit in (None, -1.0, 2.0):
        trial = study.ask()
        x = trial.suggest_float("x", -5, 5)
        if limit is not None:
            trial.set_constraint("memory", limit)
        study.tell(trial, [x, 2 * x])
    study.ask().suggest_float("x", -5, 5)
    history = Seen.histories[-1]
    assert all(each.losses == (each.params["p0"], -2 * each.params["p0"]) for each in history)
    assert [each.keeps_limits for each in history] == [False, True, False]


def test_no_configuration_repeats_before_all_were_tried():
    study = study_of(hposvc.optuna.Sampler("gp", seed=0))
    kinds = CategoricalDistribution(["a", None, True])  # True is not 1, nor is it 1.0
    choices = {"kind": kinds, "depth": IntDistribution(1, 4)}

    def objective(trial):
        params = [trial._suggest(name, choices[name]) for name in choices]
        return len(f"{params}")

    study.optimize(objective, n_trials=12)
    assert len({str(trial.params) for trial in study.trials}) == 12
    with pytest.warns(UserWarning, match="all configurations of depth, kind were tried"):
        study.optimize(objective, n_trials=1)


def test_pruners_work_beside_it():
    study = study_of(
        hposvc.optuna.Sampler("tpe", seed=0),
        pruner=optuna.pruners.HyperbandPruner(min_resource=1, max_resource=9),
    )

    def objective(trial):
        x = trial.suggest_float("x", -5, 5)
        for step in range(1, 10):
            trial.report(x * x + 1 / step, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return x * x

    study.optimize(objective, n_trials=20)
    assert {trial.state for trial in study.trials} == {TrialState.COMPLETE, TrialState.PRUNED}


def test_what_the_searcher_does_not_search_is_sampled_independently():
    asked = []

    class Asked(optuna.samplers.RandomSampler):
        def sample_independent(self, study, trial, param_name, param_distribution):
            asked.append((trial.number, param_name))
            return super().sample_independent(study, trial, param_name, param_distribution)

    def objective(trial):
        trial.suggest_float("fine", 0, 1, step=1e-7)  # too many steps for a space of ours
        if trial.suggest_int("layers", 1, 2) == 2:
            trial.suggest_float("width", 0, 1)
        return trial.suggest_float("x", -5, 5)

    study = study_of(hposvc.optuna.Sampler("random", seed=0, independent_sampler=Asked(seed=0)))
    study.optimize(objective, n_trials=8)
    assert {name for number, name in asked if number == 0} >= {"fine", "layers", "x"}
    assert {name for number, name in asked if number > 1} <= {"fine", "width", "layers"}


def test_what_is_wrong_is_said_at_once():
    with pytest.raises(ValueError, match="did you mean 'gp'"):
        hposvc.optuna.Sampler("bayes")
    with pytest.raises(ValueError, match="no option 'n_startup_trials'"):
        hposvc.optuna.Sampler("gp", n_startup_trials=3)
    with pytest.raises(ValueError, match="seed is -1"):
        hposvc.optuna.Sampler("gp", seed=-1)
    study = study_of(hposvc.optuna.Sampler("cmaes"), directions=["minimize", "minimize"])
    with pytest.raises(ValueError, match="2 objectives, but method 'cmaes' takes one"):
        study.optimize(lambda trial: (bowl(trial), 1), n_trials=1)
