"""The exchange with agents: ask for a trial, report, and tell how it ended.

The bodies are the contract with workers in any language; the page `agents` explains them.
"""

import time
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Path, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, JsonValue, Strict, StrictBool, StrictInt
from sqlalchemy import Connection

from hposvc.events import Cause
from hposvc.journal import agents
from hposvc.journal.agents import AgentOrder, OrderRow, OrderState
from hposvc.journal.home import find
from hposvc.server import agent_orders
from hposvc.server.access import Agent as AgentCaller
from hposvc.server.access import ReaderOrAgent
from hposvc.server.problems import ApiError
from hposvc.server.service import Serving
from hposvc.spec.engines import ENGINES
from trainables.contract import LONGEST_SOURCE, MOST_METRICS
from trainables.storage import checkpoint

router = APIRouter(tags=["agents"])

LONGEST_TEXT = 4096  # characters of a checkpoint's URI
Client = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w\-.:/@ ]+$")]
Step = Annotated[int, Strict(), Field(ge=1, le=2**53)]
NOT_FINITE = ("NaN", "Infinity", "-Infinity")  # JSON has no numbers for them
Verdict = agent_orders.Verdict
RECENT_S = 600.0  # a client that was not heard of for so long, and has nothing, is not listed


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class SavedBody(_Body):
    """A checkpoint of hposvc's own runtime, in the sweep's folder of checkpoints or its store."""

    step: Annotated[int, Strict(), Field(ge=0)]
    path: Annotated[str, Field(max_length=LONGEST_TEXT)]
    checksum: Annotated[str, Field(max_length=64)]
    size: Annotated[int, Strict(), Field(ge=0)]
    within: Annotated[int, Strict(), Field(ge=0)] = 0

    def to_saved(self) -> checkpoint.Saved:
        return checkpoint.Saved(**self.model_dump())


Checkpoint = Annotated[str, Field(min_length=1, max_length=LONGEST_TEXT)] | SavedBody


class AskBody(_Body):
    """A wish for trials; a client that asks again gets the trials that it has, up to `n` in all."""

    client_id: Client
    n: Annotated[int, Strict(), Field(ge=1, le=1000)] = 1
    host: Annotated[str, Field(max_length=250, pattern=r"^[\w\-.:/@ ]*$")] = ""  # shown to people


class ReportBody(_Body):
    """The metrics of a step; the same step may be sent again, with the checkpoint or without."""

    client_id: Client
    step: Step
    # Numbers, or the words NaN, Infinity and -Infinity. What is neither is left out, with a
    # warning; as the sweep's own metric it is refused.
    metrics: dict[str, JsonValue]
    # From hposvc's runtime: what further values are, which it could not send.
    left_out: Annotated[dict[str, str], Field(max_length=MOST_METRICS)] = {}
    checkpoint: Checkpoint | None = None
    order: int | None = None  # null: the client's order of this trial


class DataBody(_Body):
    """A data set that a trial uses."""

    name: Annotated[str, Field(min_length=1, max_length=500)]
    context: Literal["training", "validation"]
    samples: Annotated[int, Strict(), Field(ge=0)]
    digest: Annotated[str, Field(max_length=36)] = ""
    source: Annotated[str, Field(max_length=LONGEST_SOURCE)] = ""


class Place(_Body):
    """Where an order is carried out."""

    device: Annotated[str, Field(max_length=500)]  # model of the GPU, or of the CPU; empty: unknown
    node: Annotated[str, Field(max_length=500)] = ""


class SuggestionBody(_Body):
    """A parameter that the sweep lacks, and whose value was decided while its trial runs."""

    name: Annotated[str, Field(min_length=1, max_length=250)]
    value: StrictBool | StrictInt | Annotated[float, Field(allow_inf_nan=False)] | str | None
    domain: dict[str, JsonValue]  # as a spec declares it


class Keep(_Body):
    """A checkpoint without a report, or what is known of a trial; from hposvc's runtime."""

    client_id: Client
    checkpoint: SavedBody | None = None
    data: Annotated[list[DataBody], Field(max_length=100)] | None = None
    placed: Place | None = None
    suggested: SuggestionBody | None = None
    order: int | None = None


class BeatBody(_Body):
    """A sign of life."""

    client_id: Client
    order: int | None = None


class Tell(_Body):
    """The end of an order: its steps are done, it failed, or the client gives it back."""

    client_id: Client
    state: Literal["done", "failed", "released"]
    reason: Annotated[str, Field(max_length=100_000)] = ""  # of a failure: the last line counts
    cause: Cause | None = None  # of a failure; null: user
    # From hposvc's runtime: how its trainable ended, parameters that it did not ask for;
    # whether the checkpoint to start from is damaged; whether every trial would fail like this;
    # whether a process of it ended itself, by an exit status or a fault.
    how: Literal["", "returned", "beyond"] = ""
    unused: Annotated[list[str], Field(max_length=1000)] | None = None
    warning: Annotated[str, Field(max_length=10_000)] = ""  # see `Ended`
    damaged: bool = False
    whole: bool = False
    crashed: bool = False
    order: int | None = None


class ReportAnswer(BaseModel):
    """Answer to a report: what the client is to do with its trial.

    `stop`: let go of it and tell `done`; `checkpoint`: save one, and send the step again with it.
    """

    verdict: Verdict


class Renewed(ReportAnswer):
    """The answer to a heartbeat."""

    lease_s: float


class Told(BaseModel):
    """The end of an order is durable."""

    trial: str
    state: Literal["done", "failed", "released"]


class Holding(BaseModel):
    """An order that a client has."""

    trial: str
    order: int
    step: int  # the last one reported
    since: float  # seconds of the epoch


class AgentRow(BaseModel):
    """A client, and what it has."""

    client_id: str
    host: str
    seen: float  # seconds of the epoch, on the server's clock
    trials: list[Holding]


class AgentList(BaseModel):
    """All clients of a sweep that were heard of lately."""

    agents: list[AgentRow]
    waiting: int  # trials that clients asked for and did not get yet
    open: list[str]  # trials that wait for a client


ID = "The sweep's id, the beginning of it, or `last`."
TEXT = r"^[^\x00]*$"  # a database has no NUL
WAIT_S = 3.0  # for an order, before an ask is answered that there is none now
DECISION_S = 30.0  # for the decision at a milestone
RETRY = {"Retry-After": "1"}


async def _agents_sweep(
    service: Serving,
    sweep: Annotated[str, Path(alias="id", description=ID, max_length=200, pattern=TEXT)],
) -> str:
    """Return the sweep's id, if agents may take its trials."""
    if service.exchange.known(sweep) is not None:
        return sweep
    row = await run_in_threadpool(find, service.sweeps.journal, sweep)
    engine = row.spec["engine"]["type"]
    if not ENGINES[engine].foreign:
        raise ApiError(
            400,
            "bad_request",
            f"{row.id} has engine {engine}, which carries out its trials itself; agents take "
            "trials of sweeps with engine: agents",
        )
    service.exchange.learn(row)
    return row.id


Sweep = Annotated[str, Depends(_agents_sweep)]
Trial = Annotated[str, Path(alias="t", description="As t0007.", max_length=80, pattern=TEXT)]


@router.post("/sweeps/{id}/ask")
async def ask(
    caller: AgentCaller, service: Serving, sweep: Sweep, body: AskBody, response: Response
) -> list[AgentOrder]:
    """Take trials by lease; nothing now: an empty list, and Retry-After."""
    exchange, deadline = service.exchange, time.monotonic() + WAIT_S

    def take(connection: Connection) -> tuple[list[OrderRow], list[OrderRow], bool]:
        held, new = agents.lease(connection, sweep, body.client_id, body.host, body.n)
        return held, new, not (held or new) and agents.is_over(connection, sweep)

    def sees(state: OrderState) -> bool | None:
        """Return whether an order is open, of which every waiting client sees another one."""
        return True if state.over or (state.open and state.open.pop()) else None

    while True:
        held, new, over = await exchange.change(take)
        if over:
            raise ApiError(410, "sweep_over", f"{sweep} is over; there are no more trials")
        enough = new or len(held) == body.n
        if enough or not await exchange.wait(sweep, sees, deadline - time.monotonic()):
            break
    if not held and not new:
        response.headers.update(RETRY)
    return [agent_orders.work_of(row) for row in (*held, *new)]


@router.post("/sweeps/{id}/trials/{t}/report")
async def report(
    caller: AgentCaller, service: Serving, sweep: Sweep, trial: Trial, body: ReportBody
) -> ReportAnswer:
    """Report a step; at a milestone the answer comes once the sweep has decided."""
    exchange = service.exchange
    metrics = {
        name: float(f"{value}") if value in NOT_FINITE else value
        for name, value in body.metrics.items()
    }

    given = body.checkpoint
    saved = given.to_saved() if isinstance(given, SavedBody) else given

    def record(connection: Connection) -> tuple[OrderRow, Verdict | None]:
        row = agent_orders.find(connection, sweep, body.client_id, trial, body.order)
        return row, agent_orders.report(
            connection, sweep, row, body.step, metrics, body.left_out, saved
        )

    def sees(state: OrderState) -> tuple[Verdict | None] | None:
        """Return the answer once there is one; without a verdict, the lease is lost."""
        now = state.orders.get(row.id)
        if now is None or now.client != body.client_id:
            return (None,)
        decided = agent_orders.verdict_of(now, body.step)
        return None if decided is None else (decided,)

    row, verdict = await exchange.change(record)
    if verdict is not None:
        return ReportAnswer(verdict=verdict)
    patience_s = min(DECISION_S, row.body.lease_s / 2)
    answer = await exchange.wait(sweep, sees, patience_s, row.id)
    if answer is None:
        message = f"the sweep has not decided on step {body.step} yet; send the report again"
        raise ApiError(503, "busy", message, headers=RETRY)
    [verdict] = answer
    if verdict is None:
        raise agent_orders.lost(body.client_id, trial)
    return ReportAnswer(verdict=verdict)


@router.post("/sweeps/{id}/trials/{t}/keep")
async def keep(
    caller: AgentCaller, service: Serving, sweep: Sweep, trial: Trial, body: Keep
) -> ReportAnswer:
    """Record a checkpoint between reports, or what is known of a trial: for our runtime."""
    saved = None if body.checkpoint is None else body.checkpoint.to_saved()
    data = None if body.data is None else [data_set.model_dump() for data_set in body.data]
    placed = None if body.placed is None else body.placed.model_dump()
    suggested = None if body.suggested is None else body.suggested.model_dump()

    def record(connection: Connection) -> Verdict:
        row = agent_orders.find(connection, sweep, body.client_id, trial, body.order)
        agent_orders.keep(connection, sweep, row, saved, data, placed, suggested)
        return "continue" if row.told is None else "stop"

    return ReportAnswer(verdict=await service.exchange.change(record))


@router.post("/sweeps/{id}/trials/{t}/heartbeat")
async def heartbeat(
    caller: AgentCaller, service: Serving, sweep: Sweep, trial: Trial, body: BeatBody
) -> Renewed:
    """Show that the client lives, and learn whether the trial goes on."""

    def record(connection: Connection) -> Renewed:
        row = agent_orders.find(connection, sweep, body.client_id, trial, body.order)
        verdict = agent_orders.beat(connection, sweep, row)
        return Renewed(verdict=verdict, lease_s=row.body.lease_s)

    return await service.exchange.change(record)


@router.post("/sweeps/{id}/trials/{t}/tell")
async def tell(
    caller: AgentCaller, service: Serving, sweep: Sweep, trial: Trial, body: Tell
) -> Told:
    """Tell how the client's order of a trial ended."""
    details = body.model_dump(include={"how", "unused", "warning", "damaged", "whole", "crashed"})

    def record(connection: Connection) -> None:
        row = agent_orders.find(connection, sweep, body.client_id, trial, body.order)
        agent_orders.tell(connection, sweep, row, body.state, body.reason, body.cause, details)

    await service.exchange.change(record)
    return Told(trial=trial, state=body.state)


@router.get("/sweeps/{id}/agents")
async def list_agents(caller: ReaderOrAgent, service: Serving, sweep: Sweep) -> AgentList:
    """List the clients of a sweep, and what each has."""
    state, clients = await run_in_threadpool(service.exchange.look_at, sweep)
    held: dict[str, list[Holding]] = {}
    for row in state.orders.values():
        if row.client is not None:
            have = Holding(trial=row.trial, order=row.id, step=row.step, since=row.since or 0.0)
            held.setdefault(row.client, []).append(have)
    recent = time.time() - RECENT_S
    return AgentList(
        agents=[
            AgentRow(
                client_id=client.client,
                host=client.host,
                seen=client.seen,
                trials=held[client.client],
            )
            for client in clients
            if held.setdefault(client.client, []) or client.seen >= recent
        ],
        waiting=sum(client.wants for client in clients if client.seen >= recent),
        open=[row.trial for row in state.orders.values() if row.client is None],
    )
