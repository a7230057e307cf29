"""Learning curves to race schedulers on: made up, and recorded from real trainings.

A made-up family is a formula of two values, `lr` and `decay`. A recorded one is a table of real
trainings of scikit-learn models, which this machine runs once and keeps in its cache folder; its
only parameter is `row`. `curve` is what a simulated sweep calls, `loss` is without the noise.
"""

import math
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Params = Mapping[str, Any]

EPOCHS = 27  # of a trial
BUDGET = 49 * EPOCHS  # of a run: 49 is one of each of Hyperband's brackets
ROWS = 240  # of a recorded family
WORST = 1e6  # what a training that broke down is recorded with
NOISE = {"even": 0.01, "crossing": 0.01, "noisy": 0.10}  # of a loss, by made-up family
RECORDED = ("digits", "diabetes")
FAMILIES = (*NOISE, *RECORDED)
SPACE = {"lr": {"min": 1e-4, "max": 1.0, "log": True}, "decay": {"min": 0.0, "max": 0.6}}


def space(family: str) -> dict[str, object]:
    """The parameters of a family, as a spec has them."""
    if family in RECORDED:
        return {"family": family, "row": {"min": 0, "max": ROWS - 1, "type": "int"}}
    return {"family": family, **SPACE}


def points(family: str, seed: int, count: int) -> list[dict[str, float]]:
    """Configurations in the order in which every scheduler gets them."""
    rng = np.random.default_rng([seed, FAMILIES.index(family)])
    if family in RECORDED:
        return [{"row": int(row)} for row in rng.permutation(ROWS)[:count]]
    return [
        {"lr": 10 ** float(rng.uniform(-4, 0)), "decay": float(rng.uniform(0, 0.6))}
        for _ in range(count)
    ]


def curve(params: Params, step: int) -> tuple[dict[str, float], float]:
    """The loss at a step, and the seconds of the step, which differ a little by trial."""
    value = loss(params, step)
    family = params["family"]
    number = int(1e9 * (params["decay"] if family in NOISE else params["row"] / ROWS))
    if family in NOISE:
        value *= 1 + NOISE[family] * np.random.default_rng([number, step]).normal()
    return {"loss": float(value)}, 0.8 + 0.4 * np.random.default_rng(number).random()


def loss(params: Params, step: int) -> float:
    """The true loss at a step."""
    family = params["family"]
    if family in RECORDED:
        return float(recorded(family)[params["row"], step - 1])
    rate = math.log10(params["lr"])
    floor = 0.08 + (0.10 if rate > -1.8 else 0.05) * (rate + 1.8) ** 2
    floor += 0.5 * abs(params["decay"] - 0.3)
    pace = 0.2 if family == "even" else 10 ** (0.5 * rate + 0.4)
    return floor + (1 - floor) * math.exp(-((pace * step) ** 0.7))


@cache
def recorded(family: str) -> NDArray[np.float64]:
    """The losses of a recorded family, (rows, epochs); trained if this machine has none yet."""
    top = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    file = top / "hposvc-benchmarks" / f"{family}-{ROWS}x{EPOCHS}.npy"
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        train = _digits if family == "digits" else _diabetes
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of overflows, which are what some rows are about
            losses = np.array([train(np.random.default_rng(row)) for row in range(ROWS)])
        np.save(file, np.where(np.isfinite(losses), np.minimum(losses, WORST), WORST))
    table: NDArray[np.float64] = np.load(file)
    return table


def _digits(rng: np.random.Generator) -> list[float]:
    """Log loss of a perceptron with one hidden layer on digits that it has not seen."""
    from sklearn.datasets import load_digits
    from sklearn.metrics import log_loss
    from sklearn.neural_network import MLPClassifier

    x, y = load_digits(return_X_y=True)
    model = MLPClassifier(
        (int(2 ** rng.uniform(2, 7)),),
        solver=str(rng.choice(["sgd", "adam"])),
        learning_rate_init=10 ** rng.uniform(-4, 0),
        alpha=10 ** rng.uniform(-6, 1),
        batch_size=int(2 ** rng.integers(4, 8)),
        momentum=rng.uniform(0, 0.98),
        random_state=int(rng.integers(1000)),
    )

    def epoch() -> float:
        model.partial_fit(x[:700] / 16, y[:700], classes=range(10))
        return float(log_loss(y[700:], model.predict_proba(x[700:] / 16), labels=range(10)))

    return _losses(epoch)


def _diabetes(rng: np.random.Generator) -> list[float]:
    """Error of a linear model of all products of two features, as a share of the spread."""
    from sklearn.datasets import load_diabetes
    from sklearn.linear_model import SGDRegressor
    from sklearn.preprocessing import PolynomialFeatures, StandardScaler

    x, y = load_diabetes(return_X_y=True)
    x = StandardScaler().fit_transform(PolynomialFeatures(2, include_bias=False).fit_transform(x))
    y = (y - y.mean()) / y.std()
    model = SGDRegressor(
        penalty=str(rng.choice(["l1", "l2", "elasticnet"])),
        alpha=10 ** rng.uniform(-5, 0),
        learning_rate="invscaling",
        eta0=10 ** rng.uniform(-5, -1),
        power_t=rng.uniform(0, 0.6),
        random_state=int(rng.integers(1000)),
    )

    def epoch() -> float:
        model.partial_fit(x[:300], y[:300])
        return float(np.sqrt(np.mean((model.predict(x[300:]) - y[300:]) ** 2)))

    return _losses(epoch)


def _losses(epoch: Callable[[], float]) -> list[float]:
    """The loss after each epoch; a training that breaks down stays broken."""
    losses: list[float] = []
    for _ in range(EPOCHS):
        try:
            losses.append(epoch())
        except ValueError:  # of scikit-learn, for numbers that are not finite
            losses.append(math.inf)
    return losses


def target(family: str, seed: int) -> float:
    """What a run has to reach: the third best end of the configurations that fifo can train."""
    given = points(family, seed, BUDGET // EPOCHS)
    return sorted(loss({"family": family, **each}, EPOCHS) for each in given)[2]


@dataclass(frozen=True)
class Seen:
    """A report: the loss that the scheduler saw, and the true one."""

    trial: str
    loss: float
    true: float


def figures(reports: Sequence[Seen], aim: float) -> dict[str, float | None]:
    """What a run came to within the budget.

    Returns:
        epochs: up to the first true loss at the aim (None: it was not reached); spent: all;
        best: the true loss of the trial whose last loss is the lowest; trials.
    """
    reports = reports[:BUDGET]
    last = {seen.trial: seen for seen in reports}
    reached = (epoch for epoch, seen in enumerate(reports, 1) if seen.true <= aim)
    best = min(last.values(), key=lambda seen: seen.loss)
    return {
        "epochs": next(reached, None),
        "spent": len(reports),
        "best": best.true,
        "trials": len(last),
    }
