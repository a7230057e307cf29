"""Says once that a metric with a limit is not reported, so that no trial can keep the limit."""

import logging
from collections.abc import Sequence

from hposvc.events import Event, Reported
from hposvc.spec import SweepSpec
from hposvc.state import SweepState
from searchers.names import nearest

log = logging.getLogger("hposvc")


class Unreported:
    """Looks at what trials report; a Watcher of the runner."""

    def __init__(self, sweep: str, spec: SweepSpec) -> None:
        self._sweep = sweep
        self._awaited = dict.fromkeys(limit.metric for limit in spec.bounds)

    def turn(self, state: SweepState, events: Sequence[Event]) -> None:
        """Called after the events are durable."""
        if not self._awaited:
            return
        for event in events:
            if isinstance(event, Reported):
                self._look(event)

    def _look(self, event: Reported) -> None:
        for name in [name for name in self._awaited if name not in event.metrics]:
            log.warning(
                "%s: %s reported no %s, which a limit is on (%s); until it does it keeps no limit "
                "on it, and can't be the best",
                self._sweep,
                event.trial,
                name,
                nearest(name, event.metrics),
            )
            del self._awaited[name]
