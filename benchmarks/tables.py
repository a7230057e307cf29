"""What goes above and into a table of results, in Markdown."""

import datetime
import math
import os
import shlex
import sys
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

PACKAGES = ("ray", "torch", "optuna", "mlflow")


def heading(packages: Sequence[str] = PACKAGES) -> str:
    """Date, machine, versions of what is installed, and command."""
    versions = ", ".join(filter(None, map(_version, packages)))
    command = shlex.join(["python", f"benchmarks/{Path(sys.argv[0]).name}", *sys.argv[1:]])
    return (
        f"{datetime.date.today().isoformat()}; {os.cpu_count()} cores, {_processor()}; "
        f"load {os.getloadavg()[0]:.1f} at the start.\n"
        f"Python {sys.version.split()[0]}, {versions}.\n"
        f"`{command}`\n"
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table; the first column is text, the others are figures."""
    rule = ["---", *["---:"] * (len(head) - 1)]
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, rule, *rows)) + "\n"


def figure(value: float, digits: int = 2) -> str:
    """A number for people; a dash where there is none."""
    return f"{value:,.{digits}f}" if math.isfinite(value) else "–"


def median(values: Sequence[float]) -> float:
    """The middle; NaN of nothing."""
    return float(np.median(values)) if values else math.nan


def spread(values: Sequence[float], digits: int = 2) -> str:
    """Median, and lowest to highest."""
    if not values:
        return "–"
    low, high = figure(min(values), digits), figure(max(values), digits)
    return f"{figure(median(values), digits)} ({low} – {high})"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95 % interval of the median, by resampling."""
    rng = np.random.default_rng(0)
    drawn = np.median(rng.choice(values, (2000, len(values))), axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def _version(package: str) -> str:
    """Its name and version; nothing if it is not installed."""
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError:
        return ""


def _processor() -> str:
    """The processor's name, as Linux tells it."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else "unknown processor"
