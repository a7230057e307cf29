"""The keys `command`, `launch` and `collect`: a program in place of a trainable."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, PlainValidator

from hposvc.reading.problems import Problem, SpecError, no_such, shown
from hposvc.spec.kinds import CLOSED
from trainables.load import TRAINING
from trainables.scripts.collecting import PAIR, STEP
from trainables.scripts.rendering import ALL, VARIABLES, names
from trainables.training import Training


def read_items(value: object) -> tuple[str, ...]:
    """The program and its arguments."""
    if isinstance(value, str):
        example = "[python, train.py, '${args}']"
        raise ValueError(f"is {shown(value)}; give a list of the program's words, like {example}")
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"is {shown(value)}; give a list, the program first")
    problems = [
        Problem((at,), f"is {shown(item)}; give text, in quotes where YAML would read another kind")
        for at, item in enumerate(value)
        if not isinstance(item, str) or not item
    ]
    if problems:
        raise SpecError(problems)
    return tuple(value)


def check_pattern(text: str) -> str:
    """A regular expression that names what it finds."""
    try:
        groups = re.compile(text).groupindex
    except re.error as error:
        raise ValueError(f"is no regular expression: {error}") from error
    if not groups:
        example = r"loss=(?P<loss>\S+)"
        raise ValueError(f"has no named group; name what it finds, like {example}")
    return text


Items = Annotated[tuple[str, ...], PlainValidator(read_items)]
Pattern = Annotated[str, AfterValidator(check_pattern)]
Launch = Literal["rank", "node"]


@dataclass(frozen=True)
class Collect:
    """Where a program's metrics are found, if it does not call `hposvc.report`.

    Named groups are metrics; or the groups `name` and `value` give one for each match. A group
    `step` says the step; without it steps are counted.
    """

    stdout: Pattern
    __pydantic_config__ = CLOSED

    @property
    def names(self) -> frozenset[str] | None:
        """The groups that are metrics; None: what the program writes decides."""
        groups = frozenset(re.compile(self.stdout).groupindex)
        return None if groups >= PAIR else groups - {STEP}


@dataclass(frozen=True)
class Program:
    """All that a spec says of a program, for the rules that tie it together."""

    command: Sequence[str] | None
    launch: Launch
    collect: Collect | None
    trainable: str | None
    parameters: Mapping[str, object]


def of_command(
    program: Program, metrics: Sequence[str], training: Training, workers: int
) -> Iterator[Problem]:
    """There is a program or a trainable, and the program gets and gives what it must.

    Args:
        metrics: names of those that are optimised.
    """
    if program.command is None:
        yield from _without(program)
        return
    if program.trainable is not None:
        yield Problem(("command",), "is given, and trainable too; remove one of them", at_key=True)
    if training != Training(strategy="ddp" if workers > 1 else "single"):
        yield Problem(("training",), "is for trainables; a command trains as it likes", at_key=True)
    if program.collect is not None:
        found = program.collect.names
        for name in [name for name in metrics if found is not None and name not in found]:
            message = f"finds no {name!r}, the sweep's metric; name a group after it"
            yield Problem(("collect", "stdout"), f"{message}, or give the groups name and value")
    yield from _items(program.command, program.parameters)


def _without(program: Program) -> Iterator[Problem]:
    given = {"collect": program.collect is not None, "launch": program.launch != "rank"}
    for key in [key for key, there in given.items() if there]:
        yield Problem((key,), "is for a command, and there is none; remove it", at_key=True)


def _items(command: Sequence[str], parameters: Mapping[str, object]) -> Iterator[Problem]:
    """Every item names what there is, and every parameter reaches the program."""
    known = [*parameters, *ALL, *VARIABLES]
    named: set[str] = set()
    for at, item in enumerate(command):
        for name in names(item):
            named.add(name)
            if name not in known:
                message = f"has ${{{name}}}: {no_such('parameter', name, known)}"
                yield Problem(("command", at), message)
    for name in parameters:
        if name in (*ALL, *VARIABLES):
            message = f"is what ${{{name}}} means in a command already; rename it"
            yield Problem(("parameters", name), message, at_key=True)
        elif name.startswith(TRAINING):
            message = "is for trainables; a command trains as it likes"
            yield Problem(("parameters", name), message, at_key=True)
        elif name not in named and not named & ALL.keys():
            message = f"never reaches the command; put '${{args}}' or '${{{name}}}' into it"
            yield Problem(("parameters", name), message, at_key=True)
