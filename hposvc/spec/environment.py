"""The section `environment`: what trials run in, and which secrets they see.

A spec names secrets and never holds one. Their values are read when a driver starts, or when a
sweep is submitted, and reach the ranks as variables of their processes.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, PlainValidator

from hposvc.reading.problems import Problem, SpecError, fail, shown
from hposvc.spec.kinds import Word

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
FILE = "file:"
# The ranks set these themselves, or Ray does for each of them.
OURS = frozenset(
    {
        *("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("NNODES", "NODE_RANK", "NPROC_PER_NODE", "CUDA_VISIBLE_DEVICES"),
        *("MLFLOW_RUN_ID", "MLFLOW_EXPERIMENT_ID"),
    }
)
RESERVED = ("RAY_", "HPOSVC_", "PET_")


def read_variables(data: object) -> dict[str, str]:
    """Environment variables, from a mapping of names to texts or numbers."""
    if not isinstance(data, Mapping):
        raise ValueError(f"is {shown(data)}; give a mapping of NAME: value")
    problems = [Problem((str(name),), f"{text}", at_key=True) for name, text in _misfits(data)]
    problems += [
        Problem((str(name),), f"is {shown(value)}; give text or a number, in quotes if in doubt")
        for name, value in data.items()
        if isinstance(value, bool) or not isinstance(value, str | int | float)
    ]
    if problems:
        raise SpecError(problems)
    return {name: str(value) for name, value in data.items()}


def read_secrets(data: object) -> dict[str, str]:
    """Where each secret is found: a variable's own name, or `file:PATH`."""
    if isinstance(data, Mapping):  # as a frozen spec has it
        data = [name if name == place else {name: place} for name, place in data.items()]
    if not isinstance(data, list | tuple):
        raise ValueError(f"is {shown(data)}; give a list like [HF_TOKEN, {{DB: file:PATH}}]")
    found: dict[str, str] = {}
    for number, entry in enumerate(data):
        name, place = _secret(number, entry)
        if name in found:
            raise fail(f"{name} is there twice; remove one", number)
        found[name] = place
    return found


def _secret(number: int, entry: object) -> tuple[str, str]:
    if isinstance(entry, str):
        name, place = entry, entry
    elif isinstance(entry, Mapping) and len(entry) == 1:
        name, place = next(iter(entry.items()))
    else:
        raise fail(f"is {shown(entry)}; give NAME or {{NAME: file:PATH}}", number)
    for _, text in _misfits({name: place}):
        raise fail(text, number)
    path = place.removeprefix(FILE) if isinstance(place, str) else ""
    if place != name and (path == place or not path):
        # Never the value itself in a message: it may be the secret.
        raise fail(f"{name} must name a place, not a value; give {{{name}: file:PATH}}", number)
    return name, place


def _misfits(names: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name in names:
        if not isinstance(name, str) or not NAME.fullmatch(name):
            yield name, f"{shown(name)} is no name of a variable; use letters, digits and '_'"
        elif name in OURS or name.startswith(RESERVED):
            yield name, f"{name} is set for each rank by Ray or by us; remove it"


Variables = Annotated[dict[str, str], PlainValidator(read_variables)]
Secrets = Annotated[dict[str, str], PlainValidator(read_secrets)]


@dataclass(frozen=True)
class Environment:
    """What trials run in."""

    working_dir: Word | None = None  # a folder that goes along; None: see hposvc/remote/packing.py
    excludes: tuple[Word, ...] = ()  # of it: names or paths, with * and ?
    pip: tuple[Word, ...] = ()  # requirements, or wheels by a URL; installed where trials run
    env: Variables = field(default_factory=dict)
    secrets: Secrets = field(default_factory=dict)  # name -> the name again, or file:PATH
    __pydantic_config__ = ConfigDict(extra="forbid")

    def __post_init__(self) -> None:
        for name in self.secrets:
            if name in self.env:
                raise fail(f"{name} is a secret too; remove one of them", "env", name)

    @property
    def runtime_env(self) -> dict[str, object]:
        """What Ray prepares for the processes of a sweep that is driven from outside its jobs."""
        return {"pip": list(self.pip)} if self.pip else {}

    @property
    def files(self) -> list[Path]:
        """The files that hold secrets."""
        places = (place for place in self.secrets.values() if place.startswith(FILE))
        return [Path(place.removeprefix(FILE)).expanduser() for place in places]

    def reveal(self, variables: Mapping[str, str]) -> dict[str, str]:
        """The secrets' values, from these variables and from files.

        Raises:
            SpecError: one is not there; the message holds no value.
        """
        found, problems = {}, []
        for name, place in self.secrets.items():
            try:
                found[name] = _reveal(name, place, variables)
            except ValueError as error:
                problems.append(Problem(("environment", "secrets"), str(error)))
        if problems:
            raise SpecError(problems)
        return found


def _reveal(name: str, place: str, variables: Mapping[str, str]) -> str:
    if not place.startswith(FILE):
        value = variables.get(name, "")
        if not value:
            raise ValueError(f"{name} is not set here; export it, or give {{{name}: file:PATH}}")
        return value
    path = Path(place.removeprefix(FILE)).expanduser()
    try:
        value = path.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: {path} can't be read ({type(error).__name__})") from error
    if not value:
        raise ValueError(f"{name}: {path} is empty")
    return value
