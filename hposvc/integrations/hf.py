"""Hugging Face's Trainer in a sweep: a callback that reports, stops and saves, and a search.

trainer = Trainer(model, args, ..., callbacks=[hposvc.hf.Report()])
trainer.train(resume_from_checkpoint=hposvc.hf.checkpoint())
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from accelerate import PartialState
from accelerate.utils import broadcast_object_list
from optuna.trial import FixedTrial
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import (
    BestRun,
    HPSearchBackend,
    default_compute_objective,
    default_hp_space_optuna,
)

from hposvc.errors import fail
from hposvc.integrations.optuna import find_parameters
from hposvc.integrations.optuna import run as run_objective
from hposvc.reporting.result import Result
from hposvc.state.answers import Best, values_of
from trainables import get_checkpoint, is_in_sweep, report
from trainables.contract import NoNumber, number_of

Metrics = Mapping[str, Any]
Objective = Callable[[dict[str, float]], float | Sequence[float]]
_searching: list[Callable[[Any], None]] = []  # how to train a trial of this process's searches
CHECKPOINT = "checkpoint-{}"  # a folder of the Trainer, by the updates so far


class Report(TrainerCallback):
    """Reports each evaluation to the sweep with a checkpoint, and ends a trial that is to stop.

    A step of the sweep is an evaluation during training, as `eval_strategy` orders them. Its
    metrics are those of the evaluation (`eval_loss`, ...) and of the last training log (`loss`,
    `learning_rate`, ...). In a sweep the Trainer's own folders of checkpoints are temporary, and
    only the newest is kept, since the sweep has a copy of what is needed. Outside a sweep metrics
    are printed and nothing else changes.

    Args:
        save: let the Trainer save a checkpoint after each evaluation; otherwise only when its
            `save_strategy` says so, and a trial that is paused goes on from the last one.
    """

    def __init__(self, save: bool = True) -> None:
        self._save = save
        self._logged: dict[str, Any] = {}  # of training, the last
        self._metrics: dict[str, Any] = {}  # of the evaluation that is to be reported
        self._began: int | None = None  # updates when training began; None: it is over
        self._own: tuple[str | None, int | None] | None = None  # the Trainer's own folder and limit
        self._temporary: TemporaryDirectory[str] | None = None

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Note where training begins, and let the Trainer write into a folder of this trial."""
        self._began = state.global_step
        self._logged, self._metrics = {}, {}
        if is_in_sweep():
            self._borrow(args)

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Metrics | None = None,
        **_: Any,
    ) -> None:
        """Note what the Trainer logs of training."""
        if logs and "loss" in logs:
            self._logged = dict(logs)

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Metrics | None = None,
        **_: Any,
    ) -> TrainerControl:
        """Note the metrics of an evaluation; there is one call for each data set."""
        if self._began is not None and state.global_step > self._began:
            self._metrics |= metrics or {}
            control.should_save = control.should_save or (self._save and is_in_sweep())
        return control

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report the evaluation with the checkpoint that was just saved."""
        PartialState().wait_for_everyone()  # every rank writes a part
        self._hand_over(args, Path(f"{args.output_dir}", CHECKPOINT.format(state.global_step)))

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report an evaluation without a checkpoint."""
        self._hand_over(args)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Report an evaluation without a checkpoint, and give the Trainer its folder back."""
        self._hand_over(args)
        self._give_back(args)

    def _hand_over(self, args: TrainingArguments, folder: Path | None = None) -> None:
        if not self._metrics:
            return
        metrics, self._metrics = self._named(self._metrics), {}
        try:
            report({**self._logged, **metrics}, checkpoint=folder)
        except BaseException:
            self._give_back(args)
            raise

    def _named(self, metrics: dict[str, Any]) -> Metrics:
        """Return the metrics to report of an evaluation."""
        return metrics

    def _borrow(self, args: TrainingArguments) -> None:
        """Let the Trainer save into a temporary folder: trials would overwrite each other's."""
        state = PartialState()
        if state.is_main_process:
            self._temporary = TemporaryDirectory(prefix="hposvc-")
        (folder,) = broadcast_object_list([self._temporary and self._temporary.name])
        self._own = args.output_dir, args.save_total_limit
        args.output_dir, args.save_total_limit = folder, 1

    def _give_back(self, args: TrainingArguments) -> None:
        self._began = None
        if self._own is not None:
            args.output_dir, args.save_total_limit = self._own
            self._own = None
        if self._temporary is not None:
            self._temporary.cleanup()
            self._temporary = None


class _ReportObjective(Report):
    """Reports what `compute_objective` makes of an evaluation, beside its metrics."""

    def __init__(self, names: Sequence[str], compute: Objective) -> None:
        super().__init__()
        self._names, self._compute = names, compute

    def _named(self, metrics: dict[str, Any]) -> Metrics:
        read = {name: number_of(value) for name, value in metrics.items()}
        numbers = {name: value for name, value in read.items() if not isinstance(value, NoNumber)}
        value = self._compute(numbers)
        values = [value] if isinstance(value, Real) else list(value)  # type: ignore[arg-type]
        return metrics | dict(zip(self._names, map(float, values), strict=True))


def checkpoint() -> str | None:
    """Return the folder to go on from, for `resume_from_checkpoint`; None: start from scratch."""
    folder = get_checkpoint()
    return None if folder is None else str(folder)


def search(
    trainer: Trainer,
    hp_space: Callable[[Any], Mapping[str, Any]] | None = None,
    n_trials: int = 20,
    direction: str | Sequence[str] = "minimize",
    compute_objective: Objective | None = None,
    **sections: Any,
) -> BestRun | list[BestRun]:
    """Search a Trainer's arguments as a sweep, in the words of its `hyperparameter_search`.

    The trials run in this process, one after the other. A trial has as many steps as it evaluates;
    with a scheduler that stops trials give `fidelity={"max": evaluations}`.

    Args:
        trainer: made with `model_init`.
        hp_space: suggests arguments by an Optuna trial; None: that of `hyperparameter_search`.
        n_trials: how many; fewer if there are no more configurations.
        direction: minimize or maximize; a list for several objectives.
        compute_objective: makes the objective, or several, of an evaluation's metrics; None: the
            loss, or the sum of all metrics if there are any beside it.
        sections: further sections of a spec, and `home` and `progress`: see `hposvc.optuna.run`.

    Returns:
        The best trial, or those of the Pareto front: its id, objective and arguments, and as
        `run_summary` the sweep's `Result`.

    Raises:
        SpecError: the trainer has no `model_init`, or a section is wrong.
        NoValue: no trial has an objective.
    """
    if trainer.model_init is None:
        raise fail(
            "has no model_init, so it can't begin anew: give Trainer(model_init=...)",
            "trainer",
            fix="where the trainer takes none, as TRL's, make it in a function with "
            "hposvc.hf.Report()",
        )
    space = hp_space or default_hp_space_optuna
    directions = [direction] if isinstance(direction, str) else list(direction)
    several = len(directions) > 1
    names = [f"objective_{place}" if several else "objective" for place in range(len(directions))]
    compute = compute_objective or default_compute_objective
    callback = _ReportObjective(names, compute)
    own = trainer.args

    def train(trial: Any) -> None:
        trainer.args = copy.copy(own)  # the Trainer writes a trial's arguments into it
        space(trial)
        fixed = FixedTrial(trial.params, trial.number)  # the Trainer takes only Optuna's own
        trainer.train(checkpoint(), fixed)  # type: ignore[arg-type]

    trainer.add_callback(callback)
    _searching.append(train)
    trainer.hp_search_backend = HPSearchBackend.OPTUNA  # type: ignore[assignment]
    trainer.hp_space = space
    trainer.compute_objective = compute  # type: ignore[assignment]
    # The folder of a trial's checkpoints, below that of Report.
    trainer.hp_name = lambda trial: "."  # type: ignore[assignment]
    try:
        result = run_objective(
            _train,
            n_trials,
            directions=directions,
            metric_names=names,
            parameters=find_parameters(space),
            **{"engine": "local", "name": "trainer", **sections},
        )
    finally:
        _searching.pop()
        trainer.args, trainer.hp_search_backend, trainer.hp_name = own, None, None
        trainer.remove_callback(callback)
    single = isinstance(direction, str)
    runs = [
        _run(best, result, single) for best in ([result.best] if single else result.record.front())
    ]
    return runs[0] if single else runs


def _run(best: Best, result: Result, single: bool) -> BestRun:
    """Return one of the best trials as transformers has it."""
    values = [value for value in values_of(best.value) if value is not None]
    return BestRun(best.trial, values[0] if single else values, dict(best.params), result)


def _train(trial: Any) -> None:
    """Train a trial of the innermost search."""
    if not _searching:
        raise RuntimeError(
            "this sweep is a search of a Trainer, which is gone with its process; search again"
        )
    _searching[-1](trial)
