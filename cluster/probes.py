"""Probe of one machine, for comparing the nodes of a cluster.

The probe is sent to a node by value, with everything it uses of this module: our packages need not
be installed there, and whether they are is one of the questions. So it imports inside functions.
It returns problems as the fields of `node_health.Issue`: text, remedy, and whether it is fatal.
"""

from collections.abc import Iterator
from typing import Any

PACKAGES = ("hposvc", "searchers", "trainables", "cluster")
TORCH_S = 90.0  # for torch to load and to test the GPUs; on a busy node, 45 were too few
SENSORS_S = 10.0  # for nvidia-smi
GIB = 2**30
LEAST_DISK = 5 * GIB
FULL = GIB // 8  # with less, Ray's processes do not start, and logs are not written

Digests = dict[str, tuple[str, str]]  # of packages by name: the folder, and a digest of its files
Problem = tuple[str, str, bool]

# Measures the speed of each GPU, or reports its error or a wrong product. Other processes there
# matter little: the fastest of many short runs counts, by the GPU's own clock. GPUs without free
# memory are skipped. The first line that it prints describes torch: what hangs later is a GPU or
# its driver. Its argument is how many GPUs Ray has; without any, none is measured.
GPUS = """
import json, sys, time, torch
count = torch.cuda.device_count() if torch.cuda.is_available() else 0
sees = f" (CUDA {torch.version.cuda}, {count} GPU)" if count else ""
print(f"torch {torch.__version__}{sees}", flush=True)

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
for number in range(count if int(sys.argv[1]) else 0):
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
print(json.dumps([count, found, wrong]))
"""


def examine(
    gpus: int, folders: dict[str, str], here: Digests | None = None, code: str = GPUS
) -> dict[str, Any]:
    """Measure this machine's speed, read its GPUs' sensors, and look at free disk space.

    Args:
        gpus: how many Ray has here.
        folders: to report the free disk space of, by a word for the purpose of each.
        here: the driver's packages, to compare this machine's with, and to look at torch even
            without GPUs; None: neither.
        code: for the child process that tests the GPUs.

    Returns:
        `problems`, `notes` for people, `speeds` [{"what", "part", "model", "value", "unit"}],
        `busy` processes per core before the measurement, the time when it `began`, and its end
        (`time`).
    """
    import os
    import time

    began, busy = time.time(), os.getloadavg()[0] / (os.cpu_count() or 1)
    speeds = _core_speeds()
    notes, problems = _disks(folders)
    if here is not None:
        origins, others = _compare_packages(here)
        notes, problems = [origins, *notes], problems + others
    if gpus or here is not None:
        torch, gpu_speeds, wrong = _try_torch(gpus, code, strict=here is not None)
        notes, speeds, problems = [torch, *notes], speeds + gpu_speeds, problems + wrong
    if gpus:
        problems += _gpu_problems()
    slowest = {
        (speed["what"], speed["model"]): f"{speed['what']} of {speed['part']} "
        f"{speed['value']:.3g} {speed['unit']}"
        for speed in sorted(speeds, key=lambda speed: float(speed["value"]), reverse=True)
    }
    return {
        "speeds": speeds,
        "problems": problems,
        "notes": [*slowest.values(), *notes],
        "busy": busy,
        "began": began,
        "time": time.time(),
    }


def digest(packages: tuple[str, ...]) -> Digests:
    """Return the folder and a digest of each of the packages that are installed here."""
    import hashlib
    import importlib.util
    from pathlib import Path

    digests = {}
    for name in packages:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin:
            folder, hashed = Path(spec.origin).parent, hashlib.sha256()
            for file in sorted(folder.rglob("*.py")):
                hashed.update(str(file.relative_to(folder)).encode() + b"\0" + file.read_bytes())
            digests[name] = str(folder.parent), hashed.hexdigest()[:8]
    return digests


def _compare_packages(here: Digests) -> tuple[str, list[Problem]]:
    """Return where this machine's packages are, and their problems, against those of the driver."""
    there = digest(tuple(here))
    problems: list[Problem] = []
    if missing := [name for name in here if name not in there]:
        remedy = "install hposvc there for `run --address`; `submit` takes it along"
        problems.append((f"not there: {', '.join(missing)}", remedy, False))
    for name, (folder, seen) in there.items():
        if seen != here[name][1]:
            driver = f"here {here[name][1]} in {here[name][0]}"
            text = f"{name} in {folder} is another than here ({seen}, {driver})"
            remedy = "install the same wheel there, or rename what has its name"
            problems.append((text, remedy, True))
    folders = ", ".join(sorted({folder for folder, _ in there.values()}))
    return f"ours from {folders}" if there else "none of our packages", problems


def _try_torch(
    gpus: int, code: str, strict: bool
) -> tuple[str, list[dict[str, Any]], list[Problem]]:
    """Load torch in a child process, and test the GPUs there.

    Args:
        strict: whether a torch that does not load, or sees too few GPUs, is fatal.

    Returns:
        torch's version and GPUs, the speeds of these, and the problems.
    """
    import json
    import sys

    output, error = _run([sys.executable, "-c", code, str(gpus)], TORCH_S)
    if not (lines := output.splitlines()):
        text = f"torch did not load: {error or 'it ended without a result'}"
        return "no torch", [], [(text, "install torch there", strict)]
    count: int = gpus
    speeds, wrong = list[dict[str, Any]](), list[str]()
    try:
        if not error:
            count, speeds, wrong = json.loads(lines[-1])
    except ValueError:
        error = "it ended without a result"
    failures = [f"the test of its GPUs: {error}"] if error else wrong
    remedy = "see `dmesg` there for Xid; drain and reset, or replace, the GPU"
    problems = [(text, remedy, True) for text in failures]
    if gpus > count:
        text = f"Ray has {gpus} GPU, torch sees {count}"
        problems.append((text, "install a torch for that node's driver", strict))
    return lines[0], speeds, problems


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

    cpuinfo = Path("/proc/cpuinfo")  # psutil has no model of cores
    text = cpuinfo.read_text() if cpuinfo.exists() else ""
    named = re.findall(r"^(?:model name|cpu family|model)\t+: (.*)", text, re.M)[:3]
    return " ".join(reversed(named)) or platform.machine()


def _core_speeds() -> list[dict[str, Any]]:
    """Measure one core and its memory bandwidth: the fastest of many short runs.

    Time is CPU time of this thread, so that other load on the core matters little.
    """
    import time
    import timeit

    try:
        import numpy as np
    except ImportError:
        return []
    side, times, copied = 64, 20, 2**25
    matrix = np.full((side, side), 0.01)
    product = np.empty_like(matrix)
    source, target = np.zeros(copied, np.uint8), np.ones(copied, np.uint8)
    source[:] = 1  # otherwise all of it would be one shared page of zeros
    multiply = timeit.Timer(lambda: np.matmul(matrix, matrix, out=product), timer=time.thread_time)
    copy = timeit.Timer(lambda: np.copyto(target, source), timer=time.thread_time)
    flops = 2e-9 * times * side**3 / max(min(multiply.repeat(200, times)), 1e-9)
    bandwidth = 2e-9 * copied / max(min(copy.repeat(20, 1)), 1e-9)
    shared = {"part": "a core", "model": _core_model()}
    return [
        {"what": "matmul", "value": flops, "unit": "GFLOPS", **shared},
        {"what": "memory", "value": bandwidth, "unit": "GB/s", **shared},
    ]


def _gpu_problems() -> Iterator[Problem]:
    """Yield what NVIDIA's driver says of each GPU; nothing for GPUs of other makers."""
    import shutil
    from xml.etree import ElementTree

    if shutil.which("nvidia-smi") is None:
        return
    output, error = _run(["nvidia-smi", "-q", "-x"], SENSORS_S)
    try:
        gpus = [] if error else ElementTree.fromstring(output).findall("gpu")
    except ElementTree.ParseError as unreadable:
        gpus, error = [], f"{unreadable}"
    if error:
        yield f"nvidia-smi: {error}", "run nvidia-smi there; see `dmesg`", False
    for number, gpu in enumerate(gpus):
        # The names of the counts differ between drivers; without ECC they are N/A.
        counts = [
            int(text)
            for element in gpu.iterfind("ecc_errors/volatile/*")
            if "uncorrectable" in element.tag and (text := (element.text or "").strip()).isdigit()
        ]
        slowed = [
            element.tag.partition("_reason_hw_")[2].replace("_", " ")
            for element in gpu.iter()
            if "_reason_hw_" in element.tag and element.text == "Active"
        ]
        if any(counts):
            text = f"GPU {number}: {sum(counts)} uncorrectable ECC errors since it was reset"
            yield text, "drain the node and reset the GPU; replace it if they come again", True
        if gpu.findtext("remapped_rows/remapped_row_failure") == "Yes":
            text = f"GPU {number}: a row of its memory could not be remapped"
            yield text, "replace the GPU", True
        if slowed:
            text = f"GPU {number}: its clocks are held down ({', '.join(slowed)})"
            yield text, "look at its cooling and its power supply", False


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
