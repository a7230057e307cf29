"""Drivers as processes of this machine, one for each sweep, which outlive the server."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from hposvc import spec as specs
from hposvc.journal import submitted_secrets
from hposvc.journal.home import DRIVER_LOG, Home
from hposvc.journal.journal import SweepRow
from hposvc.spec import SweepSpec
from trainables.contract import appending

VERB = "supervised"  # the hidden verb of a driver's process
# Variables that a driver gets from the server's environment: these, and those that begin so.
VARIABLES = frozenset(
    {
        *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR"),
        *("PYTHONPATH", "PYTHONUNBUFFERED", "VIRTUAL_ENV", "LD_LIBRARY_PATH"),
        *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    }
)
PREFIXES = (
    *("LC_", "XDG_", "SSL_", "HPOSVC_", "RAY_", "MLFLOW_", "CUDA_", "NVIDIA_", "NCCL_", "GLOO_"),
    *("ROCR_", "HIP_", "OMP_", "MKL_", "OPENBLAS_", "TORCH_", "HF_HOME", "SLURM_"),
    *("AWS_", "GOOGLE_", "AZURE_", "FSSPEC_", "PG"),  # stores of checkpoints; the journal
)
# The server's own: what a driver could do with them, nobody allowed its sweep's code to do.
WITHHELD = frozenset({"HPOSVC_TOKEN", "HPOSVC_TOKEN_FILE", "HPOSVC_SERVER", "HPOSVC_CONFIG"})


class ChildDrivers:
    """Starts a process of this machine for each sweep."""

    def __init__(self, home: Home, environment: Mapping[str, str] = os.environ) -> None:
        self._home = home
        self._environment = environment
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, row: SweepRow) -> None:
        """Start a driver of the sweep."""
        spec = specs.thaw(row.spec)
        logs = self._home.folder(row.id, spec.storage) / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        works_in = Path(spec.folder or self._home.path)
        with appending(logs / DRIVER_LOG) as output:
            self._processes[row.id] = subprocess.Popen(
                [sys.executable, "-P", "-m", "hposvc", VERB, row.id],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=works_in if works_in.is_dir() else self._home.path,
                env=variables_of(row.id, spec, self._home, self._environment),
                start_new_session=True,  # what ends the server must not end its drivers
            )

    def running(self) -> set[str]:
        """Return the sweeps whose processes run; those that have ended are reaped."""
        ended = [sweep for sweep, process in self._processes.items() if process.poll() is not None]
        for sweep in ended:
            del self._processes[sweep]
        return {*self._processes}


def variables_of(
    sweep: str, spec: SweepSpec, home: Home, environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables of a sweep's driver, with the secrets that came with the sweep."""
    return {
        **clean(environment, home, [*spec.environment.secrets]),
        **submitted_secrets.read(home, sweep),
    }


def clean(environment: Mapping[str, str], home: Home, secrets: list[str]) -> dict[str, str]:
    """Return the variables of a driver: what any driver needs, and its sweep's own secrets."""
    kept = {
        name: value
        for name, value in environment.items()
        if name not in WITHHELD
        and (name in VARIABLES or name.startswith(PREFIXES) or name in secrets)
    }
    return {**kept, "HPOSVC_HOME": str(home.path)}
