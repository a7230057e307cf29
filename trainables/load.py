"""From a trainable's name to something that trains: resolve, bind, and the hash of its source.

References: `module:Name`, `path/to/file.py:Name`, or `pickle:PATH` (written by cloudpickle).
"""

import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from trainables import functions
from trainables.session import Session
from trainables.training import Training
from trainables.worker import Params, Worker

PICKLE = "pickle:"
TUNE_TRAINABLE = "ray.tune.trainable.trainable.Trainable"
TRAINING = "training."  # parameters with this prefix set options of the training runtime
ITS_OWN = "makes its updates itself; write nan: stop, or give a Task"

Trainable = Callable[..., Any]  # a class with train(worker), or a function


class LoadError(ValueError):
    """A trainable that cannot be found, or does not fit its parameters."""


def resolve(reference: str) -> Trainable:
    """The class or function that a reference names; its module is loaded once.

    Raises:
        LoadError: nothing is there under that name. Errors of the user's module pass as they are.
    """
    if reference.startswith(PICKLE):
        import cloudpickle

        with _file(reference, reference.removeprefix(PICKLE)).open("rb") as stream:
            return _callable(reference, cloudpickle.load(stream))
    place, name = _split(reference)
    is_file = place.endswith(".py")
    module = _load_file(_file(reference, place)) if is_file else _load_module(reference, place)
    if not hasattr(module, name):
        raise LoadError(f"trainable {reference}: {place} has no {name}{_near(name, vars(module))}")
    return _callable(reference, getattr(module, name))


def source_hash(reference: str) -> str:
    """SHA-256 of the file that holds a trainable; the trainable itself is not loaded."""
    if reference.startswith(PICKLE):
        return _digest(_file(reference, reference.removeprefix(PICKLE)))
    place, _ = _split(reference)
    if place.endswith(".py"):
        return _digest(_file(reference, place))
    try:
        spec = importlib.util.find_spec(place)
    except ModuleNotFoundError as error:
        raise LoadError(f"trainable {reference}: {error}; install it, or give a file") from error
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise LoadError(f"trainable {reference}: module {place} has no source file")
    return _digest(Path(spec.origin))


def bind(trainable: Trainable, params: Params) -> Callable[[Worker], None]:
    """What each rank calls with its worker: the trainable with its parameters in place.

    Raises:
        LoadError: a parameter is no field of the class, or the trainable has another shape.
    """
    own = {name: value for name, value in params.items() if not name.startswith(TRAINING)}
    if inspect.isclass(trainable):
        return _bind_class(trainable, own)
    if not _takes(trainable, own, None):
        if not _takes(trainable, own):
            takes = inspect.signature(trainable)
            message = f"must take (params, worker), or (config) alone; it takes {takes}"
            raise LoadError(f"trainable {_name(trainable)} {message}")
        return functions.bind(trainable, own, partial(_surroundings, trainable))

    def train(worker: Worker) -> None:
        trainable(own, worker)

    return train


def heeds_nan(trainable: Trainable) -> bool:
    """Whether it can do other than stop at an update that is not finite: a Task, or one like it."""
    return inspect.isclass(trainable) and not is_tune_class(trainable)


def is_tune_class(trainable: object) -> bool:
    """Whether it is a Trainable of Ray Tune; tells without loading Tune."""
    kinds = trainable.__mro__ if inspect.isclass(trainable) else ()
    return any(f"{kind.__module__}.{kind.__name__}" == TUNE_TRAINABLE for kind in kinds)


def _takes(trainable: Trainable, *arguments: object) -> bool:
    try:
        inspect.signature(trainable).bind(*arguments)
    except TypeError:
        return False
    return True


def _surroundings(
    function: Trainable, session: Session, worker: Worker
) -> AbstractContextManager[functions.Read]:
    """What a function of a configuration runs in: Tune's session too, if it brings Tune."""
    named = getattr(getattr(function, "__code__", None), "co_names", ())
    if "ray.tune" in sys.modules or "ray.tune" in named or {"ray", "tune"} <= {*named}:
        from trainables.tune_trainables import in_session

        return in_session(session, worker)
    return nullcontext(dict)


def training_of(base: Training, params: Params) -> Training:
    """The sweep's training options with this trial's `training.*` parameters put in."""
    found = {
        name.removeprefix(TRAINING): value
        for name, value in params.items()
        if name.startswith(TRAINING)
    }
    fields = [field.name for field in dataclasses.fields(Training)]
    for name in found:
        if name not in fields:
            raise LoadError(f"{TRAINING}{name} is no training option{_near(name, fields)}")
    return dataclasses.replace(base, **found)  # type: ignore[arg-type]  # checked by Training


def _bind_class(trainable: type, own: dict[str, Any]) -> Callable[[Worker], None]:
    if is_tune_class(trainable):
        from trainables.tune_trainables import bind_class

        return bind_class(trainable, own)
    name = _name(trainable)
    if not dataclasses.is_dataclass(trainable) or not callable(getattr(trainable, "train", None)):
        raise LoadError(f"trainable {name} must be a dataclass with a method train(self, worker)")
    fields = [field.name for field in dataclasses.fields(trainable) if field.init]
    for parameter in own:
        if parameter not in fields:
            raise LoadError(
                f"parameter {parameter} is no field of {name}{_near(parameter, fields)}"
            )
    for field in dataclasses.fields(trainable):
        required = field.default is field.default_factory is dataclasses.MISSING
        if field.init and required and field.name not in own:
            raise LoadError(
                f"field {field.name} of {name} has no default and no parameter; give it one"
            )
    train: Callable[[Worker], None] = trainable(**own).train  # type: ignore[attr-defined]
    return train


def _split(reference: str) -> tuple[str, str]:
    place, separator, name = reference.rpartition(":")
    if not (separator and place and name):
        raise LoadError(f"trainable {reference!r}: write module:Name or path/to/file.py:Name")
    return place, name


def _file(reference: str, place: str) -> Path:
    path = Path(place).expanduser().absolute()
    if not path.is_file():
        raise LoadError(f"trainable {reference}: there is no file {path}")
    return path


def _load_module(reference: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # the module is there; something that it imports is not
        raise LoadError(f"trainable {reference}: {error}; install it, or give a file") from error


def _load_file(path: Path) -> ModuleType:
    """The module of a file, under a name of its own; its siblings are importable from it."""
    unique = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:12]
    name = f"{path.stem}_{unique}"
    if name in sys.modules:
        return sys.modules[name]
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"trainable {path}: Python cannot load this file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _callable(reference: str, found: object) -> Trainable:
    if not callable(found):
        raise LoadError(
            f"trainable {reference} is {type(found).__name__}; name a class or function"
        )
    return found


def _near(name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"; the nearest is {nearest[0]}" if nearest else ""


def _name(trainable: Trainable) -> str:
    return getattr(trainable, "__qualname__", type(trainable).__qualname__)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
