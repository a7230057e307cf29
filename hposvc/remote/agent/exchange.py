"""The agent's side of the exchange with a server: ask for orders, and send messages about them."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from cluster.retries import retry
from hposvc.errors import Busy, LeaseLost, OutOfReach, StoreError, SweepOver
from hposvc.journal.agents import AGENT_ORDER, AgentOrder, AgentReply
from hposvc.remote.http import Http
from hposvc.text import spelled
from trainables.contract import Beat, OrderMessage

PATIENCE_S = 600.0  # without an answer of the server; it may be restarted meanwhile
PAUSE_S = 2.0  # between two tries, beyond those of the transport


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
        return AGENT_ORDER.validate_python(answer[0]) if answer else None

    def tell(self, message: OrderMessage | Beat) -> AgentReply:
        """Send a message; the reply to a report at a milestone comes once the sweep has decided."""
        answer = self._post("tell", {"client_id": self.client, "message": spelled(message)})
        reply: AgentReply = answer["verdict"]
        return reply

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
