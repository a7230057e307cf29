"""Search spaces of Ray Tune, which are Python: `hposvc import FILE.py:NAME`.

Source: the documentation of Ray Tune, "Search Space API".
"""

import inspect
import re
import runpy
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FunctionType
from typing import TypeGuard

from hposvc.drafts.imported.conversion import SpecConversion, choice, is_plain, read_choice
from hposvc.errors import SpecError, fail, shown
from hposvc.spec.parsing.document import Document
from hposvc.spec.parsing.foreign_domains import declared
from searchers import nearest
from trainables.contract import text_of

PLACE = re.compile(r"(?P<file>.+\.py):(?P<name>\w+)")
RUN_NAME = "imported_by_hposvc"  # of the module that the file is run as
CONFIGS = ("config", "params")  # names of the first argument of a function for Ray Tune


def recognises(path: Path) -> bool:
    """Return whether a path names something in a Python file."""
    return PLACE.fullmatch(str(path)) is not None


def convert(path: Path) -> SpecConversion:
    """Return a space in our words; the file is run.

    Raises:
        SpecError: there is no such file or name, or it is no mapping.
    """
    match = PLACE.fullmatch(str(path))
    assert match is not None
    file, name = match["file"], match["name"]
    if not Path(file).is_file():
        raise fail("there is no such file", place=file)
    names = {key: value for key, value in _run(file).items() if key[0] != "_"}
    if name not in names:
        raise fail(f"has no {name}", fix=nearest(name, names), place=file)
    space = names[name]
    if not isinstance(space, Mapping):
        raise fail(f"{name} is {shown(space)}", fix="name the dict that is param_space", place=file)
    made = SpecConversion(Document({}, file))
    made.put_name(name)
    _put_trainable(made, file, names)
    made.put_metric(None, "minimize", "metric")
    made.spec["search"] = "auto"
    parameters: dict[str, object] = {}
    _read(made, space, parameters, "", name)
    made.spec["parameters"] = parameters
    made.put_trials(None, None, "trials")
    return made


def _run(file: str) -> Mapping[str, object]:
    """Run the user's file, and return its names.

    Raises:
        SpecError: it raises, or ends the process.
    """
    try:
        return runpy.run_path(file, run_name=RUN_NAME)
    except (Exception, SystemExit) as error:
        lines = [
            frame.lineno
            for frame in traceback.extract_tb(error.__traceback__)
            if frame.filename == file
        ]
        if isinstance(error, SyntaxError) and error.filename == file:
            lines.append(error.lineno)
        place = f"{file}:{lines[-1]}" if lines else file
        message = f"it raised {type(error).__name__}: {text_of(error)}"
        raise fail(message, fix="correct it: the file is run for its space", place=place) from error


def _put_trainable(made: SpecConversion, file: str, names: Mapping[str, object]) -> None:
    """Put the only function or class that Ray Tune could run, or say what to write."""
    places = [
        f"{file}:{name}" if value.__module__ == RUN_NAME else f"{value.__module__}:{value.__name__}"
        for name, value in names.items()
        if _is_trainable(value)
    ]
    made.spec["trainable"] = places[0] if places else f"{file}:train"
    if not places:
        message = f"{file} has no function of config; write FILE.py:NAME of yours, or a command"
        made.lose(message, "trainable")
    elif len(places) > 1:
        made.lose(f"could be {' or '.join(places)}; write the one that you tune", "trainable")


def _is_trainable(value: object) -> TypeGuard[FunctionType | type]:
    """Return whether Ray Tune could run a value: a function of `config`, or a Trainable."""
    if not isinstance(value, FunctionType | type) or value.__module__.startswith("ray."):
        return False
    if isinstance(value, type):
        return hasattr(value, "setup") and hasattr(value, "step")
    return next(iter(inspect.signature(value).parameters), "") in CONFIGS


def _read(
    made: SpecConversion,
    space: Mapping[str, object],
    found: dict[str, object],
    prefix: str,
    *path: str,
) -> None:
    for name, domain in space.items():
        here = (*path, str(name))
        if isinstance(domain, Mapping) and domain.keys() == {"grid_search"}:
            made.lose("grid_search is a choice; search: grid tries all combinations", *here)
            found |= read_choice(made, f"{prefix}{name}", domain["grid_search"], *here)
        elif isinstance(domain, Mapping):
            _read(made, domain, found, f"{prefix}{name}.", *here)
        else:
            _add(made, f"{prefix}{name}", domain, found, *here)


def _add(
    made: SpecConversion, name: str, domain: object, found: dict[str, object], *path: str
) -> None:
    try:
        given = declared(domain, *path)
    except SpecError as error:
        made.lost += [made.document.locate(problem) for problem in error.problems]
        return
    if isinstance(given, Mapping) and "values" in given:
        found |= read_choice(made, name, given["values"], *path)
    elif isinstance(given, Mapping):
        found[name] = given
    elif is_plain(given):
        found[name] = choice([given])
    else:
        made.lose("a constant can't hold a mapping; set it in your code", *path)
