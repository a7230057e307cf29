"""What one machine is like, for comparing the nodes of a cluster.

A probe travels to a node by value, as a function of one module: nothing of ours need be there, and
whether it is, is one of the questions. So everything that a probe uses is inside it.
"""

from typing import Any

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
TORCH = (
    "import json, torch; cuda = torch.cuda.is_available(); "
    "print(json.dumps([torch.__version__, torch.version.cuda, "
    "torch.cuda.device_count() if cuda else 0]))"
)


def examine(
    packages: tuple[str, ...], torch: str | None, timeout_s: float, folders: dict[str, str]
) -> dict[str, Any]:
    """What this machine has: versions, our packages, torch and GPUs, room on disks.

    Args:
        packages: whose origin and content are wanted.
        torch: code that prints what torch sees, for a child process; None: don't look.
        folders: on whose disks to look, by a word for what each is.

    Returns:
        `python`, `ray`, `packages` {name: {"origin", "digest"} or None}, `torch` {"version",
        "cuda", "gpus"} or {"error"} or None, `disks` {word: {"folder", "free"} or None}.
    """
    import hashlib
    import importlib.util
    import json
    import os
    import platform
    import shutil
    import subprocess
    import sys
    from pathlib import Path

    import ray

    def package(name: str) -> dict[str, str] | None:
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            spec = None
        if spec is None or not spec.origin:
            return None
        folder, digest = Path(spec.origin).parent, hashlib.sha256()
        for file in sorted(folder.rglob("*.py")):
            digest.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
        return {"origin": str(folder.parent), "digest": digest.hexdigest()[:8]}

    def torch_seen(code: str) -> dict[str, Any]:
        # A worker without GPUs is shown none; the node's own are asked for.
        shown = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
        try:
            done = subprocess.run(
                [sys.executable, "-c", code],
                capture_output=True,
                text=True,
                timeout=timeout_s,
                env=shown,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return {"error": str(error)}
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["it ended"])[-1]}
        version, cuda, gpus = json.loads(done.stdout.splitlines()[-1])
        return {"version": version, "cuda": cuda, "gpus": gpus}

    def disk(folder: str) -> dict[str, Any] | None:
        place = Path(folder)
        if not place.exists():
            return None
        return {"folder": folder, "free": shutil.disk_usage(place).free}

    return {
        "python": platform.python_version(),
        "ray": ray.__version__,
        "packages": {name: package(name) for name in packages},
        "torch": None if torch is None else torch_seen(torch),
        "disks": {word: disk(folder) for word, folder in folders.items()},
    }


def clock() -> float:
    """This machine's time."""
    import time

    return time.time()
