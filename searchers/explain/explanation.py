"""Explanations of a sweep's results: predictions, importance and partial dependence.

`Explanation.of(optimizer.space, optimizer.history, optimizer.goal)` works whatever method searched.
All answers are the beliefs of the models of `gp`, not the truth: a deviation as wide as the spread
of the values means that nothing can be concluded yet. Averages run over the whole box of the space
and ignore constraints between parameters.

Axes: P searched parameters.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations

import numpy as np

from searchers.explain.belief import Belief
from searchers.explain.dependence import Dependence, dependence
from searchers.explain.variance import drawn_indices, indices, pair_indices
from searchers.gp.encoding import units
from searchers.gp.kernels import Array, Index
from searchers.names import nearest
from searchers.searcher import Observation
from searchers.space import Params, Space

Shares = Mapping[str, float]
DRAWS = 24  # functions of each model
PAIRS = 4096  # draws from each model of two values, to compare them
DRAWN_POINTS = 1024  # at which functions are drawn together
SIGNS = {"minimize": 1.0, "maximize": -1.0}


@dataclass(frozen=True)
class Prediction:
    """The expected value of a configuration, without noise, in the user's units."""

    mean: float
    deviation: float


@dataclass(frozen=True)
class Importance:
    """How much each searched parameter matters, the most important first.

    The variance is that of the predicted value over the space, each parameter uniform on its own
    (log) scale. A conditional parameter counts by the share of the space in which it is active.
    """

    share: Shares  # of the total effects, so that they sum to 1: the main figure
    main: Shares  # shares of the variance from the parameter alone
    total: Shares  # shares of the variance from it alone or together with others
    sensitivity: Shares  # 1 / lengthscale, as shares: how fast the value changes along it


@dataclass(frozen=True)
class Explanation:
    """The models fitted to one objective, and the questions that they answer."""

    space: Space
    belief: Belief
    sign: float  # 1: minimized; -1: maximized

    @classmethod
    def of(
        cls,
        space: Space,
        history: Sequence[Observation],
        goal: str | Sequence[str] = "minimize",
        objective: int = 0,
    ) -> "Explanation":
        """Fit the models of `gp` to the results of a history.

        Args:
            history: with losses that are lower-is-better, as everywhere.
            goal: minimize or maximize, for several objectives a list of these; values have its
                sign.
            objective: which of several is explained, counted from 0.

        Raises:
            ValueError: another goal or objective, too few results, or nothing that was searched.
        """
        goals = [goal] if isinstance(goal, str) else list(goal)
        for word in goals:
            if word not in SIGNS:
                raise ValueError(f"explain: goal is {word!r}; write minimize or maximize")
        if not 0 <= objective < len(goals):
            raise ValueError(
                f"explain: objective is {objective}; give 0 to {len(goals) - 1}, one of {goals}"
            )
        trials = [_of_objective(seen, objective, len(goals)) for seen in history]
        return cls(space, Belief.of(space, trials), SIGNS[goals[objective]])

    def predict(self, params: Params) -> Prediction:
        """Return the mean and deviation of one configuration.

        Raises:
            SpaceError: the configuration is not in this space.
        """
        self.space.validate(params)
        points = self.belief.encoding.snap(units(self.space, [params]))
        (mean,), (deviation,) = self.belief.predict(points)
        return Prediction(self.sign * float(mean), float(deviation))

    def chance_better(self, params: Params, than: Params) -> float:
        """Return the probability that a configuration's noise-free value is better than another's.

        Raises:
            SpaceError: a configuration is not in this space.
        """
        for each in (params, than):
            self.space.validate(each)
        points = self.belief.encoding.snap(units(self.space, [params, than]))
        loss_SM = self.belief.draw(points, PAIRS, np.random.default_rng(0))
        lead_S = loss_SM[:, 1] - loss_SM[:, 0]
        return float(np.mean((lead_S > 0) + 0.5 * (lead_S == 0)))

    def importance(self, worst: float | None = None) -> Importance:
        """Return shares of the variance of the predicted value over the space.

        Args:
            worst: values beyond it count as equal to it, so that differences among bad values do
                not drown those among good ones; None: all differ. Give, say, the median value.

        Source: Hutter, Hoos & Leyton-Brown, An Efficient Approach for Assessing Hyperparameter
        Importance (ICML 2014); here of the posterior mean, see `variance`.
        """
        sobol = indices(self._loss_function(worst), len(self.space.searched))
        sensitivities = [_shares(1.0 / view.lengthscale_P) for view in self.belief.views]
        order_P = np.argsort(-sobol.total_P, kind="stable")
        return Importance(
            self._by_name(_shares(sobol.total_P), order_P),
            self._by_name(sobol.main_P, order_P),
            self._by_name(sobol.total_P, order_P),
            self._by_name(np.mean(sensitivities, axis=0), order_P),
        )

    def importance_draws(self, draws: int = DRAWS) -> Mapping[str, tuple[Array, Array]]:
        """Return each parameter's main and total shares in functions drawn from the models.

        Their spread is how unsure the models are of the shares: without evidence any function of
        the prior is possible. Weak effects that a mean flattens keep their place in the draws.

        Args:
            draws: functions of each of the models.
        """
        inputs = len(self.space.searched)
        samples = 2 ** int(math.log2(max(16.0, DRAWN_POINTS / (inputs + 2))))
        rng = np.random.default_rng(0)

        def draw(unit_MP: Array) -> Array:
            losses_SM = self.belief.draw(self.belief.encoding.snap(unit_MP), draws, rng)
            return (losses_SM - self.belief.lowest) / self.belief.span

        main_SP, total_SP = drawn_indices(draw, inputs, samples)
        return {
            name: (main_SP[:, index], total_SP[:, index])
            for index, name in enumerate(self.space.searched)
        }

    def interactions(self, worst: float | None = None) -> dict[tuple[str, str], float]:
        """Return the variance share that two parameters have only together, the largest first.

        Args:
            worst: as for `importance`.
        """
        names = self.space.searched
        pair_PP = pair_indices(self._loss_function(worst), len(names))
        order = sorted(combinations(range(len(names)), 2), key=lambda pair: -pair_PP[pair])
        return {(names[i], names[j]): float(pair_PP[i, j]) for i, j in order}

    def dependence(self, *names: str, resolution: int = 16) -> Dependence:
        """Return the predicted value along one parameter, or over two, averaged over all others.

        A conditional parameter is averaged over the configurations that have it.

        Args:
            names: one or two searched parameters.
            resolution: grid points of a range, its ends included; a choice has all of its values.

        Raises:
            ValueError: invalid names, or the two are never active together.
        """
        self._check(names, resolution)
        of_loss = dependence(self.belief, self.space, names, resolution)
        return replace(of_loss, mean=self.sign * of_loss.mean)

    def to_dict(self) -> dict[str, object]:
        """Return importance, interactions, and the dependence on each parameter, as JSON."""
        names = self.space.searched
        return {
            "importance": asdict(self.importance()),
            "interactions": [
                {"names": list(pair), "share": share} for pair, share in self.interactions().items()
            ],
            "dependence": {name: self.dependence(name).to_dict() for name in names},
        }

    def _loss_function(self, worst: float | None) -> Callable[[Array], Array]:
        """Return the predicted loss up to `worst`, as a share of the span, on the unit cube."""
        belief, limit = self.belief, math.inf if worst is None else self.sign * worst

        def losses(unit_SP: Array) -> Array:
            if self.space.shares:  # one moves against the others, which keep their proportions
                unit_SP = self.space.drawn(unit_SP)
            loss_S = np.minimum(belief.mean(belief.encoding.snap(unit_SP)), limit)
            return (loss_S - belief.lowest) / belief.span

        return losses

    def _by_name(self, share_P: Array, order_P: Index) -> dict[str, float]:
        return {self.space.searched[index]: float(share_P[index]) for index in order_P}

    def _check(self, names: Sequence[str], resolution: int) -> None:
        if len(names) not in (1, 2) or len(set(names)) < len(names):
            raise ValueError(f"explain: got {list(names)}; name one parameter, or two that differ")
        for name in names:
            if name not in self.space:
                raise ValueError(f"explain: {name!r} is no parameter: {nearest(name, self.space)}")
            if name not in self.space.searched:
                raise ValueError(f"explain: {name} is a constant; name one that is searched")
        if resolution < 2:
            raise ValueError(f"explain: resolution is {resolution}; give 2 or more")


def _of_objective(seen: Observation, objective: int, count: int) -> Observation:
    """Return the trial with the loss of one objective alone; without losses, unchanged."""
    if not seen.losses:
        return seen
    if len(seen.losses) != count:
        raise ValueError(
            f"explain: trial {seen.id} has {len(seen.losses)} losses, goal names {count}; "
            "give a goal for each"
        )
    loss = seen.losses[objective]
    curve = seen.curve and ((seen.curve[-1][0], loss),)
    return replace(seen, loss=loss, losses=(), curves=(), curve=curve)


def _shares(part_P: Array) -> Array:
    """Divide parts by their sum; all 0 where the sum is 0."""
    shares_P: Array = part_P / (part_P.sum() or 1.0)
    return shares_P
