"""From the command to the first report on this machine's own Ray, beside Ray Tune.

`python benchmarks/start.py [--rounds 5] [--beside CHECKOUT]` prints Markdown. The function is the
same, one process a trial. With --beside, another checkout of hposvc takes part.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tables import heading, table

ROOT = Path(__file__).resolve().parent.parent
OURS = """
def train(params, worker):
    for step in worker.steps():
        worker.report(step, {"loss": params["lr"] * step})
"""
SPEC = """
name: start
trainable: ours.py:train
metric: {name: loss, goal: minimize}
parameters:
  lr: {min: 0.1, max: 1.0}
fidelity: {max: 3}
trials: {max: 2, parallel: 1}
"""
TUNE = """
import time
from ray import tune

def train(config):
    tune.report({"loss": config["lr"], "at": time.time()})

tuned = tune.TuneConfig(num_samples=2, metric="loss", mode="min", max_concurrent_trials=1)
results = tune.Tuner(train, param_space={"lr": tune.uniform(0.1, 1)}, tune_config=tuned).fit()
print("first:", min(result.metrics["at"] for result in results))
"""


def ours(checkout: Path, folder: Path) -> float:
    """Return the seconds until the first report of a sweep of hposvc."""
    home = folder / f"home-{checkout.name}"
    environment = {**os.environ, "HPOSVC_HOME": f"{home}", "PYTHONPATH": f"{checkout}"}
    verb = [sys.executable, "-m", "hposvc"]
    began = time.time()
    for words in (["run", "spec.yaml"], ["events", "last", "-o", "json"]):
        ended = subprocess.run(
            [*verb, *words], cwd=folder, env=environment, capture_output=True, text=True, check=True
        )
    events = json.loads(ended.stdout)["events"]
    return float(next(one["time"] for one in events if one["kind"] == "reported")) - began


def tune(folder: Path) -> float:
    """Return the seconds until the first report of an experiment of Ray Tune."""
    began = time.time()
    ended = subprocess.run(
        [sys.executable, "tune.py"], cwd=folder, capture_output=True, text=True, check=True
    )
    return float(ended.stdout.partition("first: ")[2].split()[0]) - began


def main() -> None:
    """Run all in turn, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path, help="another checkout of hposvc")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        for name, text in (("ours.py", OURS), ("spec.yaml", SPEC), ("tune.py", TUNE)):
            (folder / name).write_text(text)
        seconds: dict[str, list[float]] = {}
        for _ in range(args.rounds):
            seconds.setdefault("hposvc", []).append(ours(ROOT, folder))
            if args.beside:
                seconds.setdefault("beside", []).append(ours(args.beside.resolve(), folder))
            seconds.setdefault("Ray Tune", []).append(tune(folder))
    print(heading(("ray",)))
    rows = []
    for name, values in seconds.items():
        ratios = [own / other for own, other in zip(seconds["hposvc"], values, strict=True)]
        spread = f"{min(values):.1f} to {max(values):.1f}"
        rows.append(
            [name, f"{statistics.median(values):.1f}", spread, f"{statistics.median(ratios):.2f}"]
        )
    print(table(["", "s, median", "s", "hposvc's share of it"], rows))


if __name__ == "__main__":
    main()
