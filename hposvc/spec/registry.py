"""Plug-ins: from a name in a spec to an object.

A plug-in is a frozen dataclass whose fields are its options. Its name is a key of a table below,
`module:Class` or `path/to/file.py:Class`; a new built-in plug-in takes one file, and one line here.
"""

import dataclasses
import difflib
import importlib
import re
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar, cast

from hposvc.errors import SHOWN, SpecError, fail, shorten, shown
from hposvc.schedulers.scheduler import Policy
from hposvc.spec.parsing.coercion import fill
from searchers import METHODS, Searcher, nearest, our_name
from trainables import load

T = TypeVar("T")

REFERENCE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")
FILE_REFERENCE = re.compile(r"[^:]+\.py:[^\W\d]\w*")
REFERENCES = "module:Name or path/to/file.py:Name"  # in errors


@dataclass(frozen=True)
class PluginType(Generic[T]):
    """A type of plug-in: searchers, or schedulers."""

    noun: str
    key: str  # the key of the spec's mapping that holds the name
    role: str  # the method that every such plug-in has
    classes: Mapping[str, str]  # name -> "module:Class"
    sibling_keys: tuple[str, ...] = ()  # other keys of the mapping: see `sibling_option`


SEARCHERS: PluginType[Searcher] = PluginType("search method", "method", "suggest", METHODS)
SCHEDULERS: PluginType[Policy] = PluginType(
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
        "fire": "hposvc.schedulers.fire:Fire",
        "replay": "hposvc.schedulers.replay:Replay",
    },
    sibling_keys=("plateau",),
)


@dataclass(frozen=True)
class PlugIn:
    """A plug-in as named by a spec, with the options that are given.

    `options` includes the keys that go beside any plug-in of the type; `build` leaves them out.
    """

    name: str
    options: Mapping[str, object] = field(default_factory=dict)


def build(kind: PluginType[T], plug_in: PlugIn) -> T:
    """Return the plug-in with its options.

    Raises:
        SpecError: there is no such plug-in, or options do not fit; paths start at the spec's
            mapping (`("type",)`, `("eta",)`).
    """
    if plug_in.name not in kind.classes and ":" not in plug_in.name:
        if plug_in.name.endswith(".py"):
            raise fail(f"is {shown(plug_in.name)}", kind.key, fix=f"write {plug_in.name}:Name")
        fix = nearest(plug_in.name, kind.classes)
        raise fail(f"{plug_in.name}: no such {kind.noun}", kind.key, fix=fix)
    try:
        if not may_be_imported(plug_in):
            load.check_allowed(f"user's {plug_in.name}")
        cls = resolve(kind.classes.get(plug_in.name, plug_in.name))
    except ValueError as error:
        raise fail(error, kind.key) from error
    if not isinstance(cls, type) or not dataclasses.is_dataclass(cls):
        raise fail(f"{plug_in.name} is not a dataclass", kind.key, fix="its options must be fields")
    if not callable(getattr(cls, kind.role, None)):
        raise fail(f"{plug_in.name} is no {kind.noun}: it has no {kind.role}()", kind.key)
    return cast(T, fill(cls, _own_options(kind, cls, plug_in)))


def trait(kind: PluginType[T], plug_in: PlugIn, name: str) -> bool:
    """Return whether a plug-in has a trait that is true: see `attribute`."""
    return bool(attribute(kind, plug_in, name))


def attribute(kind: PluginType[T], plug_in: PlugIn, name: str) -> object:
    """Return a class attribute of a plug-in, or a property that depends on its options.

    None if the plug-in has none, cannot be imported, or is not what the spec says.
    """
    if not may_be_imported(plug_in):
        return None
    try:
        value = getattr(resolve(kind.classes.get(plug_in.name, plug_in.name)), name, None)
        return getattr(build(kind, plug_in), name) if isinstance(value, property) else value
    except ValueError:
        return None


def may_be_imported(plug_in: PlugIn) -> bool:
    """Return whether this process may import the plug-in: a server imports no code of users."""
    return ":" not in plug_in.name or load.packages_allowed is None


def _own_options(kind: PluginType[T], cls: type, plug_in: PlugIn) -> dict[str, object]:
    """Return the plug-in's own options; refuse misspelled names of the keys beside them."""
    fields = {field.name for field in dataclasses.fields(cls)}
    options = {key: value for key, value in plug_in.options.items() if key not in kind.sibling_keys}
    for key in [key for key in options if key not in fields][:SHOWN]:
        if difflib.get_close_matches(key, kind.sibling_keys):
            raise fail("no such key", key, fix=nearest(key, kind.sibling_keys), at_key=True)
    return options


def sibling_option(plug_in: PlugIn, key: str, cls: type[T]) -> T | None:
    """Return the value of `key`, which stands beside the plug-in's options; None: it is not given.

    Raises:
        SpecError: the value does not fit; paths start at the spec's mapping.
    """
    data = plug_in.options.get(key)
    if data is None:
        return None
    if not isinstance(data, Mapping):
        names = ", ".join(field.name for field in dataclasses.fields(cast(Any, cls)))
        raise fail(f"is {shown(data)}", key, fix=f"give a mapping of {names}")
    try:
        return fill(cls, data)
    except SpecError as error:
        raise SpecError(problem.under(key) for problem in error.problems) from error


def read(kind: PluginType[T], data: object) -> PlugIn:
    """Return the plug-in named by a spec's mapping, `{type: asha, eta: 3}`, before it is looked up.

    Raises:
        SpecError: `data` is not a mapping, or has no name.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get(kind.key), str):
        choice = f"choose {', '.join(kind.classes)}, or {REFERENCES}"
        other_keys = (
            [str(key) for key in data if key != kind.key] if isinstance(data, Mapping) else []
        )
        for key in other_keys:
            if "." in (ours := our_name(key)):
                raise fail("no such key", key, fix=f"here that is {ours}", at_key=True)
        beside = f" beside {', '.join(other_keys)}" if other_keys else ""
        raise fail(f"is missing{beside}", kind.key, fix=choice, at_key=True)
    options = {key: value for key, value in data.items() if key != kind.key}
    return PlugIn(data[kind.key], options)


def is_reference(text: str) -> bool:
    """Return whether a text is `module:Name` or `path/to/file.py:Name`; what it names may lack."""
    return bool(REFERENCE.fullmatch(text) or FILE_REFERENCE.fullmatch(text))


def resolve(reference: str) -> Any:
    """Import and return the object that `module:Name` or `path/to/file.py:Name` names.

    Raises:
        ValueError: a part does not exist, or the import failed; the message says which.
    """
    if not is_reference(reference):
        raise ValueError(f"'{shorten(reference)}' is no name of a plug-in; write {REFERENCES}")
    load.check_allowed(reference)
    place, _, name = reference.rpartition(":")
    is_file = place.endswith(".py")
    try:
        module = load.load_file(place) if is_file else importlib.import_module(place)
    except load.LoadError:
        raise  # there is no such file
    except (Exception, SystemExit) as error:
        raise ValueError(import_failure(place, error)) from error
    if not hasattr(module, name):
        public = [attribute for attribute in vars(module) if not attribute.startswith("_")]
        raise ValueError(f"{place} has no such name; {nearest(name, public)}")
    return getattr(module, name)


def resolve_function(reference: str) -> Any:
    """Import and return the function, or other callable object, of a reference; see `resolve`.

    Raises:
        ValueError: it cannot be imported, or is no function; the message says so.
    """
    resolved = resolve(reference)
    if not callable(resolved):
        raise ValueError(f"{reference} is no function")
    return resolved


def import_failure(place: str, error: BaseException) -> str:
    """Return why the import of `place` failed, and the line of its code."""
    module = place.partition(":")[0]
    if isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}."):
        return f"there is no module {error.name}; {load.searched()}"
    text = f"{module} fails when it is imported: {type(error).__name__}: {error}"
    code = [at for at in traceback.extract_tb(error.__traceback__) if "<frozen" not in at.filename]
    return f"{text} ({code[-1].filename}, line {code[-1].lineno})" if code[1:] else text
