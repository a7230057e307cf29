"""Another user of a home's Ray: keeps it up, and looks in the end what a sweep left in it.

`python -m neighbour FOLDER GO`: when the file GO is there, prints as JSON which actors have names
and which resources are taken, and lets go of Ray.
"""

import json
import sys
import time
from pathlib import Path

import ray
from terminal import GONE_S

from cluster import launch, own_ray

POLL_S = 0.05


def taken() -> dict[str, float]:
    """What is in use of each resource."""
    free = ray.available_resources()
    return {
        name: amount - free.get(name, 0.0)
        for name, amount in ray.cluster_resources().items()
        if name in ("CPU", "GPU") and amount - free.get(name, 0.0) > 1e-6
    }


if __name__ == "__main__":
    folder, go = map(Path, sys.argv[1:])
    lock = own_ray.start(folder)
    while not go.exists():
        time.sleep(POLL_S)
    connection = launch.connect(folder)
    deadline = time.monotonic() + GONE_S
    while (taken() or ray.util.list_named_actors(True)) and time.monotonic() < deadline:
        time.sleep(POLL_S)
    actors = [f"{one['name']}" for one in ray.util.list_named_actors(True)]
    sys.stdout.write(json.dumps({"actors": actors, "taken": taken()}))
    sys.stdout.flush()
    lock.close()
    connection.close()
