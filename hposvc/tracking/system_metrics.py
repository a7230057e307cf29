"""Metrics that ranks report of their machines, under MLflow's names for system metrics.

MLflow's own monitor would import MLflow in every rank, which takes 2 s and leaves a thread that
outlives the order, and would measure whole nodes. A Task instead reports on its rank 0, in the
journal.
"""

from collections.abc import Mapping

PREFIX = "system/"  # MLflow's page of a run shows such metrics under "System metrics"
# By the name in a report: MLflow's name, and the factor to its unit.
ANYWHERE: Mapping[str, tuple[str, float]] = {
    "gpu/utilization": ("gpu_0_utilization_percentage", 100.0),
    "gpu/power_w": ("gpu_0_power_usage_watts", 1.0),
    "gpu/temperature_c": ("gpu_0_temperature_celsius", 1.0),
    "gpu/clock_mhz": ("gpu_0_clock_megahertz", 1.0),
}
GPU = {"perf/memory_gb": ("gpu_0_memory_usage_megabytes", 1e3)}
CPU = {"perf/memory_gb": ("process_memory_usage_megabytes", 1e3)}


def system_metrics(metrics: Mapping[str, float], gpu: bool) -> dict[str, float]:
    """Return the system metrics in a report, under MLflow's names.

    Args:
        gpu: the ranks have GPUs; the memory is then that of rank 0's GPU.
    """
    names = {**ANYWHERE, **(GPU if gpu else CPU)}
    return {
        f"{PREFIX}{name}": factor * metrics[source]
        for source, (name, factor) in names.items()
        if source in metrics
    }
