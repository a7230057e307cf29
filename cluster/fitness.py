"""What a node's probes mean: what is amiss there, and what to do about it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

GIB = 2**30
LEAST_DISK = 5 * GIB
FULL = GIB // 8  # Ray's processes do not start there, and logs are not written
MOST_OFFSET_S = 2.0  # curves are drawn, and budgets counted, in the driver's time
WRONG_S = 60.0  # at which stores and services begin to refuse what a machine signs
BUSY = 0.5  # processes a core
SLOW = 0.5  # of the median of its like; the looks of one machine differ by a quarter at most


@dataclass(frozen=True)
class Trouble:
    """Something amiss on a node."""

    text: str
    remedy: str
    fatal: bool  # sweeps can't, or should not, run there


@dataclass(frozen=True)
class Fitness:
    """A node, as it described itself."""

    name: str
    host: str
    text: str
    troubles: tuple[Trouble, ...] = ()

    @property
    def unfit(self) -> str:
        """Why nothing should run there, for people; empty: it may."""
        return "; ".join(trouble.text for trouble in self.troubles if trouble.fatal)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Fitness":
        return cls(**{**data, "troubles": tuple(Trouble(**each) for each in data["troubles"])})


def unanswered(name: str, host: str, why: str) -> Fitness:
    """A node of which nothing is known but that it is said to live."""
    trouble = Trouble(why, "see Ray's logs on that node, or take it out of the cluster", True)
    return Fitness(name, host, "does not answer", (trouble,))


def judge(
    name: str,
    host: str,
    resources: Mapping[str, float],
    here: Mapping[str, Any],
    there: Mapping[str, Any],
) -> Fitness:
    """Hold a node's probe against the driver's (see probes.examine).

    Args:
        resources: what Ray has of the node.
        here: the driver's probe.
        there: the node's, what `probes.exercise` found among it, and `clock`: its offset and that
            one's error, in seconds.
    """
    troubles = (
        *_versions(here, there),
        *_packages(here["packages"], there["packages"]),
        *_torch(there["torch"], resources.get("GPU", 0.0)),
        *faults(there),
    )
    return Fitness(name, host, _described(resources, there), troubles)


def faults(there: Mapping[str, Any]) -> Iterator[Trouble]:
    """What is amiss with the hardware of a node, whatever the others are like.

    Args:
        there: what `probes.exercise` found, and `clock` as for `judge`.
    """
    yield from _disks(there["disks"])
    yield from _clock(*there["clock"])
    for text in there["wrong"]:
        yield Trouble(text, "see `dmesg` there for Xid; drain and reset, or replace, the GPU", True)
    for gpu in there["instruments"]:
        yield from _instruments(gpu)


def slow(fleet: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[Trouble, ...]]:
    """What of each node is far slower than what is like it in the whole fleet.

    Those that are at work are left out: a core of a full machine copies memory far more slowly.

    Args:
        fleet: what `probes.exercise` found, by node.
    """
    idle = {node: there for node, there in fleet.items() if there.get("busy", 0.0) <= BUSY}
    values: dict[tuple[str, str], list[float]] = defaultdict(list)
    for there in idle.values():
        for speed in there["speeds"]:
            values[speed["what"], speed["model"]].append(speed["value"])
    middles = {kind: median(found) for kind, found in values.items()}
    found = {node: tuple(_slow_parts(there["speeds"], middles)) for node, there in idle.items()}
    return {**dict.fromkeys(fleet, ()), **found}


def better(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Of two looks at a node: the later, with the higher of each speed."""
    before = {(speed["what"], speed["part"]): speed["value"] for speed in one["speeds"]}
    speeds = [
        {**speed, "value": max(speed["value"], before.get((speed["what"], speed["part"]), 0.0))}
        for speed in other["speeds"]
    ]
    return {**other, "speeds": speeds}


def _slow_parts(
    speeds: Sequence[Mapping[str, Any]], middles: Mapping[tuple[str, str], float]
) -> Iterator[Trouble]:
    for speed in speeds:
        middle = middles[speed["what"], speed["model"]]
        if speed["value"] < SLOW * middle:
            found = f"{speed['value']:.3g} {speed['unit']}, the median of its like is {middle:.3g}"
            text = f"{speed['what']} of {speed['part']} ({speed['model']}): {found}"
            yield Trouble(text, "look at its clocks, cooling, power and neighbours", True)


def offset(sent: float, theirs: float, heard: float) -> tuple[float, float]:
    """How far a node's clock is before ours, and how well that is known, in seconds.

    Args:
        theirs: its time, somewhere between the other two, which are ours.
    """
    return theirs - (sent + heard) / 2, (heard - sent) / 2


def _described(resources: Mapping[str, float], there: Mapping[str, Any]) -> str:
    torch = there["torch"]
    cuda = torch.get("cuda")
    sees = f" (CUDA {cuda}, {torch['gpus']} GPU)" if cuda else ""
    known = {str(each["origin"]) for each in there["packages"].values() if each}
    rooms = (
        f"{disk['free'] / GIB:.0f} GiB for {what}" for what, disk in there["disks"].items() if disk
    )
    parts = (
        f"{resources.get('CPU', 0.0):g} CPU, {resources.get('GPU', 0.0):g} GPU",
        f"Python {there['python']}, Ray {there['ray']}",
        f"torch {torch['version']}{sees}" if "version" in torch else "no torch",
        f"ours from {', '.join(sorted(known))}" if known else "none of our packages",
        *_quickness(there["speeds"]),
        *rooms,
        f"clock {there['clock'][0]:+.2f} s",
    )
    return "; ".join(parts)


def _quickness(speeds: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Of several that are alike, the slowest."""
    falling = sorted(speeds, key=lambda speed: float(speed["value"]), reverse=True)
    for (what, _), speed in {(each["what"], each["model"]): each for each in falling}.items():
        yield f"{what} of {speed['part']} {speed['value']:.3g} {speed['unit']}"


def _versions(here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[Trouble]:
    for name in ("python", "ray"):
        if there[name] != here[name]:
            text = f"{name} {there[name]}, here {here[name]}"
            yield Trouble(text, "install the same on every node and here; Ray asks for it", True)


def _packages(here: Mapping[str, Any], there: Mapping[str, Any]) -> Iterator[Trouble]:
    missing = [name for name, found in there.items() if found is None]
    if missing:
        remedy = "install hposvc there for `run --address`; `submit` takes it along"
        yield Trouble(f"not there: {', '.join(missing)}", remedy, False)
    for name, found in there.items():
        mine = here[name]
        if found and mine and found["digest"] != mine["digest"]:
            text = (
                f"{name} in {found['origin']} is another than here "
                f"({found['digest']}, here {mine['digest']} in {mine['origin']})"
            )
            yield Trouble(text, "install the same wheel there, or rename what has its name", True)


def _torch(torch: Mapping[str, Any], gpus: float) -> Iterator[Trouble]:
    if "error" in torch:
        yield Trouble(f"torch: {torch['error']}", "install torch there", True)
    elif gpus > torch["gpus"]:
        text = f"Ray has {gpus:g} GPU, torch {torch['version']} sees {torch['gpus']}"
        yield Trouble(text, "install a torch for that node's driver", True)


def _disks(disks: Mapping[str, Any]) -> Iterator[Trouble]:
    for what, disk in disks.items():
        if disk is None:
            remedy = "name a `storage` that every node sees, unless this is made when it is needed"
            yield Trouble(f"the folder of the {what} is not there", remedy, False)
        elif disk["free"] < LEAST_DISK:
            text = f"{disk['free'] / GIB:.1f} GiB free for {what} in {disk['folder']}"
            yield Trouble(text, "make room there", disk["free"] < FULL)


def _clock(offset_s: float, error_s: float) -> Iterator[Trouble]:
    if abs(offset_s) - error_s > MOST_OFFSET_S:
        text = f"its clock is {abs(offset_s):.1f} s {'before' if offset_s > 0 else 'behind'} ours"
        fatal = abs(offset_s) - error_s > WRONG_S
        yield Trouble(text, "let NTP set the clocks of all nodes", fatal)


def _instruments(gpu: Mapping[str, Any]) -> Iterator[Trouble]:
    if gpu["uncorrectable"]:
        text = f"{gpu['gpu']}: {gpu['uncorrectable']} uncorrectable ECC errors since it was reset"
        yield Trouble(text, "drain the node and reset the GPU; replace it if they come again", True)
    if gpu["failing"]:
        text = f"{gpu['gpu']}: a row of its memory could not be remapped"
        yield Trouble(text, "replace the GPU", True)
    if gpu["slowed"]:
        text = f"{gpu['gpu']}: its clocks are held down ({', '.join(gpu['slowed'])})"
        yield Trouble(text, "look at its cooling and its power supply", False)
