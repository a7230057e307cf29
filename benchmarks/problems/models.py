"""Models of scikit-learn with the hyperparameters that people tune, and their spaces."""

from collections.abc import Callable
from typing import Any

from sklearn.decomposition import PCA
from sklearn.ensemble import ExtraTreesClassifier, RandomForestClassifier
from sklearn.linear_model import ElasticNet, SGDClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MinMaxScaler,
    PolynomialFeatures,
    RobustScaler,
    SplineTransformer,
    StandardScaler,
)

from problems.problem import Params
from searchers import Choice, Float, Int, Space

SCALERS = {"standard": StandardScaler, "range": MinMaxScaler, "robust": RobustScaler}
Kind = Callable[..., Any]  # a class of scikit-learn


def svm(kind: Kind, params: Params) -> Any:
    options = {name: params[name] for name in ("gamma", "degree", "coef0") if name in params}
    model = kind(C=params["C"], kernel=params["kernel"], max_iter=4000, **options)
    return make_pipeline(SCALERS[params["scaler"]](), model)


def perceptron(kind: Kind, params: Params) -> Any:
    model = kind(
        hidden_layer_sizes=(params["width"],) * params["layers"],
        activation=params["activation"],
        solver=params["solver"],
        alpha=params["alpha"],
        batch_size=params["batch"],
        learning_rate_init=params["lr"],
        momentum=params.get("momentum", 0.9),
        beta_1=params.get("beta1", 0.9),
        max_iter=params["epochs"],
        random_state=0,
    )
    return make_pipeline(StandardScaler(), model)


def boosting(kind: Kind, params: Params) -> Any:
    return kind(
        learning_rate=params["lr"],
        max_iter=params["trees"],
        max_leaf_nodes=params["leaves"],
        min_samples_leaf=params["leaf_rows"],
        l2_regularization=params["l2"],
        max_features=params["features"],
        max_bins=params["bins"],
        early_stopping=False,
        random_state=0,
    )


def forest(params: Params) -> Any:
    kind = RandomForestClassifier if params["kind"] == "forest" else ExtraTreesClassifier
    return kind(
        params["trees"],
        criterion=params["criterion"],
        max_depth=params["depth"],
        min_samples_leaf=params["leaf_rows"],
        max_features=params["features"],
        bootstrap=params["bootstrap"],
        max_samples=params.get("sample"),
        random_state=0,
    )


def elastic(params: Params) -> Any:
    steps = [SCALERS[params["scaler"]]()]
    if params["features"] == "products":
        steps.append(PolynomialFeatures(2, interaction_only=params["no_squares"]))
    if params["features"] == "splines":
        steps.append(SplineTransformer(params["knots"], degree=params["degree"]))
    model = ElasticNet(alpha=params["alpha"], l1_ratio=params["l1"], max_iter=300)
    return make_pipeline(*steps, StandardScaler(), model)


def neighbours(params: Params) -> Any:
    steps = [SCALERS[params["scaler"]]()]
    if params["reduce"]:
        steps.append(PCA(params["components"], whiten=params["whiten"], random_state=0))
    model = KNeighborsClassifier(params["k"], weights=params["weights"], p=params["p"])
    return make_pipeline(*steps, model)


def linear(params: Params) -> Any:
    model = SGDClassifier(
        loss=params["loss"],
        penalty=params["penalty"],
        alpha=params["alpha"],
        l1_ratio=params.get("l1", 0.15),
        learning_rate=params["schedule"],
        eta0=params["lr"],
        power_t=params.get("power", 0.5),
        average=params["average"],
        max_iter=params["epochs"],
        tol=None,
        random_state=0,
    )
    return make_pipeline(SCALERS[params["scaler"]](), model)


CURVED = {"kernel": ("rbf", "poly", "sigmoid")}
SVM = Space(
    {
        "scaler": Choice(tuple(SCALERS)),
        "kernel": Choice(("linear", "rbf", "poly", "sigmoid")),
        "C": Float(1e-3, 1e3, log=True),
        "gamma": Float(1e-5, 10.0, log=True, when=CURVED),
        "degree": Int(2, 5, when={"kernel": ("poly",)}),
        "coef0": Float(-1.0, 1.0, when={"kernel": ("poly", "sigmoid")}),
    }
)
PERCEPTRON = Space(
    {
        "lr": Float(1e-5, 0.1, log=True),
        "alpha": Float(1e-7, 10.0, log=True),
        "width": Int(4, 128, log=True),
        "layers": Int(1, 3),
        "batch": Choice((8, 16, 32, 64, 128), ordered=True),
        "activation": Choice(("relu", "tanh", "logistic")),
        "solver": Choice(("adam", "sgd")),
        "momentum": Float(0.0, 0.99, when={"solver": ("sgd",)}),
        "beta1": Float(0.5, 0.99, when={"solver": ("adam",)}),
        "epochs": Int(3, 25),
    }
)
BOOSTING = Space(
    {
        "lr": Float(5e-3, 1.0, log=True),
        "trees": Int(5, 100),
        "leaves": Int(2, 64, log=True),
        "leaf_rows": Int(1, 100, log=True),
        "l2": Float(1e-8, 100.0, log=True),
        "features": Float(0.1, 1.0),
        "bins": Int(8, 255, log=True),
    }
)
FOREST = Space(
    {
        "kind": Choice(("forest", "extra")),
        "trees": Int(8, 80, log=True),
        "criterion": Choice(("gini", "entropy")),
        "depth": Int(1, 20),
        "leaf_rows": Int(1, 40, log=True),
        "features": Float(0.05, 1.0),
        "bootstrap": Choice((True, False)),
        "sample": Float(0.1, 1.0, when={"bootstrap": (True,)}),
    }
)
ELASTIC = Space(
    {
        "scaler": Choice(tuple(SCALERS)),
        "features": Choice(("plain", "products", "splines")),
        "no_squares": Choice((True, False), when={"features": ("products",)}),
        "knots": Int(3, 10, when={"features": ("splines",)}),
        "degree": Int(1, 3, when={"features": ("splines",)}),
        "alpha": Float(1e-4, 10.0, log=True),
        "l1": Float(0.0, 1.0),
    }
)
NEIGHBOURS = Space(
    {
        "scaler": Choice(tuple(SCALERS)),
        "reduce": Choice((True, False)),
        "components": Int(2, 50, log=True, when={"reduce": (True,)}),
        "whiten": Choice((True, False), when={"reduce": (True,)}),
        "k": Int(1, 50, log=True),
        "weights": Choice(("uniform", "distance")),
        "p": Float(1.0, 4.0),
    }
)
LINEAR = Space(
    {
        "scaler": Choice(tuple(SCALERS)),
        "loss": Choice(("log_loss", "modified_huber")),
        "penalty": Choice(("l1", "l2", "elasticnet")),
        "l1": Float(0.0, 1.0, when={"penalty": ("elasticnet",)}),
        "alpha": Float(1e-7, 1.0, log=True),
        "schedule": Choice(("constant", "invscaling", "adaptive")),
        "lr": Float(1e-5, 1.0, log=True),
        "power": Float(0.0, 1.0, when={"schedule": ("invscaling",)}),
        "average": Choice((True, False)),
        "epochs": Int(2, 50, log=True),
    }
)
