"""What ties the sections of a spec together; each rule tells every problem that it finds."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import Literal

import numpy as np

from hposvc.plugins import SCHEDULERS, SEARCHERS, PlugIn, build
from hposvc.reading.fill import fill
from hposvc.reading.problems import Problem, SpecError, no_such
from hposvc.schedulers.plateau import Plateau
from hposvc.schedulers.scheduler import Demanding, Plan
from hposvc.spec.ending import Budget, Finalists, Stop
from hposvc.spec.sections import (
    Checkpoints,
    Engine,
    Failure,
    Fidelity,
    Resources,
    Trials,
)
from searchers.domains import Choice, Constant, Domain
from searchers.methods import METHODS, load, takes_several
from searchers.options import check
from searchers.space import Space
from searchers.syntax import read_domain
from searchers.values import Params, SpaceError
from trainables.checkpoints.checkpoint import Period
from trainables.combinations import nan_refusals, refusals
from trainables.load import ITS_OWN, TRAINING, training_of
from trainables.training import Training
from trainables.worker import Nan

BLIND = ("grid", "random", "sobol")  # search methods without a model
DRAWS = 200  # of a space, to see which training options meet
ENOUGH = 5  # wrong points to try first that are told; one can take a third of a second to see


def default_strategy(workers: int) -> Literal["single", "ddp"]:
    """The strategy of a trial that names none."""
    return "ddp" if workers > 1 else "single"


def of_space(space: Callable[[], Space], initial: Sequence[Params]) -> Iterator[Problem]:
    """Conditions and constraints make sense, and the points to try first lie in the space."""
    try:
        built = space()
    except SpaceError as error:
        yield Problem(error.path, error.message)
        return
    yield from islice(_point_problems(built, initial), ENOUGH)


def _point_problems(space: Space, initial: Sequence[Params]) -> Iterator[Problem]:
    for place, point in enumerate(initial):
        try:
            space.complete(point, np.random.default_rng(0))
        except SpaceError as error:
            if error.path and error.path[0] in point:
                yield Problem(("initial", place, *error.path), error.message)
            else:
                yield Problem(("initial", place), str(error))


def of_trials(
    trials: Trials, budget: Budget, fidelity: Fidelity | None, scheduler: PlugIn
) -> Iterator[Problem]:
    """The sweep ends, and a scheduler that stops trials knows how long they are."""
    if trials.max is None and not budget.limited:
        message = "is missing; say how many trials, or give budget.wall"
        yield Problem(("trials", "max"), message, at_key=True)
    plateau = "plateau" if scheduler.options.get("plateau") else "fifo"
    judge = plateau if scheduler.name == "fifo" else scheduler.name
    if fidelity is None and judge != "fifo":
        message = f"is missing; scheduler {judge} must know how long a trial is"
        yield Problem(("fidelity",), f"{message}, so give at least {{max: ...}}", at_key=True)


def of_ending(
    stop: Stop, budget: Budget, finalists: Finalists | None, metrics: int
) -> Iterator[Problem]:
    """What looks at a single best trial has one, and a reserve is for somebody."""
    for path, given in ((("stop", "plateau"), stop.plateau), (("finalists",), finalists)):
        if given is not None and metrics > 1:
            message = f"asks which trial is the best, and with {metrics} metrics there is a front"
            yield Problem(path, f"{message}; remove it", at_key=True)
    if budget.reserve is not None and finalists is None:
        message = "is kept for finalists, and there are none; give finalists: {top, seeds}"
        yield Problem(("budget", "reserve"), message, at_key=True)


def of_scheduler(
    scheduler: PlugIn, space: Callable[[], Space], fidelity: Fidelity | None, plan: Plan
) -> Iterator[Problem]:
    """A scheduler that does not suit every sweep suits this one."""
    try:
        policy, built = build(SCHEDULERS, scheduler), space()
    except (SpecError, SpaceError):
        return  # told elsewhere
    if fidelity is not None and isinstance(policy, Demanding):
        yield from policy.problems(built, plan)


def of_search(search: PlugIn, scheduler: PlugIn, metrics: int) -> Iterator[Problem]:
    """BOHB has its model, and a method that learns from one metric has one."""
    if metrics > 1 and not _takes_several(search):
        able = ", ".join(name for name in METHODS if takes_several(load(name)))
        message = f"is {search.name}, which learns from one metric, and there are {metrics}"
        yield Problem(("search", "method"), f"{message}; choose one of {able}")
    if scheduler.name == "bohb" and search.name in BLIND:
        message = f"is {search.name}, but scheduler bohb is Hyperband with a model"
        remedy = "choose gp, tpe or auto, or scheduler hyperband"
        yield Problem(("search", "method"), f"{message}; {remedy}")


def of_options(search: PlugIn, space: Callable[[], Space]) -> Iterator[Problem]:
    """Search options that do not suit every space suit this one."""
    try:
        searcher, built = build(SEARCHERS, search), space()
    except (SpecError, SpaceError):
        return  # told elsewhere
    try:
        check(searcher, built)
    except SpaceError as error:
        yield Problem(("search", *error.path), error.message)
    except ValueError as error:
        yield Problem(("search",), str(error))


def _takes_several(search: PlugIn) -> bool:
    try:
        return takes_several(type(build(SEARCHERS, search)))
    except SpecError:
        return True  # what is wrong is told elsewhere


def of_plateau(
    plateau: Callable[[], Plateau | None], checkpoints: Checkpoints
) -> Iterator[Problem]:
    """A trial that is stopped for its own curve keeps its best checkpoint."""
    try:
        given = plateau() is not None
    except SpecError as error:
        yield from (problem.under("scheduler") for problem in error.problems)
        return
    if given and checkpoints.keep_best < 1:
        message = "is 0, but a trial that scheduler.plateau stops was best before; set it to 1"
        yield Problem(("checkpoints", "keep_best"), message)


def of_engine(
    engine: Engine, runs: str | Sequence[str] | None, resources: Resources
) -> Iterator[Problem]:
    """The engine has something to run, a trainable or a command, and can run it."""
    if engine.type == "simulate" and runs is not None:
        message = "is given, but engine simulate calls engine.curve instead; remove one of them"
        yield Problem(("trainable" if isinstance(runs, str) else "command",), message, at_key=True)
    if engine.type != "simulate" and runs is None:
        message = "is missing; give module:Name, path/to/file.py:Name, or a command"
        yield Problem(("trainable",), message, at_key=True)
    if engine.type == "local" and resources.ranks > 1:
        message = f"is {resources.ranks}, but engine local is one process; set it to 1"
        yield Problem(("resources", "workers"), message)


def of_span(
    resources: Resources, engine: Engine, command: Sequence[str] | None
) -> Iterator[Problem]:
    """Who carries out orders can give a trial more workers on its way, and it learns the same."""
    if resources.widest == resources.ranks:
        return
    number = f"give one number, such as {resources.ranks}"
    if engine.type in ("local", "tune"):
        message = (
            f"is a span, but engine {engine.type} gives a trial as many all its life; {number}"
        )
        yield Problem(("resources", "workers"), message)
    if command is not None:
        message = f"is a span, but nobody can keep the batch of a command as it is then; {number}"
        yield Problem(("resources", "workers"), message)


def settled(training: Training, trials: Trials) -> Training:
    """The options with the number that `batched: true` stands for in a sweep."""
    parallel = None if trials.parallel == "auto" else trials.parallel
    return replace(training, batched=training.trials_at_once(parallel, trials.max))


def of_batched(engine: Engine, training: Training) -> Iterator[Problem]:
    """Who carries out orders can give a process several at once, if that is asked for."""
    if engine.type in ("local", "tune") and training.batched > 1:
        message = f"is {training.batched}, but engine {engine.type} gives a process one trial"
        yield Problem(("training", "batched"), f"{message} at a time; leave out one of the two")


def of_checkpoints(checkpoints: Checkpoints, command: Sequence[str] | None) -> Iterator[Problem]:
    """Somebody can tell when a checkpoint is due."""
    interval = checkpoints.interval
    if command is not None and isinstance(interval, Period) and interval.updates is not None:
        message = f"is {checkpoints.every}, but nobody counts the updates of a command"
        remedy = "give a time like 10m, or a whole number in units of fidelity"
        yield Problem(("checkpoints", "every"), f"{message}; {remedy}")


def of_failure(
    failure: Failure, command: Sequence[str] | None, engine: Engine
) -> Iterator[Problem]:
    """What is to be done about an update that is not finite, somebody can do."""
    if failure.nan == "stop":
        return
    if command is not None:
        yield Problem(("failure", "nan"), f"is {failure.nan}, but a command {ITS_OWN}")
    elif engine.type == "simulate":
        message = f"is {failure.nan}, but a simulation makes no updates; write nan: stop"
        yield Problem(("failure", "nan"), message)


def of_straggler(failure: Failure, engine: Engine) -> Iterator[Problem]:
    """Who is to leave slow nodes looks for them; sweeps of before may have it otherwise."""
    if engine.type in ("local", "tune") and failure.straggler == "drain":
        message = f"is drain, but engine {engine.type} does not look for slow nodes"
        yield Problem(("failure", "straggler"), f"{message}; leave out one of the two")


def of_training(
    training: Training, parameters: Mapping[str, object], workers: int, nan: Nan
) -> Iterator[Problem]:
    """Training options fit the workers; searched ones exist, fit too, and are not fixed as well."""
    base = Training(strategy=default_strategy(workers))
    options = [option.name for option in fields(Training)]
    if not any(name.startswith(TRAINING) for name in parameters):
        yield from _refused(training, workers, nan)
    for name, declared in parameters.items():
        option = name.removeprefix(TRAINING)
        if option == name:
            continue
        if option not in options:
            message = no_such("training option", option, options)
            yield Problem(("parameters", name), message, at_key=True)
        elif getattr(training, option) != getattr(base, option):
            message = f"is set in training.{option} too; remove one of them"
            yield Problem(("parameters", name), message, at_key=True)
        elif option == "batched":
            message = "is a matter of slots, not of a trial; set it under training"
            yield Problem(("parameters", name), message, at_key=True)
        else:
            yield from _option_problems(name, option, declared)


def _refused(training: Training, workers: int, nan: Nan) -> Iterator[Problem]:
    for option, reason in refusals(training, workers):
        yield Problem(("training", option), reason)
    for reason in nan_refusals(training, workers, nan):
        yield Problem(("failure", "nan"), reason)


def _option_problems(name: str, option: str, declared: object) -> Iterator[Problem]:
    for value in _extremes(read_domain(declared)):
        try:
            fill(Training, {option: value})
        except SpecError as error:
            yield Problem(("parameters", name), error.problems[0].message)
            return


def of_searched_training(
    training: Training, space: Callable[[], Space], workers: int, nan: Nan
) -> Iterator[Problem]:
    """Searched training options go together, as far as conditions and constraints let them meet."""
    try:
        built = space()
    except SpaceError:
        return  # told elsewhere
    searched = [name for name in built if name.startswith(TRAINING)]
    found: dict[Problem, None] = {}
    for params in islice(_draws(built), DRAWS):
        try:
            met = training_of(training, {name: params[name] for name in searched if name in params})
        except ValueError:
            return  # told elsewhere
        for problem in _refused(met, workers, nan):
            name = f"{TRAINING}{problem.path[1]}"
            path = ("parameters", name) if name in params else problem.path
            others = [f"{each} {params[each]}" for each in searched if each in params]
            met_with = ", ".join(each for each in others if not each.startswith(f"{name} "))
            told = problem.message + (f" (with {met_with})" if met_with else "")
            found[Problem(path, told)] = None
    yield from islice(found, ENOUGH)


def _draws(space: Space) -> Iterator[Params]:
    rng = np.random.default_rng(0)
    while True:
        try:
            yield space.sample(rng)
        except SpaceError:
            return  # its constraints leave next to nothing; told elsewhere


def _extremes(domain: Domain) -> tuple[object, ...]:
    """All values of a choice, or the ends of a range."""
    match domain:
        case Constant():
            return (domain.value,)
        case Choice():
            return domain.values
        case _:
            return (domain.low, domain.high)
