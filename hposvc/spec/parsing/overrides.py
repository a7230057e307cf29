"""Overrides of a document by `--set key=value`, applied before anything is checked."""

import copy
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hposvc.errors import KeyPath, Problem, SpecError, shown
from hposvc.spec.parsing.document import Document, plain, read_value
from trainables.contract import TRAINING


def parse(settings: Iterable[str]) -> dict[str, object]:
    """Return the keys and values of the command line's `key=value` texts, values read as YAML.

    Raises:
        SpecError: a text has no `=`, or its value is not YAML.
    """
    parsed: dict[str, object] = {}
    for setting in settings:
        key, separator, text = setting.partition("=")
        if not separator or not key:
            raise _override_error(key, "write --set key=value, as in --set trials.max=20")
        try:
            parsed[key] = read_value(text)
        except SpecError as error:
            raise _override_error(key, f"{text}: {error.problems[0].text}") from error
    return parsed


def apply(document: Document, sets: Mapping[str, object]) -> Document:
    """Return the document with other values at dotted keys.

    The longest existing key wins, so `parameters.training.clip.max` finds the parameter
    `training.clip`; a new key is added, and checked like a key of the file.
    """
    data = copy.deepcopy(document.data)
    paths = [_set_value(data, key, value) for key, value in sets.items()]
    return replace(document, data=data, sets=frozenset(paths))


def _set_value(data: dict[str, object], key: str, value: object) -> KeyPath:
    path: KeyPath = ()
    rest = key
    target = data
    while True:
        name = _first_name(target, rest, path)
        path, rest = (*path, name), rest[len(name) + 1 :]
        if not rest:
            try:
                target[name] = plain(value, *path)
            except SpecError as error:
                raise error.at("--set") from error
            return path
        inner = target.get(name)
        if inner is None:
            inner = target[name] = {}
        if not isinstance(inner, dict):
            raise _override_error(
                key, f"{'.'.join(map(str, path))} is {shown(inner)}; set it as a whole"
            )
        target = inner


def _first_name(target: Mapping[str, object], rest: str, path: KeyPath) -> str:
    parts = rest.split(".")
    for end in range(len(parts), 0, -1):
        name = ".".join(parts[:end])
        if name in target:
            return name
    if path == ("parameters",) and rest.startswith(TRAINING):
        return ".".join(parts[:2])
    return parts[0]


def _override_error(key: str, message: str) -> SpecError:
    return SpecError([Problem((key,), message, place="--set")])
