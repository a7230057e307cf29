"""hposvc's searchers as a search algorithm of Ray Tune, for people who keep their own Tuner.

    Tuner(train, param_space={"lr": tune.loguniform(1e-5, 1e-1)},
          tune_config=TuneConfig(metric="loss", mode="min", search_alg=TuneSearch("gp")))

Tune (2.60) aborts the whole experiment if a search algorithm raises while trials run. So bad
options are refused before the first trial; a later fault is logged, and no more trials are
proposed.
"""

import logging
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from ray.tune.search import Searcher
from ray.tune.search.variant_generator import parse_spec_vars

from hposvc.spec.parsing.document import plain
from searchers import (
    Exhausted,
    Optimizer,
    Params,
    Space,
    build_searcher,
    create,
    is_name,
    is_scalar,
)

GOALS = {"min": "minimize", "max": "maximize"}
log = logging.getLogger("hposvc")


class TuneSearch(Searcher):
    """A search algorithm of Ray Tune that proposes configurations with an hposvc searcher.

    Args:
        searcher: the name of a method (`gp`, `tpe`, ...), which searches the ranges of the
            Tuner's `param_space`; or an optimizer of `searchers.create`, which has its own space.
        metric: key of the result to optimise; None: the Tuner's metric, which Tune passes on only
            if `searcher` is the name of a method.
        mode: `min` or `max`; None: the Tuner's, or the goal of the optimizer.
        time_attr: key of the result that counts a trial's progress in whole numbers.
        options: `seed`, and the options of the method.

    Raises:
        ValueError: there is no such method or option; an optimizer comes without a metric, or has
            several goals.
    """

    def __init__(
        self,
        searcher: Optimizer | str = "auto",
        metric: str | None = None,
        mode: str | None = None,
        time_attr: str = "training_iteration",
        **options: Any,
    ) -> None:
        super().__init__(metric=metric, mode=mode)
        self._time_attr = time_attr
        self._method = searcher if isinstance(searcher, str) else None
        self._options = options
        self._optimizer = None if isinstance(searcher, str) else searcher
        self._paths: dict[str, tuple[str, ...]] = {}  # parameter -> keys in Tune's configuration
        self._objects: dict[str, Sequence[object]] = {}  # parameter -> values that are no scalars
        self._trials: dict[str, str] = {}  # Tune's id of each running trial -> the optimizer's id
        self._steps: dict[str, int] = {}  # the last step of each running trial
        if self._method is not None:
            if "goal" in options:
                raise ValueError("goal is given; Tune calls it mode, min or max of one metric")
            method_options = {name: options[name] for name in options if name != "seed"}
            placeholder = Space.from_dict({"any": 1})
            Optimizer(
                build_searcher(self._method, method_options),
                placeholder,
                seed=options.get("seed", 0),
            )
            return  # the method and its options are right
        if options:
            raise ValueError(f"{', '.join(options)}: give options of the method to create()")
        if metric is None:
            raise ValueError("metric is missing; a searcher with its own space is not told it")
        self._set_goal(metric, mode)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Take over the Tuner's metric, mode and space; Tune calls this before the first trial.

        Raises:
            ValueError: there is no metric or no range, or a range cannot be searched.
        """
        self._set_goal(metric or self._metric, mode or self._mode)
        _, ranges, grids = parse_spec_vars(config)
        if self._method is None:
            if ranges or grids:
                names = ", ".join(".".join(map(str, path)) for path, _ in [*ranges, *grids])
                raise ValueError(f"param_space has ranges ({names}), and so has the searcher")
            return True
        if not ranges and not grids:
            raise ValueError("param_space has no range, so there is nothing to search")
        space = self._build_space([*ranges, *grids])
        if self._optimizer is None:
            goal = GOALS[str(self._mode)]
            self._optimizer = create(self._method, space, goal, **self._options)
        elif self._optimizer.space.to_dict() != space.to_dict():
            raise ValueError("it has searched another param_space; make another TuneSearch")
        return True

    def suggest(self, trial_id: str) -> dict[str, Any] | None:
        """Return the configuration of a new trial, or FINISHED if there is no further one.

        After None, Tune would ask again for ever.
        """
        # A text, though the base class's signature does not allow one.
        finished = cast(dict[str, Any], Searcher.FINISHED)
        if self._optimizer is None:
            log.error("param_space is empty, so there is nothing to search")
            return finished
        try:
            trial = self._optimizer.ask()
        except Exhausted as error:
            log.info("%s", error)
            return finished
        except Exception:
            log.exception("the searcher failed; trials that run go on, and no more are proposed")
            return finished
        self._trials[trial_id] = trial.id
        return self._nest(trial.params)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        """Report an intermediate value; ignore results without a number or without a new step."""
        value, step = self._value(result), _whole_step(result.get(self._time_attr))
        if self._optimizer is None or trial_id not in self._trials or value is None or step is None:
            return
        if step > self._steps.get(trial_id, -1):
            self._steps[trial_id] = step
            self._optimizer.report(self._trials[trial_id], value, step)

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell the optimizer that a trial has ended, was stopped, or failed."""
        value = None if error or result is None else self._value(result)
        if result is not None and value is not None:
            self.on_trial_result(trial_id, result)
        trial = self._trials.pop(trial_id, None)
        self._steps.pop(trial_id, None)
        if self._optimizer is not None and trial is not None:
            self._optimizer.tell(trial, value, "error" if error else "")

    def save(self, checkpoint_path: str) -> None:
        """Write the searcher's state to a file; Tune calls this when it saves its own."""
        Path(checkpoint_path).write_bytes(pickle.dumps(self.__dict__))

    def restore(self, checkpoint_path: str) -> None:
        """Restore the state that `save` wrote."""
        self.__dict__ = pickle.loads(Path(checkpoint_path).read_bytes())

    def _set_goal(self, metric: str | None, mode: str | None) -> None:
        goal = self._optimizer.goal if self._optimizer else None
        if not isinstance(goal, str | None):
            raise ValueError(f"the searcher has the goals {list(goal)}, but Tune has one metric")
        if mode is None and goal is not None:
            mode = next(mode for mode, name in GOALS.items() if name == goal)
        if metric is None or mode not in GOALS:
            raise ValueError(f"metric is {metric}, mode is {mode}; give a name, and min or max")
        if goal not in (None, GOALS[mode]):
            raise ValueError(f"mode is {mode}, but the goal of the searcher is to {goal}")
        self._metric, self._mode = metric, mode

    def _build_space(self, ranges: Sequence[tuple[tuple[Any, ...], Any]]) -> Space:
        """Return the space of Tune's ranges; a nested range is named by its keys and dots."""
        parameters: dict[str, object] = {}
        for path, domain in ranges:
            if not all(isinstance(key, str) for key in path):
                place = ".".join(map(str, path))
                raise ValueError(f"param_space.{place}: stands in a list; give it a key of its own")
            name = ".".join(path)
            if not is_name(name) or name in parameters:
                name = f"parameter_{len(parameters)}"
            self._paths[name] = path
            values = getattr(domain, "categories", ())
            parameters[name] = domain
            if not all(map(is_scalar, values)) and not domain.is_grid():
                self._objects[name] = values
                parameters[name] = {"values": list(range(len(values)))}
        plain_parameters = plain(parameters, "parameters")
        return Space.from_dict(plain_parameters)  # type: ignore[arg-type]  # a mapping, as it was

    def _nest(self, params: Params) -> dict[str, Any]:
        config: dict[str, Any] = {}
        for name, value in params.items():
            *outer_keys, last_key = self._paths.get(name, (name,))
            inner = config
            for key in outer_keys:
                inner = inner.setdefault(key, {})
            inner[last_key] = self._objects[name][value] if name in self._objects else value  # type: ignore[index]
        return config

    def _value(self, result: Mapping[str, Any]) -> float | None:
        value = result.get(str(self._metric))
        is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
        return float(value) if is_number else None  # type: ignore[arg-type]


def _whole_step(step: object) -> int | None:
    """Return a step, of any numeric type, as an int; None: not a whole number from 0 on."""
    if isinstance(step, bool) or not isinstance(step, int | float | np.number):
        return None
    return int(step) if step >= 0 and step == step // 1 else None  # type: ignore[operator]
