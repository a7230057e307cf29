"""The result of comparing MLflow with a journal, apart from mlflow, whose import takes seconds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

# tell: sending the entry again repairs it. renew: a new run is needed, since MLflow deletes no
# points. kept: the trial itself logged the param, and MLflow never changes one, so it stays.
Remedy = Literal["tell", "renew", "kept"]
Stance = Literal["compared", "mended", "driven", "unrecorded"]


@dataclass(frozen=True)
class Difference:
    """A difference between MLflow and the journal."""

    run: str  # its trial's name; empty: the sweep's own run
    what: str
    found: str
    expected: str
    remedy: Remedy = "tell"


@dataclass(frozen=True)
class MlflowComparison:
    """The result of comparing a sweep's runs in MLflow with its journal."""

    sweep: str
    stance: Stance  # driven: a driver is at work, so nothing was repaired
    runs: int = 0  # number compared, including the sweep's own
    points: int = 0  # number of metric points compared
    differences: tuple[Difference, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether nothing needs repair."""
        return all(difference.remedy == "kept" for difference in self.differences)

    def data(self) -> dict[str, Any]:
        """Return the comparison for JSON."""
        return {**asdict(self), "agrees": self.agrees}

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "MlflowComparison":
        """Return the comparison that `data` describes."""
        differences = tuple(Difference(**difference) for difference in data["differences"])
        return cls(data["sweep"], data["stance"], data["runs"], data["points"], differences)
