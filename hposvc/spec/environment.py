"""The section `environment`: the folder, packages, variables and secrets of trials.

A spec names secrets and never holds their values. These are read when a driver starts, or when a
sweep is submitted, and reach the ranks as variables of their processes.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import ConfigDict, PlainValidator, WithJsonSchema

from cluster.runtime_env import KEYS
from hposvc.errors import Problem, SpecError, fail, shown
from hposvc.spec.types import Word
from searchers import nearest

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
FILE_PREFIX = "file:"
# Set by the ranks themselves, or by Ray for each of them.
RESERVED_NAMES = frozenset(
    {
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("NNODES", "NODE_RANK", "NPROC_PER_NODE", "CUDA_VISIBLE_DEVICES"),
        *("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID"),
    }
)
RESERVED_PREFIXES = ("RAY_", "HPOSVC_", "PET_")


def read_variables(data: object) -> dict[str, str]:
    """Return environment variables, from a mapping of names to texts or numbers."""
    if not isinstance(data, Mapping):
        raise ValueError(f"is {shown(data)}; give a mapping of NAME: value")
    problems = [
        Problem((str(name),), f"{text}", at_key=True) for name, text in _name_problems(data)
    ]
    problems += [
        Problem((str(name),), f"is {shown(value)}", "give text or a number, in quotes if in doubt")
        for name, value in data.items()
        if isinstance(value, bool) or not isinstance(value, str | int | float)
    ]
    if problems:
        raise SpecError(problems)
    return {name: str(value) for name, value in data.items()}


def read_runtime_env(data: object) -> dict[str, Any]:
    """Return a runtime environment of Ray; the values are checked by Ray, see user_code.py."""
    if not isinstance(data, Mapping):
        raise ValueError(f"is {shown(data)}; give a mapping such as {{pip: [einops]}}")
    problems = [
        Problem((f"{key}",), "no such key", nearest(f"{key}", KEYS), at_key=True)
        for key in data
        if key not in KEYS
    ]
    if problems:
        raise SpecError(problems)
    return {str(key): value for key, value in data.items()}


def read_secrets(data: object) -> dict[str, str]:
    """Return the source of each secret by name: the name again (a variable), or `file:PATH`."""
    if isinstance(data, Mapping):  # from a frozen spec
        data = [name if name == source else {name: source} for name, source in data.items()]
    if not isinstance(data, list | tuple):
        raise ValueError(f"is {shown(data)}; give a list like [HF_TOKEN, {{DB: file:PATH}}]")
    sources: dict[str, str] = {}
    for number, entry in enumerate(data):
        name, source = _parse_secret(number, entry)
        if name in sources:
            raise fail(f"{name} is there twice", number, fix="remove one")
        sources[name] = source
    return sources


def _parse_secret(number: int, entry: object) -> tuple[str, str]:
    if isinstance(entry, str):
        name, source = entry, entry
    elif isinstance(entry, Mapping) and len(entry) == 1:
        name, source = next(iter(entry.items()))
    else:
        raise fail(f"is {shown(entry)}", number, fix="give NAME or {NAME: file:PATH}")
    for _, text in _name_problems({name: source}):
        raise fail(text, number)
    path = source.removeprefix(FILE_PREFIX) if isinstance(source, str) else ""
    if source != name and (path == source or not path):
        # Never the value itself in a message: it may be the secret.
        fix = f"give {{{name}: file:PATH}}"
        raise fail(f"{name} must name a place, not a value", number, fix=fix)
    return name, source


def _name_problems(names: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield name, f"{shown(name)} is no name of a variable; use letters, digits and '_'"
        elif name in RESERVED_NAMES or name.startswith(RESERVED_PREFIXES):
            yield name, f"{name} is set for each rank by Ray or by us; remove it"


Variables = Annotated[
    dict[str, str],
    PlainValidator(read_variables),
    WithJsonSchema({"type": "object", "additionalProperties": {"type": ["string", "number"]}}),
]
RuntimeEnv = Annotated[
    dict[str, Any],
    PlainValidator(read_runtime_env),
    WithJsonSchema(
        {
            "type": "object",
            "properties": {key: {} for key in KEYS},  # their shapes are Ray's
            "additionalProperties": False,
        }
    ),
]
_SOURCE = {"type": "object", "minProperties": 1, "maxProperties": 1}
Secrets = Annotated[
    dict[str, str],
    PlainValidator(read_secrets),
    WithJsonSchema({"type": "array", "items": {"anyOf": [{"type": "string"}, _SOURCE]}}),
]


@dataclass(frozen=True)
class Environment:
    """The section `environment`."""

    working_dir: Word | None = (
        None  # sent to trials, which run in it; None: see hposvc/remote/archive.py
    )
    excludes: tuple[Word, ...] = ()  # its files that are not sent: names or paths, with * and ?
    includes: tuple[Word, ...] = ()  # its files that are sent though they look like secrets
    runtime_env: RuntimeEnv = field(default_factory=dict)  # as Ray has it; of trials' processes
    env: Variables = field(default_factory=dict)
    secrets: Secrets = field(default_factory=dict)  # name -> the name again, or file:PATH
    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        for name in self.secrets:
            if name in self.env:
                raise fail(f"{name} is a secret too", "env", name, fix="remove one of them")
        if self.working_dir is not None and "working_dir" in self.runtime_env:
            fix = "remove one of the two"
            raise fail("is given in runtime_env too", "working_dir", fix=fix, at_key=True)

    @property
    def files(self) -> list[Path]:
        """The files that hold secrets."""
        sources = (source for source in self.secrets.values() if source.startswith(FILE_PREFIX))
        return [Path(source.removeprefix(FILE_PREFIX)).expanduser() for source in sources]

    def reveal(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the secrets' values, from these variables and from files.

        Raises:
            SpecError: a secret is missing; the message holds no value.
        """
        values, problems = {}, []
        for name, source in self.secrets.items():
            try:
                values[name] = _read_secret(name, source, variables)
            except ValueError as error:
                problems.append(Problem.of_text(str(error), "environment", "secrets"))
        if problems:
            raise SpecError(problems)
        return values

    def known(self, variables: Mapping[str, str]) -> list[str]:
        """Return the values of those secrets that have one, to keep them out of texts."""
        values = []
        for name, source in self.secrets.items():
            with suppress(ValueError):
                values.append(_read_secret(name, source, variables))
        return values


def _read_secret(name: str, place: str, variables: Mapping[str, str]) -> str:
    if not place.startswith(FILE_PREFIX):
        value = variables.get(name, "")
        if not value:
            raise ValueError(f"{name} is not set here; export it, or give {{{name}: file:PATH}}")
        return value
    path = Path(place.removeprefix(FILE_PREFIX)).expanduser()
    try:
        value = path.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: {path} can't be read ({type(error).__name__})") from error
    if not value:
        raise ValueError(f"{name}: {path} is empty")
    return value
