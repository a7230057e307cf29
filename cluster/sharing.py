"""Whether all nodes of a cluster see one folder: proved by files that they write and read there."""

import os
import secrets
import shutil
import time
from pathlib import Path

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

ANSWER_S = 120.0  # for a node to start a process and look; it may have packages to install first
FETCH_S = 1.0  # for an answer that is there
# For a file to be seen: network file systems remember for a while what was not there.
ARRIVE_S = 10.0


def find_blind(folder: Path) -> list[str]:
    """The nodes that do not share this process's view of a folder, each with what is wrong there.

    Every node reads a file of this process, and this process one of every node.

    Raises:
        OSError: this process itself can't write there.
    """
    folder.mkdir(parents=True, exist_ok=True)
    nodes = [node for node in ray.nodes() if node["Alive"]]
    if [node["NodeID"] for node in nodes] == [ray.get_runtime_context().get_node_id()]:
        return []
    word = secrets.token_hex(8)
    mark = folder / f".seen-{word}"
    mark.mkdir()
    try:
        (mark / "driver").write_text(word)
        asked = {node["NodeID"]: _ask(node["NodeID"], mark, word) for node in nodes}
        ray.wait(list(asked.values()), num_returns=len(asked), timeout=ANSWER_S)
        found = [(_wrong(asked[node["NodeID"]], mark / node["NodeID"]), node) for node in nodes]
        return [f"{node['NodeName']}: {why}" for why, node in found if why]
    finally:
        # A node that is late may be writing there, and is not to hide what was found.
        shutil.rmtree(mark, ignore_errors=True)


def _ask(node: str, mark: Path, word: str) -> ray.ObjectRef[str]:
    strategy = NodeAffinitySchedulingStrategy(node, soft=False)
    look = ray.remote(num_cpus=0, max_retries=0)(_look)
    return look.options(name="storage-check", scheduling_strategy=strategy).remote(mark, word, node)


def _look(mark: Path, word: str, node: str) -> str:
    """Runs on a node: read what the driver wrote, and write an answer; empty: all is well."""
    try:
        if (mark / "driver").read_text() != word:
            return "the folder there is another one"
        (mark / node).write_text(word)
    except FileNotFoundError:
        return "the folder there is another one, or there is none"
    except OSError as error:
        return f"{type(error).__name__}: {os.strerror(error.errno or 0)}"
    return ""


def _wrong(answer: ray.ObjectRef[str], written: Path) -> str:
    """What is wrong on a node that was asked, and that says to have written a file."""
    try:
        why = str(ray.get(answer, timeout=FETCH_S))
    except GetTimeoutError:
        return f"no answer within {ANSWER_S:g} s"
    except RayError as error:
        return f"it could not look: {_plainly(error)}"
    deadline = time.monotonic() + ARRIVE_S
    while not why and not written.exists():
        if time.monotonic() > deadline:
            return "what is written there does not arrive here"
        time.sleep(0.1)
    return why


def _plainly(error: RayError) -> str:
    """What happened, without Ray's own stack."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    said = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {said[-1]}" if said else type(cause).__name__
