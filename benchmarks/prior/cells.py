"""Which tables there are: families of models, and the data sets that each is tuned on."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest

from prior.estimators import ESTIMATORS
from prior.networks import NETWORKS
from prior.spaces import Parameter, Params

MODELS: dict[str, tuple[tuple[Parameter, ...], Callable[[Params, str], float]]] = {
    **ESTIMATORS,
    **NETWORKS,
}


@dataclass(frozen=True)
class Cell:
    """A table to make."""

    family: str
    data: str
    model: str  # a key of MODELS


FAMILIES: dict[str, tuple[tuple[str, str], ...]] = {  # model and data set, first things first
    "adamw": (
        ("adamw", "vote92"), ("adamw_numbers", "diamonds"), ("adamw", "glass"),
        ("adamw_numbers", "boston"), ("adamw", "digits"), ("adamw", "pima"),
        ("adamw_numbers", "computers"), ("adamw", "fishing"), ("adamw", "letters"),
        ("adamw_numbers", "diabetes"), ("adamw", "wine"),
        ("adamw", "breast_cancer"), ("adamw_numbers", "caschool"),
    ),
    "long_adam": (
        ("adam20_errors", "nwtco"), ("adam20_numbers", "emissions"),
        ("adam20_errors", "digits-noisy"), ("adam20_errors", "heating"),
        ("adam20_numbers", "food"), ("adam20_errors", "participation"),
    ),
    "long_sgdm": (
        ("sgdm20_errors", "train"), ("sgdm20_errors", "textures"), ("sgdm20_errors", "fair"),
        ("sgdm20_errors", "photographs"), ("sgdm20_errors", "mroz"),
    ),
    "longest_adam": (
        ("adam100_errors", "titanic"), ("adam100_errors", "textures"), ("adam100_numbers", "males"),
    ),
    "longest_sgdm": (
        ("sgdm60_errors", "digits-rotated"), ("sgdm60_errors", "heating"),
        ("sgdm60_errors", "titanic"),
    ),
    "sgdm": (
        ("sgdm", "chile"), ("sgdm_numbers", "housing"), ("sgdm", "biopsy"),
        ("sgdm", "letters"), ("sgdm_numbers", "star98"), ("sgdm", "yogurt"),
        ("sgdm", "digits"), ("sgdm_numbers", "wages"), ("sgdm", "crabs"),
        ("sgdm", "breast_cancer"), ("sgdm_numbers", "friedman"),
        ("sgdm", "glass"), ("sgdm", "wine"),
    ),
    "convolutions": (
        ("convolutions", "letters"), ("convolutions", "digits"), ("convolutions", "textures"),
        ("convolutions", "faces"), ("convolutions", "photographs"),
        ("convolutions", "digits-rotated"), ("convolutions", "digits-noisy"),
    ),
    "text": (
        ("text", "shakespeare"), ("text", "nouns"), ("text", "python_help"), ("text", "sources"),
        ("text", "descriptions"), ("text", "licences"), ("text", "verbs"),
    ),
    "adapters": (
        ("adapted_images", "letters"), ("adapted_text", "shakespeare"),
        ("adapted_images", "digits"), ("adapted_text", "sources"),
        ("adapted_images", "photographs"), ("adapted_text", "verbs"),
        ("adapted_text", "licences"), ("adapted_images", "digits-rotated"),
        ("adapted_images", "digits-noisy"), ("adapted_text", "nouns"),
    ),
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
    "perceptron": (
        ("perceptron", "fishing"), ("perceptron", "salaries"), ("perceptron", "biopsy"),
        ("perceptron", "quakes"), ("perceptron", "digits"), ("perceptron", "heating"),
        ("perceptron", "diabetes"), ("perceptron", "bfi"), ("perceptron", "moons"),
        ("perceptron", "boston"), ("perceptron", "glass"), ("perceptron", "diamonds"),
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
