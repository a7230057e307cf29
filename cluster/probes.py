"""Probes of one machine, for comparing the nodes of a cluster.

A probe is sent to a node by value, with everything it uses of this module: our packages need not be
installed there, and whether they are is one of the questions. So probes import inside functions.
"""

from typing import Any

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
TORCH = (
    "import json, torch; cuda = torch.cuda.is_available(); "
    "print(json.dumps([torch.__version__, torch.version.cuda, "
    "torch.cuda.device_count() if cuda else 0]))"
)

SENSORS_S = 10.0  # for nvidia-smi

# Measures the speed of each GPU, or reports its error. Other processes there matter little: the
# fastest of many short runs counts, by the GPU's own clock. GPUs without free memory are skipped.
# The first line that it prints says that torch is loaded: what hangs later is a GPU or its driver.
GPUS = """
import json, time, torch
print("torch is loaded", flush=True)

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
    """Describe this machine: versions, our packages, torch and GPUs, free space on disks.

    Args:
        packages: to report the origin and a digest of.
        torch: code for a child process that prints what torch sees; None: skip this.
        folders: to report the free disk space of, by a word for the purpose of each.

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
        answer, _, error = _run_json(code, timeout_s)
        if error:
            return {"error": error}
        version, cuda, gpus = answer
        return {"version": version, "cuda": cuda, "gpus": gpus}

    return {
        "python": platform.python_version(),
        "ray": ray.__version__,
        "packages": {name: package(name) for name in packages},
        "torch": None if torch is None else torch_seen(torch),
        "disks": {purpose: _disk(folder) for purpose, folder in folders.items()},
    }


def exercise(gpus: str | None, timeout_s: float, folders: dict[str, str]) -> dict[str, Any]:
    """Measure this machine's speed, in a fraction of a second, and read its GPUs' sensors.

    Args:
        gpus: code for a child process that prints the speeds of GPUs; None: there are none.
        timeout_s: for the child process, which prints a line once torch is loaded.
        folders: as for `examine`.

    Returns:
        `speeds` [{"what", "part", "model", "value", "unit"}], `wrong` [errors of GPUs],
        `untested` [reasons why GPUs could not be tested], `instruments` [{"gpu", "uncorrectable",
        "failing", "slowed"}], `disks` as in `examine`, `busy` processes per core before the
        measurement, `time` at the end. Values that can't be measured are left out.
    """
    import os
    import time

    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    speeds = _core_speeds()
    wrong: list[str] = []
    untested: list[str] = []
    sensors: list[dict[str, Any]] = []
    if gpus is not None:
        (fast, wrong), output, error = _run_json(gpus, timeout_s, nothing=([], []))
        speeds += fast
        if error and output:
            wrong = [f"the test of its GPUs: {error}"]
        elif error:
            untested.append(f"its GPUs are not tested, torch did not load: {error}")
        sensors, error = _gpu_sensors(SENSORS_S)
        if error:
            untested.append(f"nvidia-smi: {error}")
    return {
        "speeds": speeds,
        "wrong": wrong,
        "untested": untested,
        "instruments": sensors,
        "busy": busy,
        "disks": {purpose: _disk(folder) for purpose, folder in folders.items()},
        "time": time.time(),
    }


def clock() -> float:
    """Return this machine's time."""
    import time

    return time.time()


def _core_model() -> str:
    """Return the model of this machine's cores, with family and model numbers.

    Clouds give one name to several generations, which differ by more than broken cores do.
    """
    import platform
    from pathlib import Path

    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    marks = ("model name", "cpu family", "model\t")
    matches = (next((line for line in lines if line.startswith(mark)), "") for mark in marks)
    named = " ".join(filter(None, (line.partition(":")[2].strip() for line in matches)))
    return named or platform.machine()


def _core_speeds() -> list[dict[str, Any]]:
    """Measure one core and its memory bandwidth: the fastest of many short runs.

    Time is CPU time of this thread, so that other load on the core matters little.
    """
    import time
    from collections.abc import Callable

    try:
        import numpy as np
    except ImportError:
        return []
    side, times, copied, min_runs, seconds = 64, 20, 2**25, 5, 0.15

    def quickest(run: Callable[[], object]) -> float:
        run()
        durations: list[float] = []
        until = time.monotonic() + seconds
        while len(durations) < min_runs or time.monotonic() < until:
            started = time.thread_time()
            run()
            durations.append(time.thread_time() - started)
        return max(min(durations), 1e-9)

    def multiply() -> None:
        for _ in range(times):
            np.matmul(matrix, matrix, out=product)

    matrix = np.full((side, side), 0.01)
    product = np.empty_like(matrix)
    source, target = np.zeros(copied, np.uint8), np.ones(copied, np.uint8)
    source[:] = 1  # otherwise all of it would be one shared page of zeros
    flops = 2e-9 * times * side**3 / quickest(multiply)
    bandwidth = 2e-9 * copied / quickest(lambda: np.copyto(target, source))
    shared = {"part": "a core", "model": _core_model()}
    return [
        {"what": "matmul", "value": flops, "unit": "GFLOPS", **shared},
        {"what": "memory", "value": bandwidth, "unit": "GB/s", **shared},
    ]


def _gpu_sensors(timeout_s: float) -> tuple[list[dict[str, Any]], str]:
    """Return the state of each GPU from NVIDIA's driver, and the error if nvidia-smi fails.

    Without nvidia-smi, as for GPUs of other makers, both are empty.
    """
    import shutil
    from xml.etree import ElementTree

    reasons = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
    if shutil.which("nvidia-smi") is None:
        return [], ""
    output, error = _run(["nvidia-smi", "-q", "-x"], timeout_s)
    try:
        gpus = [] if error else ElementTree.fromstring(output).findall("gpu")
    except ElementTree.ParseError as unreadable:
        return [], f"{unreadable}"
    gpu_states = []
    for number, gpu in enumerate(gpus):
        texts = {element.tag: (element.text or "").strip() for element in gpu.iter()}
        # The names of the counts differ between drivers; without ECC they are N/A.
        counts = [
            int(text)
            for element in gpu.iterfind("ecc_errors/volatile/*")
            if "uncorrectable" in element.tag and (text := (element.text or "").strip()).isdigit()
        ]
        slowed = [
            reason.removeprefix("hw_").replace("_", " ")
            for reason in reasons
            if any(tag.endswith(f"_reason_{reason}") and texts[tag] == "Active" for tag in texts)
        ]
        failing = texts.get("remapped_row_failure") == "Yes"
        state = {"gpu": f"GPU {number}", "uncorrectable": sum(counts), "failing": failing}
        gpu_states.append({**state, "slowed": slowed})
    return gpu_states, error


def _run_json(code: str, timeout_s: float, nothing: Any = None) -> tuple[Any, str, str]:
    """Run code in a child process.

    Returns:
        the JSON of the last line that it prints, or `nothing`; its output; and the error.
    """
    import json
    import sys

    output, error = _run([sys.executable, "-c", code], timeout_s)
    if error:
        return nothing, output, error
    try:
        return json.loads(output.splitlines()[-1]), output, ""
    except (IndexError, ValueError):
        return nothing, output, "it ended without a result"


def _run(command: list[str], timeout_s: float) -> tuple[str, str]:
    """Run a command, and return its output and the error; empty: it ended with 0.

    A process that waits for the driver of a hung GPU may ignore even SIGKILL, and is left behind.
    """
    import os
    import signal
    import subprocess
    from contextlib import suppress

    # Ray hides GPUs from workers without any; the probe needs to see all of the node's.
    shown = {key: value for key, value in os.environ.items() if key != "CUDA_VISIBLE_DEVICES"}
    try:
        child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=shown)
    except OSError as error:
        return "", str(error)
    try:
        output, errors = child.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        child.kill()
        with suppress(subprocess.TimeoutExpired):
            child.communicate(timeout=1.0)
        return (error.stdout or b"").decode(errors="replace"), f"no answer within {timeout_s:g} s"
    text = output.decode(errors="replace")
    if child.returncode == 0:
        return text, ""
    if child.returncode < 0:
        return text, f"it was ended by {signal.Signals(-child.returncode).name}"
    lines = errors.decode(errors="replace").strip().splitlines()
    return text, lines[-1] if lines else f"it ended with {child.returncode}"


def _disk(folder: str) -> dict[str, Any] | None:
    import shutil
    from pathlib import Path

    place = Path(folder)
    if not place.exists():
        return None
    return {"folder": folder, "free": shutil.disk_usage(place).free}
