"""The tools of `hposvc mcp`: operations for agents (hposvc/operation.py), and methods here.

A method is a tool that shortens its answer for agents, that waits, or that stands for several
verbs; its docstring is what agents read about it.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from inspect import Signature, signature
from typing import Annotated, Any, Literal

from anyio import from_thread, to_thread
from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from hposvc.analysis.findings import why
from hposvc.analysis.selection import chosen
from hposvc.errors import FixableError, SpecError, SweepOver, fail
from hposvc.events import BECAUSE, MARKS, NOTHING
from hposvc.mcp.spec_tools import Answer, Settings, SpecTools, apart
from hposvc.mcp.tasks import SweepTasks, brief
from hposvc.open_sweep import OpenSweep, Record
from hposvc.reporting import comparison
from hposvc.reporting.comparison_checks import Cost
from hposvc.spec.extension import more_trials
from hposvc.state.trial import OVER
from hposvc.text import finite
from hposvc.verbs import events as journal
from hposvc.verbs.operations import operations
from hposvc.verbs.place import Place

INSTRUCTIONS = (
    "hposvc runs hyperparameter sweeps. Order: validate, plan (cost, token), submit, then wait by "
    "events; why says what came out. `sweep` is an id, the beginning of one, or `last`. `spec` is "
    "the path of a YAML file; `set` replaces values of it by dotted keys, like trials.max."
)
READING = ("validate", "plan", "status", "trials", "why", "compare", "events")
READS = types.ToolAnnotations(read_only_hint=True)
changes = partial(types.ToolAnnotations, read_only_hint=False)
CHANGING = {  # with the scope that a token needs
    "submit": ("submit", changes(destructive_hint=False, idempotent_hint=True)),
    "steer": ("steer", changes(destructive_hint=True, idempotent_hint=False)),
}
COLUMNS = ("trial", "state", "step", "value", "params", "reason", "detail", "duration_s")
# Events that are no news for who waits.
ROUTINE = frozenset({"ordered", "placed", "checkpointed", "reported", "described", "proposed"})
ROUTINE |= {"suggested", "decided", "retry_due"}
SLICE_S, MAX_WAIT_S = 2.0, 300.0  # of a wait; it can be cancelled after each slice
TOKEN = "`plan` returns it: call that with the same spec and `set`, and look at the cost"
Top = Annotated[int, Field(ge=1, le=100)]
Action = Literal["pause", "resume", "stop", "kill", "extend", "exclude", "include"]


@dataclass(frozen=True)
class SweepTools:
    """The tools of recorded sweeps, in a home or on a server; each returns data for JSON."""

    place: Place

    def status(self, sweep: str = "last") -> Answer:
        """A sweep's state, counts of trials, best trial, cost so far, and what it waits for."""
        return dict(finite(OpenSweep(self.place, sweep).record().status()))

    def trials(
        self, sweep: str = "last", top: Top = 5, where: Sequence[str] = (), sort: str | None = None
    ) -> Answer:
        """The best trials of a sweep. where: conditions like state=FAILED or lr>0.01. sort: a
        column or parameter, -name for largest first."""
        record = OpenSweep(self.place, sweep).record()
        rows = chosen(record, where, sort, top)
        listed = [{name: getattr(row, name) for name in COLUMNS} for row in rows]
        about = {"sweep": record.row.id, "state": record.phase, "total": len(record.state.trials)}
        return {**about, "trials": listed}

    def why(self, sweep: str = "last") -> Answer:
        """Say in ten sentences what a sweep found: the best, how sure that is, gain, cost, what
        mattered, warnings, what to try next. Read it before you conclude anything."""
        record = OpenSweep(self.place, sweep).record()
        found = why(record.row.id, record.state)[: None if record.state.trials else 1]
        sentences = [f"{each.title}: {each.sentence}" for each in found]
        return {"sweep": record.row.id, "state": record.phase, "findings": sentences}

    def compare(
        self, sweeps: Sequence[str], by: Sequence[str] = (), cost: Cost = "hours"
    ) -> Answer:
        """Which of several sweeps, or groups of them (by: keys of the spec, like search.method),
        is better at equal cost, and with which probability. The first is the reference."""
        said = comparison.compare([OpenSweep(self.place, sweep) for sweep in sweeps], by, cost)
        rows = [dict(zip(said.head, row, strict=True)) for row in said.rows]
        return {"rows": rows, "sentences": said.sentences, "warnings": said.warnings}

    def steer(
        self,
        sweep: str,
        action: Action,
        trial: str | None = None,
        trials: int | None = None,
        set: Settings = NOTHING,
        because: str | None = None,
    ) -> Answer:
        """pause, resume, stop (running trials end at their next report), kill (at once) or extend
        a sweep. trial: stop or kill only this one. extend: trials adds as many, set gives new
        limits like budget.wall. exclude: trial counts no longer, because its data was wrong;
        include takes that back. stop and kill can't be undone."""
        place, row = self.place, self.place.find(sweep)
        if trial is not None and action not in ("stop", "kill", *MARKS):
            fix = f"only stop, kill, {' and '.join(MARKS)} are of a trial"
            raise fail(f"is given to {action}", "trial", fix=fix)
        if trial is None and action in MARKS:
            raise fail("is missing", "trial", fix=f"name the trial to {action}", at_key=True)
        if (because is None) == (action == "exclude"):
            raise fail("belongs to exclude, and to it alone", "because", fix="say why to exclude")
        if (set or trials is not None) and action != "extend":
            raise fail(f"are given to {action}", "set or trials", fix="only extend takes them")
        if lifted := [key for key in set if key.startswith("budget") and set[key] is None]:
            raise fail("is taken away: an agent's sweep needs a limit", lifted[0], fix="raise it")
        if action == "resume":
            return self._resume(OpenSweep(place, row.id).record())
        changes = more_trials(set, trials) if because is None else {BECAUSE: because}
        receipt = place.steer(row.id, action, trial, changes)
        if action == "extend" and receipt.state in OVER and not place.url:
            place.resume_apart(row.id)  # as a server does by itself
        return asdict(receipt)

    def _resume(self, record: Record) -> Answer:
        sweep = record.row.id
        if record.state.finished:
            raise SweepOver(f"{sweep} has ended: {record.phase}", fix="extend gives it more trials")
        if record.driver != "alive":
            self.place.resume_apart(sweep)
        return self.status(sweep)

    def events(
        self,
        sweep: str = "last",
        since: int = 0,
        wait_s: float = 0,
        top: Top = 20,
        routine: bool = False,
    ) -> Answer:
        """List events after number `since`, at most top lines; with wait_s, wait up to
        that long for the next. Ask again with since=next until over. routine: with every report,
        checkpoint and order."""
        sweep = self.place.find(sweep).id  # `last` may be another one by the next look
        deadline = time.monotonic() + min(wait_s, MAX_WAIT_S)
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            page = self.place.events(sweep, since, min(SLICE_S, left_s))
            since, is_over = page["next"], page["over"]
            news = [event for event in page["events"] if routine or event["kind"] not in ROUTINE]
            if news or is_over or not left_s:
                break
            from_thread.check_cancelled()
        if len(news) > top:
            since, is_over = news[top - 1]["seq"], False
        lines = [journal.line(event) for event in news[:top]]
        return {"sweep": sweep, "events": lines, "next": since, "over": is_over}


class ToolServer(MCPServer[Any]):
    """A server that refuses arguments in words of its own, not of the library that checks them."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> types.CallToolResult | types.InputRequiredResult:
        try:
            return await super().call_tool(name, arguments, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            raise ToolError("\n".join(map(_refusal, error.__cause__.errors()))) from error


def _refusal(found: ErrorDetails) -> str:
    where = ".".join(map(str, found["loc"]))
    what = "is missing" if found["type"] == "missing" else found["msg"]
    return f"{where}: {what}{f'; {TOKEN}' if where == 'token' else ''}"


def build(place: Place) -> MCPServer[Any]:
    """Return the server of a home's sweeps, or of a server's, with the tools that its token may."""
    granted = {*place.scopes}
    server = ToolServer(
        "hposvc",
        version=version("hposvc"),
        instructions=INSTRUCTIONS,
        extensions=[SweepTasks(place)],
        log_level="WARNING",
    )
    for name in (*READING, *CHANGING):
        scope, hints = CHANGING.get(name, ("read", READS))
        if {"read", scope} <= granted:
            of_spec = getattr(SpecTools(place), name, None)
            method = of_spec or getattr(SweepTools(place), name)
            call = partial(apart, place, name) if of_spec else method
            made = _tool(call, name, method.__doc__, signature(method, eval_str=True))
            server.add_tool(made, annotations=hints, structured_output=False)
    for operation in operations():
        if operation.for_agents and {"read", operation.scope} <= granted:
            call, takes = partial(operation, place), Signature(operation.arguments)
            made = _tool(call, operation.name, operation.description, takes)
            hints = types.ToolAnnotations(
                read_only_hint=operation.method == "GET",
                destructive_hint=operation.method == "DELETE",
                idempotent_hint=operation.repeatable,
            )
            server.add_tool(made, annotations=hints, structured_output=False)
    return server


def _tool(
    call: Callable[..., object], name: str, text: str, takes: Signature
) -> Callable[..., Awaitable[str]]:
    """Return a tool as agents call it: it answers JSON, and refuses as the command line does."""

    async def tool(**arguments: object) -> str:
        try:
            return brief(await to_thread.run_sync(partial(call, **arguments)))
        except (FixableError, SpecError) as error:
            raise ToolError(f"{error}") from error

    tool.__name__, tool.__doc__ = name, " ".join(text.split())
    tool.__signature__ = takes  # type: ignore[attr-defined] # which `inspect` reads
    return tool
