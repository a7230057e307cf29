"""Loading of trainables by name: resolve a reference, bind parameters, hash the source.

References: `module:Name`, `path/to/file.py:Name`, or `pickle:PATH` (written by cloudpickle).
"""

import dataclasses
import hashlib
import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from difflib import get_close_matches
from functools import partial, wraps
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from trainables import functions, nesting, objectives
from trainables.session import Session, use
from trainables.training import Training
from trainables.worker import Params, Worker

PICKLE = "pickle:"
REFERENCE_OF_MODULE = re.compile(r"\w+(\.\w+)*")
CLASH = "lies within {0}, which is a parameter too, not a group of them; rename one of the two"
SEARCHED = 2  # folders named in an error
TUNE_TRAINABLE = "ray.tune.trainable.trainable.Trainable"
TASK = "trainables.task.Task"
RAYS = {"ray.train", "ray.tune"}  # whose functions look for a session of this process
TRIAL = "trial"  # the argument of Optuna's objectives
packages_allowed: frozenset[str] | None = None  # to import from; None: all (see `allow_only`)
TRAINING = "training."  # parameters with this prefix set options of the training runtime
ITS_OWN = "makes its updates itself; write nan: stop, or give a Task"

Trainable = Callable[..., Any]  # a class with train(worker), or a function


class LoadError(ValueError):
    """A trainable cannot be found, or does not fit its parameters."""

    exit_code = 2  # of the command line: bad usage


class UserCodeForbidden(LoadError):
    """This process, which serves several users, imports nobody's code."""


class CodeChanged(LoadError):
    """Code has changed since the sweep's driver started."""


class Sources:
    """The source files of trials, each with its required checksum.

    Args:
        checksums: by the reference of a trainable, or by the path of a file.
    """

    def __init__(self, checksums: Mapping[str, str]) -> None:
        self._checksums = checksums
        self._seen: dict[str, tuple[int, int, int]] = {}

    def check(self) -> None:
        """Verify all checksums, reading only files written since the last check.

        Raises:
            CodeChanged: a file has changed, or cannot be read.
        """
        for name, checksum in self._checksums.items():
            try:
                file = Path(name) if Path(name).is_file() else source(name)
                stat = file.stat()
                now = (stat.st_mtime_ns, stat.st_size, stat.st_ino)
                same = self._seen.get(name) == now or _digest(file) == checksum
            except (OSError, LoadError) as error:
                raise CodeChanged(f"{name} can't be read any more: {error}") from error
            if not same:
                raise CodeChanged(
                    f"{file} changed while the sweep ran, and all its trials are to "
                    "come from one code; put the old code back and resume it, or "
                    "resume it with --accept-code"
                )
            self._seen[name] = now


def allow_only(packages: Iterable[str]) -> None:
    """Import nothing outside these packages from now on, in the whole process."""
    global packages_allowed
    packages_allowed = frozenset(packages)


def check_allowed(reference: str) -> None:
    """Check that the code of a reference may be imported.

    Raises:
        UserCodeForbidden: this process imports no code of users.
    """
    place = reference.rpartition(":")[0]
    ours = place.partition(".")[0] in (packages_allowed or ()) and "__main__" not in place
    if packages_allowed is not None and not (ours and REFERENCE_OF_MODULE.fullmatch(place)):
        raise UserCodeForbidden(f"{reference}: this process imports no code of users")


def resolve(reference: str) -> Trainable:
    """Return the class or function of a reference, loading its module once.

    Raises:
        LoadError: the name does not exist. Errors raised by the user's module propagate unchanged.
    """
    check_allowed(reference)
    if reference.startswith(PICKLE):
        import cloudpickle

        content = _file(reference.removeprefix(PICKLE)).read_bytes()
        _check_pickle(reference, content)
        return _callable(reference, cloudpickle.loads(content))
    place, name = _split(reference)
    is_file = place.endswith(".py")
    module = load_file(place) if is_file else _load_module(reference, place)
    if not hasattr(module, name):
        raise LoadError(
            f"trainable {reference}: {place} has no {name}{_nearest_hint(name, vars(module))}"
        )
    return _callable(reference, getattr(module, name))


def source_hash(reference: str) -> str:
    """Return the SHA-256 of the file that holds a trainable, without loading it."""
    return _digest(source(reference))


def source(reference: str) -> Path:
    """Return the file that holds a trainable, without loading it.

    Raises:
        LoadError: there is no such file.
    """
    if reference.startswith(PICKLE):
        return _file(reference.removeprefix(PICKLE))
    place, _ = _split(reference)
    if place.endswith(".py"):
        return _file(place)
    check_allowed(reference)  # looking for a module imports its package
    try:
        spec = importlib.util.find_spec(place)
    except ModuleNotFoundError as error:
        raise LoadError(f"trainable {reference}: {error}; {searched()}") from error
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        raise LoadError(f"trainable {reference}: module {place} has no source file")
    return Path(spec.origin)


def bind(trainable: Trainable, params: Params) -> Callable[[Worker], None]:
    """Return the function that each rank calls with its worker to train with these parameters.

    Within it, `hposvc.report` and `hposvc.get_checkpoint` go to that worker, whatever the
    trainable's form.

    Raises:
        LoadError: a parameter is no field of the class, or the trainable takes other arguments.
    """
    train = _bind(trainable, params)

    @wraps(train)
    def train_in_session(worker: Worker) -> None:
        with use(functions.WorkerSession(worker)):
            train(worker)

    return train_in_session


def _bind(trainable: Trainable, params: Params) -> Callable[[Worker], None]:
    own = {name: value for name, value in params.items() if not name.startswith(TRAINING)}
    if is_objective(trainable):
        return objectives.bind(trainable, own)
    if clash := nesting.clash(own):
        raise LoadError(f"parameter {clash[1]} {CLASH.format(*clash)}")
    fields = nesting.nest(own)
    if inspect.isclass(trainable):
        if is_tune_class(trainable):
            from trainables.tune_trainables import bind_class

            return bind_class(trainable, fields)
        method = _method(trainable, fields, own)
        return functions.bind(method, partial(_session_context, method))
    around = partial(_session_context, trainable)
    if _accepts(trainable, fields, None):
        return functions.bind(lambda worker: trainable(fields, worker), around)
    if _accepts(trainable, fields):
        return functions.bind(lambda _: trainable(dict(fields)), around)
    if _accepts(trainable):  # as Ray Train allows; the parameters are ignored
        return functions.bind(lambda _: trainable(), around)
    message = "must take (params, worker), or (config) alone; it takes"
    raise LoadError(f"trainable {_name(trainable)} {message} {inspect.signature(trainable)}")


def follows_failure_nan(trainable: Trainable) -> bool:
    """Return whether the trainable obeys failure.nan at a non-finite update, as a Task does."""
    return inspect.isclass(trainable) and not is_tune_class(trainable)


def is_objective(trainable: Trainable) -> bool:
    """Return whether this is an objective of Optuna: a function of what it calls `trial`."""
    if inspect.isclass(trainable) or _accepts(trainable, {}, None) or not _accepts(trainable, {}):
        return False
    return next(iter(inspect.signature(trainable).parameters)) == TRIAL


def is_tune_class(trainable: object) -> bool:
    """Return whether this is a Trainable of Ray Tune, without importing Tune."""
    return TUNE_TRAINABLE in _class_names(trainable)


def is_task(trainable: object) -> bool:
    """Return whether this is a Task, without importing torch."""
    return TASK in _class_names(trainable)


def _class_names(trainable: object) -> list[str]:
    """Return the full names of a class and its bases; an empty list for a function."""
    kinds = trainable.__mro__ if inspect.isclass(trainable) else ()
    return [f"{kind.__module__}.{kind.__name__}" for kind in kinds]


def _accepts(trainable: Trainable, *arguments: object) -> bool:
    try:
        inspect.signature(trainable).bind(*arguments)
    except TypeError:
        return False
    return True


def _session_context(
    function: Trainable, session: Session, worker: Worker
) -> AbstractContextManager[functions.Read]:
    """Return the context for a function: sessions of Ray's libraries if it uses one of them."""
    named = set(_names(getattr(function, "__code__", None)))
    if RAYS & {*named, *sys.modules} or ("ray" in named and named & {"train", "tune"}):
        with suppress(ImportError):  # then it can't use Ray Train or Tune either
            from trainables.ray_session import in_session

            return in_session(resolve, session, worker)
    return nullcontext(dict)


def _names(code: CodeType | None) -> Iterator[str]:
    """Yield the names that a function uses, and those within it; of modules, the first two."""
    if code is None:
        return
    for name in code.co_names:
        yield ".".join(name.split(".")[:2])
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _names(inner)


def training_of(base: Training, params: Params) -> Training:
    """Return the sweep's training options with this trial's `training.*` parameters applied."""
    options = {
        name.removeprefix(TRAINING): value
        for name, value in params.items()
        if name.startswith(TRAINING)
    }
    fields = [field.name for field in dataclasses.fields(Training)]
    for name in options:
        if name not in fields:
            raise LoadError(f"{TRAINING}{name} is no training option{_nearest_hint(name, fields)}")
    return dataclasses.replace(base, **options)  # type: ignore[arg-type]  # checked by Training


def _method(
    trainable: type, fields: dict[str, Any], names: Iterable[str]
) -> Callable[[Worker], Any]:
    """Return the method `train` of the class with these fields."""
    name = _name(trainable)
    if not dataclasses.is_dataclass(trainable) or not callable(getattr(trainable, "train", None)):
        raise LoadError(f"trainable {name} must be a dataclass with a method train(self, worker)")
    for parameter in names:
        owner, field = nesting.owner_of(trainable, parameter)
        known = nesting.field_names(owner)
        if field not in known:
            message = f"is no field of {_name(owner)}{_nearest_hint(field, known)}"
            raise LoadError(f"parameter {parameter} {message}")
    for field in nesting.required(trainable, names):
        raise LoadError(f"field {field} of {name} has no default and no parameter; give it one")
    train: Callable[[Worker], Any] = nesting.build(trainable, fields).train
    return train


def _split(reference: str) -> tuple[str, str]:
    place, separator, name = reference.rpartition(":")
    if not (separator and place and name):
        raise LoadError(f"trainable {reference!r}: write module:Name or path/to/file.py:Name")
    return place, name


def _file(place: str) -> Path:
    path = Path(place).expanduser().absolute()
    if not path.is_file():
        raise LoadError(f"there is no file {path}")
    return path


def _load_module(reference: str, place: str) -> ModuleType:
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise  # the module exists; one of its imports does not
        raise LoadError(f"trainable {reference}: {error}; {searched()}") from error


def searched() -> str:
    """Return a hint on what to do about a missing module, with the folders searched for it."""
    installed = (sys.prefix, sys.base_prefix)
    folders = [path or "." for path in sys.path if not path.startswith(installed)]
    looked = ", ".join([*folders[:SEARCHED], "the installed packages"])
    return f"install it, or set folder to where it lies (looked in {looked})"


def load_file(place: str) -> ModuleType:
    """Load a file as a module with a unique name; it can import files of its folder.

    Raises:
        LoadError: there is no such file.
    """
    path = _file(place)
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


def _check_pickle(reference: str, content: bytes) -> None:
    """Check that a pickle, which can run any code when loaded, has the SHA-256 in its name.

    Raises:
        LoadError: the name is not the SHA-256 of the bytes.
    """
    actual = hashlib.sha256(content).hexdigest()
    if Path(reference.removeprefix(PICKLE)).stem != actual:
        raise LoadError(
            f"trainable {reference}: its SHA-256 is {actual}, not its name; the file was changed "
            "after it was written, so it is not loaded: restore it, or run the sweep anew"
        )


def _callable(reference: str, found: object) -> Trainable:
    if not callable(found):
        raise LoadError(
            f"trainable {reference} is {type(found).__name__}; name a class or function"
        )
    return found


def _nearest_hint(name: str, known: Iterable[str]) -> str:
    nearest = get_close_matches(name, list(known), n=1, cutoff=0.0)
    return f"; the nearest is {nearest[0]}" if nearest else ""


def _name(trainable: Trainable) -> str:
    return getattr(trainable, "__qualname__", type(trainable).__qualname__)


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
