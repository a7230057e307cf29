"""The sweeper of Hydra applications: `python train.py -m hydra/sweeper=hposvc lr='interval(0, 1)'`.

Each trial is a process of its own, which runs the application as its user would: the same script,
with overrides for the parameters and for the folder of the job. A callback of Hydra reports what
the function returns (hydra_plugins/hposvc_sweeper/report_result.py).
"""

import math
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, cast

from hydra._internal.utils import get_args_parser
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import (
    IntervalSweep,
    Override,
    RangeSweep,
    Transformer,
)
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf

from hposvc import api
from hposvc.errors import KeyPath, Problem, SpecError, fail, shown
from hposvc.python.sweep import Sweep
from hposvc.reporting.result import NoValue, Result
from hposvc.spec.sinks import HYDRA_FOLDER, Tracking
from hposvc.tracking.hydra_results import MULTIRUN
from searchers import SpaceError, nearest, read_declared
from trainables.contract import quote_for_hydra

CALLBACK = "hydra_plugins.hposvc_sweeper.report_result.ReportResult"
# Overrides of the sweep, which are not those of its jobs.
OF_THE_SWEEP = re.compile(r"hydra[./](sweeper|launcher|mode|sweep\.dir|run\.dir)\b")
TAGS = frozenset({"log", "int", "float"})
SWEEPER = ("hydra", "sweeper")
# The options that become keys of the spec.
OPTIONS_BY_KEY: Mapping[KeyPath, str] = {
    ("trials", "max"): "n_trials",
    ("trials", "parallel"): "n_jobs",
    ("metric", "name"): "metric",
    ("metric", "goal"): "direction",
    ("fidelity",): "max_steps",
    ("search",): "search",
    ("scheduler",): "scheduler",
    ("seed",): "seed",
    ("name",): "name",
}


@dataclass(frozen=True)
class Options:
    """The fields of `hydra.sweeper`, as hydra_plugins/hposvc_sweeper/config.py explains them."""

    direction: Any = "minimize"
    metric: Any = "value"
    n_trials: int = 20
    n_jobs: int = 1
    search: Any = "auto"
    scheduler: Any = "fifo"
    max_steps: int | None = None
    params: Mapping[str, Any] | None = None
    seed: int | None = None
    name: str | None = None
    home: str | None = None
    options: Mapping[str, Any] | None = None

    @classmethod
    def read(cls, given: Mapping[str, Any]) -> "Options":
        """Return the options as the config gives them.

        Raises:
            SpecError: there is no such option, or it is of the wrong kind.
        """
        known = [field.name for field in fields(cls)]
        problems = [
            Problem((*SWEEPER, name), "no such option", nearest(name, known), at_key=True)
            for name in given
            if name not in known
        ]
        problems += [
            Problem((*SWEEPER, name), f"is {shown(given[name])}", "give a mapping")
            for name in ("params", "options")
            if not isinstance(given.get(name), Mapping | None)
        ]
        problems += [
            Problem((*SWEEPER, name), f"is {shown(given[name])}", "give a text, or a list of texts")
            for name in ("metric", "direction")
            if not isinstance(given.get(name, ""), str | Sequence)
        ]
        if problems:
            raise SpecError(problems)
        return cls(**given)

    @property
    def metrics(self) -> list[dict[str, str]]:
        """The metrics of the sweep, each with its goal.

        Raises:
            SpecError: there are not as many directions as names.
        """
        names, goals = (
            [str(value)] if isinstance(value, str) else [str(item) for item in value]
            for value in (self.metric, self.direction)
        )
        if len(names) != len(goals):
            message = f"has {len(names)} names and direction {len(goals)}"
            raise fail(message, *SWEEPER, "metric", fix="give as many of both")
        return [{"name": name, "goal": goal} for name, goal in zip(names, goals, strict=True)]


@dataclass(frozen=True)
class Parameter:
    """A parameter of the sweep: an override whose value is a range."""

    key: str  # Hydra's, such as `+lr` or `db/engine`
    name: str  # the sweep's
    declaration: Mapping[str, Any]  # as in a spec

    @property
    def members(self) -> dict[str, str]:
        """Hydra's key of each value, by the sweep's name: of the shares, or of the range."""
        if "shares" not in self.declaration:
            return {self.name: self.key}
        try:
            names = read_declared(self.name, self.declaration)
        except SpaceError as error:
            raise fail(error.message, self.key, *error.path) from error
        return {name: f"{self.key}{name.removeprefix(self.name)}" for name in names}

    @property
    def first(self) -> list[str]:
        """The overrides with a first value."""
        values = self.declaration.get("values") or [self.declaration.get("min", 0.5)]
        value = 0.5 if "shares" in self.declaration else values[0]
        return [f"{key}={value}" for key in self.members.values()]


def sweep(
    config: DictConfig, loader: ConfigLoader, arguments: Sequence[str], options: Options
) -> Result:
    """Run the sweep; its sink `hydra` writes the result into the folder of the multirun.

    Args:
        config: of the application, with `hydra`.
        arguments: overrides of the command line.

    Raises:
        SpecError: a range or an option is wrong.
        NoValue: no trial has reported a value.
    """
    overrides = _parse([*_ranges(options.params or {}), *arguments], loader)
    shared = {key: Parameter(key, key, each) for key, each in _shares(options.params or {})}
    ranges = [item for item in overrides if item.is_sweep_override()]
    parameters = [*_parameters(ranges), *shared.values()]
    if not parameters:
        fix = "give one, such as lr='tag(log, interval(1e-4, 1e-1))'"
        raise fail("there is no range", *SWEEPER, "params", fix=fix)
    fixed = [_text(item) for item in overrides if not item.is_sweep_override()]
    _check_job(fixed, parameters, config, loader)
    folder = Path(config.hydra.sweep.dir).absolute()
    command = [*_program(), *_flags(), *fixed, *_hydras(config, loader, folder, options)]
    sections = _sections(command, parameters, config, options)
    try:
        api.validate(sections, {})
    except SpecError as error:
        raise _as_given(error, parameters, options) from error
    folder.mkdir(parents=True, exist_ok=True)
    OmegaConf.save(config, folder / MULTIRUN)
    result = Sweep(**sections).run(options.home)
    if not result.record.front():
        raise NoValue(f"{result.sweep}: no trial has a value")
    return result


def _sections(
    command: Sequence[str],
    parameters: Sequence[Parameter],
    config: DictConfig,
    options: Options,
) -> dict[str, Any]:
    metrics, given = options.metrics, options.options or {}
    sections: dict[str, Any] = {
        "name": options.name or re.sub(r"[^A-Za-z0-9._-]+", "-", config.hydra.job.name),
        "engine": "local",
        **given,
        "tracking": _tracking(given.get("tracking", {"send_to": []})),
        "command": [item.replace("${", "$${") for item in command]
        + [f"{key}=${{{name}}}" for each in parameters for name, key in each.members.items()],
        "folder": Path.cwd(),
        "parameters": {item.name: item.declaration for item in parameters},
        "search": options.search,
        "scheduler": options.scheduler,
        "trials": {"max": options.n_trials, "parallel": options.n_jobs},
        "seed": options.seed,
    }
    if options.n_jobs == -1:
        sections["trials"]["parallel"] = os.cpu_count() or 1
    if options.max_steps is not None:
        sections["fidelity"] = {"max": options.max_steps}
    sections |= {"metrics": metrics} if len(metrics) > 1 else {"metric": metrics[0]}
    return sections


def _tracking(given: Any) -> Any:
    """Return the section `tracking` with the sink of results; what is wrong stays for its error."""
    given = {} if given is None else given
    sinks = given.get("send_to", Tracking().send_to) if isinstance(given, Mapping) else None
    if not isinstance(sinks, Sequence) or isinstance(sinks, str) or "hydra" in sinks:
        return given
    return {**given, "send_to": [*sinks, "hydra"]}


def _as_given(error: SpecError, parameters: Sequence[Parameter], options: Options) -> SpecError:
    """Return the error with the overrides and options in which the spec's keys were given."""
    keys = {parameter.name: parameter.key for parameter in parameters}

    def given(path: KeyPath) -> KeyPath:
        match path:
            case ("parameters", str(name), *rest) if name in keys:
                return (keys[name], *rest)
            case ("metrics", int(number), str(field)) if ("metric", field) in OPTIONS_BY_KEY:
                return (*SWEEPER, OPTIONS_BY_KEY["metric", field], number)
            case ("fidelity", *_) if "fidelity" in (options.options or {}):
                return (*SWEEPER, "options", *path)
        for length in (2, 1):
            option = OPTIONS_BY_KEY.get(path[:length])
            if option is not None:
                inner = path[length:] if isinstance(getattr(options, option), Mapping) else ()
                return (*SWEEPER, option, *inner)
        return (*SWEEPER, "options", *path)

    return SpecError(
        replace(problem, path=given(problem.path), place="") for problem in error.problems
    )


def _check_job(
    fixed: Sequence[str],
    parameters: Sequence[Parameter],
    config: DictConfig,
    loader: ConfigLoader,
) -> None:
    """Compose the config of a job, as each job will do.

    Raises:
        SpecError: an override does not fit the application's config.
    """
    try:
        firsts = [text for parameter in parameters for text in parameter.first]
        loader.load_sweep_config(config, [*fixed, *firsts])
    except CompactHydraException as error:
        plain = OmegaConf.to_container(config, throw_on_missing=False)
        assert isinstance(plain, dict)
        known = set(_keys({name: value for name, value in plain.items() if name != "hydra"}))
        for key in (key for parameter in parameters for key in parameter.members.values()):
            if re.fullmatch(r"[\w.]+", key) and key not in known:
                fix = f"{nearest(key, known)} (+{key} adds a key)"
                raise fail("no such key of the config", key, fix=fix) from error
        raise fail(_one_line(error), "overrides") from error


def _keys(config: Mapping[Any, Any], prefix: str = "") -> Iterator[str]:
    """Yield the keys of a config and of the configs in it, with points."""
    for key, value in config.items():
        yield f"{prefix}{key}"
        if isinstance(value, Mapping):
            yield from _keys(value, f"{prefix}{key}.")


def _one_line(error: CompactHydraException) -> str:
    """Return Hydra's message and its cause."""
    cause = [] if error.__cause__ is None else f"{error.__cause__}".splitlines()[:1]
    return "; ".join([" ".join(f"{error}".split()), *cause])


def _ranges(params: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Yield the ranges of the config as overrides."""
    for key, value in params.items():
        if isinstance(value, Mapping) and "shares" not in value:
            yield from _ranges(value, f"{prefix}{key}.")
        elif not isinstance(value, Mapping):
            yield f"{prefix}{key}={value}"


def _shares(params: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the shares that the config declares, as a spec does, by their key."""
    for key, value in params.items():
        if isinstance(value, Mapping) and "shares" in value:
            plain = OmegaConf.to_container(OmegaConf.create({"it": value}))
            yield f"{prefix}{key}", cast(dict[str, Any], plain)["it"]
        elif isinstance(value, Mapping):
            yield from _shares(value, f"{prefix}{key}.")


def _parse(texts: Sequence[str], loader: ConfigLoader) -> list[Override]:
    """Return overrides, of which the last one of a key stands.

    Raises:
        SpecError: a text is no override.
    """
    try:
        parsed = OverridesParser.create(config_loader=loader).parse_overrides(list(texts))
    except CompactHydraException as error:
        raise fail(_one_line(error), "overrides") from error
    return list({item.get_key_element(): item for item in parsed}.values())


def _text(override: Override) -> str:
    return override.input_line or ""


def _parameters(overrides: Sequence[Override]) -> list[Parameter]:
    """Return the parameters, each with a name of its own."""
    parameters: dict[str, Parameter] = {}
    for override in overrides:
        key = override.get_key_element()
        name = re.sub(r"[^\w.-]+", ".", key).strip(".")
        if name in parameters:
            raise fail(f"is called {name} here, as {parameters[name].key} is", key, fix="keep one")
        parameters[name] = Parameter(key, name, _declare(override))
    return list(parameters.values())


def _declare(override: Override) -> dict[str, Any]:
    """Return the declaration of a range as in a spec.

    Raises:
        SpecError: a range has a tag that says nothing here.
    """
    value = override.value()
    tags: set[str] = getattr(value, "tags", set())
    if tags - TAGS:
        message = f"has the tag {', '.join(sorted(tags - TAGS))}"
        raise fail(message, override.get_key_element(), fix="there is only `log`")
    if isinstance(value, IntervalSweep):
        kind = "int" if isinstance(value.start, int) and isinstance(value.end, int) else "float"
        return {"min": value.start, "max": value.end, "type": kind, "log": "log" in tags}
    if isinstance(value, RangeSweep) and not value.shuffle:
        return _declare_range(value, override.get_key_element())
    return _declare_choice(override)


def _declare_range(value: RangeSweep, key: str) -> dict[str, Any]:
    """Return a range with its end, as Hydra's Optuna sweeper takes it."""
    start, stop, step = (float(number or 0) for number in (value.start, value.stop, value.step))
    if step == 0 or (stop - start) / step < 0:
        raise fail(f"range({start:g}, {stop:g}, {step:g}) is empty", key)
    end = start + math.floor((stop - start) / step + 1e-9) * step
    numbers = (value.start, value.stop, value.step)
    whole = all(isinstance(number, int) for number in numbers)
    low, high = sorted((start, end))
    if whole:
        return {"min": int(low), "max": int(high), "step": int(abs(step)), "type": "int"}
    return {"min": low, "max": high, "step": abs(step), "type": "float"}


def _declare_choice(override: Override) -> dict[str, Any]:
    """Return a choice; what is no number and no switch is recorded as the text of an override.

    Hydra's functions, such as `choice`, take the quotes off the texts that they are given.
    """
    values: list[Any] = []
    for element in override.sweep_iterator():
        value = Override._convert_value(element)
        if isinstance(value, str):
            values.append(quote_for_hydra(value))
        elif isinstance(value, bool | int | float):
            values.append(value)
        else:
            values.append(Transformer.str(element))
    return {"values": values}


def _program() -> list[str]:
    """Return the command that started this application, without its arguments.

    Raises:
        SpecError: it was started by no script and no module.
    """
    main = sys.modules["__main__"]
    spec = getattr(main, "__spec__", None)
    if spec is not None:
        return ["python", "-m", spec.name.removesuffix(".__main__")]
    file = getattr(main, "__file__", None)
    if file is None or not Path(file).is_file():
        raise fail("jobs start the application's script, and there is none", "hydra/sweeper")
    return ["python", str(Path(file).absolute())]


def _flags() -> list[str]:
    """Return the flags of the command line that choose the application's config."""
    given, _ = get_args_parser().parse_known_args()
    flags = []
    for name in ("config_name", "config_path", "config_dir"):
        value = getattr(given, name)
        if value is not None:
            path = str(Path(value).absolute()) if name == "config_dir" else value
            flags.append(f"--{name.replace('_', '-')}={path}")
    return flags


def _hydras(
    config: DictConfig, loader: ConfigLoader, folder: Path, options: Options
) -> Iterator[str]:
    """Yield the overrides of each job's `hydra`: those given, its folder, and the callback."""
    given = [str(text) for text in config.hydra.overrides.hydra]
    for override in _parse(given, loader):
        if not OF_THE_SWEEP.match(override.key_or_group):
            yield _text(override)
    yield "hydra.mode=RUN"
    yield f"{HYDRA_FOLDER}{quote_for_hydra(str(folder))}"
    yield "hydra.run.dir='${hydra.sweep.dir}/${hydra.sweep.subdir}'"
    yield f"+hydra.callbacks.hposvc._target_={CALLBACK}"
    names = ",".join(quote_for_hydra(metric["name"]) for metric in options.metrics)
    yield f"+hydra.callbacks.hposvc.metrics=[{names}]"


__all__ = ["Options", "SpecError", "sweep"]
