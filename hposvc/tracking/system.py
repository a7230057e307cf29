"""What ranks report of their machines, under names by which MLflow shows it as system metrics.

MLflow's own monitor would import it in every rank, for 2 s and a thread that outlives an order,
and would measure whole nodes. What a Task reports is of its rank 0, and is in the journal.
"""

from collections.abc import Mapping

PREFIX = "system/"  # MLflow's page of a run shows what begins so under "System metrics"
# By the name in a report: MLflow's name, and what to multiply with for its unit.
ANYWHERE: Mapping[str, tuple[str, float]] = {
    "gpu/utilization": ("gpu_0_utilization_percentage", 100.0),
    "gpu/power_w": ("gpu_0_power_usage_watts", 1.0),
    "gpu/temperature_c": ("gpu_0_temperature_celsius", 1.0),
    "gpu/clock_mhz": ("gpu_0_clock_megahertz", 1.0),
}
GPU = {"perf/memory_gb": ("gpu_0_memory_usage_megabytes", 1e3)}
CPU = {"perf/memory_gb": ("process_memory_usage_megabytes", 1e3)}


def system_metrics(metrics: Mapping[str, float], gpu: bool) -> dict[str, float]:
    """What of a report tells of the machine.

    Args:
        gpu: the ranks have GPUs, and the memory is that of rank 0's.
    """
    names = {**ANYWHERE, **(GPU if gpu else CPU)}
    return {
        f"{PREFIX}{name}": factor * metrics[source]
        for source, (name, factor) in names.items()
        if source in metrics
    }
