"""A search for scikit-learn: `SweepSearchCV`, in place of GridSearchCV or RandomizedSearchCV."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec

import numpy as np
from joblib import effective_n_jobs
from sklearn.model_selection._search import BaseSearchCV
from sklearn.utils import check_random_state

from hposvc import api
from hposvc.backends.embedded import Embedded
from hposvc.errors import Interrupted
from hposvc.python.sweep import Sweep
from hposvc.verbs.place import HomeSweeps
from trainables.contract import Order, Params, Worker

# Arguments of GridSearchCV and RandomizedSearchCV, with their names here.
CALLED_HERE = {
    "param_grid": "parameters",
    "param_distributions": "parameters",
    "n_iter": "n_trials",
}
P = ParamSpec("P")
FOLDS = 5  # scikit-learn's default
LABEL = 60  # characters of a choice's text in the record
NO_FITS = "fits failed"  # in scikit-learn's error when no fold of any configuration could be fitted


def _with_scikit_learns_names_refused(init: Callable[P, None]) -> Callable[P, None]:
    """Return an `__init__`, of the same signature, that says what GridSearchCV's names are here."""

    @wraps(init)
    def checked(*args: P.args, **kwargs: P.kwargs) -> None:
        for name, here in CALLED_HERE.items():
            if name in kwargs:
                raise TypeError(f"SweepSearchCV has no {name}; here it is {here}=...")
        init(*args, **kwargs)

    return checked


class SweepSearchCV(BaseSearchCV):  # type: ignore[misc]
    """Search hyperparameters by cross-validation, as a sweep that proposes from what it has seen.

    It is used as scikit-learn's GridSearchCV and RandomizedSearchCV are, and has their attributes:
    `best_estimator_`, `best_params_`, `best_score_`, `cv_results_` and so on. The sweep is recorded
    in the home; `sweep_` is its id, and `cv_results_["trial"]` names the trial of each row.

    Args:
        estimator: what is fitted; its parameters are named as in `set_params`.
        parameters: for each name a range as in a spec ({min, max, log, type, step}, {values}), a
            list, `range` or array of values, a distribution of scipy.stats (uniform, loguniform,
            randint), of Optuna or of Ray Tune, or a constant.
        n_trials: how many configurations are tried; fewer if there are no more.
        search: method of search and its options, as `search` of a spec.
        constraints: conditions on the parameters, as in a spec.
        initial: configurations that are tried first.
        scoring: see GridSearchCV. With several metrics, `refit` names the one that is searched for;
            with `refit=False`, or a function, all of them are, as a Pareto front.
        n_jobs: how many folds are fitted at once; if that is more than a configuration has, several
            configurations are tried together.
        refit, cv, verbose, pre_dispatch, error_score, return_train_score: see GridSearchCV.
        random_state: seed of the sweep; None: drawn from numpy's global generator.
        name: beginning of the sweep's id; None: the estimator's name in small letters.
        home: folder of the sweeps; None: HPOSVC_HOME, or ~/.hposvc.
        options: further sections of a spec, such as {"project": "churn", "tracking": {...}}. The
            sweep is sent to MLflow only if `tracking` asks for it.
    """

    @_with_scikit_learns_names_refused
    def __init__(
        self,
        estimator: Any,
        parameters: Mapping[str, Any],
        *,
        n_trials: int = 10,
        search: str | Mapping[str, Any] = "auto",
        constraints: Sequence[str] | None = None,
        initial: Sequence[Mapping[str, Any]] | None = None,
        scoring: Any = None,
        n_jobs: int | None = None,
        refit: Any = True,
        cv: Any = None,
        verbose: int = 0,
        pre_dispatch: int | str = "2*n_jobs",
        random_state: Any = None,
        error_score: Any = np.nan,
        return_train_score: bool = False,
        name: str | None = None,
        home: Path | str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            estimator,
            scoring=scoring,
            n_jobs=n_jobs,
            refit=refit,
            cv=cv,
            verbose=verbose,
            pre_dispatch=pre_dispatch,
            error_score=error_score,
            return_train_score=return_train_score,
        )
        self.parameters = parameters
        self.n_trials = n_trials
        self.search = search
        self.constraints = constraints
        self.initial = initial
        self.random_state = random_state
        self.name = name
        self.home = home
        self.options = options

    def _run_search(self, evaluate_candidates: Callable[..., dict[str, Any]]) -> None:
        if not isinstance(self.parameters, Mapping):
            raise TypeError(
                f"parameters is a {type(self.parameters).__name__}; write one mapping of names to "
                "ranges, with `when` for what belongs to a choice"
            )
        declared = {name: _declare(name, given) for name, given in self.parameters.items()}
        choices = {name: choices for name, (_, choices) in declared.items()}
        metrics = [f"mean_test_{name}" for name in self._searched_scores()]
        sections: dict[str, Any] = {
            "name": self.name or type(self.estimator).__name__.lower(),
            "tracking": {"send_to": []},
            "warm_start": None,  # of a split of the data, nothing must reach another
            "stop": {"max_failed": {"share": 1.0, "after": self.n_trials}},
            **(self.options or {}),
            "parameters": {name: declaration for name, (declaration, _) in declared.items()},
            "trials": {"max": self.n_trials},
            "search": self.search,
            "constraints": self.constraints,
            "initial": self.initial and [_label(params, choices) for params in self.initial],
            "engine": "local",
            "seed": int(check_random_state(self.random_state).randint(2**31)),
        }
        goals = [{"name": metric, "goal": "maximize"} for metric in metrics]
        sections |= {"metrics": goals} if len(goals) > 1 else {"metric": goals[0]}
        sweeps = HomeSweeps.open(None if self.home is None else Path(self.home))
        sweep = Sweep(_only_in_fit, **sections)
        spec = api.validate(sweep.sections(sweeps.home.path), {})
        candidates = _Candidates(self, evaluate_candidates, choices, metrics)
        backend = partial(Embedded, evaluate=candidates.evaluate, slots=self._together())
        try:
            record = sweeps.run(spec, embedded=backend)
        except Interrupted:
            raise KeyboardInterrupt from None
        self.sweep_ = record.row.id
        candidates.finish()

    def _searched_scores(self) -> list[str]:
        """Return the names of the scores that the sweep maximises."""
        if isinstance(self.refit, str):
            return [self.refit]
        several = not (self.scoring is None or isinstance(self.scoring, str))
        return list(self.scoring) if several and not callable(self.scoring) else ["score"]

    def _together(self) -> int:
        """Return how many configurations keep all jobs busy."""
        folds = self.cv if isinstance(self.cv, int) else getattr(self.cv, "n_splits", FOLDS)
        return max(1, math.ceil(int(effective_n_jobs(self.n_jobs)) / int(folds)))

    def _format_results(
        self,
        candidate_params: list[dict[str, Any]],
        n_splits: int,
        out: list[dict[str, Any]],
        more_results: dict[str, list[Any]] | None = None,
    ) -> dict[str, Any]:
        results: dict[str, Any] = super()._format_results(
            candidate_params, n_splits, out, more_results
        )
        # For the rows that scikit-learn leaves out, see `_Candidates.finish`.
        self._fits = (candidate_params, n_splits, out, dict(more_results or {}))
        return results


class _Candidates:
    """The configurations of a search: evaluated by scikit-learn, and gathered into its results."""

    def __init__(
        self,
        search: SweepSearchCV,
        evaluate: Callable[..., dict[str, Any]],
        choices: Mapping[str, Mapping[str, Any]],
        metrics: Sequence[str],
    ) -> None:
        self._search, self._evaluate, self._choices = search, evaluate, choices
        self._metrics = metrics
        self._folds = _SameFolds(search._checked_cv_orig)
        self._results: dict[str, Any] = {}  # scikit-learn's own; it reads them after the search
        self._evaluated = 0  # rows of the results
        self._failed: list[
            tuple[str, dict[str, Any]]
        ] = []  # trials that no fold could be fitted of
        self._why: ValueError | None = None  # of the last of them
        self._raised: Exception | None = None

    def evaluate(self, orders: Sequence[Order]) -> list[Mapping[str, float] | str]:
        """Evaluate trials together; return the metrics of each, or why it has none."""
        trials = [order.trial for order in orders]
        params = [self._decode(order.params) for order in orders]
        try:
            return self._score(trials, params)
        except Exception as error:
            self._raised = error
            raise

    def finish(self) -> None:
        """Put the trials that failed into scikit-learn's results, in the order of the trials.

        Raises:
            ValueError: all of them failed; it is scikit-learn's own error.
            Exception: what an evaluation has raised.
        """
        if self._raised is not None:
            raise self._raised
        if self._why is None:
            return
        if not self._results:
            raise self._why
        candidates, folds, fits, more = self._search._fits
        rows = [
            (trial, params, fits[folds * row : folds * (row + 1)])
            for row, (trial, params) in enumerate(zip(more["trial"], candidates, strict=True))
        ]
        nothing = self._nothing(fits[0])
        rows += [(trial, params, [nothing] * folds) for trial, params in self._failed]
        rows.sort(key=lambda row: row[0])
        results = self._search._format_results(
            [params for _, params, _ in rows],
            folds,
            [fit for _, _, of_row in rows for fit in of_row],
            {"trial": [trial for trial, _, _ in rows]},
        )
        self._results.clear()
        self._results.update(results)

    def _score(
        self, trials: list[str], params: list[dict[str, Any]]
    ) -> list[Mapping[str, float] | str]:
        try:
            self._results = self._evaluate(params, cv=self._folds, more_results={"trial": trials})
        except ValueError as error:
            if NO_FITS not in str(error) or self._search.error_score == "raise":
                raise
            self._why = error
            self._failed += zip(trials, params, strict=True)
            return [f"{error}".strip()] * len(trials)
        first, self._evaluated = self._evaluated, self._evaluated + len(trials)
        return [self._metrics_of(row) for row in range(first, self._evaluated)]

    def _metrics_of(self, row: int) -> Mapping[str, float] | str:
        """Return the means of a configuration's folds, and the spreads of those searched for."""
        means = {
            name: float(values[row])
            for name, values in self._results.items()
            if name.startswith("mean_")
        }
        for metric in self._metrics:
            if metric not in means:
                names = ", ".join(name for name in means if name.startswith("mean_test_"))
                raise ValueError(f"scoring gives no {metric}, which `refit` names; it has {names}")
            if not math.isfinite(means[metric]):
                return f"{metric} is {means[metric]}: a fold could not be fitted or scored"
            spread = metric.replace("mean_", "std_", 1)
            means[spread] = float(self._results[spread][row])
        return {name: value for name, value in means.items() if math.isfinite(value)}

    def _nothing(self, fit: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outcome of a fold that could not be fitted; `fit`: that of another one."""
        score = self._search.error_score
        scores = {
            key: dict.fromkeys(fit[key], score) if isinstance(fit[key], dict) else score
            for key in ("test_scores", "train_scores")
            if key in fit
        }
        return {**fit, **scores, "fit_time": math.nan, "score_time": math.nan}

    def _decode(self, params: Params) -> dict[str, Any]:
        """Return the parameters of a trial as the estimator takes them."""
        return {
            name: self._choices[name].get(str(value), value) if name in self._choices else value
            for name, value in params.items()
        }


class _SameFolds:
    """The folds of the first configuration, for all of them, though they are drawn at random."""

    def __init__(self, splitter: Any) -> None:
        self._splitter = splitter
        self._folds: list[Any] | None = None

    def split(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        if self._folds is None:
            self._folds = list(self._splitter.split(*args, **kwargs))
        return iter(self._folds)


def _only_in_fit(params: Params, worker: Worker) -> None:
    raise RuntimeError(
        "this sweep is a SweepSearchCV's, whose data are gone with its process; call fit again"
    )


def _declare(name: str, given: Any) -> tuple[Any, Mapping[str, Any]]:
    """Return the declaration of a parameter, and its choices by their labels in the record.

    Raises:
        ValueError: a distribution can't be declared.
    """
    if isinstance(given, Mapping) and "values" in given:
        values, choices = _declare_values(given["values"])
        return {**given, "values": values}, choices
    if isinstance(given, Sequence | np.ndarray) and not isinstance(given, str | bytes):
        values, choices = _declare_values(given)
        numbers = all(
            isinstance(value, int | float) and type(value) is not bool for value in values
        )
        rising = numbers and len(values) > 2 and list(values) == sorted(values)
        return {"values": values, **({"ordered": True} if rising else {})}, choices
    if callable(getattr(given, "rvs", None)):
        return _declare_distribution(name, given), {}
    return given.item() if isinstance(given, np.generic) else given, {}


def _declare_values(values: Any) -> tuple[list[Any], Mapping[str, Any]]:
    """Return values as a spec can hold them; what it can't hold gets its text as a label."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    labels: list[Any] = []
    choices: dict[str, Any] = {}
    for value in plain:
        if value is None or isinstance(value, str | bool | int):
            label: Any = value
        elif isinstance(value, float) and math.isfinite(value):
            label = value
        else:
            text = " ".join(repr(value).split())[:LABEL]
            taken = text in choices or text in plain
            label = f"{text} #{len(choices) + 1}" if taken else text
            choices[label] = value
        if not any(label == other and type(label) is type(other) for other in labels):
            labels.append(label)
    return labels, choices


def _declare_distribution(name: str, given: Any) -> dict[str, Any]:
    """Return the range of a frozen distribution of scipy.stats."""
    kind = getattr(getattr(given, "dist", None), "name", type(given).__name__)
    if kind in ("uniform", "loguniform", "reciprocal"):
        low, high = map(float, given.support())
        return {"min": low, "max": high, "type": "float", "log": kind != "uniform"}
    if kind == "randint":
        low, high = map(int, given.support())
        return {"min": low, "max": high, "type": "int"}
    low, high = (float(f"{given.ppf(share):.3g}") for share in (0.01, 0.99))
    scale = ", 'log': True" if low > 0 and high > 30 * low else ""
    raise ValueError(
        f"parameters[{name!r}]: {kind} has no range that a search could divide; 98 % of it is "
        f"{{'min': {low:g}, 'max': {high:g}{scale}}}; uniform, loguniform and randint are taken"
    )


def _label(params: Mapping[str, Any], choices: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return a configuration with the labels of choices that a spec can't hold."""

    def label(name: str, value: Any) -> Any:
        labels = (label for label, choice in choices.get(name, {}).items() if choice is value)
        plain = value.item() if isinstance(value, np.generic) else value
        return next(labels, plain)

    return {name: label(name, value) for name, value in params.items()}
