"""A sweep of somebody else on the same nodes, while the slots of the round's sweep start slowly."""

from collections.abc import Sequence

from ruamel.yaml import YAML
from scene import Scene
from terminal import until
from wandering import SLOW_START_S

from hposvc.events import Event
from hposvc.journal import claims

RIVAL = "rival"
MAX_AHEAD_S = SLOW_START_S / 3


def join(scene: Scene) -> None:
    """Begin the sweep of somebody else, who is due half of the nodes, and let it train."""
    place = scene.place / RIVAL
    place.mkdir()
    file = place / "spec.yaml"
    spec = {**scene.spec, "trainable": "wandering:wander", "queue": {"name": RIVAL}}
    spec |= {"parameters": {**scene.spec["parameters"], "round": str(place)}}
    spec |= {"resources": {"workers": 2, "cpus_per_worker": 0.5}, "trials": {"max": 5000}}
    YAML().dump({**spec, "search": "random", "tracking": {"send_to": []}}, file)
    rival = scene.start("run", str(file), "--id", RIVAL)
    scene.open.callback(rival.end)
    scene.open.callback(rival.process.terminate)
    until(lambda: trains(scene) or rival.process.poll() is not None, "work of the rival")
    claims.publish_rules(scene.journal.store, {"max_ahead": MAX_AHEAD_S})


def trains(scene: Scene) -> bool:
    """Whether the rival has begun a step."""
    return any((scene.place / RIVAL).glob("diary-*.jsonl"))


def started_for_turns(scene: Scene, events: Sequence[Event]) -> bool:
    """Whether slots took longer to start than `max_ahead` beside the rival, for nothing."""
    row = claims.find(scene.journal.store, scene.sweep)
    free = 0.0 if row is None else row.claim["account"]["free"]
    return trains(scene) and bool(free > 2 * MAX_AHEAD_S)
