"""Judgement of a node's probes: its problems, and remedies for them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

GIB = 2**30
LEAST_DISK = 5 * GIB
FULL = GIB // 8  # with less, Ray's processes do not start, and logs are not written
MOST_OFFSET_S = 2.0  # curves and budgets use the driver's clock
WRONG_S = 60.0  # from there on, stores and services refuse a machine's signatures
BUSY = 0.5  # processes per core
SLOW = 0.5  # of the median of equal parts; probes of one machine differ by a quarter at most


@dataclass(frozen=True)
class Issue:
    """A problem of a node."""

    text: str
    remedy: str
    fatal: bool  # whether sweeps can't, or should not, run there


@dataclass(frozen=True)
class NodeHealth:
    """A node with its problems."""

    name: str
    host: str
    text: str
    troubles: tuple[Issue, ...] = ()

    @property
    def unfit(self) -> str:
        """The reasons why nothing should run on the node, for people; empty: it may."""
        return "; ".join(trouble.text for trouble in self.troubles if trouble.fatal)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "NodeHealth":
        return cls(**{**data, "troubles": tuple(Issue(**issue) for issue in data["troubles"])})


def unanswered(name: str, host: str, why: str) -> NodeHealth:
    """Return the health of a node that Ray lists as alive but that does not answer."""
    trouble = Issue(why, "see Ray's logs on that node, or take it out of the cluster", True)
    return NodeHealth(name, host, "does not answer", (trouble,))


def judge(
    name: str,
    host: str,
    resources: Mapping[str, float],
    here: Mapping[str, Any],
    there: Mapping[str, Any],
) -> NodeHealth:
    """Compare a node's probe with the driver's (see probes.examine).

    Args:
        resources: the node's resources in Ray.
        here: the driver's probe.
        there: the node's probe, with the results of `probes.exercise`, and `clock`: its offset and
            the error of that, in seconds.
    """
    troubles = (
        *_versions(here, there),
        *_packages(here["packages"], there["packages"]),
        *_torch(there["torch"], resources.get("GPU", 0.0)),
        *hardware_issues(there),
    )
    return NodeHealth(name, host, _describe(resources, there), troubles)


def hardware_issues(there: Mapping[str, Any]) -> Iterator[Issue]:
    """Yield the hardware problems of a node that can be seen without comparing it with others.

    Args:
        there: the results of `probes.exercise`, and `clock` as for `judge`.
    """
    yield from _disks(there["disks"])
    yield from _clock(*there["clock"])
    for text in there["wrong"]:
        yield Issue(text, "see `dmesg` there for Xid; drain and reset, or replace, the GPU", True)
    for text in there["untested"]:
        yield Issue(text, "install torch there; see `dmesg` there, and run nvidia-smi", False)
    for gpu in there["instruments"]:
        yield from _instruments(gpu)


def speed_issues(fleet: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Issue, ...]]:
    """Return, for each node, its parts that are far slower than equal parts in the whole fleet.

    Busy nodes are left out: a core of a fully loaded machine copies memory far more slowly.

    Args:
        fleet: results of `probes.exercise`, by node.
    """
    idle = {node: probe for node, probe in fleet.items() if probe.get("busy", 0.0) <= BUSY}
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for probe in idle.values():
        for speed in probe["speeds"]:
            values[speed["what"], speed["model"]].append(speed["value"])
    medians = {kind: median(issues) for kind, issues in values.items()}
    issues = {node: tuple(_slow_issues(probe["speeds"], medians)) for node, probe in idle.items()}
    return {**dict.fromkeys(fleet, ()), **issues}


def merge_probes(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Merge two probes of a node: the later one, with the higher of each speed."""
    earlier_speeds = {(speed["what"], speed["part"]): speed["value"] for speed in one["speeds"]}
    speeds = [
        {
            **speed,
            "value": max(speed["value"], earlier_speeds.get((speed["what"], speed["part"]), 0.0)),
        }
        for speed in other["speeds"]
    ]
    return {**other, "speeds": speeds}


def _slow_issues(
    speeds: Sequence[Mapping[str, Any]], middles: Mapping[tuple[str, str], float]
) -> Iterator[Issue]:
    for speed in speeds:
        median_ = middles[speed["what"], speed["model"]]
        if speed["value"] < SLOW * median_:
            comparison = (
                f"{speed['value']:.3g} {speed['unit']}, the median of its like is {median_:.3g}"
            )
            text = f"{speed['what']} of {speed['part']} ({speed['model']}): {comparison}"
            yield Issue(text, "look at its clocks, cooling, power and neighbours", True)


def offset(sent: float, theirs: float, heard: float) -> tuple[float, float]:
    """Return how far a node's clock is ahead of ours, and the error of that, in seconds.

    Args:
        theirs: the node's time, read between our times `sent` and `heard`.
    """
    return theirs - (sent + heard) / 2, (heard - sent) / 2


def _describe(resources: Mapping[str, float], there: Mapping[str, Any]) -> str:
    torch = there["torch"]
    cuda = torch.get("cuda")
    sees = f" (CUDA {cuda}, {torch['gpus']} GPU)" if cuda else ""
    origins = {str(package["origin"]) for package in there["packages"].values() if package}
    free_space = (
        f"{disk['free'] / GIB:.0f} GiB for {purpose}"
        for purpose, disk in there["disks"].items()
        if disk
    )
    parts = (
        f"{resources.get('CPU', 0.0):g} CPU, {resources.get('GPU', 0.0):g} GPU",
        f"Python {there['python']}, Ray {there['ray']}",
        f"torch {torch['version']}{sees}" if "version" in torch else "no torch",
        f"ours from {', '.join(sorted(origins))}" if origins else "none of our packages",
        *_slowest_speeds(there["speeds"]),
        *free_space,
        f"clock {there['clock'][0]:+.2f} s",
    )
    return "; ".join(parts)


def _slowest_speeds(speeds: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Describe the slowest of several equal parts."""
    fastest_first = sorted(speeds, key=lambda speed: float(speed["value"]), reverse=True)
    for (measurement, _), speed in {
        (measured["what"], measured["model"]): measured for measured in fastest_first
    }.items():
        yield f"{measurement} of {speed['part']} {speed['value']:.3g} {speed['unit']}"


def _versions(here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[Issue]:
    for name in ("python", "ray"):
        if there[name] != here[name]:
            text = f"{name} {there[name]}, here {here[name]}"
            yield Issue(text, "install the same on every node and here; Ray asks for it", True)


def _packages(here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[Issue]:
    missing = [name for name, package in there.items() if package is None]
    if missing:
        remedy = "install hposvc there for `run --address`; `submit` takes it along"
        yield Issue(f"not there: {', '.join(missing)}", remedy, False)
    for name, package in there.items():
        expected = here[name]
        if package and expected and package["digest"] != expected["digest"]:
            text = (
                f"{name} in {package['origin']} is another than here "
                f"({package['digest']}, here {expected['digest']} in {expected['origin']})"
            )
            yield Issue(text, "install the same wheel there, or rename what has its name", True)


def _torch(torch: Mapping[str, Any], gpus: float) -> Iterator[Issue]:
    if "error" in torch:
        yield Issue(f"torch: {torch['error']}", "install torch there", True)
    elif gpus > torch["gpus"]:
        text = f"Ray has {gpus:g} GPU, torch {torch['version']} sees {torch['gpus']}"
        yield Issue(text, "install a torch for that node's driver", True)


def _disks(disks: Mapping[str, Any]) -> Iterator[Issue]:
    for purpose, disk in disks.items():
        if disk is None:
            remedy = "name a `storage` that every node sees, unless this is made when it is needed"
            yield Issue(f"the folder of the {purpose} is not there", remedy, False)
        elif disk["free"] < LEAST_DISK:
            text = f"{disk['free'] / GIB:.1f} GiB free for {purpose} in {disk['folder']}"
            yield Issue(text, "make room there", disk["free"] < FULL)


def _clock(offset_s: float, error_s: float) -> Iterator[Issue]:
    if abs(offset_s) - error_s > MOST_OFFSET_S:
        text = f"its clock is {abs(offset_s):.1f} s {'before' if offset_s > 0 else 'behind'} ours"
        fatal = abs(offset_s) - error_s > WRONG_S
        yield Issue(text, "let NTP set the clocks of all nodes", fatal)


def _instruments(gpu: Mapping[str, Any]) -> Iterator[Issue]:
    if gpu["uncorrectable"]:
        text = f"{gpu['gpu']}: {gpu['uncorrectable']} uncorrectable ECC errors since it was reset"
        yield Issue(text, "drain the node and reset the GPU; replace it if they come again", True)
    if gpu["failing"]:
        text = f"{gpu['gpu']}: a row of its memory could not be remapped"
        yield Issue(text, "replace the GPU", True)
    if gpu["slowed"]:
        text = f"{gpu['gpu']}: its clocks are held down ({', '.join(gpu['slowed'])})"
        yield Issue(text, "look at its cooling and its power supply", False)
