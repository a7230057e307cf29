"""Plug-ins: from a name in a spec to an object.

A plug-in is a frozen dataclass whose fields are its options. A name is one of the tables below or
`module:Class`; a new plug-in of ours is one file, and one line here.
"""

import dataclasses
import difflib
import importlib
import re
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

from hposvc.reading.fill import fill
from hposvc.reading.problems import Problem, SpecError, cut, fail, no_such, shown
from hposvc.schedulers.scheduler import Policy
from searchers.methods import METHODS
from searchers.searcher import Searcher
from searchers.space import Space
from trainables import load
from trainables.scripts.command import PYTHONS, findable
from trainables.scripts.rendering import names

T = TypeVar("T")

REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")

BACKENDS = {
    "ray": "hposvc.backends.ray_pool:RayPool",
    "tune": "hposvc.backends.ray_tune:RayTune",
    "local": "hposvc.backends.local:Local",
    "simulate": "hposvc.backends.simulate:Simulation",
    "nowhere": "hposvc.backends.nowhere:Nowhere",  # no spec names it: see Driver.end
}

# Who else sees a sweep under an engine.
WATCHERS = {
    "ray": ("hposvc.backends.metrics:Metrics",),
    "tune": ("hposvc.backends.metrics:Metrics",),
}


@dataclass(frozen=True)
class Kind(Generic[T]):
    """A kind of plug-in."""

    noun: str
    key: str  # of the spec's mapping that holds the name
    role: str  # the method that each of them has
    classes: Mapping[str, str]  # name -> "module:Class"
    beside: tuple[str, ...] = ()  # keys of the mapping that are no options: see `beside`


SEARCHERS: Kind[Searcher] = Kind("search method", "method", "suggest", METHODS)
SCHEDULERS: Kind[Policy] = Kind(
    "scheduler",
    "type",
    "scheduler",
    {
        "fifo": "hposvc.schedulers.fifo:Fifo",
        "asha": "hposvc.schedulers.asha:Asha",
        "median": "hposvc.schedulers.median:Median",
        "hyperband": "hposvc.schedulers.hyperband:Hyperband",
        "bohb": "hposvc.schedulers.hyperband:Bohb",
        "pbt": "hposvc.schedulers.pbt:Pbt",
        "pb2": "hposvc.schedulers.pb2:Pb2",
        "replay": "hposvc.schedulers.replay:Replay",
    },
    beside=("plateau",),
)


@dataclass(frozen=True)
class PlugIn:
    """A plug-in as a spec names it; `options` are those of its fields that are given.

    What stands beside any plug-in of the kind is among them, and `build` leaves it out.
    """

    name: str
    options: Mapping[str, object] = field(default_factory=dict)


def build(kind: Kind[T], plug_in: PlugIn) -> T:
    """The plug-in with its options.

    Raises:
        SpecError: no such plug-in, or options that do not fit; paths are those of a spec's mapping
            (`("type",)`, `("eta",)`).
    """
    if plug_in.name not in kind.classes and ":" not in plug_in.name:
        raise fail(f"{plug_in.name}: {no_such(kind.noun, plug_in.name, kind.classes)}", kind.key)
    try:
        cls = resolve(kind.classes.get(plug_in.name, plug_in.name))
    except ValueError as error:
        raise fail(str(error), kind.key) from error
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise fail(f"{plug_in.name} is not a dataclass; its options must be fields", kind.key)
    if not callable(getattr(cls, kind.role, None)):
        raise fail(f"{plug_in.name} is no {kind.noun}: it has no {kind.role}()", kind.key)
    return cast(T, fill(cls, _own_options(kind, cls, plug_in)))


def _own_options(kind: Kind[T], cls: type, plug_in: PlugIn) -> dict[str, object]:
    """The options without what stands beside them, of which none may be misspelled."""
    fields = {field.name for field in dataclasses.fields(cls)}
    options = {key: value for key, value in plug_in.options.items() if key not in kind.beside}
    for key in options.keys() - fields:
        if difflib.get_close_matches(key, kind.beside):
            raise fail(no_such("key", key, kind.beside), key, at_key=True)
    return options


def beside(plug_in: PlugIn, key: str, cls: type[T]) -> T | None:
    """What a spec has at `key` beside the plug-in's options; None: nothing.

    Raises:
        SpecError: it does not fit; paths are those of the spec's mapping.
    """
    data = plug_in.options.get(key)
    if data is None:
        return None
    if not isinstance(data, Mapping):
        names = ", ".join(known.name for known in dataclasses.fields(cast(Any, cls)))
        raise fail(f"is {shown(data)}; give a mapping of {names}", key)
    try:
        return fill(cls, data)
    except SpecError as error:
        raise SpecError(problem.under(key) for problem in error.problems) from error


def read(kind: Kind[T], data: object) -> PlugIn:
    """The plug-in that a spec's mapping names, `{type: asha, eta: 3}`; `build` sees if it is there.

    Raises:
        SpecError: no mapping, or one without a name.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get(kind.key), str):
        message = f"is missing; choose {', '.join(kind.classes)} or module:Class"
        raise fail(message, kind.key, at_key=True)
    options = {key: value for key, value in data.items() if key != kind.key}
    return PlugIn(data[kind.key], options)


def resolve(reference: str) -> Any:
    """What `module:Name` names.

    Raises:
        ValueError: says which part is not there, or how the module's import failed.
    """
    if not REFERENCE.fullmatch(reference):
        raise ValueError(f"'{cut(reference)}' is no name of a plug-in; write module:Name")
    place, _, name = reference.partition(":")
    try:
        found = importlib.import_module(place)
    except (Exception, SystemExit) as error:
        raise ValueError(_why_not(place, error)) from error
    if not hasattr(found, name):
        public = [known for known in vars(found) if not known.startswith("_")]
        raise ValueError(f"{place} has {no_such('name', name, public)}")
    return getattr(found, name)


def check_trainable(reference: str, space: Space) -> None:
    """Import the trainable, and hold the parameters against its fields.

    Raises:
        SpecError: it cannot be imported, has another shape, lacks a field for a parameter, or
            has a field that no parameter sets; paths are from the spec's top.
    """
    try:
        trainable = load.resolve(reference)
        if not isinstance(trainable, type):
            load.bind(trainable, {})
            return
    except load.LoadError as error:
        raise fail(str(error).removeprefix("trainable "), "trainable") from error
    except (Exception, SystemExit) as error:
        raise fail(_why_not(reference, error), "trainable") from error
    if load.is_tune_class(trainable):
        return
    if not dataclasses.is_dataclass(trainable) or not callable(getattr(trainable, "train", None)):
        message = "must be a frozen dataclass with train(self, worker), or a function"
        raise fail(f"{reference} {message}", "trainable")
    problems = [*_no_field(trainable, space), *_no_value(trainable, space)]
    if problems:
        raise SpecError(problems)


def check_updates(reference: str, nan: str) -> None:
    """See that a trainable, which can be imported, can do as `failure.nan` says.

    Raises:
        SpecError: it can't; the path is from the spec's top.
    """
    if nan != "stop" and not load.heeds_nan(load.resolve(reference)):
        raise fail(f"is {nan}, but {reference} {load.ITS_OWN}", "failure", "nan")


def check_command(command: Sequence[str]) -> None:
    """See that the program, and the script that a Python is to run, are there.

    Raises:
        SpecError: one is not; paths are from the spec's top.
    """
    first, script = command[0], command[1] if len(command) > 1 else ""
    if names(first):
        return  # a trial's parameters decide
    if first not in PYTHONS and shutil.which(first, path=findable({})["PATH"]) is None:
        raise fail(f"there is no program {first} on the PATH; give its path", "command", 0)
    if first in PYTHONS and script.endswith(".py") and not Path(script).is_file():
        raise fail(f"there is no file {Path(script).absolute()}", "command", 1)


def _no_field(trainable: type, space: Space) -> Iterator[Problem]:
    fields = [field.name for field in dataclasses.fields(trainable) if field.init]
    for name in space:
        if name not in fields and not name.startswith(load.TRAINING):
            message = f"{trainable.__name__} has {no_such('field', name, fields)}"
            yield Problem(("parameters", name), message, at_key=True)


def _no_value(trainable: type, space: Space) -> Iterator[Problem]:
    for known in dataclasses.fields(trainable):
        required = known.default is MISSING and known.default_factory is MISSING and known.init
        if required and known.name not in space:
            message = f"field {known.name} of {trainable.__name__} has no default; add a parameter"
            yield Problem(("parameters",), message)
        elif required and space[known.name].when:
            message = f"the field needs a default in {trainable.__name__} for when it is inactive"
            yield Problem(("parameters", known.name), message)


def _why_not(place: str, error: BaseException) -> str:
    """What went wrong when `place` was imported, and where in its code."""
    module = place.partition(":")[0]
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}; install it, or run where it can be imported"
    text = f"{module} fails when it is imported: {type(error).__name__}: {error}"
    code = [at for at in traceback.extract_tb(error.__traceback__) if "<frozen" not in at.filename]
    return f"{text} ({code[-1].filename}, line {code[-1].lineno})" if code[1:] else text
