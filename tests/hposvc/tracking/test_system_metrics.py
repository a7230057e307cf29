"""If these fail, MLflow's page of system metrics is empty, or shows other numbers than reported."""

import re
from pathlib import Path

import pytest
import torch
from simulated_sweeps import spec_of
from sweep_stories import begin

from hposvc import spec as specs
from hposvc.events import Reported
from hposvc.journal.journal import SweepRow
from hposvc.tracking.projection import Projection
from hposvc.tracking.system_metrics import ANYWHERE, CPU, GPU
from trainables.monitoring import memory, nvml

REPORT = {"loss": 0.5, "gpu/utilization": 0.75, "gpu/power_w": 300.0, "perf/memory_gb": 2.0}


def points(wanted: bool, gpus: int) -> dict[str, float]:
    """Return the points that a report adds to a run."""
    spec = spec_of("trainables.zoo.digits:DigitsCNN", resources={"gpus_per_worker": gpus})
    object.__setattr__(spec.tracking, "system_metrics", wanted)
    projection = Projection(SweepRow("s-1", "s", "p", 0.0, specs.dump(spec), {}), spec)
    for event in [*begin(1, until=1), Reported(1.0, 1, "t0001", 1, REPORT)]:
        projection.apply(event)
    return {point.name: point.value for point in projection.take_entries()["t0001"].points}


@pytest.mark.parametrize("gpus", [0, 1])
def test_a_report_is_told_in_mlflows_names_and_units_too(gpus):
    place = "gpu_0" if gpus else "process"
    assert points(True, gpus) == {
        **REPORT,
        "objective": 0.5,
        "system/gpu_0_utilization_percentage": 75.0,
        "system/gpu_0_power_usage_watts": 300.0,
        f"system/{place}_memory_usage_megabytes": 2000.0,
    }


def test_unless_asked_for_there_are_none():
    assert points(False, 1) == {**REPORT, "objective": 0.5}


def test_the_names_are_those_that_a_task_reports():
    assert CPU.keys() | GPU.keys() <= memory.measure(torch.device("cpu")).metrics.keys()
    instruments = re.findall(r'"(gpu/\w+)": lambda', Path(nvml.__file__).read_text())
    assert ANYWHERE.keys() <= set(instruments)
