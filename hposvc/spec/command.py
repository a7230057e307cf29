"""The keys `command`, `launch` and `collect`: a program in place of a trainable."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import AfterValidator, PlainValidator, WithJsonSchema

from hposvc.errors import KeyPath, Problem, SpecError, shown
from hposvc.spec.types import CLOSED
from searchers import Float, Int, Share, nearest, parameters_of
from trainables.contract import TRAINING, Training, default_strategy
from trainables.programs.arguments import (
    PARAMETER_LISTS,
    PORT,
    TORCHRUNS,
    VARIABLES,
    groups,
    names,
    render,
)
from trainables.programs.output_metrics import PAIR, STEP

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec


def read_items(value: object) -> tuple[str, ...]:
    """Return the program and its arguments, from a list of texts."""
    if isinstance(value, str):
        example = "[python, train.py, '${args}']"
        raise ValueError(f"is {shown(value)}; give a list of the program's words, like {example}")
    if not isinstance(value, list | tuple) or not value:
        raise ValueError(f"is {shown(value)}; give a list, the program first")
    problems = [
        Problem(
            (at,), f"is {shown(item)}", "give text, in quotes where YAML would read another kind"
        )
        for at, item in enumerate(value)
        if not isinstance(item, str) or not item
    ]
    if problems:
        raise SpecError(problems)
    return tuple(value)


def check_pattern(text: str) -> str:
    """Return the text of a regular expression that has a named group."""
    try:
        groups = re.compile(text).groupindex
    except (re.error, RecursionError, OverflowError) as error:
        raise ValueError(f"is no regular expression: {error}") from error
    if not groups:
        example = r"loss=(?P<loss>\S+)"
        raise ValueError(f"has no named group; name what it finds, like {example}")
    return text


CommandItems = Annotated[
    tuple[str, ...],
    PlainValidator(read_items),
    WithJsonSchema({"type": "array", "items": {"type": "string", "minLength": 1}, "minItems": 1}),
]
Pattern = Annotated[str, AfterValidator(check_pattern)]
Launch = Literal["rank", "node"]


INTERPRETER = re.compile(r"(?:\S*/)?(?:python[\d.]*|\w*sh|Rscript|julia|node|perl|ruby)")
NO_PROGRAMS = (*PARAMETER_LISTS, *VARIABLES)
NO_SERVER = "it is the port of a server: write `serve` in place of `command`"
# Programs that start the ranks of a node themselves, where a program's name stands.
LAUNCHER = re.compile(
    r"(?:^|[;&|(]\s*|\s-l?c\s+|\b(?:exec|env|nohup|time|uv run|poetry run)\s+(?:\w+=\S*\s+)*)"
    r"(?:\S*/)?(torchrun|accelerate\s+launch|deepspeed|horovodrun|mpirun|mpiexec)(?=\s|$)"
    r"|\s-m\s+(torch\.distributed\.(?:run|launch)|accelerate\.commands\.launch"
    r"|deepspeed(?:\.launcher\.\w+)?|horovod\.runner)(?=\s|$)"
)


@dataclass(frozen=True)
class Collect:
    """A pattern that finds a program's metrics in its output, if it does not call `hposvc.report`.

    Each named group is a metric; or the groups `name` and `value` give one metric for each match.
    A group `step` gives the step; without it steps are counted.
    """

    stdout: Pattern
    __pydantic_config__ = CLOSED

    @property
    def names(self) -> frozenset[str] | None:
        """The groups that are metrics; None: the program's output names its metrics."""
        groups = frozenset(re.compile(self.stdout).groupindex)
        return None if groups >= PAIR else groups - {STEP}


def command_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that a program or a trainable is given, and the program's parameters and metrics."""
    workers = spec.resources.ranks
    if spec.command is None:
        given = {"collect": spec.collect is not None, "launch": spec.launch != "rank"}
        for key in [key for key, is_given in given.items() if is_given]:
            yield Problem((key,), "is for a command, and there is none", "remove it", at_key=True)
        return
    if spec.trainable is not None:
        fix = "remove one of them"
        key = "command" if spec.serve is None else "serve"
        yield Problem((key,), "is given, and trainable too", fix, at_key=True)
    if spec.training != Training(strategy=default_strategy(workers)):
        fix = "a command trains as it likes"
        yield Problem(("training",), "is for trainables", fix, at_key=True)
    collected = spec.reported
    for metric in spec.objectives:
        if collected is not None and metric.name not in collected:
            message = f"finds no {metric.name!r}, the sweep's metric; name a group after it"
            yield Problem(("collect", "stdout"), f"{message}, or give the groups name and value")
    if workers > 1 and spec.launch == "rank":
        yield from _launcher_problems(spec.command, workers)
    for place, items in spec.programs.items():
        yield from _program_problems(items, place)
    yield from _item_problems(spec.programs, spec.parameters)
    yield from _merged_values(spec.program_items, spec.parameters)


def _program_problems(command: Sequence[str], key: KeyPath) -> Iterator[Problem]:
    """Check that a program stands where one is started."""
    words = [at for at, item in enumerate(command) if at == 0 or not item.startswith("-")]
    for at in words[: 2 if INTERPRETER.fullmatch(command[0]) else 1]:
        item = command[at]
        if item.startswith("-") or any(item == f"${{{name}}}" for name in NO_PROGRAMS):
            message = f"is {item}, which is no program"
            yield Problem((*key, at), message, f"write it first: [python, train.py, '{item}']")


def _launcher_problems(command: Sequence[str], workers: int) -> Iterator[Problem]:
    """Check that no program that starts ranks itself is started once for each rank.

    Who names variables of torchrun tells the launcher which rank it stands for.
    """
    text = " ".join(command)
    match = LAUNCHER.search(text)
    if match is None or any(re.search(rf"\b{name}\b", text) for name in TORCHRUNS):
        return
    launcher = " ".join((match[1] or match[2]).split())
    yield Problem(
        ("command",),
        f"starts {launcher} once for each of the {workers} workers, and {launcher} "
        f"starts ranks itself, so the model would be trained {workers} times",
        "write launch: node",
    )


def _item_problems(
    programs: Mapping[KeyPath, Sequence[str]], parameters: Mapping[str, object]
) -> Iterator[Problem]:
    """Check that items name existing parameters, and that every parameter reaches a program."""
    declared = [*parameters_of(parameters)]
    members = groups(name for name, *_ in declared)
    variables = VARIABLES if ("command",) in programs else (*VARIABLES, PORT)
    names_allowed = [*(name for name, *_ in declared), *members, *PARAMETER_LISTS, *variables]
    named: set[str] = set()
    items = {(*key, at): item for key in programs for at, item in enumerate(programs[key])}
    for place, item in items.items():
        for name in names(item):
            named |= {name, *members.get(name, ())}
            if name not in names_allowed:
                fix = NO_SERVER if name == PORT else nearest(name, names_allowed)
                yield Problem(place, f"has ${{{name}}}: no such parameter", fix)
    for name, path, domain in declared:
        if name in (*PARAMETER_LISTS, *variables):
            fix = "rename it"
            yield Problem(path, f"is what ${{{name}}} means in a command already", fix, at_key=True)
        elif name.startswith(TRAINING):
            yield Problem(path, "is for trainables", "a command trains as it likes", at_key=True)
        elif name not in named and not named & PARAMETER_LISTS.keys():
            missing = name
            if isinstance(domain, Share) and not named & {*domain.shares.members}:
                if domain.index:
                    continue  # said of the first one, for all
                missing, path = domain.shares.declared, path[:2]
            fix = f"put '${{args}}' or '${{{missing}}}' into it"
            what = "the command" if ("command",) in programs else "the server or its load"
            yield Problem(path, f"never reaches {what}", fix, at_key=True)


def _merged_values(command: Sequence[str], parameters: Mapping[str, object]) -> Iterator[Problem]:
    """Check that each value of a parameter reaches the program, and no two of them as one."""
    others = {name: "?" for name, *_ in parameters_of(parameters)}
    variables = dict.fromkeys(VARIABLES, "?")
    for name, path, domain in parameters_of(parameters):
        seen: dict[tuple[str, ...], object] = {}
        rest = {other: "?" for other in others if other != name}
        without = tuple(render(command, rest, variables))
        seen[tuple(render(command, others, variables))] = "?"  # of a parameter never written
        for value in () if isinstance(domain, Float | Int | Share) else domain.grid(1):
            arguments = tuple(render(command, {**others, name: value}, variables))
            if value is None and arguments == without:
                message = (
                    "null leaves its argument out, and the program would train its own default"
                )
                fix = "write that default for null, or a text such as 'none' that the program reads"
                yield Problem(path, message, fix)
            elif arguments in seen and seen[arguments] != "?":
                both = f"{shown(seen[arguments])} and {shown(value)}"
                fix = "the program would see one value: remove the other"
                yield Problem(path, f"{both} become the same argument", fix)
            seen.setdefault(arguments, value)
