"""An operation on the sweeps of a place, written once, as a function of a home's sweeps.

From the function's arguments and its answer come the server's route
(hposvc/server/routes/verbs.py), the request that a client sends for it, and the tool of agents
(hposvc/mcp/server.py); who calls it does not know where the sweeps are. The answer is a dataclass,
which the operation's JSON, its description in OpenAPI and the client's reader are made from.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter, getdoc, signature
from string import Formatter
from typing import (
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    Protocol,
    TypeVar,
)

from pydantic import TypeAdapter

S = TypeVar("S")  # the sweeps of a home
P = ParamSpec("P")
R = TypeVar("R")

Method = Literal["GET", "POST", "DELETE"]
Scope = Literal["read", "submit", "steer", "admin"]
SWEEP = "sweep"  # the argument that names a sweep, in a path


class Carrier(Protocol):
    """A home, or a server."""

    def carry_out(self, operation: "ServedFunction[..., R]", given: Mapping[str, Any]) -> R:
        """Carry out an operation with these arguments, and return its answer."""


@dataclass(frozen=True)
class ServedFunction(Generic[P, R]):
    """A function of a home's sweeps that a server carries out for its callers, too."""

    function: Callable[..., R]
    verb: str  # as a server records who asked for what
    method: Method
    path: str  # below /api/v1, with arguments of the function in braces
    scope: Scope  # of the callers who may have it carried out
    repeatable: bool  # the same request sent twice does what it does once
    at_once: bool  # the request is answered with the result; else with an operation to wait for
    secret: str | None  # the key of an answer that is kept nowhere
    work_s: float  # for how long a server may work on an answer at once
    for_agents: bool  # agents have it as a tool

    def __call__(self, place: Carrier, *args: P.args, **kwargs: P.kwargs) -> R:
        """Carry the operation out for the sweeps of a home, or have their server do so."""
        given = signature(self.function).bind(None, *args, **kwargs)
        _, *named = given.arguments.items()
        return place.carry_out(self, dict(named))

    @property
    def name(self) -> str:
        """The function's name."""
        return self.function.__name__

    @property
    def description(self) -> str:
        """The description of the operation, from the function's docstring."""
        return (getdoc(self.function) or "").partition("\n\nRaises:")[0]

    @cached_property
    def arguments(self) -> tuple[Parameter, ...]:
        """The arguments after the sweeps of a home, with their types."""
        return tuple(signature(self.function, eval_str=True).parameters.values())[1:]

    @cached_property
    def in_path(self) -> tuple[str, ...]:
        """The names of the arguments that are parts of the path."""
        return tuple(name for _, name, _, _ in Formatter().parse(self.path) if name)

    @property
    def answer_type(self) -> Any:
        """The type of the answer."""
        return signature(self.function, eval_str=True).return_annotation

    @cached_property
    def answer(self) -> TypeAdapter[R]:
        """The writer of the answer as JSON, and its reader."""
        return TypeAdapter(self.answer_type)

    def data(self, answer: R) -> Any:
        """Return an answer as JSON data, as the command and the server have it."""
        return self.answer.dump_python(answer, mode="json")


def operation(
    method: Method,
    path: str,
    scope: Scope,
    *,
    verb: str = "",
    repeatable: bool = False,
    at_once: bool = False,
    secret: str | None = None,
    work_s: float = 0.0,
    for_agents: bool = False,
) -> Callable[[Callable[Concatenate[S, P], R]], ServedFunction[P, R]]:
    """Make a function of a home's sweeps an operation, whose arguments are read as JSON has them.

    Args:
        path: below /api/v1; arguments in braces are parts of it. The others are in the query of a
            GET, and in the body of a POST.
        scope: what a server's caller needs.
        verb: as a server records who asked for what; empty: the name of the function's file.
        repeatable: the same request sent twice does what it does once.
        at_once: answer a POST or DELETE with the result. A GET always is. Otherwise the answer is
            an operation, which the client waits for.
        secret: the key of the answer that a server must not record.
        work_s: for how long a server may work on an answer at once.
        for_agents: have `hposvc mcp` offer it as a tool, with the docstring as its description.
    """

    def make(function: Callable[Concatenate[S, P], R]) -> ServedFunction[P, R]:
        now = at_once or method == "GET"
        again = repeatable or method == "GET"
        name = verb or function.__module__.rpartition(".")[2]
        return ServedFunction(
            function, name, method, path, scope, again, now, secret, work_s, for_agents
        )

    return make
