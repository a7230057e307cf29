"""Answers of verbs about MLflow, apart from mlflow, whose import takes seconds."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field, computed_field

from hposvc.text import doc

# tell: sending the entry again repairs it. renew: a new run is needed, since MLflow deletes no
# points. kept: the trial itself logged the param, and MLflow never changes one, so it stays.
Remedy = Literal["tell", "renew", "kept"]
Stance = Literal["compared", "mended", "driven", "unrecorded"]
Choice = Literal["moved", "stays"]  # of an alias


@dataclass(frozen=True)
class Difference:
    """A difference between MLflow and the journal."""

    run: Annotated[str, doc("The trial; empty: the sweep's own run.")]
    what: Annotated[str, Field(examples=["points of loss"])]
    found: str
    expected: str
    remedy: Annotated[Remedy, doc("kept: the trial itself logged it, and it stays.")] = "tell"


@dataclass(frozen=True)
class MlflowComparison:
    """A sweep's runs in MLflow, compared with the journal."""

    sweep: str
    stance: Annotated[Stance, doc("driven: a driver is at work, so nothing was repaired.")]
    runs: Annotated[int, doc("How many were compared, the sweep's own among them.")] = 0
    points: Annotated[int, doc("How many points of metrics were compared.")] = 0
    differences: tuple[Difference, ...] = ()

    @computed_field(description="Whether nothing needs repair.")  # type: ignore[prop-decorator]
    @property
    def agrees(self) -> bool:
        """Whether nothing needs repair."""
        return all(difference.remedy == "kept" for difference in self.differences)


@dataclass(frozen=True)
class Promotion:
    """The decision on a registered version and the alias."""

    sweep: str
    trial: str
    model: str
    version: str
    alias: str
    before: Annotated[str | None, doc("The version that had the alias; null: none had it.")]
    verdict: Choice
    reason: str

    @property
    def version_name(self) -> str:
        """The model and its version, in words."""
        return f"{self.model} version {self.version}"

    def __str__(self) -> str:
        version = f"{self.version_name} ({self.sweep} {self.trial})"
        if self.verdict == "moved":
            return f"{version} is {self.alias} now: {self.reason}"
        return (
            f"{version} is registered; {self.alias} stays at version {self.before}: {self.reason}"
        )
