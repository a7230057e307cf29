"""What one machine is like, for comparing the nodes of a cluster.

A probe travels to a node by value, with what it uses of this module: nothing of ours need be there,
and whether it is, is one of the questions. So what a probe imports is imported inside it.
"""

from typing import Any

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
TORCH = (
    "import json, torch; cuda = torch.cuda.is_available(); "
    "print(json.dumps([torch.__version__, torch.version.cuda, "
    "torch.cuda.device_count() if cuda else 0]))"
)

# Of each GPU: how quick it is, or what is wrong with it. What others do there matters little: the
# quickest of many short runs counts, by the GPU's own clock. One that is taken is left alone.
GPUS = """
import json, time, torch

SIDE, COPIED, PART = 4096, 2**28, 2**24
SECONDS, ROOM, TIMES = 0.15, 2**30, 10

def quickest(run):
    run()  # the first is slow: what it needs is loaded
    torch.cuda.synchronize()
    taken, until = [], time.monotonic() + SECONDS
    while len(taken) < TIMES or time.monotonic() < until:
        begun, done = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begun.record()
        run()
        done.record()
        done.synchronize()
        taken.append(begun.elapsed_time(done) / 1e3)
    return min(taken)

def speeds(number):
    if torch.cuda.mem_get_info(number)[0] < ROOM:
        return []
    with torch.cuda.device(number):
        left = torch.full((SIDE, SIDE), 0.01, device="cuda", dtype=torch.float16)
        product = torch.empty_like(left)
        source = torch.zeros(COPIED, device="cuda", dtype=torch.uint8)
        target = torch.empty_like(source)
        multiply = quickest(lambda: torch.mm(left, left, out=product))
        copy = quickest(lambda: target.copy_(source))
    return [
        ("matmul", 2e-12 * SIDE**3 / multiply, "TFLOPS"),
        ("memory", 2e-9 * COPIED / copy, "GB/s"),
    ]

def all_reduce(count):
    parts = [torch.ones(PART, device=f"cuda:{number}") for number in range(count)]
    best = float("inf")
    for _ in range(TIMES):
        begun = time.monotonic()
        torch.cuda.nccl.all_reduce(parts)
        for number in range(count):
            torch.cuda.synchronize(number)
        best = min(best, time.monotonic() - begun)
    return 2 * (count - 1) / count * 4e-9 * PART / best

found, wrong = [], []
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
for number in range(count):
    name, part = torch.cuda.get_device_name(number), f"GPU {number}"
    try:
        for what, value, unit in speeds(number):
            found.append(dict(what=what, part=part, model=name, value=value, unit=unit))
    except RuntimeError as error:
        if "out of memory" not in str(error) and "busy or unavailable" not in str(error):
            wrong.append(f"{part}: {str(error).splitlines()[0]}")
if count > 1 and len(found) == 2 * count:
    try:
        name = f"{count} x {torch.cuda.get_device_name(0)}"
        said = dict(what="all-reduce", part="its GPUs", model=name, unit="GB/s")
        found.append({**said, "value": all_reduce(count)})
    except RuntimeError as error:
        wrong.append(f"all-reduce of its GPUs: {str(error).splitlines()[0]}")
print(json.dumps([found, wrong]))
"""


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
    import platform
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
        answer, error = _asked(code, timeout_s)
        if error:
            return {"error": error}
        version, cuda, gpus = answer
        return {"version": version, "cuda": cuda, "gpus": gpus}

    return {
        "python": platform.python_version(),
        "ray": ray.__version__,
        "packages": {name: package(name) for name in packages},
        "torch": None if torch is None else torch_seen(torch),
        "disks": {word: _disk(folder) for word, folder in folders.items()},
    }


def exercise(gpus: str | None, timeout_s: float, folders: dict[str, str]) -> dict[str, Any]:
    """How quick this machine is, in a fraction of a second, and what its instruments say.

    Args:
        gpus: code that prints how quick the GPUs are, for a child process; None: there are none.
        timeout_s: for that.
        folders: as for `examine`.

    Returns:
        `speeds` [{"what", "part", "model", "value", "unit"}], `wrong` [what GPUs could not do],
        `instruments` [{"gpu", "uncorrectable", "failing", "slowed"}], `disks` as `examine` has
        them, `busy` processes a core before it began, `time` at the end. What can't be measured is
        left out.
    """
    import os
    import time

    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    said: dict[str, Any] = {"speeds": _core_speeds(), "wrong": [], "instruments": []}
    if gpus is not None:
        (fast, wrong), _ = _asked(gpus, timeout_s, nothing=([], []))
        said = {"speeds": [*said["speeds"], *fast], "wrong": wrong}
        said["instruments"] = _instruments(timeout_s)
    disks = {word: _disk(folder) for word, folder in folders.items()}
    return {**said, "busy": busy, "disks": disks, "time": time.time()}


def clock() -> float:
    """This machine's time."""
    import time

    return time.time()


def _core_model() -> str:
    """What this machine's cores are called.

    Clouds give one name to several generations, which differ by more than broken ones do.
    """
    import platform
    from pathlib import Path

    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    marks = ("model name", "cpu family", "model\t")
    found = (next((line for line in lines if line.startswith(mark)), "") for mark in marks)
    named = " ".join(filter(None, (line.partition(":")[2].strip() for line in found)))
    return named or platform.machine()


def _core_speeds() -> list[dict[str, Any]]:
    """Of one core, and of memory as it sees it: the quickest of many short runs.

    By the time that the core gave to this thread, so that others who want it matter little.
    """
    import time
    from collections.abc import Callable

    try:
        import numpy as np
    except ImportError:
        return []
    side, times, copied, least, seconds = 64, 20, 2**25, 5, 0.15

    def quickest(run: Callable[[], object]) -> float:
        run()
        taken: list[float] = []
        until = time.monotonic() + seconds
        while len(taken) < least or time.monotonic() < until:
            begun = time.thread_time()
            run()
            taken.append(time.thread_time() - begun)
        return max(min(taken), 1e-9)

    def multiply() -> None:
        for _ in range(times):
            np.matmul(left, left, out=product)

    left = np.full((side, side), 0.01)
    product = np.empty_like(left)
    source, target = np.zeros(copied, np.uint8), np.ones(copied, np.uint8)
    source[:] = 1  # else all of it is one page of zeros
    flops = 2e-9 * times * side**3 / quickest(multiply)
    through = 2e-9 * copied / quickest(lambda: np.copyto(target, source))
    shared = {"part": "a core", "model": _core_model()}
    return [
        {"what": "matmul", "value": flops, "unit": "GFLOPS", **shared},
        {"what": "memory", "value": through, "unit": "GB/s", **shared},
    ]


def _instruments(timeout_s: float) -> list[dict[str, Any]]:
    """What NVIDIA's driver says of each GPU; nothing where it can't be asked."""
    import subprocess
    from xml.etree import ElementTree

    words = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
    command = ["nvidia-smi", "-q", "-x"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s)
        gpus = ElementTree.fromstring(done.stdout).findall("gpu")
    except (OSError, subprocess.TimeoutExpired, ElementTree.ParseError):
        return []
    found = []
    for number, gpu in enumerate(gpus):
        texts = {each.tag: (each.text or "").strip() for each in gpu.iter()}
        # The names of the counts differ from driver to driver; without ECC they are N/A.
        counts = [
            int(text)
            for each in gpu.iterfind("ecc_errors/volatile/*")
            if "uncorrectable" in each.tag and (text := (each.text or "").strip()).isdigit()
        ]
        slowed = [
            word.removeprefix("hw_").replace("_", " ")
            for word in words
            if any(tag.endswith(f"_reason_{word}") and texts[tag] == "Active" for tag in texts)
        ]
        failing = texts.get("remapped_row_failure") == "Yes"
        named = {"gpu": f"GPU {number}", "uncorrectable": sum(counts), "failing": failing}
        found.append({**named, "slowed": slowed})
    return found


def _asked(code: str, timeout_s: float, nothing: Any = None) -> tuple[Any, str]:
    """What code prints as JSON in a child process; or `nothing`, and why."""
    import json
    import os
    import subprocess
    import sys

    # A worker without GPUs is shown none; the node's own are asked for.
    shown = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, "-c", code]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, env=shown)
    except (OSError, subprocess.TimeoutExpired) as error:
        return nothing, str(error)
    if done.returncode:
        return nothing, (done.stderr.strip().splitlines() or ["it ended"])[-1]
    return json.loads(done.stdout.splitlines()[-1]), ""


def _disk(folder: str) -> dict[str, Any] | None:
    import shutil
    from pathlib import Path

    place = Path(folder)
    if not place.exists():
        return None
    return {"folder": folder, "free": shutil.disk_usage(place).free}
