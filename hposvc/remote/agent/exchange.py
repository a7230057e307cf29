"""The agent's side of the exchange with a server: ask, report, heartbeat, tell."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Literal

from cluster.retries import retry
from hposvc.errors import Busy, LeaseLost, OutOfReach, StoreError, SweepOver
from hposvc.events import Failed
from hposvc.journal.agents import AgentOrder
from hposvc.remote.http import Http
from hposvc.text import spelled
from trainables.contract import (
    CheckpointSaved,
    DataDeclared,
    How,
    Order,
    OrderPlaced,
    Report,
    Suggestion,
    Unanswered,
)

PATIENCE_S = 600.0  # without an answer of the server; it may be restarted meanwhile
PAUSE_S = 2.0  # between two tries, beyond those of the transport

Verdict = Literal["continue", "stop", "checkpoint"]


@dataclass(eq=False)
class AgentExchange:
    """The requests of an agent to a server about a sweep; safe to use from several threads."""

    http: Http
    sweep: str
    client: str
    host: str
    _heard_at: float = field(default_factory=time.monotonic)  # the last answer

    def ask(self) -> AgentOrder | None:
        """Return an order; None: there is none now.

        Raises:
            SweepOver: the sweep has ended.
        """
        answer = self._post("ask", {"client_id": self.client, "n": 1, "host": self.host})
        return AgentOrder.model_validate(answer[0]) if answer else None

    def report(self, report: Report, trial: str) -> Verdict:
        """Send a report; at a milestone, return once the sweep has decided."""
        body: dict[str, object] = {"step": report.step, "metrics": spelled(report.metrics)}
        if report.left_out:
            body["left_out"] = report.left_out
        if report.checkpoint is not None:
            body["checkpoint"] = asdict(report.checkpoint)
        return self._send("report", trial, report.order, body)

    def keep(self, message: Unanswered | OrderPlaced, trial: str) -> Verdict:
        """Send a checkpoint that no report brings, or what is known of a trial.

        That is its data sets, its device and node, or a parameter decided while it runs.
        """
        match message:
            case CheckpointSaved():
                body: dict[str, object] = {"checkpoint": asdict(message.saved)}
            case OrderPlaced():
                body = {"placed": {"device": message.device, "node": message.node}}
            case DataDeclared():
                body = {"data": [asdict(data) for data in message.data]}
            case Suggestion():
                parameter = {"name": message.name, "value": message.value, "domain": message.domain}
                body = {"suggested": parameter}
        return self._send("keep", trial, message.order, body)

    def beat(self, order: Order) -> Verdict:
        """Send a sign of life."""
        return self._send("heartbeat", order.trial, order.id, {})

    def done(self, order: Order, how: How, unused: Sequence[str] | None, warning: str) -> None:
        """Tell that the ranks have let go of the order without an error."""
        self._tell(order, {"state": "done", "how": how, "unused": unused, "warning": warning})

    def failed(self, order: Order, failed: Failed) -> None:
        """Tell that the order has failed, and why."""
        self._tell(
            order,
            {
                "state": "failed",
                "cause": failed.cause,
                "reason": failed.message,
                "damaged": failed.damaged,
                "whole": failed.whole,
                "crashed": failed.crashed,
            },
        )

    def released(self, order: Order, reason: str) -> None:
        """Give the order back: its trial goes on elsewhere."""
        self._tell(order, {"state": "released", "reason": reason})

    def _tell(self, order: Order, body: Mapping[str, object]) -> None:
        path = f"trials/{order.trial}/tell"
        self._post(path, {"client_id": self.client, "order": order.id, **body})

    def _send(self, verb: str, trial: str, order: int, body: Mapping[str, object]) -> Verdict:
        path = f"trials/{trial}/{verb}"
        answer = self._post(path, {"client_id": self.client, "order": order, **body})
        verdict: Verdict = answer["verdict"]
        return verdict

    def _post(self, path: str, body: Mapping[str, object]) -> Any:
        """Post until the server answers: it may be down for a while, or not have decided yet."""
        post = partial(self.http.post, f"sweeps/{self.sweep}/{path}", body, repeatable=True)
        while True:
            try:
                answer = retry(post, self._is_passing, (PAUSE_S,))
            except (LeaseLost, SweepOver):
                raise
            except Busy:
                self._heard_at = time.monotonic()  # the sweep has not decided yet
            else:
                self._heard_at = time.monotonic()
                return answer

    def _is_passing(self, error: Exception, _: float) -> bool:
        is_away = isinstance(error, OutOfReach | StoreError)
        return is_away and time.monotonic() <= self._heard_at + PATIENCE_S
