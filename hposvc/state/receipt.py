"""The answer to a request to a sweep."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hposvc.events import DriverState
from hposvc.state.sweep import SweepPhase
from hposvc.state.trial import TrialPhase


@dataclass(frozen=True)
class RequestReceipt:
    """The answer to a request: the state of the sweep, and the driver that takes it."""

    sweep: str
    state: SweepPhase
    driver: DriverState
    place: str  # host:pid of the driver at work; empty: there is none
    trial_state: TrialPhase | None = None  # of a trial that is over, so that nothing was requested
    changes: Mapping[str, object] = field(default_factory=dict)  # of limits, that were requested
    pending: bool = False  # whether an exclusion, or its end, waits for the sweep's next driver
    copies: tuple[str, ...] = ()  # of an excluded trial: those that go on from its weights
