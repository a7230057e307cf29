"""Agents. An agent edits code, and `hposvc verdict` says what stays.

python examples/agent_loop.py          (about two minutes on two cores)

It makes a git repository in a temporary folder, and trains on the CPU. The agent is `edit`, which
draws from a list, so nothing is sent anywhere: put yours in its place.
"""

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hposvc import Sweep, load

TRAIN = '''\
import numpy as np

LEARNING_RATE = 0.1
MOMENTUM = 0.0


def train(params, worker):
    """Fit a line by stochastic gradient descent; worker.seed draws the data and their order."""
    rng = np.random.default_rng(worker.seed)
    weight_D, step_D = np.zeros(8), np.zeros(8)
    for step in worker.steps():
        for _ in range(100):
            x_D = rng.standard_normal(8)
            error = x_D @ (weight_D - 1.0) + 0.5 * rng.standard_normal()
            step_D = MOMENTUM * step_D - LEARNING_RATE * error * x_D
            weight_D = weight_D + step_D
        worker.report(step, {"loss": float(((weight_D - 1.0) ** 2).sum())})
'''
EDITS = (
    ("other random numbers, which are no better", "(worker.seed)", "(worker.seed + 12_345)"),
    ("a lower learning rate", "LEARNING_RATE = 0.1", "LEARNING_RATE = 0.03"),
    ("too much momentum", "MOMENTUM = 0.0", "MOMENTUM = 0.99"),
)


def edit(file: Path, number: int) -> str | None:
    """Change the code as the agent likes; return what it tried, or None when it gives up."""
    if number > len(EDITS):
        return None
    what, old, new = EDITS[number - 1]
    file.write_text(file.read_text().replace(old, new))
    return what


def git(*words: str) -> None:
    who = ("-c", "user.name=agent", "-c", "user.email=agent@localhost")
    subprocess.run(["git", *who, *words], check=True, stdout=subprocess.DEVNULL)


def verdict(baseline: str, candidate: str) -> dict[str, Any]:
    """Ask the command, as an agent does, and train again by what it prints until it is sure."""
    words = (sys.executable, "-m", "hposvc", "verdict", baseline, candidate, "-o", "json")
    while True:
        said = json.loads(subprocess.run(words, stdout=subprocess.PIPE).stdout)
        if not said["retest"]:
            return said
        for command in said["retest"].split("; ")[:-1]:
            again = shlex.split(command)[1:]
            subprocess.run([*words[:3], *again], check=True, capture_output=True)


def main() -> None:
    file = Path("train.py")
    file.write_text(TRAIN)
    git("init", "-q", "-b", "main")
    git("add", "train.py")
    git("commit", "-q", "-m", "begin")
    name = (
        Sweep(
            "train.py:train",
            metric={"name": "loss", "goal": "minimize"},
            fidelity={"max": 2},
            # Each edit is compared with new runs of the baseline: at a value of `edit` of its own.
            parameters={"code": {"variants": ["main"]}, "edit": {"min": 0, "max": 10_000}},
            initial=[{"edit": 0}],
            trials={"max": 1, "proposed": 1.0},
            engine="local",
            tracking={"send_to": []},
        )
        .run(progress=False)
        .sweep
    )
    sweep, number = load(name), 0
    kept = sweep.best().params["code"]
    while what := edit(file, number := number + 1):
        git("commit", "-q", "-a", "-m", what)
        sweep.propose({"code": kept, "edit": number}, run=True)
        candidate = sweep.propose({"edit": number}, run=True, code="HEAD")["version"]
        sweep.extend(trials=2, progress=False)
        said = verdict(f"{name}/{kept}", f"{name}/{candidate}")
        print(f"{said['verdict']:8} {what}: {said['sentence']}", flush=True)
        if said["verdict"] == "KEEP":
            kept = candidate
        else:
            git("reset", "-q", "--hard", "HEAD~1")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        main()
