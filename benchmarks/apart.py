"""Measure in a process of its own, with a home of its own, both gone afterwards.

A measurement is a function from options to figures, both plain data. `measure` names it and runs
its script; the script ends with `answer`. So ours and the peers never share a warm process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

HERE = Path(__file__).parent
MEETING = "BENCHMARK_MEETING"  # environment: a folder where the processes of all slots meet
LINES = 40  # of a failed measurement's output that are shown

Figures = dict[str, Any]


class MeasurementFailed(Exception):
    """A measurement's process ended with an error."""


def measure(script: str, name: str, **options: Any) -> Figures:
    """Run the measurement `name` of a script of this folder.

    Raises:
        MeasurementFailed: with the last lines of what it printed.
    """
    with TemporaryDirectory(prefix="hposvc-bench-", ignore_cleanup_errors=True) as folder:
        home = Path(folder)
        file, log, meeting = home / "figures.json", home / "output.log", home / "meeting"
        meeting.mkdir()
        with log.open("w") as output:
            ended = subprocess.run(
                [sys.executable, str(HERE / script), name, json.dumps(options), str(file)],
                stdout=output,
                stderr=output,
                env=_environment(home, meeting),
                check=False,
            )
        if ended.returncode != 0:
            last = "\n".join(log.read_text().splitlines()[-LINES:])
            raise MeasurementFailed(f"{script} {name} ended with {ended.returncode}:\n{last}")
        figures: Figures = json.loads(file.read_text())
        return figures


def answer(measurements: Mapping[str, Callable[..., Figures]]) -> None:
    """What a script of measurements does when `measure` runs it."""
    name, options, file = sys.argv[1:]
    figures = measurements[name](**json.loads(options))
    Path(file).write_text(json.dumps(figures))


def _environment(home: Path, meeting: Path) -> dict[str, str]:
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    return {
        **os.environ,
        "HPOSVC_HOME": str(home),
        MEETING: str(meeting),
        "PYTHONPATH": path,
        "OMP_NUM_THREADS": "1",
    }
