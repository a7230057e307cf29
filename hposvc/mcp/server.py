"""The tools of `hposvc mcp`: a method each, whose docstring is what agents read about it."""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Literal

from anyio import to_thread
from mcp import types
from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
from pydantic import Field

from hposvc.analysis.selection import chosen
from hposvc.analysis.verdict import verdict
from hposvc.errors import FixableError, SpecError, SweepOver, fail
from hposvc.events import NOTHING
from hposvc.mcp import detached, spec_tools
from hposvc.mcp.tasks import SweepTasks
from hposvc.open_sweep import OpenSweep
from hposvc.remote.place import Place
from hposvc.remote.server.connection import ServedSweeps
from hposvc.reporting import comparison
from hposvc.reporting.comparison_checks import Cost
from hposvc.spec.extension import more_trials
from hposvc.state.trial import OVER
from hposvc.text import finite
from hposvc.verbs import events as journal
from hposvc.verbs import propose as proposing
from hposvc.verbs import resume, steering

INSTRUCTIONS = (
    "hposvc runs hyperparameter sweeps. Order: validate, plan (cost, token), submit, then wait by "
    "events; why says what came out. `sweep` is an id, the beginning of one, or `last`. `spec` is "
    "the path of a YAML file; `set` replaces values of it by dotted keys, like trials.max."
)
READS = types.ToolAnnotations(read_only_hint=True)
HINTS = {  # of tools that change something
    "submit": types.ToolAnnotations(
        read_only_hint=False, destructive_hint=False, idempotent_hint=True
    ),
    "propose": types.ToolAnnotations(read_only_hint=False, destructive_hint=False),
    "steer": types.ToolAnnotations(
        read_only_hint=False, destructive_hint=True, idempotent_hint=False
    ),
}
COLUMNS = ("trial", "state", "step", "value", "params", "reason", "detail", "duration_s")
# Events that are no news for who waits.
ROUTINE = frozenset({"ordered", "placed", "checkpointed", "reported", "described", "proposed"})
SLICE_S, MAX_WAIT_S = 2.0, 300.0  # of a wait; it can be cancelled after each slice
Top = Annotated[int, Field(ge=1, le=100)]
Action = Literal["pause", "resume", "stop", "kill", "extend"]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class SweepTools:
    """The tools for a home, or for a server; each returns JSON."""

    place: Place

    def validate(self, spec: str, set: Settings = NOTHING) -> str:
        """Check a spec without running it. Returns it as it was understood, without defaults."""
        return _brief(spec_tools.apart(self.place, spec_tools.validate, spec, dict(set)))

    def plan(
        self, spec: str, set: Settings = NOTHING, seconds_per_step: float | None = None
    ) -> str:
        """Preview a sweep: trials, hours, money and wall time with 80% intervals, what is unknown,
        what would save most, and the token that submit needs. Runs nothing. seconds_per_step: if
        no earlier sweep of this code shows it."""
        given = (spec, dict(set), seconds_per_step)
        return _brief(spec_tools.apart(self.place, spec_tools.plan, *given))

    def submit(self, spec: str, token: str, set: Settings = NOTHING) -> str:
        """Run the sweep that plan showed: same spec and set, and its token. The spec needs a
        budget. Sent again, it returns the same sweep. The sweep goes on without you."""
        return _brief(spec_tools.apart(self.place, spec_tools.submit, spec, dict(set), token))

    def status(self, sweep: str = "last") -> str:
        """A sweep's state, counts of trials, best trial, cost so far, and what it waits for."""
        return _brief(self._open(sweep).record().status())

    def trials(
        self, sweep: str = "last", top: Top = 5, where: Sequence[str] = (), sort: str | None = None
    ) -> str:
        """The best trials of a sweep. where: conditions like state=FAILED or lr>0.01. sort: a
        column or parameter, -name for largest first."""
        rows = chosen(self._open(sweep).record(), where, sort, top)
        return _brief({"trials": [{name: row[name] for name in COLUMNS} for row in rows]})

    def why(self, sweep: str = "last") -> str:
        """What a sweep found, in ten sentences: the best, how sure that is, gain, cost, what
        mattered, warnings, what to try next. Read it before you conclude anything."""
        record = self._open(sweep).record()
        found = verdict(record.row.id, record.state)
        return _brief({"findings": [f"{each.title}: {each.sentence}" for each in found]})

    def compare(self, sweeps: Sequence[str], by: Sequence[str] = (), cost: Cost = "hours") -> str:
        """Which of several sweeps, or groups of them (by: keys of the spec, like search.method),
        is better at equal cost, and with which probability. The first is the reference."""
        said = comparison.compare([self._open(sweep) for sweep in sweeps], by, cost)
        rows = [dict(zip(said.head, row, strict=True)) for row in said.rows]
        return _brief({"rows": rows, "sentences": said.sentences, "warnings": said.warnings})

    def propose(self, sweep: str, set: Settings, run: bool = False) -> str:
        """What the model thinks of a configuration: mean, deviation, probability to be better than
        the best, nearest trial. set: values of some parameters; the model chooses the others. run:
        queue it, too; proposals beyond a share of the trials wait."""
        return _brief(proposing.propose(self.place, sweep, set, run))

    def steer(
        self,
        sweep: str,
        action: Action,
        trial: str | None = None,
        trials: int | None = None,
        set: Settings = NOTHING,
    ) -> str:
        """pause, resume, stop (running trials end at their next report), kill (at once) or extend
        a sweep. trial: stop or kill only this one. extend: trials adds as many, set gives new
        limits like budget.wall. stop and kill can't be undone."""
        place, row = self.place, self.place.find(sweep)
        if trial is not None and action not in ("stop", "kill"):
            raise fail(f"is given to {action}", "trial", fix="only stop and kill are of a trial")
        if (set or trials is not None) and action != "extend":
            raise fail(f"are given to {action}", "set or trials", fix="only extend takes them")
        if action == "resume":
            return self._resume(row.id)
        if lifted := next(
            (key for key in set if key.startswith("budget") and set[key] is None), ""
        ):
            raise fail("is taken away: an agent's sweep needs a limit", lifted, fix="raise it")
        changes = dict(set) if trials is None else more_trials(set, trials)
        receipt = steering.steer(place, row.id, action, trial, changes)
        is_idle = receipt.state in OVER and receipt.driver != "alive"
        if action == "extend" and is_idle and not isinstance(place, ServedSweeps):
            detached.start(place, row.id, ["resume", row.id])
        return _brief(asdict(receipt))

    def _resume(self, sweep: str) -> str:
        place, record = self.place, self._open(sweep).record()
        if record.state.finished:
            raise SweepOver(f"{sweep} has ended: {record.phase}", fix="extend gives it more trials")
        if isinstance(place, ServedSweeps):
            resume.request(place, place.status(sweep), accept_code=False)
        elif record.driver != "alive":
            detached.start(place, sweep, ["resume", sweep])
        return self.status(sweep)

    async def events(
        self,
        sweep: str = "last",
        since: int = 0,
        wait_s: float = 0,
        top: Top = 20,
        routine: bool = False,
    ) -> str:
        """What happened after event number `since`, at most top lines; with wait_s, wait up to
        that long for the next. Ask again with since=next until over. routine: with every report,
        checkpoint and order."""
        deadline = time.monotonic() + min(wait_s, MAX_WAIT_S)
        news, is_over = list[Mapping[str, Any]](), False
        while not news and not is_over:
            left_s = max(0.0, deadline - time.monotonic())
            look = partial(journal.events, self.place, sweep, since, min(SLICE_S, left_s))
            page = await to_thread.run_sync(look)
            since, is_over = page["next"], page["over"]
            news = [event for event in page["events"] if routine or event["kind"] not in ROUTINE]
            if left_s == 0:
                break
        if len(news) > top:
            since, is_over = news[top - 1]["seq"], False
        lines = [journal.line(event) for event in news[:top]]
        return _brief({"events": lines, "next": since, "over": is_over})

    def _open(self, sweep: str) -> OpenSweep:
        return OpenSweep(self.place, sweep)


class AgentServer(MCPServer[Any]):
    """A server whose tools tell our errors to the agent, as the command line does to people."""

    async def call_tool(self, *call: Any, **options: Any) -> Any:
        """Call a tool."""
        try:
            return await super().call_tool(*call, **options)
        except UnexpectedToolError as error:
            if isinstance(error.__cause__, FixableError | SpecError):
                raise ToolError(f"{error.__cause__}") from error
            raise


def build(place: Place) -> AgentServer:
    """Return the server of a home's sweeps, or of a server's, with the tools that its token may."""
    granted: Sequence[str] = ("read", "submit", "steer")
    if isinstance(place, ServedSweeps):
        with suppress(FixableError, SpecError):  # each call then gets the server's message
            granted = place.http.get("me")["scopes"]
    server = AgentServer(
        "hposvc",
        version=version("hposvc"),
        instructions=INSTRUCTIONS,
        extensions=[SweepTasks(place)],
        log_level="WARNING",
    )
    tools = SweepTools(place)
    reading = (tools.status, tools.trials, tools.why, tools.compare, tools.events)
    scopes = {tools.submit: "submit", tools.propose: "steer", tools.steer: "steer"}
    for tool in (tools.validate, tools.plan, tools.submit, *reading, tools.propose, tools.steer):
        if {"read", scopes.get(tool, "read")} <= {*granted}:
            text = " ".join((tool.__doc__ or "").split())
            hints = HINTS.get(tool.__name__, READS)
            server.add_tool(tool, description=text, annotations=hints, structured_output=False)
    return server


def _brief(data: object) -> str:
    return json.dumps(finite(data), ensure_ascii=False)
