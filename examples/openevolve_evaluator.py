"""Agents. OpenEvolve's evaluator: programs that it writes are trained as trials of a sweep.

Begin the sweep where the program is in a git repository, with `trials: {proposed: 1.0}` and
`parameters: {code: {variants: [main]}}`; its engine says where trials run. Then

    HPOSVC_SWEEP=ID PROGRAM=train.py openevolve-run train.py openevolve_evaluator.py

runs for as many programs as its config says (about half a minute a program on two cores).

Each program is a version of the code, `evolved-HASH`. It gets what the others get: rungs, limits,
seeds (`trials: {seeds: ...}` makes its score a mean). `hposvc verdict ID/main ID/evolved-HASH`
says whether the last one is better than the first one by more than luck.
"""

import hashlib
import os
import subprocess
import tempfile
import time
from difflib import unified_diff
from pathlib import Path

import hposvc

POLL_S = 0.5


def evaluate(program_path: str) -> dict[str, float]:
    """Train a program with the parameters of the best trial; return its metric, and the score."""
    sweep = hposvc.load(os.environ["HPOSVC_SWEEP"])
    spec = sweep.result().record.state.spec
    with tempfile.TemporaryDirectory() as folder:
        version = patch(Path(spec.folder or "."), Path(program_path).read_text(), Path(folder))
        answer = sweep.propose({}, run=True, code=version)
    (metric,), code = spec.objectives, spec.variants.parameter
    while True:
        trials = sweep.trials()
        own = trials[trials[code] == answer["version"]]
        for trial in own[own["state"].isin(["COMPLETED", "STOPPED", "FAILED"])].itertuples():
            if trial.state == "FAILED":
                raise RuntimeError(f"{trial.trial} of {sweep.id} failed: {trial.reason}")
            score = trial.value if metric.goal == "maximize" else -trial.value
            return {metric.name: trial.value, "combined_score": score}
        if sweep.result().state in ("COMPLETED", "STOPPED", "FAILED"):
            sweep.extend(trials=1, progress=False)  # trains it here, unless another evaluator does
        time.sleep(POLL_S)


def patch(repository: Path, program: str, folder: Path) -> str:
    """Return a patch that puts a program in the place of the committed one; of that, its commit."""
    name = os.environ.get("PROGRAM", "program.py")
    before, prefix = (
        subprocess.run(["git", "-C", repository, *words], check=True, capture_output=True).stdout
        for words in (("show", f"HEAD:./{name}"), ("rev-parse", "--show-prefix"))
    )
    old, new = before.decode(), program if program.endswith("\n") else f"{program}\n"
    lines = (text.splitlines(keepends=True) for text in (old, new))
    path = f"{prefix.decode().strip()}{name}"
    changed = "".join(unified_diff(*lines, f"a/{path}", f"b/{path}"))
    if not changed:
        return "HEAD"
    file = folder / f"evolved-{hashlib.sha256(program.encode()).hexdigest()[:8]}.diff"
    file.write_text(changed)
    return f"{file}"
