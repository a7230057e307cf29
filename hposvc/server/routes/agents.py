"""The exchange with agents: they ask for orders, and tell what happens to them.

The bodies are the contract with workers in any language; the page `agents` explains them.
"""

import time
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel, ConfigDict, Field, Strict
from sqlalchemy import Connection

from hposvc.journal import agents
from hposvc.journal.agents import AgentOrder, AgentReply, OrderRow, OrderState
from hposvc.journal.home import find
from hposvc.server import agent_orders
from hposvc.server.access import Agent as AgentCaller
from hposvc.server.access import ReaderOrAgent
from hposvc.server.agent_orders import Undecided
from hposvc.server.problems import ApiError
from hposvc.server.service import Serving
from hposvc.spec.engines import ENGINES
from trainables.contract import Beat, OrderMessage

router = APIRouter(tags=["agents"])

Client = Annotated[str, Field(min_length=1, max_length=200, pattern=r"^[\w\-.:/@ ]+$")]
RECENT_S = 600.0  # a client that was not heard of for so long, and has nothing, is not listed


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class AskBody(_Body):
    """A wish for trials; a client that asks again gets the trials that it has, up to `n` in all."""

    client_id: Client
    n: Annotated[int, Strict(), Field(ge=1, le=1000)] = 1
    host: Annotated[str, Field(max_length=250, pattern=r"^[\w\-.:/@ ]*$")] = ""  # shown to people


class TellBody(_Body):
    """A message about an order that the client has; the same may be sent again."""

    client_id: Client
    message: Annotated[OrderMessage | Beat, Field(discriminator="type")]


class Answer(BaseModel):
    """An instruction to the client about its order.

    `stop`: let go of it and tell its outcome; `checkpoint`: save one, and send the report again
    with it.
    """

    verdict: AgentReply


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


@router.post("/sweeps/{id}/tell")
async def tell(caller: AgentCaller, service: Serving, sweep: Sweep, body: TellBody) -> Answer:
    """Tell what happens to an order; a report at a milestone is answered by the decision."""
    exchange, client = service.exchange, body.client_id

    def sees(state: OrderState) -> AgentReply | ApiError | None:
        """Return the reply once there is one, or that the lease is lost."""
        now = state.orders.get(row.id)
        if now is None or now.client != client:
            return agent_orders.lost(client, row.id)
        return agent_orders.reply_to(now, step)

    reply = await exchange.change(
        lambda connection: agent_orders.tell(connection, sweep, client, body.message)
    )
    if not isinstance(reply, Undecided):
        return Answer(verdict=reply)
    row, step = reply
    patience_s = min(DECISION_S, row.body.lease_s / 2)
    seen: AgentReply | ApiError | None = await exchange.wait(sweep, sees, patience_s, row.id)
    if seen is None:
        message = f"the sweep has not decided on step {step} yet; send the report again"
        raise ApiError(503, "busy", message, headers=RETRY)
    if isinstance(seen, ApiError):
        raise seen
    return Answer(verdict=seen)


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
