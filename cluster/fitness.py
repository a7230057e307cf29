"""What a node's probe means: what is amiss there, and what to do about it."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

GIB = 2**30
LEAST_DISK = 5 * GIB
MOST_OFFSET_S = 2.0  # curves are drawn, and budgets counted, in the driver's time


@dataclass(frozen=True)
class Trouble:
    """Something amiss on a node."""

    text: str
    remedy: str
    fatal: bool  # sweeps can't run there


@dataclass(frozen=True)
class Fitness:
    """A node, as it described itself."""

    name: str
    host: str
    text: str
    troubles: tuple[Trouble, ...] = ()

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
        there: the node's, and `clock`: its offset and that one's error, in seconds.
    """
    troubles = (
        *_versions(here, there),
        *_packages(here["packages"], there["packages"]),
        *_torch(there["torch"], resources.get("GPU", 0.0)),
        *_disks(there["disks"]),
        *_clock(*there["clock"]),
    )
    return Fitness(name, host, _described(resources, there), troubles)


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
        *rooms,
        f"clock {there['clock'][0]:+.2f} s",
    )
    return "; ".join(parts)


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
            yield Trouble(text, "make room there", False)


def _clock(offset_s: float, error_s: float) -> Iterator[Trouble]:
    if abs(offset_s) - error_s > MOST_OFFSET_S:
        text = f"its clock is {abs(offset_s):.1f} s {'before' if offset_s > 0 else 'behind'} ours"
        yield Trouble(text, "let NTP set the clocks of all nodes", False)
