"""A disk that is full for a while: of a sweep's folder, of the storage it names, of the journal."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import disks
from scene import Scene
from terminal import until

from hposvc.events import Event, StorageExhausted

SHORT_S = 3.0  # how long a disk may be full before somebody makes room


def plan_home_disk(scene: Scene) -> None:
    """Folders of sweeps have a disk of their own."""
    _mount(scene, "home-disk", scene.terminal.home / "sweeps")


def plan_storage_disk(scene: Scene) -> None:
    """So has the place that the spec names for checkpoints."""
    scene.spec["storage"] = str(_mount(scene, "storage-disk", scene.place / "storage"))


def plan_journal_disk(scene: Scene) -> None:
    """So has the journal."""
    place = _mount(scene, "journal-disk", scene.place / "journal")
    scene.variables["HPOSVC_DB"] = f"sqlite:///{place / 'hposvc.db'}"


def _mount(scene: Scene, name: str, place: Path) -> Path:
    scene.disks[name] = scene.open.enter_context(disks.disk(place))
    return place


def fill(name: str) -> Callable[[Scene], None]:
    """The disk is full: for a moment, until the driver gives up, or even when it is resumed."""

    def act(scene: Scene) -> None:
        disk = scene.disks[name]
        disk.fill(scene.rng)
        patience = scene.rng.choice(["a moment", "one driver", "two drivers"])
        if patience == "a moment":
            moment = time.monotonic() + scene.rng.uniform(0, SHORT_S)
            until(lambda: time.monotonic() >= moment or not scene.alive, "the moment")
            disk.free()
            return
        until(lambda: not scene.alive, "the driver gives up")
        if patience == "two drivers" and scene.go_on():
            until(lambda: not scene.alive, "the next driver gives up")
        scene.repairs.append(disk.free)

    return act


def proof(name: str) -> Callable[[Scene, Sequence[Event]], bool]:
    """What tells that somebody found it full."""
    return unwritten if name == "journal-disk" else full


def full(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether the journal tells of a full disk."""
    return any(isinstance(event, StorageExhausted) for event in events)


def unwritten(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether a driver could not write its journal."""
    return any("what is written there is whole" in end.said for end in scene.ends)


# By name: what is done before the sweep begins, and what it then writes to.
PLANS = {
    "home-disk": (plan_home_disk, "checkpoints"),
    "storage-disk": (plan_storage_disk, "checkpoints"),
    "journal-disk": (plan_journal_disk, "journal"),
}
