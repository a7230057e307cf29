"""The findings of a sweep over sizes: the best values by size, and the distance to the best loss.

Axes: S draws of the law, M configurations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from threadpoolctl import threadpool_limits

from hposvc.errors import fail
from hposvc.estimate import CONFIDENCE, Estimate
from hposvc.open_sweep import OpenSweep
from hposvc.state.sweep import SweepState
from hposvc.text import number, percent
from searchers import Float, Int, Observation, Params, Sizes, Value, identity, regret

DRAWS = 500
SEED = 0
UNLIKELY = 0.01  # probability of losses at a size, by the law of the others, below which it fails
FEWEST = 3  # trials of a size by which the law is judged


@dataclass(frozen=True)
class BestOfSize:
    """The best values at one size, by the law."""

    size: Value
    configs: tuple[Params, ...]  # of its trials with a result, the best first
    best: dict[str, Estimate]  # the best value of each number that is searched
    tried: str  # the trial whose configuration is expected to be the best; empty: none was tried

    def data(self) -> dict[str, Any]:
        """Return it as JSON."""
        best = {name: value.data() for name, value in self.best.items()}
        trials = len(self.configs)
        return {"size": self.size, "trials": trials, "tried": self.tried, "best": best}


@dataclass(frozen=True)
class SizeSearch:
    """The best values by size, and how sure the target's are."""

    sweep: str
    over: str
    metric: str
    sizes: tuple[BestOfSize, ...]
    answer: Literal["within", "cannot tell"]
    # By how much what was tried at the target is worse than the best there, CONFIDENCE sure; of
    # what the law proposes, where nothing was tried.
    within: float
    proposed: dict[str, Any]  # what the law expects to be the best at the target
    logarithmic: tuple[str, ...]  # of the numbers that are searched
    reason: str

    @property
    def sentence(self) -> str:
        """Return a sentence on how near to the best loss of the target size the sweep came."""
        target = self.sizes[-1]
        where = f"{self.over} {number(float(target.size))}"  # type: ignore[arg-type]
        sure = f"within {self.within:.2g} of the best {self.metric} there, "
        sure += f"{percent(CONFIDENCE)} sure"
        if self.answer == "cannot tell":
            return f"Cannot tell how near to the best of {where} it is: {self.reason}."
        if not target.tried:
            return f"Nothing was trained at {where} yet; what the law proposes is {sure}."
        return f"{target.tried} at {where} is {sure}."

    def data(self) -> dict[str, Any]:
        """Return the output of `hposvc sizes -o json`."""
        return {
            "sweep": self.sweep,
            "over": self.over,
            "metric": self.metric,
            "answer": self.answer,
            "within": self.within,
            "confidence": CONFIDENCE,
            "reason": self.reason,
            "proposed": self.proposed,
            "sizes": [each.data() for each in self.sizes],
        }


def sizes_of(sweep: OpenSweep) -> SizeSearch:
    """Judge a sweep over sizes.

    Raises:
        SpecError: it has no section `scale`, or too few results.
    """
    record = sweep.record()
    if record.state.spec.scale is None:
        fix = "give its spec `scale: {over: width, from: 256, to: 4096}`; or see hposvc transfer"
        raise fail(f"{record.row.id} is no sweep over sizes", fix=fix)
    found = judge(record.state, record.row.id)
    if found is None:
        raise fail(f"{record.row.id} has too few results for a law", fix="wait for more trials")
    return found


def judge(state: SweepState, sweep: str) -> SizeSearch | None:
    """Return what a sweep over sizes found; None: there are too few results."""
    with threadpool_limits(limits=1, user_api="blas"):  # with more, waits take longer than the work
        return _judge(state, sweep)


def _judge(state: SweepState, sweep: str) -> SizeSearch | None:
    spec, scale = state.spec, state.spec.scale
    assert scale is not None
    sizes, history = Sizes(spec.space, scale.over), list(state.history())
    law = sizes.law(history)
    if law is None:
        return None
    rng = np.random.default_rng(SEED)
    found = []
    for size in sizes.values:
        own = [seen for seen in history if _is_of(seen, scale.over, size) and seen.loss is not None]
        configs: list[Params] = [*sizes.candidates(law, size, history, rng)]
        configs += [seen.params for seen in own if seen.params not in configs]
        loss_SM = sizes.draws(law, configs, size, DRAWS, rng)
        tried = [index for index, params in enumerate(configs) if _trial(own, params)]
        chosen = min(tried, key=lambda index: float(loss_SM[:, index].mean()), default=None)
        best = _best_values(sizes, configs, loss_SM)
        name = "" if chosen is None else _trial(own, configs[chosen])
        ranked = sorted(own, key=lambda seen: float(seen.loss or 0.0))
        found.append(BestOfSize(size, tuple(seen.params for seen in ranked), best, name))
    at = int(loss_SM.mean(axis=0).argmin()) if chosen is None else chosen  # of the target
    within = float(np.quantile(regret(loss_SM, at), CONFIDENCE))
    proposed = configs[int(loss_SM.mean(axis=0).argmin())]
    turned = _turns(sizes, history)
    return SizeSearch(
        sweep=sweep,
        over=scale.over,
        metric=spec.objectives[0].name,
        sizes=tuple(found),
        answer="cannot tell" if turned else "within",
        within=within,
        proposed=dict(proposed),
        logarithmic=tuple(name for name in best if getattr(spec.space[name], "log", False)),
        reason=turned,
    )


def _is_of(seen: Observation, over: str, size: Value) -> bool:
    return over in seen.params and identity(seen.params[over]) == identity(size)


def _trial(own: Sequence[Observation], params: Params) -> str:
    """Return the trial with a configuration; empty: there is none."""
    return next((seen.id for seen in own if seen.params == params), "")


def _best_values(
    sizes: Sizes, configs: Sequence[Params], loss_SM: "np.typing.NDArray[np.float64]"
) -> dict[str, Estimate]:
    """Return the best value of each number, over the draws."""
    best_S = loss_SM.argmin(axis=1)
    mean = configs[int(loss_SM.mean(axis=0).argmin())]
    names = [
        name
        for name in sizes.space.searched
        if isinstance(sizes.space[name], Float | Int) and name != sizes.over and name in mean
    ]
    found = {}
    for name in names:
        drawn = [float(configs[index][name]) for index in best_S if name in configs[index]]
        found[name] = Estimate.of_draws(drawn, float(mean[name]))  # type: ignore[arg-type]
    return found


def _turns(sizes: Sizes, history: Sequence[Observation]) -> str:
    """Return where the law of the other sizes fails; empty: it holds as far as can be told."""
    for before, size in zip(sizes.values, sizes.values[1:], strict=False):
        own = [seen for seen in history if _is_of(seen, sizes.over, size)]
        law = sizes.law([seen for seen in history if not _is_of(seen, sizes.over, size)])
        ended = [seen for seen in own if seen.loss is not None and np.isfinite(seen.loss)]
        if law is None or len(ended) < FEWEST:
            continue
        x_MD, size_Z, above_M = sizes.points(ended, size)
        loss_M = np.array([seen.loss for seen in ended], dtype=float)
        if law.chance(x_MD, size_Z, loss_M, above_M) < UNLIKELY:
            ends = " and ".join(number(float(each)) for each in (before, size))  # type: ignore[arg-type]
            return f"the optimum moves between {ends} otherwise than the other sizes say"
    return ""
