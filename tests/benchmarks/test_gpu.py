"""The benchmark of GPUs without one: each part in miniature, and the table made of their files."""

import json
import subprocess
import sys
from pathlib import Path

import gpu_parts
import gpu_rows
import pytest
import torch

ROOT = Path(__file__).parents[2]
# Packages that a machine with a GPU may lack: None in sys.modules is a package that is not there.
ABSENT = ("ray", "mlflow", "optuna", "pydantic", "cloudpickle", "fastapi", "deepspeed")
RUN = f"""
import runpy, sys
for name in {ABSENT}:
    sys.modules[name] = None
sys.argv = sys.argv[1:]
sys.path.insert(0, "benchmarks")
runpy.run_path(sys.argv[0], run_name="__main__")
"""
CPU = gpu_rows.Setting(torch.device("cpu"), quick=True)


@pytest.mark.parametrize(
    "part",
    [
        pytest.param(
            number,
            id=part.__name__,
            # What the others measure, such as groups of ranks, has tests of its own.
            marks=()
            if part.__name__ in ("checkpoints", "memory_that_runs_out")
            else pytest.mark.full,
        )
        for number, part in gpu_parts.PARTS.items()
    ],
)
def test_a_part_measures_or_says_why_not_without_the_services_packages(part, tmp_path):
    command = ["benchmarks/gpu.py", "--part", f"{part}", "--out", str(tmp_path)]
    command += ["--device", "cpu", "--quick"]
    subprocess.run([sys.executable, "-c", RUN, *command], cwd=ROOT, check=True, timeout=500)
    content = json.loads((tmp_path / f"part{part}.json").read_text())
    assert content["rows"]
    assert not [row for row in content["rows"] if row["failed"]]
    assert all(bool(row["value"]) != bool(row["skipped"]) for row in content["rows"])
    assert content["command"] in gpu_rows.merged(tmp_path)


def test_a_figure_is_either_measured_or_its_lack_explained(tmp_path):
    def part(setting):
        """A part."""
        yield gpu_rows.attempt("works", "1", lambda: "1.0 | updates/s")
        yield gpu_rows.attempt("cannot", "2", skip)
        yield gpu_rows.attempt("breaks", "3", lambda: [][0])

    def skip():
        raise gpu_rows.Skip("there is no GPU")

    gpu_rows.run(2, part, CPU, "python benchmarks/gpu.py", tmp_path)
    gpu_rows.run(10, part, CPU, "python benchmarks/gpu.py", tmp_path)
    table = gpu_rows.merged(tmp_path)
    lines = table.splitlines()
    assert "miniature" in lines[0]
    measured = [line.split(" | ")[2] for line in lines if line.startswith("|")][2:]
    assert measured[:2] == ["1.0 / updates/s", "not measured: there is no GPU"]
    assert measured[2].startswith("failed: IndexError: list index out of range (test_gpu.py:")
    assert lines[4].startswith("| 2. A part")  # before part 10
    assert all("`python benchmarks/gpu.py`" in line for line in lines[4:])
