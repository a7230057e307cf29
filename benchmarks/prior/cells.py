"""Which tables there are: families of models, and the data sets that each is tuned on."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from prior.estimators import ESTIMATORS
from prior.spaces import Parameter, Params

MODELS: dict[str, tuple[tuple[Parameter, ...], Callable[[Params, str], float]]] = ESTIMATORS


@dataclass(frozen=True)
class Cell:
    """A table to make."""

    family: str
    data: str
    model: str  # a key of MODELS


FAMILIES: dict[str, tuple[tuple[str, str], ...]] = {  # model and data set, first things first
    "boosting": (
        ("hist", "mroz"), ("xgboost", "computers"), ("lightgbm", "chile"), ("hist", "boston"),
        ("xgboost", "vote92"), ("lightgbm", "diamonds"), ("catboost", "pima"),
        ("hist", "diabetes"), ("xgboost", "yogurt"), ("lightgbm", "wages"), ("hist", "fair"),
        ("xgboost", "solder"), ("lightgbm", "fishing"), ("catboost", "caschool"),
        ("hist", "titanic"), ("xgboost", "digits"),
        ("lightgbm", "breast_cancer"),
    ),
    "forest": (
        ("forest", "pima"), ("extra", "glass"), ("forest", "housing"), ("forest", "kakadu"),
        ("extra", "fair"), ("forest", "star"), ("forest", "wine"), ("extra", "computers"),
        ("forest", "train"), ("extra", "digits"), ("forest", "colon"),
        ("forest", "diamonds"), ("extra", "breast_cancer"), ("forest", "diabetes"),
    ),
    "tree": tuple(
        ("tree", data)
        for data in (
            *("pima", "emissions", "medpar", "food", "participation", "computers"),
            *("digits", "bfi", "star", "yogurt", "kakadu", "quakes", "glass", "nwtco", "wages"),
        )
    ),
    "svm": (
        ("svc", "glass"), ("svr", "boston"), ("svc", "participation"), ("svc", "letters"),
        ("svr", "caschool"), ("svc", "digits"), ("svc", "crabs"), ("svr", "diabetes"),
        ("svc", "anes96"), ("svr", "emissions"),
        ("svc", "wine"), ("svr", "housing"), ("svc", "breast_cancer"),
    ),
    "linear": (
        ("logistic", "bfi"), ("elastic", "housing"), ("sgd", "vote92"), ("logistic", "glass"),
        ("elastic", "boston"), ("sgd_numbers", "caschool"), ("sgd", "digits"),
        ("logistic", "anes96"), ("sgd", "biopsy"), ("elastic", "diabetes"),
        ("logistic", "kakadu"), ("sgd_numbers", "wages"), ("elastic", "clothing"),
        ("sgd", "breast_cancer"),
    ),
    "neighbours": (
        ("neighbours", "crabs"), ("neighbours", "diamonds"), ("neighbours", "mroz"),
        ("neighbours", "letters"), ("neighbours", "males"), ("neighbours", "digits"),
        ("neighbours", "chile"), ("neighbours", "hours"), ("neighbours", "iris"),
        ("neighbours", "breast_cancer"), ("neighbours", "boston"), ("neighbours", "wine"),
    ),
}  # fmt: skip


def in_rounds() -> tuple[Cell, ...]:
    """The first table of each family, then the second."""
    columns = (
        [Cell(family, data, model) for model, data in pairs] for family, pairs in FAMILIES.items()
    )
    return tuple(cell for turn in zip_longest(*columns) for cell in turn if cell is not None)


CELLS = in_rounds()
