"""The sinks: places that the runs of a sweep can be sent to.

A new sink takes a file in hposvc/tracking with a class as hposvc/tracking/sink.py describes it, and
a line here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec


@dataclass(frozen=True)
class SinkType:
    """A sink's class, and its name for people."""

    sink: str  # "module:Class"
    title: str
    package: str = ""  # that hposvc's extra of the same name installs; empty: it needs none

    @property
    def is_installed(self) -> bool:
        """Whether the sink's package can be imported here."""
        return not self.package or find_spec(self.package) is not None


SINKS: Mapping[str, SinkType] = {
    "mlflow": SinkType("hposvc.tracking.mlflow_sink:MLflowSink", "MLflow"),
    "json_lines": SinkType("hposvc.tracking.json_lines:JsonLines", "tracking.jsonl"),
    "tensorboard": SinkType("hposvc.tracking.tensorboard:TensorBoard", "TensorBoard's files"),
    "trackio": SinkType("hposvc.tracking.trackio:Trackio", "Trackio", "trackio"),
    "wandb": SinkType("hposvc.tracking.wandb:WandB", "Weights & Biases' files", "wandb"),
}
