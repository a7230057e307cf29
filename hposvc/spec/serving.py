"""The section `serve`: a server that stays between trials, and a program that loads it."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field

from hposvc.errors import KeyPath, Problem, shown
from hposvc.spec.command import CommandItems
from hposvc.spec.types import CLOSED, Seconds, Word
from searchers import nearest, parameters_of
from trainables.contract import COST
from trainables.programs.arguments import PARAMETER_LISTS, PORT, VARIABLES, groups, names

if TYPE_CHECKING:
    from hposvc.spec.sweep_spec import SweepSpec

URL = re.compile(r"https?://[^\s/]+(/\S*)?")
EXAMPLE = f"http://127.0.0.1:${{{PORT}}}/health"


def check_ready(url: str) -> str:
    """Return the URL of a server's health check, if it names the server's own port."""
    if not URL.fullmatch(url) or names(url) != [PORT]:
        message = "write a URL with the port of each slot's own server"
        raise ValueError(f"is {shown(url)}; {message}, like {EXAMPLE}")
    return url


@dataclass(frozen=True)
class Serve:
    """A server for each slot, and the program that loads it: one run of the load is a trial."""

    command: CommandItems  # starts the server, on the port HPOSVC_PORT
    ready: Annotated[Word, AfterValidator(check_ready)]  # answers 2xx once the server can be loaded
    load: CommandItems  # reports the trial's metrics, as any command
    # Parameters with which the server starts anew; None: those that its command names.
    restart_on: tuple[Word, ...] | None = None
    start_timeout: Annotated[Seconds, Field(gt=0)] = 600.0  # until `ready` must answer
    __pydantic_config__ = CLOSED


def restarts(spec: "SweepSpec", serve: Serve) -> tuple[str, ...]:
    """Return the parameters whose change starts a server anew."""
    if serve.restart_on is not None:
        return serve.restart_on
    declared = [name for name, *_ in parameters_of(spec.parameters)]
    used = {name for item in serve.command for name in names(item)}
    named = {name for each, members in groups(declared).items() if each in used for name in members}
    every = not used.isdisjoint(PARAMETER_LISTS)
    return tuple(name for name in declared if every or name in used | named)


def serve_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that a server is alone in its slot, and stays for the next trial."""
    if (serve := spec.serve) is None:
        return
    if spec.command != serve.load:
        yield Problem(("command",), "is given, and serve too", "remove one of them", at_key=True)
    if spec.resources.max_workers > 1:
        message = "is more than 1, and one server serves one load with all GPUs of its worker"
        fix = "write workers: 1, and gpus_per_worker: 4 for a server on 4 GPUs"
        yield Problem(("resources", "workers"), message, fix, at_key=True)
    asked = [*(metric.name for metric in spec.objectives), *(limit.metric for limit in spec.bounds)]
    if COST in asked and not spec.money(3600):
        key = "gpu_hour" if spec.resources.gpus_per_worker else "worker_hour"
        fix = f"give the price of an hour, such as price: {{{key}: 2.5}}"
        yield Problem(("price",), f"has no {key}, by which {COST} is computed", fix, at_key=True)
    for at, item in enumerate(serve.command):
        for name in filter(VARIABLES.__contains__, names(item)):
            message = f"has ${{{name}}}, which each trial has anew, and the server stays"
            yield Problem(("serve", "command", at), message, "put it into serve.load")
    yield from _restart_problems(spec, serve, ("serve", "restart_on"))


def _restart_problems(spec: "SweepSpec", serve: Serve, path: KeyPath) -> Iterator[Problem]:
    """Check that no parameter of the server keeps an old value, and that names exist."""
    if serve.restart_on is None:
        return
    declared = [name for name, *_ in parameters_of(spec.parameters)]
    for at, name in enumerate(serve.restart_on):
        if name not in declared:
            yield Problem((*path, at), f"has {name!r}: no such parameter", nearest(name, declared))
    for name in restarts(spec, replace(serve, restart_on=None)):
        if name not in serve.restart_on:
            message = f"lacks {name}, so a running server would keep its old value"
            yield Problem(path, message, f"add {name}, or leave restart_on out", at_key=True)
