"""The sinks: places that the runs of a sweep can be sent to.

A new sink takes a file in hposvc/tracking with a class as hposvc/tracking/sink.py describes it, and
a line here.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class SinkType:
    """A sink's class, and its name for people."""

    sink: str  # "module:Class"
    title: str


SINKS: Mapping[str, SinkType] = {
    "mlflow": SinkType("hposvc.tracking.mlflow_sink:MLflowSink", "MLflow"),
    "json_lines": SinkType("hposvc.tracking.json_lines:JsonLines", "tracking.jsonl"),
    "tensorboard": SinkType("hposvc.tracking.tensorboard:TensorBoard", "TensorBoard's files"),
}
