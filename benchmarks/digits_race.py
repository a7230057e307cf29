"""The digits sweep until a validation accuracy: ours, and Ray Tune's ASHA with OptunaSearch.

`hints` keeps the example's initial point, which is so good that little is left to search.
"""

import math
import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import tuning
from apart import Figures, answer
from digits_tune import EPOCHS, RANKS, SEED, DigitsGang, Reached, suggest
from gang import resources
from optuna.samplers import TPESampler
from ray import tune
from ray.tune.schedulers import ASHAScheduler
from ray.tune.search.optuna import OptunaSearch
from rays import joined_ray, own_ray
from sweeps import run_file

from hposvc import spec as specs
from hposvc.events import Reported
from hposvc.schedulers.asha import Asha
from hposvc.spec import registry

FILE = Path(__file__).parent.parent / "examples" / "digits.yaml"
CPUS = 0.5  # a rank
SLOTS = 2


def ours(seed: int, target: float, trials: int, hints: bool) -> Figures:
    """`Sweep.run` with the example's searcher and scheduler."""
    with own_ray():
        began = time.time()
        events = run_file(
            FILE,
            {
                "seed": seed,
                "metric.target": target,
                "trials": {"max": trials, "parallel": SLOTS},
                "resources.cpus_per_worker": CPUS,
                **({} if hints else {"initial": []}),
            },
        )
    metric = specs.load(FILE).metric.name
    reports = [
        (event.time, event.metrics[metric]) for event in events if isinstance(event, Reported)
    ]
    return _until(target, began, reports)


def tuned(seed: int, target: float, trials: int, hints: bool) -> Figures:
    """Tune's parts for the same space, rungs and slots."""
    spec = specs.load(FILE)
    metric, mode, ranks = spec.metric.name, "max", spec.resources.workers
    asha = registry.build(registry.SCHEDULERS, spec.scheduler)
    assert isinstance(asha, Asha)
    search = OptunaSearch(
        partial(suggest, spec.space),
        metric=metric,
        mode=mode,
        points_to_evaluate=[dict(point) for point in spec.initial] if hints else None,
        sampler=TPESampler(seed=seed),
    )
    config = tune.TuneConfig(
        search_alg=search,
        scheduler=ASHAScheduler(
            metric=metric,
            mode=mode,
            grace_period=spec.first_step,
            max_t=spec.last_step,
            reduction_factor=asha.eta,
        ),
        num_samples=trials,
        reuse_actors=True,
        max_concurrent_trials=SLOTS,
    )
    gang = tune.with_resources(DigitsGang, resources(ranks, CPUS))
    constants = {SEED: seed, EPOCHS: spec.last_step, RANKS: ranks}
    with joined_ray():
        began = time.time()
        diary = tuning.fit(gang, constants, config, stop=Reached(metric, target))
    return _until(target, began, [(at, result[metric]) for at, _, result in diary.results])


def _until(target: float, began: float, reports: Iterable[tuple[float, float]]) -> Figures:
    """How far it was to the first report that meets the target.

    Returns:
        `wall`: seconds from the start, `warm`: from the first report, `epochs`: of all trials;
        infinite if it was never met. `best`: what was.
    """
    seen = list(reports)
    best = max(value for _, value in seen)
    for epochs, (at, value) in enumerate(seen, 1):
        if value >= target:
            return {"wall": at - began, "warm": at - seen[0][0], "epochs": epochs, "best": best}
    return {"wall": math.inf, "warm": math.inf, "epochs": math.inf, "best": best}


if __name__ == "__main__":
    answer({"ours": ours, "tune": tuned})
