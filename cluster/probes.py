"""Probes of one machine, for comparing the nodes of a cluster.

A probe is sent to a node by value, with everything it uses of this module: our packages need not be
installed there, and whether they are is one of the questions. So probes import inside functions.
They return problems as the fields of `node_health.Issue`: text, remedy, and whether it is fatal.
"""

from typing import Any

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
TORCH = (
    "import json, torch; cuda = torch.cuda.is_available(); "
    "print(json.dumps([torch.__version__, torch.version.cuda, "
    "torch.cuda.device_count() if cuda else 0]))"
)

SENSORS_S = 10.0  # for nvidia-smi
GIB = 2**30
LEAST_DISK = 5 * GIB
FULL = GIB // 8  # with less, Ray's processes do not start, and logs are not written

Problem = tuple[str, str, bool]

# Measures the speed of each GPU, or reports its error or a wrong product. Other processes there
# matter little: the fastest of many short runs counts, by the GPU's own clock. GPUs without free
# memory are skipped. The first line that it prints says that torch is loaded: what hangs later is a
# GPU or its driver.
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
        if not torch.allclose(product, torch.full_like(product, SIDE * 1e-4), rtol=0.01):
            raise RuntimeError("a product of matrices is wrong")
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


def describe(packages: tuple[str, ...]) -> dict[str, Any]:
    """Return this machine's `python`, `ray`, and `packages` {name: origin and digest, or None}."""
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

    return {
        "python": platform.python_version(),
        "ray": ray.__version__,
        "packages": {name: package(name) for name in packages},
    }


def compare(
    here: dict[str, Any], gpus: float, torch: str, timeout_s: float, folders: dict[str, str]
) -> dict[str, Any]:
    """Compare this machine's versions with the driver's; look at torch, and at free disk space.

    Args:
        here: the driver's description.
        gpus: how many Ray has here.
        torch: code for a child process that prints what torch sees.
        folders: to report the free disk space of, by a word for the purpose of each.

    Returns:
        `problems`, and `notes` for people.
    """
    there = describe(tuple(here["packages"]))
    problems = [
        (f"{name} {there[name]}, here {here[name]}", "install the same here and there", True)
        for name in ("python", "ray")
        if there[name] != here[name]
    ]
    problems += _compare_packages(here["packages"], there["packages"])
    seen, _, error = _run_json(torch, timeout_s)
    version, cuda, count = ("", None, 0) if error else seen
    if error:
        problems.append((f"torch: {error}", "install torch there", True))
    elif gpus > count:
        text = f"Ray has {gpus:g} GPU, torch {version} sees {count}"
        problems.append((text, "install a torch for that node's driver", True))
    sees = f" (CUDA {cuda}, {count} GPU)" if cuda else ""
    origins = sorted({package["origin"] for package in there["packages"].values() if package})
    free, full = _disks(folders)
    notes = [
        f"Python {there['python']}, Ray {there['ray']}",
        f"torch {version}{sees}" if version else "no torch",
        f"ours from {', '.join(origins)}" if origins else "none of our packages",
        *free,
    ]
    return {"problems": problems + full, "notes": notes}


def exercise(gpus: str | None, timeout_s: float, folders: dict[str, str]) -> dict[str, Any]:
    """Measure this machine's speed, in a fraction of a second, and read its GPUs' sensors.

    Args:
        gpus: code for a child process that prints the speeds of GPUs; None: there are none.
        timeout_s: for the child process, which prints a line once torch is loaded.
        folders: as for `compare`.

    Returns:
        `speeds` [{"what", "part", "model", "value", "unit"}], `problems`, `notes` for people,
        `busy` processes per core before the measurement, `time` at the end.
    """
    import os
    import time

    busy = os.getloadavg()[0] / (os.cpu_count() or 1)
    speeds = _core_speeds()
    free, problems = _disks(folders)
    if gpus is not None:
        (fast, wrong), output, error = _run_json(gpus, timeout_s, nothing=([], []))
        speeds += fast
        if error and output:
            wrong = [f"the test of its GPUs: {error}"]
        remedy = "see `dmesg` there for Xid; drain and reset, or replace, the GPU"
        problems += [(text, remedy, True) for text in wrong]
        if error and not output:
            text = f"its GPUs are not tested, torch did not load: {error}"
            problems.append((text, "install torch there", False))
        problems += _gpu_problems(SENSORS_S)
    slowest = {
        (speed["what"], speed["model"]): f"{speed['what']} of {speed['part']} "
        f"{speed['value']:.3g} {speed['unit']}"
        for speed in sorted(speeds, key=lambda speed: float(speed["value"]), reverse=True)
    }
    return {
        "speeds": speeds,
        "problems": problems,
        "notes": [*slowest.values(), *free],
        "busy": busy,
        "time": time.time(),
    }


def clock() -> float:
    """Return this machine's time."""
    import time

    return time.time()


def _compare_packages(here: dict[str, Any], there: dict[str, Any]) -> list[Problem]:
    """Return the problems of our packages on this machine, against those of the driver."""
    problems: list[Problem] = []
    if missing := [name for name, package in there.items() if package is None]:
        remedy = "install hposvc there for `run --address`; `submit` takes it along"
        problems.append((f"not there: {', '.join(missing)}", remedy, False))
    for name, package in there.items():
        expected = here[name]
        if package and expected and package["digest"] != expected["digest"]:
            text = (
                f"{name} in {package['origin']} is another than here "
                f"({package['digest']}, here {expected['digest']} in {expected['origin']})"
            )
            remedy = "install the same wheel there, or rename what has its name"
            problems.append((text, remedy, True))
    return problems


def _disks(folders: dict[str, str]) -> tuple[list[str], list[Problem]]:
    """Return the free space of folders for people, and the problems of those nearly full."""
    import shutil
    from pathlib import Path

    notes, problems = [], []
    for purpose, folder in folders.items():
        if not Path(folder).exists():
            remedy = "name a `storage` that every node sees, unless this is made when it is needed"
            problems.append((f"the folder of the {purpose} is not there", remedy, False))
            continue
        free = shutil.disk_usage(folder).free
        notes.append(f"{free / GIB:.0f} GiB for {purpose}")
        if free < LEAST_DISK:
            text = f"{free / GIB:.1f} GiB free for {purpose} in {folder}"
            problems.append((text, "make room there", free < FULL))
    return notes, problems


def _core_model() -> str:
    """Return the model of this machine's cores, with family and model numbers.

    Clouds give one name to several generations, which differ by more than broken cores do.
    """
    import platform
    import re
    from pathlib import Path

    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    first = {name: value for name, value in reversed(re.findall(r"(.*?)\t*: (.*)", text))}
    named = (first.get(name, "") for name in ("model name", "cpu family", "model"))
    return " ".join(filter(None, named)) or platform.machine()


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


def _gpu_problems(timeout_s: float) -> list[Problem]:
    """Return what NVIDIA's driver says of each GPU; nothing for GPUs of other makers."""
    import shutil
    from xml.etree import ElementTree

    if shutil.which("nvidia-smi") is None:
        return []
    output, error = _run(["nvidia-smi", "-q", "-x"], timeout_s)
    try:
        gpus = [] if error else ElementTree.fromstring(output).findall("gpu")
    except ElementTree.ParseError as unreadable:
        gpus, error = [], f"{unreadable}"
    problems: list[Problem] = []
    if error:
        problems.append((f"nvidia-smi: {error}", "run nvidia-smi there; see `dmesg`", False))
    for number, gpu in enumerate(gpus):
        texts = {element.tag: (element.text or "").strip() for element in gpu.iter()}
        # The names of the counts differ between drivers; without ECC they are N/A.
        counts = (
            int(text)
            for element in gpu.iterfind("ecc_errors/volatile/*")
            if "uncorrectable" in element.tag and (text := (element.text or "").strip()).isdigit()
        )
        slowed = [
            reason.removeprefix("hw_").replace("_", " ")
            for reason in ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
            if any(tag.endswith(f"_reason_{reason}") and texts[tag] == "Active" for tag in texts)
        ]
        if uncorrectable := sum(counts):
            text = f"GPU {number}: {uncorrectable} uncorrectable ECC errors since it was reset"
            remedy = "drain the node and reset the GPU; replace it if they come again"
            problems.append((text, remedy, True))
        if texts.get("remapped_row_failure") == "Yes":
            text = f"GPU {number}: a row of its memory could not be remapped"
            problems.append((text, "replace the GPU", True))
        if slowed:
            text = f"GPU {number}: its clocks are held down ({', '.join(slowed)})"
            problems.append((text, "look at its cooling and its power supply", False))
    return problems


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
