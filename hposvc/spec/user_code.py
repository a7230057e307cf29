"""Checks of a spec that import the user's code."""

import dataclasses
import inspect
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from cluster import runtime_env
from hposvc.errors import Problem, SpecError, fail, require_extra, shown
from hposvc.schedulers.scheduler import FIRST_PART
from hposvc.spec import choices, registry
from hposvc.spec.cross_checks import same_kind
from searchers import Space, nearest
from trainables import load, nesting
from trainables.contract import PYTHONS, parts_of_epoch, search_paths
from trainables.programs.arguments import names

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

SINK_BASE = "hposvc.tracking.sink:Sink"  # of the sinks of users
SINK_METHODS = (
    *("open", "resume_point", "clear", "send", "ensure_runs", "withdraw_runs", "finish", "close"),
)
PACKAGES = ("hposvc", "searchers", "trainables", "cluster")


def forbid_user_code() -> None:
    """Import no code of users in this process from now on: it serves several users.

    Specs are checked as far as that goes. `import_and_check`, and the plug-ins of the spec, are for
    the process that drives the sweep.
    """
    load.allow_only(PACKAGES)


def import_and_check(spec: "SweepSpec") -> "SweepSpec":
    """Return the spec, once its trainable, command or curve, rules and sinks were found and fit.

    How weak trials end is chosen by its trainable, if the spec leaves that out.

    Raises:
        SpecError: the code cannot be imported, or does not fit; paths start at the top of the spec.
        MissingExtra: the engine needs packages that are not installed here.
    """
    if spec.engine.traits.extra:
        require_extra(spec.engine.traits.extra, f"engine: {spec.engine.type}")
    if spec.environment.runtime_env:
        _check_runtime_env(spec.environment.runtime_env)
    resumes = spec.engine.traits.simulated
    if spec.variants is not None:  # the code here is no trial's
        _check_has_versions(spec.trainable or "", Path(spec.folder or Path.cwd()))
    elif spec.trainable is not None:
        trainable = _check_trainable(spec.trainable, spec.space)
        resumes = load.is_task(trainable)
        _check_suits(spec, trainable)
        _check_changed(trainable, spec)
    elif spec.command is not None:
        for key, items in spec.programs.items():
            _check_program(items, Path(spec.works_in or ""), *key)
    _check_other_code(spec)
    return choices.with_options(spec, resumes=resumes)


def _check_other_code(spec: "SweepSpec") -> None:
    """Check what a spec names beside its trainable: datasets, a curve, rules and sinks."""
    for name, make in spec.datasets.items():
        _check_dataset(make, "datasets", name)
    if spec.engine.curve is not None:
        try:
            registry.resolve_function(spec.engine.curve)
        except ValueError as error:
            raise fail(error, "engine", "curve") from error
    for number, rule in enumerate(spec.stop.rules):
        _check_rule(rule, "stop", "rules", number)
    for number, sink in enumerate(spec.tracking.send_to):
        if ":" in sink:
            _check_sink(sink, "tracking", "send_to", number)


def _check_runtime_env(environment: Mapping[str, object]) -> None:
    """Check that Ray takes a runtime environment, and that the folders that it sends exist."""
    if refused := runtime_env.problem(environment):
        key, why = refused
        fix = "see Ray's documentation of runtime environments"
        raise fail(why, "environment", "runtime_env", *([key] if key else []), fix=fix)


def _check_suits(spec: "SweepSpec", trainable: load.Trainable) -> None:
    """Check that the trainable does what the spec asks of it."""
    nan, fidelity = spec.failure.nan, spec.fidelity
    if nan != "stop" and not load.follows_failure_nan(trainable):
        raise fail(f"is {nan}, but {spec.trainable} {load.ITS_OWN}", "failure", "nan")
    if load.is_task(trainable):
        _check_length(spec)
    elif (at_once := spec.training.orders_at_once) > 1:
        option = "share_base" if spec.training.share_base > 1 else "trials_per_process"
        message = f"is {at_once}, but {spec.trainable} is no Task"
        raise fail(message, "training", option, fix="leave it out, or write a Task")
    elif fidelity is not None and fidelity.every is not None:
        message = f"is {fidelity.every}, but {spec.trainable} decides itself when it reports"
        raise fail(message, "fidelity", "every", fix="leave it out")


def _check_length(spec: "SweepSpec") -> None:
    """Check that the length of a trial is one that a Task knows."""
    if (fidelity := spec.fidelity) is None:
        what = f"{spec.trainable} is a Task, and trains for as long as it is told"
        raise fail(f"is missing; {what}: give fidelity: {{max: N}}", "fidelity", at_key=True)
    try:
        parts = parts_of_epoch(fidelity.unit)
    except ValueError as error:
        raise fail(error, "fidelity", "unit") from error
    if parts is None and fidelity.min == 1 and fidelity.max > FIRST_PART:  # a report after each
        fix = "leave min out"
        raise fail(
            f"first judges a trial after one {fidelity.unit}", "fidelity", at_key=True, fix=fix
        )
    if parts != 1 and spec.training.trials_at_once() > 1:
        message = f"is {fidelity.unit}, and trials that train at once are measured in epochs"
        fix = "write unit: epoch, or leave training.trials_per_process out"
        raise fail(message, "fidelity", "unit", fix=fix)


def _check_dataset(reference: str, *path: str) -> None:
    """Check that a function that makes a dataset can be imported, and takes the parameters."""
    require_extra("tune", "datasets")
    try:
        takes = inspect.signature(load.resolve(reference))
    except load.LoadError as error:
        raise fail(str(error).removeprefix("trainable "), *path) from error
    except (Exception, SystemExit) as error:
        raise fail(registry.import_failure(reference, error), *path) from error
    try:
        takes.bind({})
    except TypeError as error:
        fix = "let it take the trial's parameters, a dict, and return a ray.data.Dataset"
        raise fail(f"{reference} takes {takes}", *path, fix=fix) from error


def _check_rule(reference: str, *path: str | int) -> None:
    """Check that a rule that ends a sweep can be imported, and called with the trials so far."""
    try:
        rule = registry.resolve_function(reference)
    except ValueError as error:
        raise fail(error, *path) from error
    if isinstance(rule, type):
        fix = "name a function, or an object that is called"
        raise fail(f"{reference} is a class", *path, fix=fix)
    try:
        takes = inspect.signature(rule)
    except (TypeError, ValueError) as error:  # of some that are written in C
        fix = "name a function written in Python"
        raise fail(f"{reference} does not say what it takes", *path, fix=fix) from error
    try:
        takes.bind([])
    except TypeError as error:
        fix = "a rule takes the trials so far, and nothing else"
        raise fail(f"{reference} takes {takes}", *path, fix=fix) from error


def _check_sink(reference: str, *path: str | int) -> None:
    """Check that a sink of the user's own can be imported, and has all methods."""
    try:
        sink = registry.resolve(reference)
    except ValueError as error:
        raise fail(error, *path) from error
    if not isinstance(sink, type):
        raise fail(f"{reference} is {shown(sink)}", *path, fix="name a class")
    bases = [cls for cls in sink.__mro__ if cls.__module__ != SINK_BASE.partition(":")[0]]
    if not any("send" in vars(cls) for cls in bases):
        raise fail(
            f"{reference} is no sink: it has no send()", *path, fix="see hposvc docs plug-ins"
        )
    lacking = [name for name in SINK_METHODS if not callable(getattr(sink, name, None))]
    if lacking:
        message = f"{reference} is no sink: it has no {', '.join(lacking)}"
        raise fail(message, *path, fix=f"derive it from {SINK_BASE}")


def _check_trainable(reference: str, space: Space) -> load.Trainable:
    """Return the trainable: a function, or a dataclass whose fields are the parameters."""
    try:
        trainable = load.resolve(reference)
        if not isinstance(trainable, type):
            load.bind(trainable, {})
    except load.LoadError as error:
        raise fail(str(error).removeprefix("trainable "), "trainable") from error
    except (Exception, SystemExit) as error:
        raise fail(registry.import_failure(reference, error), "trainable") from error
    if not load.is_objective(trainable) and (clash := nesting.clash([*space])):
        raise fail(load.CLASH.format(*clash), *space.path_of(clash[1]), at_key=True)
    if not isinstance(trainable, type) or load.is_tune_class(trainable):
        return trainable
    if not dataclasses.is_dataclass(trainable) or not callable(getattr(trainable, "train", None)):
        message = "must be a frozen dataclass with train(self, worker), or a function"
        raise fail(f"{reference} {message}", "trainable")
    problems = [*_unknown_parameters(trainable, space), *_unset_fields(trainable, space)]
    if problems:
        raise SpecError(problems)
    return trainable


def _check_changed(trainable: load.Trainable, spec: "SweepSpec") -> None:
    """Check that values for finalists are parameters, or fields with values of their kind."""
    space, changed = spec.space, {} if spec.finalists is None else spec.finalists.set
    for name, value in changed.items():
        path = ("finalists", "set", name)
        if name in space or name.startswith(load.TRAINING):
            continue
        if not isinstance(trainable, type) or load.is_tune_class(trainable):
            message = "is no parameter of the sweep"
            raise fail(message, *path, fix=nearest(name, space), at_key=True)
        owner, field = nesting.owner_of(trainable, name)
        fields = {each.name: each for each in dataclasses.fields(owner) if each.init}
        if field not in fields:
            message = f"{owner.__name__} has no such field"
            raise fail(message, *path, fix=nearest(field, fields), at_key=True)
        default = fields[field].default
        if not isinstance(default, bool | int | float | str) or same_kind(value, default):
            continue
        raise fail(f"is {shown(value)}, and the field's default is {shown(default)}", *path)


def _check_has_versions(reference: str, folder: Path) -> None:
    """Check that the source of a trainable lies in the folder whose versions trials run."""
    with suppress(load.LoadError):  # a version may have it
        file = load.source(reference)
        if not file.resolve().is_relative_to(folder.resolve()):
            message = f"lies in {file}, and code is frozen of {folder} alone"
            raise fail(message, "trainable", fix="name its folder by `folder`")


def _check_program(command: Sequence[str], folder: Path, *key: str | int) -> None:
    """Check that the program exists, and for a Python interpreter the script too.

    Args:
        folder: the working directory of the command.
    """
    first, script = command[0], command[1] if len(command) > 1 else ""
    if names(first):
        return  # the program depends on a trial's parameters
    program = f"{(folder / first).absolute()}" if "/" in first else first
    if first not in PYTHONS and shutil.which(program, path=search_paths({})["PATH"]) is None:
        raise fail(f"there is no program {program} on the PATH", *key, 0, fix="give its path")
    if first in PYTHONS and script.endswith(".py") and not (folder / script).is_file():
        raise fail(f"there is no file {(folder / script).absolute()}", *key, 1)


def _unknown_parameters(trainable: type, space: Space) -> Iterator[Problem]:
    for name in space:
        owner, field = nesting.owner_of(trainable, name)
        fields = nesting.field_names(owner)
        if field not in fields and not name.startswith(load.TRAINING):
            message = f"{owner.__name__} has no such field"
            yield Problem(space.path_of(name), message, nearest(field, fields), at_key=True)


def _unset_fields(trainable: type, space: Space) -> Iterator[Problem]:
    missing = [*nesting.required(trainable, space)]
    for name in missing:
        fix = "add a parameter"
        yield Problem(("parameters",), f"field {name} of {trainable.__name__} has no default", fix)
    for name in nesting.required(trainable, [name for name in space if not space[name].when]):
        if name not in missing:
            path = space.path_of(name) if name in space else ("parameters",)
            message = f"the field needs a default in {trainable.__name__} for when it is inactive"
            yield Problem(path, message)
