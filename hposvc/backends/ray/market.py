"""Nodes by how they are paid for: spot nodes first, and others once there is no room for long.

Ray (2.60) has no fallback among the labels of a placement group: ray-project/ray#62046.
"""

import logging
import time
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from hposvc.backends.ray.slot import Slot
from hposvc.spec.sections import MARKET, Market, Resources
from hposvc.text import duration

log = logging.getLogger("hposvc")


@dataclass
class MarketChoice:
    """The market whose nodes a sweep asks for now; None: of any."""

    sweep: str
    market: Market | None
    _short_since: float | None = field(default=None, init=False)  # monotonic; None: nothing waits
    _fell_back: bool = field(default=False, init=False)

    def choose(self, resources: Resources, slots: Collection[Slot]) -> Resources:
        """Return the resources with the label of the market to ask for."""
        market = self.market
        if market is None:
            return resources
        now, waits = time.monotonic(), any(slot.state == "placing" for slot in slots)
        if not waits:
            self._short_since, self._fell_back = None, False
        elif self._short_since is None:
            self._short_since = now
        short = self._short_since is not None and now - self._short_since >= market.after
        if short and market.then is not None and not self._fell_back:
            self._fell_back = True
            log.warning(
                "%s: no %s node had room for a slot for %s; asking for %s nodes too",
                *(self.sweep, market.first, duration(market.after), market.then),
            )
        asked = market.selector if self._fell_back else market.first
        return replace(resources, labels={**resources.labels, MARKET: asked})

    @property
    def nodes(self) -> str:
        """The nodes that are asked for, to stand behind the needs of a slot; empty: any."""
        if self.market is None:
            return ""
        if self._fell_back:
            return f" on {self.market.first} or {self.market.then} nodes"
        return f" on {self.market.first} nodes"

    def describe(self) -> str:
        """Describe the nodes that are asked for, and when others will be."""
        market, since = self.market, self._short_since
        if market is None or market.then is None or since is None or self._fell_back:
            return self.nodes
        left = max(0.0, since + market.after - time.monotonic())
        return f"{self.nodes}, and on {market.then} ones in {duration(left)}"
