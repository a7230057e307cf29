"""The driver's hold on the MLflow recorder, which is a process of its own (tracking.py)."""

from types import TracebackType

from hposvc.home import Home
from hposvc.journal import Journal
from hposvc.spec import SweepSpec


class Recorder:
    """Starts the recorder with the sweep, and lets it finish."""

    def __init__(self, home: Home, sweep: str, spec: SweepSpec, journal: Journal) -> None:
        self.home, self.sweep, self.spec, self.journal = home, sweep, spec, journal

    def __enter__(self) -> "Recorder":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def environment(self, trial: str) -> dict[str, str]:
        """What rank 0 of a trial is told of its MLflow run; empty if there is none yet."""
        return {}
