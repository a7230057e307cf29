"""Plans kept in the home, and how good each was once its sweep has ended.

A plan is found by the fingerprint of its spec: of all plans of a spec, the last one that was made
before the sweep began counts, so no plan can know what it forecasts.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hposvc import spec as specs
from hposvc.errors import StoreError
from hposvc.estimate import INTERVAL, Estimate
from hposvc.journal.home import Home
from hposvc.journal.journal import SweepRow
from hposvc.spec import SweepSpec
from hposvc.spec.sweep_spec import DESCRIPTIVE_KEYS
from hposvc.state.sweep import SweepState
from hposvc.text import duration

FOLDER = "plans"  # in the home
# Keys of a spec that change nothing about its hours; with `budget.cost`, the price does.
COSMETIC = DESCRIPTIVE_KEYS | {"warm_start"}
KEYS = ("expected", "low", "high", "confidence")
OF_OLD = {"confidence": 0.8}  # of plans that were kept when intervals did not say theirs
FIGURES = ("trials", "steps", "gpu_hours", "cpu_hours", "wall_s")


@dataclass(frozen=True)
class PlanFigure:
    """A forecast number, and what it came to."""

    forecast: Estimate
    came_to: float

    @property
    def held(self) -> bool:
        """Whether the interval holds the truth."""
        return self.forecast.holds(self.came_to)


@dataclass(frozen=True)
class Accuracy:
    """A sweep's forecast beside what the sweep came to."""

    made: float  # when the plan was, in seconds of the epoch
    source: str  # pilot, earlier or stated
    figures: Mapping[str, PlanFigure]  # those of FIGURES that were forecast

    def data(self) -> dict[str, Any]:
        """Return the accuracy for JSON."""
        figures = [
            {
                "figure": name,
                **each.forecast.data("expected"),
                "came_to": each.came_to,
                "held": each.held,
            }
            for name, each in self.figures.items()
        ]
        return {"made": self.made, "source": self.source, "figures": figures}


def fingerprint(frozen: Mapping[str, Any]) -> str:
    """Return the fingerprint of a spec, as `specs.dump` froze it, without what costs nothing."""
    cosmetic = COSMETIC - {"price"} if frozen["budget"].get("cost") else COSMETIC
    data = {key: value for key, value in frozen.items() if key not in cosmetic}
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:20]


def keep(home: Home, spec: SweepSpec, data: Mapping[str, Any], now: float | None = None) -> Path:
    """Keep a plan in the home, and return its file.

    Args:
        data: of the plan, as its JSON has it.
        now: seconds of the epoch; None: those of the clock.

    Raises:
        StoreError: the home can't be written.
    """
    made = time.time() if now is None else now
    folder = home.path / FOLDER
    file = folder / f"{fingerprint(specs.dump(spec))}-{made * 1000:.0f}.json"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({**data, "made": made}))
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}; the plan can't be kept") from error
    return file


def find(home: Home, row: SweepRow) -> dict[str, Any] | None:
    """Return the last plan of a sweep's spec that was made before the sweep; None: there is none.

    A plan that cannot be read counts as none.
    """
    prefix = fingerprint(row.spec)
    plans = []
    for file in (home.path / FOLDER).glob(f"{prefix}-*.json"):
        try:
            plan = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        if plan["made"] <= row.created:
            plans.append(plan)
    return max(plans, key=lambda plan: plan["made"], default=None)


def accuracy(home: Home, row: SweepRow, state: SweepState) -> Accuracy | None:
    """Return how good the forecast of an ended sweep was.

    None: there was no plan with times, or the sweep did not end by itself: a user stopped it, or
    extended it.
    """
    plan = find(home, row)
    by_hand = state.asked is not None or state.closed in ("user", "drain")
    if plan is None or plan["source"] is None or not state.finished or by_hand:
        return None
    if specs.dump(state.spec) != specs.dump(specs.restore(row.spec)):
        return None
    trials = state.trials.values()
    came_to = {
        "trials": float(len(state.trials)),
        "steps": float(sum(trial.step for trial in trials)),
        "gpu_hours": state.gpu_hours,
        "cpu_hours": state.rank_s / 3600 * state.spec.resources.cpus_per_worker,
        "wall_s": state.elapsed_s,
    }
    if state.spec.last_step is None:
        came_to["steps"] = float(sum(trial.returned for trial in trials))
    figures = {
        name: PlanFigure(Estimate(*((OF_OLD | plan[name])[key] for key in KEYS)), came_to[name])
        for name in FIGURES
        if plan[name] is not None
    }
    return Accuracy(plan["made"], plan["source"]["origin"], figures)


def sentence(found: Accuracy) -> str:
    """Return how good a forecast was, in a sentence."""
    cost = "gpu_hours" if "gpu_hours" in found.figures else "cpu_hours"
    writers: dict[str, tuple[str, Callable[[float], str]]] = {
        cost: (f"{cost[:3].upper()}-hours", "{:.3g}".format),
        "wall_s": ("wall time", duration),
    }
    parts, held = [], True
    for name, (words, write) in writers.items():
        if name in found.figures:
            figure = found.figures[name]
            held = held and figure.held
            came_to = write(figure.came_to)
            parts.append(f"{words}: forecast {figure.forecast.text(write)}, came to {came_to}")
    verdict = f"within its {INTERVAL}" if held else "outside its interval"
    return f"{'; '.join(parts)}: {verdict}"
