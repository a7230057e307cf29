"""A small git repository with several versions of a trainable, for tests of code variants."""

import subprocess
import sys
from pathlib import Path

from waiting import until

from hposvc import api

TRAIN = """import level


def train(params, worker):
    for step in worker.steps():
        worker.report(step, {"loss": level.LEVEL + params["x"]})
"""
PROGRAM = """import sys

import hposvc
import level

hposvc.report({"loss": level.LEVEL + float(sys.argv[1].partition("=")[2])})
"""


def git(folder: Path, *words: str) -> str:
    """Run git, and return what it prints."""
    who = ("-c", "user.name=test", "-c", "user.email=test@localhost")
    result = subprocess.run(["git", "-C", folder, *who, *words], capture_output=True, check=True)
    return result.stdout.decode()


def write_level(folder: Path, level: int) -> None:
    """Change what the code reports."""
    (folder / "level.py").write_text(f"LEVEL = {level}\n")


def make(folder: Path) -> Path:
    """Make a repository whose main reports 10, branch 20 and patches/by-patch.diff 30."""
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text(TRAIN)
    (folder / "program.py").write_text(PROGRAM)
    write_level(folder, 10)
    commit(folder)
    git(folder, "checkout", "-q", "-b", "branch")
    write_level(folder, 20)
    commit(folder)
    git(folder, "checkout", "-q", "main")
    write_level(folder, 30)
    (folder / "patches").mkdir()
    (folder / "patches" / "by-patch.diff").write_text(git(folder, "diff"))
    git(folder, "checkout", "-q", "level.py")
    return folder


def commit(folder: Path) -> None:
    """Commit all changes."""
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", "change")


def move_on(folder: Path) -> None:
    """Change all versions: the branches report 98 and 99, and the patch is gone."""
    for branch, level in (("branch", 98), ("main", 99)):
        git(folder, "checkout", "-q", branch)
        write_level(folder, level)
        git(folder, "commit", "-q", "-a", "-m", "later")
    (folder / "patches" / "by-patch.diff").unlink()


def spec(folder: Path, **sections: object) -> dict[str, object]:
    """Return a spec of a trial of each version."""
    return {
        "folder": f"{folder}",
        "trainable": "train.py:train",
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": 2},
        "parameters": {
            "code": {"variants": ["main", "branch", "patches/*.diff"]},
            "x": {"min": 0.0, "max": 1.0},
        },
        "initial": [{"code": name, "x": 0.5} for name in ("main", "branch", "by-patch")],
        "trials": {"max": 3},
        "search": "random",
        "tracking": {"send_to": []},
        **sections,
    }


def run_until_begun(file: Path, home: Path) -> subprocess.Popen[bytes]:
    """Run a spec as the sweep `s` in a process of its own, and return it at the first trial."""
    command = [sys.executable, "-m", "hposvc", "run", f"{file}", "--id", "s"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    sweeps = api.Sweeps.open(home)

    def has_begun() -> bool:
        row = sweeps.journal.find("s")
        return row is not None and bool(api.load(sweeps, "s").state.trials)

    until(has_begun, "a first trial")
    return process
