"""The Slurm script, run without Slurm: a substitute for `srun` starts the steps on this machine."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from waiting import until

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "cluster" / "deploy" / "slurm.sbatch"
SUPPORT = ROOT / "tests" / "support"
DEADLINE_S = 560.0

pytestmark = [
    pytest.mark.ray,
    pytest.mark.full,
    pytest.mark.skipif(sys.platform != "linux", reason="127.0.0.2"),
]

COMMANDS = {
    "srun": """
        while [[ ${1:-} == --* ]]; do shift; done
        if [[ $1 == hostname ]]; then echo 127.0.0.2; exit; fi
        exec "$@"
    """,
    "scontrol": "printf 'n0\\nn1\\n'",
    "ray": f'exec {sys.executable} -m ray.scripts.scripts "$@"',
    "python": f'exec {sys.executable} "$@"',
    "hposvc": f'exec {sys.executable} -m hposvc "$@"',
}


@pytest.fixture
def allocation(tmp_path):
    """Return the environment of an allocation of two nodes, both of them this machine."""
    tools, activate = tmp_path / "tools", tmp_path / "venv" / "bin" / "activate"
    tools.mkdir()
    activate.parent.mkdir(parents=True)
    (tmp_path / "home").mkdir()
    for name, body in COMMANDS.items():
        (tools / name).write_text(f"#!/usr/bin/env bash\n{body}\n")
        (tools / name).chmod(0o755)
    activate.write_text(f"export PATH={tools}:$PATH\n")
    ours = ("HPOSVC_DB", "HPOSVC_DB_FILE", "MLFLOW_TRACKING_URI", "RAY_ADDRESS")
    return {
        **{name: value for name, value in os.environ.items() if name not in ours},
        "HOME": str(tmp_path / "home"),
        "HPOSVC_HOME": str(tmp_path / "hposvc"),
        "PYTHONPATH": f"{ROOT}:{SUPPORT}",
        "VENV": str(tmp_path / "venv"),
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_JOB_NODELIST": "n[0-1]",
        "SLURM_CPUS_PER_TASK": "1",
    }


def run(script_arguments, allocation):
    """Run the script, and return its exit code and output."""
    command = ["bash", SCRIPT, *script_arguments]
    started = subprocess.Popen(
        command, env=allocation, stdout=-1, stderr=-2, text=True, start_new_session=True
    )
    try:
        output, _ = started.communicate(timeout=DEADLINE_S)
        return started.returncode, output
    finally:
        if started.poll() is None:
            os.killpg(started.pid, signal.SIGKILL)


def test_the_slurm_script_brings_a_cluster_up_runs_the_sweep_and_leaves_nothing(
    tmp_path, allocation
):
    spec = {
        "trainable": "toys:steady",
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": 2},
        "parameters": {"lr": {"min": 1e-4, "max": 1e-1, "log": True}},
        "search": {"method": "random"},
        "trials": {"max": 2},
        "resources": {"workers": 2, "placement": "spread"},
        "storage": str(tmp_path / "storage"),
    }
    (tmp_path / "spec.yaml").write_text(json.dumps(spec))
    code, output = run([tmp_path / "spec.yaml", "slurm-1"], allocation)
    assert code == 0, output
    assert "slurm-1 COMPLETED" in output
    assert list((tmp_path / "home").iterdir()) == []  # no token stays
    processes = Path("/proc").glob
    until(lambda: not any(ours(path, allocation) for path in processes("[0-9]*/environ")))


def ours(environ, allocation):
    try:
        return f"HPOSVC_HOME={allocation['HPOSVC_HOME']}".encode() in environ.read_bytes()
    except OSError:
        return False
