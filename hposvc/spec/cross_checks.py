"""Checks across the sections of a spec; each one yields every problem that it finds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import Literal

import numpy as np

from hposvc.errors import Problem, SpecError
from hposvc.schedulers.early_stopping import Plateau
from hposvc.schedulers.scheduler import Demanding, Plan
from hposvc.spec.bounds import option_problem
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.registry import SCHEDULERS, SEARCHERS, PlugIn, build, may_be_imported, trait
from hposvc.spec.sections import (
    Checkpoints,
    Engine,
    Failure,
    Fidelity,
    Resources,
    Trials,
)
from hposvc.spec.sinks import HYDRA_FOLDER
from hposvc.spec.stopping import Baseline, Budget, Finalists, Stop
from searchers.domains import Choice, Constant, Domain, Tied
from searchers.methods import METHODS, load, takes_several
from searchers.names import nearest
from searchers.options import check
from searchers.space import Space
from searchers.syntax import parameters_of
from searchers.values import Params, SpaceError
from trainables.combinations import nan_refusals, refusals
from trainables.load import ITS_OWN, TRAINING, training_of
from trainables.storage.checkpoint import Period
from trainables.training import Training
from trainables.worker import Nan

SAMPLES = 200  # samples of a space, to see which training options occur together
# Problems reported for initial points, or searched options: a point can take 1/3 s to check.
MAX_PROBLEMS = 5
MOST_REPLICATES = 10_000  # of finalists: all are looked at whenever a slot is free


def default_strategy(workers: int) -> Literal["single", "ddp"]:
    """Return the strategy of a trial that names none."""
    return "ddp" if workers > 1 else "single"


def space_problems(space: Callable[[], Space], initial: Sequence[Params]) -> Iterator[Problem]:
    """Check that conditions and constraints make sense, and initial points lie in the space."""
    try:
        built = space()
    except SpaceError as error:
        yield Problem(error.path, error.message)
        return
    problems = (
        problem
        for index, point in enumerate(initial)
        for problem in _point_problems(built, point, ("initial", index))
    )
    yield from islice(problems, MAX_PROBLEMS)


def _point_problems(space: Space, point: Params, path: tuple[str | int, ...]) -> Iterator[Problem]:
    try:
        space.complete(point, np.random.default_rng(0))
    except SpaceError as error:
        if error.path and error.path[0] in point:
            yield Problem.of_text(error.message, *path, *error.path)
        else:
            yield Problem.of_text(str(error), *path)


def trial_count_problems(
    trials: Trials, budget: Budget, fidelity: Fidelity | None, scheduler: PlugIn
) -> Iterator[Problem]:
    """Check that the sweep ends, and that a scheduler that stops trials knows their length."""
    if trials.max is None and not budget.limited:
        fix = "say how many trials, or give budget.wall"
        yield Problem(("trials", "max"), "is missing", fix, at_key=True)
    if fidelity is None and scheduler.name != "fifo":
        message = f"is missing; scheduler {scheduler.name} must know how long a trial is"
        yield Problem(("fidelity",), message, "give fidelity: {max: N}", at_key=True)


def ending_problems(
    stop: Stop, budget: Budget, finalists: Finalists | None, metrics: int
) -> Iterator[Problem]:
    """Check that rules about the best trial have a single metric, and a reserve has finalists."""
    for path, section in ((("stop", "plateau"), stop.plateau), (("finalists",), finalists)):
        if section is not None and metrics > 1:
            message = f"asks which trial is the best, and with {metrics} metrics there is a front"
            yield Problem(path, message, "remove it", at_key=True)
    if budget.reserve is not None and finalists is None:
        message = "is kept for finalists, and there are none"
        yield Problem(("budget", "reserve"), message, "give finalists: {top, seeds}", at_key=True)
    if finalists is not None and finalists.top * finalists.seeds > MOST_REPLICATES:
        message = f"is {finalists.seeds} for each of {finalists.top} trials"
        remedy = f"train no more than {MOST_REPLICATES:,} in all"
        yield Problem(("finalists", "seeds"), message, remedy)


def baseline_problems(
    baseline: Baseline | None,
    initial: Sequence[Params],
    space: Callable[[], Space],
    scheduler: PlugIn,
    plan: Plan,
) -> Iterator[Problem]:
    """Check that a baseline has a configuration that lies in the space and keeps its values."""
    if baseline is None:
        return
    if plan.metrics > 1:
        message = f"measures the noise of one metric, and there are {plan.metrics}"
        yield Problem(("baseline",), message, "remove it", at_key=True)
    if baseline.params is None and not initial:
        fix = "give params: {...}, or initial: [{...}]"
        yield Problem(("baseline",), "needs a configuration", fix, at_key=True)
    if trait(SCHEDULERS, scheduler, "changes_values"):
        message = f"is one configuration, and scheduler {scheduler.name} changes values of trials"
        yield Problem(("baseline",), message, "remove it", at_key=True)
    try:
        built = space()
    except SpaceError:
        return  # reported elsewhere
    if baseline.params is not None:
        yield from _point_problems(built, baseline.params, ("baseline", "params"))


def scheduler_problems(
    scheduler: PlugIn, space: Callable[[], Space], fidelity: Fidelity | None, plan: Plan
) -> Iterator[Problem]:
    """Check that a scheduler with requirements suits this sweep."""
    try:
        policy, built = build(SCHEDULERS, scheduler), space()
    except (SpecError, SpaceError):
        return  # reported elsewhere
    if fidelity is not None and isinstance(policy, Demanding):
        yield from policy.problems(built, plan)


def search_problems(search: PlugIn, scheduler: PlugIn, metrics: int) -> Iterator[Problem]:
    """Check that BOHB has a model, and a method that learns from one metric a single metric."""
    if metrics > 1 and not _takes_several(search):
        able = ", ".join(name for name in METHODS if takes_several(load(name)))
        message = f"is {search.name}, which learns from one metric, and there are {metrics}"
        yield Problem(("search", "method"), message, f"choose one of {able}")
    if trait(SCHEDULERS, scheduler, "needs_model") and not _uses_results(search):
        message = f"is {search.name}, but scheduler bohb is Hyperband with a model"
        remedy = "choose gp, tpe or auto, or scheduler hyperband"
        yield Problem(("search", "method"), message, remedy)


def repeat_problems(
    search: PlugIn, scheduler: PlugIn, metrics: int, limits: Sequence[str]
) -> Iterator[Problem]:
    """Check that trials are repeated where a spec asks for it."""
    if search.name != "gp" or search.options.get("repeats") is not True:
        return
    path = ("search", "repeats")
    if metrics > 1:
        yield Problem(path, f"is true, but with {metrics} metrics nothing is repeated", "remove it")
    if limits:
        fix = "leave out one of the two"
        yield Problem(path, "is true, but with limits nothing is repeated", fix)
    if trait(SCHEDULERS, scheduler, "changes_values"):
        message = f"is true, but scheduler {scheduler.name} changes values of trials"
        yield Problem(path, f"{message}, so none would be repeated", "remove it")


def search_option_problems(search: PlugIn, space: Callable[[], Space]) -> Iterator[Problem]:
    """Check that search options with requirements suit this space."""
    try:
        searcher, built = build(SEARCHERS, search), space()
    except (SpecError, SpaceError):
        return  # reported elsewhere
    try:
        check(searcher, built)
    except SpaceError as error:
        yield Problem.of_text(error.message, "search", *error.path)
    except ValueError as error:
        yield Problem.of_text(str(error), "search")


def _uses_results(search: PlugIn) -> bool:
    if not may_be_imported(search):
        return True  # its sweep's own process checks it
    try:
        return bool(getattr(load(search.name), "uses_results", True))
    except ValueError:
        return True  # reported elsewhere


def _takes_several(search: PlugIn) -> bool:
    try:
        return takes_several(type(build(SEARCHERS, search)))
    except SpecError:
        return True  # reported elsewhere


def plateau_problems(
    plateau: Callable[[], Plateau | None], checkpoints: Checkpoints
) -> Iterator[Problem]:
    """Check that a trial stopped for its own curve keeps its best checkpoint."""
    try:
        has_plateau = plateau() is not None
    except SpecError as error:
        yield from (problem.under("scheduler") for problem in error.problems)
        return
    if has_plateau and checkpoints.keep_best < 1:
        message = "is 0, but a trial that scheduler.plateau stops was best before"
        yield Problem(("checkpoints", "keep_best"), message, "set it to 1")


def engine_problems(engine: Engine, runs: str | Sequence[str] | None) -> Iterator[Problem]:
    """Check that the engine has a trainable or a command to run, and can run it."""
    if engine.traits.simulated and runs is not None:
        key = "trainable" if isinstance(runs, str) else "command"
        message = "is given, but engine simulate calls engine.curve instead"
        yield Problem((key,), message, "remove one of them", at_key=True)
    if not (engine.traits.simulated or engine.traits.foreign) and runs is None:
        fix = "give module:Name, path/to/file.py:Name, or a command"
        yield Problem(("trainable",), "is missing", fix, at_key=True)


def sink_problems(send_to: Sequence[str], command: Sequence[str] | None) -> Iterator[Problem]:
    """Check that a sweep whose results Hydra's users look for is of Hydra's sweeper."""
    if "hydra" in send_to and not any(item.startswith(HYDRA_FOLDER) for item in command or ()):
        message = "is for sweeps that `python train.py -m hydra/sweeper=hposvc` makes; remove it"
        yield Problem(("tracking", "send_to", send_to.index("hydra")), f"hydra {message}")


def elastic_worker_problems(
    resources: Resources, engine: Engine, command: Sequence[str] | None
) -> Iterator[Problem]:
    """Check that the engine can add workers to a running trial, and the trial keeps its batch."""
    if resources.max_workers == resources.ranks:
        return
    number = f"give one number, such as {resources.ranks}"
    if not engine.traits.elastic:
        message = f"is a span, but engine {engine.type} cannot change a trial's workers"
        yield Problem(("resources", "workers"), message, number)
    if command is not None:
        message = "is a span, but a command's batch would change with its workers"
        yield Problem(("resources", "workers"), message, number)


def resolve_trials_per_process(training: Training, trials: Trials) -> Training:
    """Return the options with `trials_per_process: true` replaced by its number in this sweep."""
    parallel = None if trials.parallel == "auto" else trials.parallel
    return replace(training, trials_per_process=training.trials_at_once(parallel, trials.max))


def batching_problems(engine: Engine, training: Training) -> Iterator[Problem]:
    """Check that the engine can train as many trials in a process as `trials_per_process` asks."""
    if not engine.traits.batched and training.trials_per_process > 1:
        message = (
            f"is {training.trials_per_process}, but engine {engine.type} gives a process one trial"
        )
        fix = "leave out one of the two"
        yield Problem(("training", "trials_per_process"), f"{message} at a time", fix)


def checkpoint_problems(
    checkpoints: Checkpoints, command: Sequence[str] | None
) -> Iterator[Problem]:
    """Check that the interval of checkpoints can be measured."""
    interval = checkpoints.interval
    if command is not None and isinstance(interval, Period) and interval.updates is not None:
        message = f"is {checkpoints.every}, but nobody counts the updates of a command"
        remedy = "give a time like 10m, or a whole number in units of fidelity"
        yield Problem(("checkpoints", "every"), message, remedy)


def failure_problems(
    failure: Failure, command: Sequence[str] | None, engine: Engine
) -> Iterator[Problem]:
    """Check that the answer to updates that are not finite can be carried out."""
    if failure.nan == "stop":
        return
    if command is not None:
        yield Problem(("failure", "nan"), f"is {failure.nan}, but a command {ITS_OWN}")
    elif engine.traits.simulated:
        message = f"is {failure.nan}, but a simulation makes no updates"
        yield Problem(("failure", "nan"), message, "write nan: stop")


def straggler_problems(failure: Failure, engine: Engine) -> Iterator[Problem]:
    """Check that an engine that is to leave slow nodes looks for them."""
    if not engine.traits.finds_slow_nodes and failure.straggler == "drain":
        message = f"is drain, but engine {engine.type} does not look for slow nodes"
        yield Problem(("failure", "straggler"), message, "leave out one of the two")


def compression_problems(
    training: Training, parameters: Mapping[str, object], resources: Resources
) -> Iterator[Problem]:
    """Check that ranks without GPUs do not compress gradients to bf16, set or searched."""
    if resources.gpus_per_worker or resources.max_workers == 1:
        return
    reason = "only NCCL adds bf16 up, on GPUs; choose fp16 or powersgd, or give each worker a GPU"
    if training.gradient_compression == "bf16" and training.strategy in ("ddp", "zero1"):
        yield Problem(("training", "gradient_compression"), f"is bf16, but {reason}")
    for name, path, domain in parameters_of(parameters):
        if name == f"{TRAINING}gradient_compression" and not domain.problem("bf16"):
            yield Problem(path, f"has bf16, but {reason}")


def training_problems(
    training: Training, parameters: Mapping[str, object], workers: int, nan: Nan
) -> Iterator[Problem]:
    """Check that training options fit the workers, and searched ones exist and are not fixed."""
    base = Training(strategy=default_strategy(workers))
    options = [option.name for option in fields(Training)]
    searched = {
        name: (path, domain)
        for name, path, domain in parameters_of(parameters)
        if name.startswith(TRAINING)
    }
    if not searched:
        yield from _refusals(training, workers, nan)
    for name, (path, domain) in searched.items():
        option = name.removeprefix(TRAINING)
        if option not in options:
            yield Problem(path, "no such training option", nearest(option, options), at_key=True)
        elif getattr(training, option) != getattr(base, option):
            fix = "remove one of them"
            yield Problem(path, f"is set in training.{option} too", fix, at_key=True)
        elif option == "trials_per_process":
            fix = "set it under training"
            yield Problem(path, "applies to slots, not to a trial", fix, at_key=True)
        else:
            yield from _option_problems(path, option, domain)


def _refusals(training: Training, workers: int, nan: Nan) -> Iterator[Problem]:
    for option, reason in refusals(training, workers):
        yield Problem.of_text(reason, "training", option)
    for reason in nan_refusals(training, workers, nan):
        yield Problem.of_text(reason, "failure", "nan")


def _option_problems(path: tuple[str | int, ...], option: str, domain: Domain) -> Iterator[Problem]:
    for value in _extreme_values(domain):
        try:
            fill(Training, {option: value})
        except SpecError as error:
            yield replace(error.problems[0], path=path)
            return
        if too_large := option_problem(option, value):
            yield replace(too_large, path=path)
            return


def searched_training_problems(
    training: Training, space: Callable[[], Space], workers: int, nan: Nan
) -> Iterator[Problem]:
    """Check that searched training options go together in every combination that can be drawn."""
    try:
        built = space()
    except SpaceError:
        return  # reported elsewhere
    searched = [name for name in built if name.startswith(TRAINING)]
    problems: dict[Problem, None] = {}
    for params in islice(_sample_forever(built), SAMPLES if searched else 1):
        try:
            drawn = training_of(
                training, {name: params[name] for name in searched if name in params}
            )
        except ValueError:
            return  # reported elsewhere
        for problem in _refusals(drawn, workers, nan):
            name = f"{TRAINING}{problem.path[1]}"
            path = space().path_of(name) if name in params else problem.path
            others = [f"{option} {params[option]}" for option in searched if option in params]
            beside = ", ".join(option for option in others if not option.startswith(f"{name} "))
            text = problem.text + (f" (with {beside})" if beside else "")
            problems[Problem.of_text(text, *path)] = None
    yield from islice(problems, MAX_PROBLEMS)


def _sample_forever(space: Space) -> Iterator[Params]:
    rng = np.random.default_rng(0)
    while True:
        try:
            yield space.sample(rng)
        except SpaceError:
            return  # the constraints leave next to nothing; reported elsewhere


def _extreme_values(domain: Domain) -> tuple[object, ...]:
    """Return all values of a choice, or the ends of a range."""
    match domain:
        case Constant():
            return (domain.value,)
        case Choice() | Tied():
            return domain.values
        case _:
            return (domain.low, domain.high)
