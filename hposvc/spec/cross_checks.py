"""Checks across the sections of a spec; each one yields every problem that it finds."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from hposvc.errors import KeyPath, Problem, SpecError, shown
from hposvc.schedulers.scheduler import Demanding
from hposvc.spec.command import command_problems
from hposvc.spec.engines import names_of
from hposvc.spec.metrics import limit_problems, metric_problems
from hposvc.spec.notify import notify_problems
from hposvc.spec.parsing.coercion import fill
from hposvc.spec.registry import SCHEDULERS, SEARCHERS, PlugIn, build, may_be_imported, trait
from hposvc.spec.scale import scale_problems
from hposvc.spec.sections import MARKET, Queue, Trials
from hposvc.spec.serving import serve_problems
from hposvc.spec.sinks import SINKS, describe_sinks, sink_type
from searchers import (
    METHODS,
    Choice,
    Constant,
    Domain,
    Params,
    Space,
    SpaceError,
    Tied,
    check_searcher,
    load_method,
    nearest,
    parameters_of,
    takes_several,
)
from trainables.contract import (
    OF_PROCESS,
    TRAINING,
    Nan,
    Period,
    Training,
    default_strategy,
    nan_refusals,
    refusals,
)
from trainables.load import ITS_OWN, training_of

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

SAMPLES = 200  # samples of a space, to see which training options occur together
# Problems reported for initial points, or searched options: a point can take 1/3 s to check.
MAX_PROBLEMS = 5
NO_ENERGY = "counts energy, and a simulation measures none"
MOST_REPLICATES = 10_000  # of finalists: all are looked at whenever a slot is free


def space_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that conditions and constraints make sense, and initial points lie in the space."""
    try:
        space = spec.space
    except SpaceError as error:
        yield Problem(error.path, error.message)
        return
    problems = (
        problem
        for index, point in enumerate(spec.initial)
        for problem in _point_problems(space, point, ("initial", index))
    )
    yield from islice(problems, MAX_PROBLEMS)


def _point_problems(space: Space, point: Params, path: KeyPath) -> Iterator[Problem]:
    try:
        space.complete(point, np.random.default_rng(0))
    except SpaceError as error:
        if error.path and error.path[0] in point:
            yield Problem.of_text(error.message, *path, *error.path)
        else:
            yield Problem.of_text(str(error), *path)


def trial_count_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that the sweep ends, and that a scheduler that stops trials knows their length."""
    if spec.trials.max is None and not spec.budget.limited:
        fix = "say how many trials, or give budget.wall"
        yield Problem(("trials", "max"), "is missing", fix, at_key=True)
    if spec.fidelity is None and not trait(SCHEDULERS, spec.scheduler, "any_length"):
        message = f"is missing; scheduler {spec.scheduler.name} must know how long a trial is"
        yield Problem(("fidelity",), message, "give fidelity: {max: N}", at_key=True)


def price_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that a budget in money has the price by which it is counted."""
    gpus = spec.resources.gpus_per_worker
    key, unit = ("gpu_hour", "a GPU") if gpus else ("worker_hour", "a worker")
    price = getattr(spec.price, key)
    if spec.budget.cost is not None and not price:
        message = f"can't be counted: price.{key} is {'missing' if price is None else shown(price)}"
        fix = f"give the price of an hour of {unit}, such as price: {{{key}: 2.5}}"
        yield Problem(("budget", "cost"), message, fix, at_key=True)


def variant_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that each trial can have processes of its own code."""
    if spec.variants is None:
        return
    able = names_of(lambda engine: engine.code_versions)
    changing = trait(SCHEDULERS, spec.scheduler, "changes_values")
    # A trial that is trained again (Repeating) had one version of the code.
    repeating = trait(SCHEDULERS, spec.scheduler, "seeded_as")
    refusals = {
        f"needs engine {able}, and engine is {spec.engine.type}": (
            not spec.engine.traits.code_versions
        ),
        "would change within a trial; take a scheduler such as asha": changing and not repeating,
        "has the spec's folder; leave working_dir out": spec.environment.working_dir is not None,
        "needs one trial in a process": spec.training.orders_at_once > 1,
    }
    for message in (text for text, refused in refusals.items() if refused):
        yield Problem.of_text(message, *spec.variants.path)


def ending_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that rules about the best trial have a single metric, and a reserve has finalists."""
    finalists, worth, metrics = spec.finalists, spec.stop.worth, len(spec.objectives)
    for path, section in (
        (("stop", "plateau"), spec.stop.plateau),
        (("stop", "worth"), worth),
        (("finalists",), finalists),
    ):
        if section is not None and metrics > 1:
            message = f"asks which trial is the best, and with {metrics} metrics there is a front"
            yield Problem(path, message, "remove it", at_key=True)
    if worth is not None and worth.gpu_hours and not spec.resources.gpus_per_worker:
        message, fix = "counts GPUs, and the trials have none", "give cpu_hours or trials instead"
        yield Problem(("stop", "worth", "gpu_hours"), message, fix, at_key=True)
    if worth is not None and worth.energy_kwh and spec.engine.traits.simulated:
        yield Problem(("stop", "worth", "energy_kwh"), NO_ENERGY, "remove it", at_key=True)
    if spec.budget.energy_kwh and spec.engine.traits.simulated:
        yield Problem(("budget", "energy_kwh"), NO_ENERGY, "remove it", at_key=True)
    if spec.budget.reserve is not None and finalists is None:
        message = "is kept for finalists, and there are none"
        yield Problem(("budget", "reserve"), message, "give finalists: {top, seeds}", at_key=True)
    if finalists is not None and finalists.top * finalists.seeds > MOST_REPLICATES:
        message = f"is {finalists.seeds} for each of {finalists.top} trials"
        remedy = f"train no more than {MOST_REPLICATES:,} in all"
        yield Problem(("finalists", "seeds"), message, remedy)


def finalist_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check the values that finalists are trained with, as far as the user's code is not needed."""
    changed = {} if spec.finalists is None else spec.finalists.set
    if changed and spec.baseline is not None:
        message = "is not what a baseline measures the noise of, and trials share their replicates"
        yield Problem(("finalists", "set"), message, "remove baseline or set", at_key=True)
    with suppress(SpaceError):  # reported elsewhere
        yield from _changed_parameter_problems(spec, spec.space, changed)
    yield from _changed_option_problems(spec, changed)


def _changed_parameter_problems(
    spec: "SweepSpec", space: Space, changed: Params
) -> Iterator[Problem]:
    for name, value in changed.items():
        if name in space:
            examples = _extreme_values(space[name])
            if not any(same_kind(value, example) for example in examples):
                message = f"is {shown(value)}, and parameter {name} has values like {examples[0]}"
                yield Problem(("finalists", "set", name), message)
        elif spec.trainable is None and not name.startswith(TRAINING):
            message = "is no parameter of the sweep"
            yield Problem(("finalists", "set", name), message, nearest(name, space), at_key=True)


def _changed_option_problems(spec: "SweepSpec", changed: Params) -> Iterator[Problem]:
    options = {name: value for name, value in changed.items() if name.startswith(TRAINING)}
    try:
        training = training_of(spec.training, options)
    except ValueError as error:
        yield Problem(("finalists", "set"), f"{error}")
        return
    for option, reason in refusals(training, spec.resources.ranks) if options else ():
        yield Problem.of_text(f"training.{option} {reason}", "finalists", "set")


def same_kind(value: object, example: object) -> bool:
    """Return whether a value may stand where the example does: whole numbers for others too."""
    return type(value) is type(example) or (type(value), type(example)) == (int, float)


def baseline_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that a baseline has a configuration that lies in the space and keeps its values."""
    baseline, scheduler = spec.baseline, spec.scheduler
    if baseline is None:
        return
    if spec.several:
        message = f"measures the noise of one metric, and there are {len(spec.objectives)}"
        yield Problem(("baseline",), message, "remove it", at_key=True)
    if baseline.params is None and not spec.initial:
        fix = "give params: {...}, or initial: [{...}]"
        yield Problem(("baseline",), "needs a configuration", fix, at_key=True)
    if trait(SCHEDULERS, scheduler, "changes_values"):
        message = f"is one configuration, and scheduler {scheduler.name} changes values of trials"
        yield Problem(("baseline",), message, "remove it", at_key=True)
    with suppress(SpaceError):  # reported elsewhere
        if baseline.params is not None:
            yield from _point_problems(spec.space, baseline.params, ("baseline", "params"))


def seed_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that a mean over seeds means something, and nothing else trains them again."""
    scheduler, path = spec.scheduler, ("trials", "seeds")
    if spec.trials.seeds is None:
        return
    if trait(SCHEDULERS, scheduler, "changes_values"):
        message = f"are of one configuration, and scheduler {scheduler.name} changes values"
        fix = "remove seeds, or take a scheduler such as asha"
        yield Problem(path, f"{message} of trials that learn from each other", fix, at_key=True)
    if trait(SEARCHERS, spec.search, "must_repeat"):
        message = "is true, and trials.seeds trains configurations again already"
        yield Problem(("search", "repeats"), message, "remove one of the two", at_key=True)
    if scheduler.options.get("plateau"):
        message = "ends seeds of a trial at unlike steps, so they have no mean"
        yield Problem(("scheduler", "plateau"), message, "remove it, or trials.seeds", at_key=True)


def memo_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that recorded trainings can stand for those of this sweep."""
    refusals = {
        "looks for trainings of the same code, and a simulated curve has no fingerprint": (
            spec.engine.traits.simulated
        ),
        f"takes whole trainings, and scheduler {spec.scheduler.name} changes values within": trait(
            SCHEDULERS, spec.scheduler, "changes_values"
        ),
        "takes results without checkpoints, and register asks for one": spec.register is not None,
        "compares the trainable's file, and a parameter chooses versions": bool(spec.variants),
    }
    for message in (text for text, refused in refusals.items() if refused and spec.memo):
        yield Problem(("memo",), message, "remove it", at_key=True)


def scheduler_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that a scheduler with requirements suits this sweep."""
    try:
        policy, space = build(SCHEDULERS, spec.scheduler), spec.space
    except (SpecError, SpaceError):
        return  # reported elsewhere
    if spec.fidelity is not None and isinstance(policy, Demanding):
        yield from policy.problems(space, spec.plan)


def search_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that the search method has the model that the scheduler needs, and can take metrics."""
    search, scheduler, metrics = spec.search, spec.scheduler, len(spec.objectives)
    if metrics > 1 and not _takes_several(search):
        able = ", ".join(name for name in METHODS if takes_several(load_method(name)))
        message = f"is {search.name}, which learns from one metric, and there are {metrics}"
        yield Problem(("search", "method"), message, f"choose one of {able}")
    if trait(SCHEDULERS, scheduler, "needs_model") and not _uses_results(search):
        message = f"is {search.name}, but scheduler {scheduler.name} is for methods with a model"
        remedy = "choose gp, tpe or auto, or another scheduler"
        yield Problem(("search", "method"), message, remedy)


def repeat_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that trials are repeated where a spec asks for it."""
    scheduler, metrics, path = spec.scheduler, len(spec.objectives), ("search", "repeats")
    problems = []
    if metrics > 1:
        message = f"is true, but with {metrics} metrics nothing is repeated"
        problems.append(Problem(path, message, "remove it"))
    if spec.limits:
        fix = "leave out one of the two"
        problems.append(Problem(path, "is true, but with limits nothing is repeated", fix))
    if trait(SCHEDULERS, scheduler, "changes_values"):
        message = f"is true, but scheduler {scheduler.name} changes values of trials"
        problems.append(Problem(path, f"{message}, so none would be repeated", "remove it"))
    if problems and trait(SEARCHERS, spec.search, "must_repeat"):
        yield from problems


def search_option_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that search options with requirements suit this space."""
    try:
        searcher, space = build(SEARCHERS, spec.search), spec.space
    except (SpecError, SpaceError):
        return  # reported elsewhere
    try:
        check_searcher(searcher, space)
    except SpaceError as error:
        yield Problem.of_text(error.message, "search", *error.path)
    except ValueError as error:
        yield Problem.of_text(str(error), "search")


def _uses_results(search: PlugIn) -> bool:
    if not may_be_imported(search):
        return True  # its sweep's own process checks it
    try:
        return bool(getattr(load_method(search.name), "uses_results", True))
    except ValueError:
        return True  # reported elsewhere


def _takes_several(search: PlugIn) -> bool:
    try:
        return takes_several(type(build(SEARCHERS, search)))
    except SpecError:
        return True  # reported elsewhere


def register_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that there is one best trial with a checkpoint, and that MLflow hears of the sweep."""
    metrics = len(spec.objectives)
    if spec.register is None:
        return
    if metrics > 1:
        message = f"asks which trial is the best, and with {metrics} metrics there is a front"
        yield Problem(("register",), message, "remove it", at_key=True)
    if spec.engine.traits.simulated:
        message = "asks for a checkpoint, and a simulated trial has none"
        yield Problem(("register",), message, "remove it", at_key=True)
    registries = [name for name, sink in SINKS.items() if sink.has_registry]
    if not {*registries} & {*spec.tracking.send_to}:
        titles, names = describe_sinks(registries)
        message = f"asks for {titles}, which is not in tracking.send_to"
        yield Problem(("register",), message, f"add {names} there", at_key=True)


def plateau_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that a trial stopped for its own curve keeps its best checkpoint."""
    try:
        has_plateau = spec.plateau is not None
    except SpecError as error:
        yield from (problem.under("scheduler") for problem in error.problems)
        return
    if has_plateau and spec.checkpoints.keep_best < 1:
        message = "is 0, but a trial that scheduler.plateau stops was best before"
        yield Problem(("checkpoints", "keep_best"), message, "set it to 1")


def engine_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that the engine has a trainable or a command to run, and can run it."""
    engine, runs = spec.engine, spec.trainable or spec.command
    if engine.traits.simulated and runs is not None:
        message = "is given, but engine simulate calls engine.curve instead"
        yield Problem((spec.runnable_key,), message, "remove one of them", at_key=True)
    if not (engine.traits.simulated or engine.traits.foreign) and runs is None:
        fix = "give module:Name, path/to/file.py:Name, or a command"
        yield Problem(("trainable",), "is missing", fix, at_key=True)


def ray_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that Ray prepares the processes for which a runtime environment, or a place, is."""
    if spec.resources.market is not None and MARKET in spec.resources.labels:
        path = ("resources", "labels", MARKET)
        yield Problem(path, "is what resources.market says", "remove one of them", at_key=True)
    if spec.engine.traits.shared:
        return
    fix = "remove it, or set engine: ray"
    if spec.environment.runtime_env:
        message = f"is what Ray prepares on its nodes, and engine is {spec.engine.type}"
        yield Problem(("environment", "runtime_env"), message, fix, at_key=True)
    if spec.driver.entrypoint:
        message = f"is a node of a Ray cluster, and engine is {spec.engine.type}"
        yield Problem(("driver",), message, fix, at_key=True)
    if spec.resources.market is not None:
        message = f"is of nodes of a Ray cluster, and engine is {spec.engine.type}"
        yield Problem(("resources", "market"), message, fix, at_key=True)


def dataset_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that datasets of Ray Data have ranks that ask for them, and CPUs for their tasks."""
    engine, resources = spec.engine, spec.resources
    if not spec.datasets:
        return
    cpus, ranks = resources.cpus_per_worker, resources.ranks
    if spec.variants is not None:
        message = "is read from the live code, and trials run frozen versions of it"
        yield Problem(("datasets",), message, "remove it, or the variants", at_key=True)
    if spec.trainable is None:
        fix = "remove it, or give a trainable that calls ray.train.get_dataset_shard"
        yield Problem(("datasets",), "is for a trainable, and there is none", fix, at_key=True)
    if not engine.traits.on_nodes:
        message = f"is Ray Data's, which works on a cluster, and engine is {engine.type}"
        yield Problem(("datasets",), message, "set engine: ray", at_key=True)
    if engine.traits.shared and (cpus - resources.cpus_beside_data) * ranks < 1:
        least = f"give cpus_per_worker: {2 / ranks:.2g} or more"
        message = f"is {cpus:g}: half of it, or all above 1, is for tasks of Ray Data, which take 1"
        yield Problem(("resources", "cpus_per_worker"), message, least)


def queue_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that a sweep which asks for a share is on a cluster that sweeps share."""
    if spec.engine.traits.shared:
        return
    # Not the priority: with every engine, sweeps wait for a server's drivers by it.
    for name in ("name", "weight", "max_parallel", "preemptible"):
        if getattr(spec.queue, name) != getattr(Queue(), name):
            message = f"is for sweeps on a cluster, and engine is {spec.engine.type}"
            yield Problem(("queue", name), message, "remove it, or set engine: ray", at_key=True)


def sink_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that the command has what sinks need to hold the sweep."""
    command = spec.command or ()
    for number, name in enumerate(spec.tracking.send_to):
        sink = sink_type(name)
        if sink.command_item and not any(item.startswith(sink.command_item) for item in command):
            message = f"{name} {sink.refusal}; remove it"
            yield Problem(("tracking", "send_to", number), message)


def elastic_worker_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that the engine can add workers to a running trial, and the trial keeps its batch."""
    resources, engine = spec.resources, spec.engine
    if resources.max_workers == resources.ranks:
        return
    number = f"give one number, such as {resources.ranks}"
    if not engine.traits.elastic:
        message = f"is a span, but engine {engine.type} cannot change a trial's workers"
        yield Problem(("resources", "workers"), message, number)
    if spec.command is not None:
        message = "is a span, but a command's batch would change with its workers"
        yield Problem(("resources", "workers"), message, number)


def resolve_trials_per_process(training: Training, trials: Trials) -> Training:
    """Return the options with `trials_per_process: true` replaced by its number in this sweep."""
    parallel = None if trials.parallel == "auto" else trials.parallel
    return replace(training, trials_per_process=training.trials_at_once(parallel, trials.max))


def batching_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that the engine can train as many trials in a process as the options ask."""
    engine = spec.engine
    for option in OF_SLOTS:
        at_once = getattr(spec.training, option)
        if not engine.traits.batched and at_once > 1:
            message = f"is {at_once}, but engine {engine.type} gives a process one trial"
            fix = "leave out one of the two"
            yield Problem(("training", option), f"{message} at a time", fix)
    if spec.training.share_base == 1:
        return
    for name, path, _ in parameters_of(spec.parameters):
        if name.removeprefix(TRAINING) in OF_PROCESS and name.startswith(TRAINING):
            message = "is one for all trials of a process, which share_base makes several"
            fix = "set it under training, or leave share_base out"
            yield Problem(path, message, fix, at_key=True)


def interval_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that the intervals of checkpoints and reports can be measured."""
    interval = spec.checkpoints.interval
    if spec.command is not None and spec.fidelity is not None and spec.fidelity.every is not None:
        message = f"is {spec.fidelity.every}, but a command decides itself when it reports"
        yield Problem(("fidelity", "every"), message, "leave it out")
    if spec.command is not None and isinstance(interval, Period) and interval.updates is not None:
        message = f"is {spec.checkpoints.every}, but nobody counts the updates of a command"
        remedy = "give a time like 10m, or a whole number in units of fidelity"
        yield Problem(("checkpoints", "every"), message, remedy)


def failure_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that the engine can do what is asked for bad updates, and for slow nodes."""
    nan, engine = spec.failure.nan, spec.engine
    if nan != "stop" and spec.command is not None:
        yield Problem(("failure", "nan"), f"is {nan}, but a command {ITS_OWN}")
    elif nan != "stop" and engine.traits.simulated:
        message = f"is {nan}, but a simulation makes no updates"
        yield Problem(("failure", "nan"), message, "write nan: stop")

    if not engine.traits.finds_slow_nodes and spec.failure.straggler == "drain":
        message = f"is drain, but engine {engine.type} does not look for slow nodes"
        yield Problem(("failure", "straggler"), message, "leave out one of the two")


def compression_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that ranks without GPUs do not compress gradients to bf16, set or searched."""
    training, resources = spec.training, spec.resources
    if resources.gpus_per_worker or resources.max_workers == 1:
        return
    reason = "only NCCL adds bf16 up, on GPUs; choose fp16 or powersgd, or give each worker a GPU"
    compresses = "gradient_compression" in training.traits.options
    if compresses and training.gradient_compression == "bf16":
        yield Problem(("training", "gradient_compression"), f"is bf16, but {reason}")
    for name, path, domain in parameters_of(spec.parameters):
        if name == f"{TRAINING}gradient_compression" and not domain.problem("bf16"):
            yield Problem(path, f"has bf16, but {reason}")


def training_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check training options for the fewest workers of a trial, and for the most."""
    for workers in sorted({spec.resources.ranks, spec.resources.max_workers}):
        yield from _fixed_training_problems(spec, workers)
        yield from _searched_training_problems(spec, workers)


def _fixed_training_problems(spec: "SweepSpec", workers: int) -> Iterator[Problem]:
    """Check that training options fit the workers, and searched ones exist and are not fixed."""
    training = spec.training
    base = Training(strategy=default_strategy(workers))
    options = [option.name for option in fields(Training)]
    searched = {
        name: (path, domain)
        for name, path, domain in parameters_of(spec.parameters)
        if name.startswith(TRAINING)
    }
    if not searched:
        yield from _refusals(training, workers, spec.failure.nan)
    for name, (path, domain) in searched.items():
        option = name.removeprefix(TRAINING)
        if option not in options:
            yield Problem(path, "no such training option", nearest(option, options), at_key=True)
        elif getattr(training, option) != getattr(base, option):
            fix = "remove one of them"
            yield Problem(path, f"is set in training.{option} too", fix, at_key=True)
        elif option in OF_SLOTS:
            fix = "set it under training"
            yield Problem(path, "applies to slots, not to a trial", fix, at_key=True)
        else:
            yield from _option_problems(path, option, domain)


def _refusals(training: Training, workers: int, nan: Nan) -> Iterator[Problem]:
    for option, reason in refusals(training, workers):
        yield Problem.of_text(reason, "training", option)
    for reason in nan_refusals(training, workers, nan):
        yield Problem.of_text(reason, "failure", "nan")


def _option_problems(path: KeyPath, option: str, domain: Domain) -> Iterator[Problem]:
    for value in _extreme_values(domain):
        try:
            fill(Training, {option: value})
        except SpecError as error:
            yield replace(error.problems[0], path=path)
            return


def _searched_training_problems(spec: "SweepSpec", workers: int) -> Iterator[Problem]:
    """Check that searched training options go together in every combination that can be drawn."""
    try:
        space = spec.space
    except SpaceError:
        return  # reported elsewhere
    searched = [name for name in space if name.startswith(TRAINING)]
    problems: dict[Problem, None] = {}
    for params in islice(_sample_forever(space), SAMPLES if searched else 1):
        try:
            options = {name: params[name] for name in searched if name in params}
            drawn = training_of(spec.training, options)
        except ValueError:
            return  # reported elsewhere
        for problem in _refusals(drawn, workers, spec.failure.nan):
            name = f"{TRAINING}{problem.path[1]}"
            path = space.path_of(name) if name in params else problem.path
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


OF_SLOTS = ("trials_per_process", "share_base", "joint_passes")  # options that apply to slots
Check = Callable[["SweepSpec"], Iterator[Problem]]
# Checks of keys that may come from the defaults of a server's operator.
COMPLETENESS: tuple[Check, ...] = (trial_count_problems, price_problems)
CHECKS: tuple[Check, ...] = (
    metric_problems,
    space_problems,
    scale_problems,
    *COMPLETENESS,
    ending_problems,
    variant_problems,
    finalist_problems,
    baseline_problems,
    seed_problems,
    memo_problems,
    scheduler_problems,
    search_problems,
    repeat_problems,
    search_option_problems,
    register_problems,
    notify_problems,
    plateau_problems,
    engine_problems,
    ray_problems,
    dataset_problems,
    queue_problems,
    sink_problems,
    batching_problems,
    command_problems,
    serve_problems,
    elastic_worker_problems,
    limit_problems,
    interval_problems,
    failure_problems,
    compression_problems,
    training_problems,
)
