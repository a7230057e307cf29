"""Check that all nodes of a cluster share a folder, by files that they write and read there."""

import os
import secrets
import shutil
from pathlib import Path

import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.retries import wait_until

ANSWER_S = 120.0  # for a node to start a process and check; it may install packages first
FETCH_S = 1.0  # for an answer that is ready
# For a file to become visible: network file systems cache for a while that a file is missing.
ARRIVE_S = 10.0


def nodes_without(folder: Path) -> list[str]:
    """Return the nodes that do not see this process's folder, each with the problem.

    Every node reads a file written by this process, which reads a file written by every node.

    Raises:
        OSError: this process itself can't write to the folder.
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
        check = ray.remote(num_cpus=0, max_retries=0)(_check_folder)
        answers = [
            check.options(
                name="storage-check",
                scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False),
            ).remote(mark, word, node["NodeID"])
            for node in nodes
        ]
        ray.wait(answers, num_returns=len(answers), timeout=ANSWER_S)
        problems = [
            (node["NodeName"], _problem(answer, mark / node["NodeID"]))
            for node, answer in zip(nodes, answers, strict=True)
        ]
        return [f"{name}: {problem}" for name, problem in problems if problem]
    finally:
        # A late node may still be writing there, which must not hide the problems found.
        shutil.rmtree(mark, ignore_errors=True)


def _check_folder(mark: Path, word: str, node: str) -> str:
    """Read the driver's file and write an answer, on a node; return the problem, or nothing."""
    try:
        if (mark / "driver").read_text() != word:
            return "the folder there is another one"
        (mark / node).write_text(word)
    except FileNotFoundError:
        return "the folder there is another one, or there is none"
    except OSError as error:
        return f"{type(error).__name__}: {os.strerror(error.errno or 0)}"
    return ""


def _problem(answer: ray.ObjectRef[str], written: Path) -> str:
    """Return the problem of a node after its check; empty once its file is visible here."""
    try:
        problem = str(ray.get(answer, timeout=FETCH_S))
    except GetTimeoutError:
        return f"no answer within {ANSWER_S:g} s"
    except RayError as error:
        return f"it could not look: {_describe_error(error)}"
    if problem or wait_until(written.exists, ARRIVE_S, 0.1):
        return problem
    return "what is written there does not arrive here"


def _describe_error(error: RayError) -> str:
    """Describe an error without Ray's stack trace."""
    cause = error.cause if isinstance(error, RayTaskError) else error
    lines = [line.strip() for line in str(cause).splitlines() if line.strip()]
    return f"{type(cause).__name__}: {lines[-1]}" if lines else type(cause).__name__
