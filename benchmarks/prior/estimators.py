"""Models with scikit-learn's interface, their hyperparameters, and their loss in three folds."""

import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sklearn import (
    ensemble,
    linear_model,
    neighbors,
    preprocessing,
    svm,
    tree,
)
from sklearn.decomposition import PCA
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.pipeline import make_pipeline

from prior.data_sets import Array, rows_of
from prior.spaces import Number, Options, Parameter, Params

WORST = 10.0
LR = ("lr", "learning_rate", "eta")
TREES = ("n_estimators", "trees", "num_boost_round", "iterations", "max_iter", "num_trees")
LEAVES = ("num_leaves", "leaves", "max_leaf_nodes", "max_leaves")
LEAF_ROWS = ("min_samples_leaf", "leaf_rows", "min_data_in_leaf", "min_child_samples")
DEPTH = ("max_depth", "depth")
L2 = ("l2", "reg_lambda", "lam", "l2_regularization", "lambda_l2", "l2_leaf_reg")
L1 = ("reg_alpha", "alpha", "lambda_l1", "l1")
ROWS = ("subsample", "bagging_fraction", "row_sample", "sample")
COLUMNS = ("colsample_bytree", "feature_fraction", "max_features", "features", "colsample")
BINS = ("max_bins", "max_bin", "bins")
SCALER = Options(
    ("scaler", "scaling", "scale", "preprocessing"),
    (("standard", "std", "zscore"), ("minmax", "range", "min_max"), ("robust",), ("none", "off")),
    "standard",
    share=0.6,
)
SCALERS = {
    "standard": preprocessing.StandardScaler,
    "minmax": preprocessing.MinMaxScaler,
    "robust": preprocessing.RobustScaler,
    "none": lambda: "passthrough",
}


def is_regression(y: Array) -> bool:
    return y.dtype.kind == "f"


def folds_of(x: Array, y: Array) -> Iterator[tuple[Array, Array]]:
    is_numbers = is_regression(y)
    split: Iterator[tuple[Array, Array]] = (KFold if is_numbers else StratifiedKFold)(3).split(x, y)
    return split


def bounded(losses: list[float]) -> float:
    """Return the mean, 10 at most; 10 also if it is no number."""
    return float(min(np.nan_to_num(np.mean(losses), nan=WORST, posinf=WORST), WORST))


def loss(
    build: Callable[[Params, bool], Any], params: Params, data: str, errors: bool = False
) -> float:
    """Return the mean over three folds.

    Args:
        build: is told whether to predict numbers.
        params: in the model's own names.
        data: a name of data_sets.py.
        errors: of classes the share that is wrong, instead of the log loss.
    """
    x, y = rows_of(data)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # of fits that stop early, which is their business
            folds = [
                _fold_loss(build(params, is_regression(y)), errors, x, y, *fold)
                for fold in folds_of(x, y)
            ]
    except (ValueError, FloatingPointError):  # of scikit-learn, for numbers that are not finite
        return WORST
    return bounded(folds)


def _fold_loss(model: Any, errors: bool, x: Array, y: Array, fitted: Array, held: Array) -> float:
    model.fit(x[fitted], y[fitted])
    if is_regression(y):
        return float(np.sqrt(np.mean((np.clip(model.predict(x[held]), -1e3, 1e3) - y[held]) ** 2)))
    if hasattr(model, "predict_proba") and not errors:
        chances = np.clip(model.predict_proba(x[held]), 1e-6, 1.0)
        chances /= chances.sum(axis=1, keepdims=True)
        return float(log_loss(y[held], chances, labels=np.unique(y[fitted])))
    return 1.0 - float(model.score(x[held], y[held]))


def _scaled(params: Params, *steps: Any) -> Any:
    return make_pipeline(SCALERS[params["scaler"]](), *steps)


def _hist(params: Params, numbers: bool) -> Any:
    kind = (
        ensemble.HistGradientBoostingRegressor
        if numbers
        else ensemble.HistGradientBoostingClassifier
    )
    return kind(
        learning_rate=params["lr"],
        max_iter=params["n_estimators"],
        max_leaf_nodes=max(params["num_leaves"], 2),
        max_depth=params["max_depth"],
        min_samples_leaf=params["min_samples_leaf"],
        l2_regularization=params["l2"],
        max_features=params["colsample_bytree"],
        max_bins=params["max_bins"],
        early_stopping=False,
        random_state=0,
    )


HIST: tuple[Parameter, ...] = (
    Number(LR, 1e-3, 1.0, 0.1, log=True, share=1.0, levels=(0.01, 0.03, 0.1, 0.2, 0.3)),
    Number(TREES, 5, 100, 60, whole=True, share=0.85),
    Number(LEAVES, 2, 64, 31, log=True, whole=True, share=0.8),
    Number(DEPTH, 1, 12, None, whole=True, share=0.4),
    Number(LEAF_ROWS, 1, 80, 20, log=True, whole=True, share=0.8),
    Number(L2, 1e-8, 100.0, 1e-8, log=True, share=0.75),
    Number(COLUMNS, 0.1, 1.0, 1.0, share=0.6),
    Number(BINS, 8, 255, 128, log=True, whole=True, share=0.5, levels=(16, 32, 64, 128, 255)),
)


def _xgboost(params: Params, numbers: bool) -> Any:
    import xgboost

    kind = xgboost.XGBRegressor if numbers else xgboost.XGBClassifier
    return kind(
        learning_rate=params["lr"],
        n_estimators=params["n_estimators"],
        max_depth=params["max_depth"],
        min_child_weight=params["min_child_weight"],
        reg_lambda=params["l2"],
        reg_alpha=params["reg_alpha"],
        gamma=params["gamma"],
        subsample=params["subsample"],
        colsample_bytree=params["colsample_bytree"],
        n_jobs=1,
        random_state=0,
    )


XGBOOST: tuple[Parameter, ...] = (
    Number(LR, 1e-3, 1.0, 0.3, log=True, share=1.0, levels=(0.01, 0.03, 0.1, 0.2, 0.3)),
    Number(TREES[:4], 5, 150, 60, whole=True, share=0.85),
    Number(DEPTH, 1, 12, 6, whole=True, share=0.95, levels=(2, 3, 4, 6, 8, 10)),
    Number(("min_child_weight",), 0.1, 30, 1.0, log=True, share=0.7),
    Number(L2[:3], 1e-4, 100.0, 1.0, log=True, share=0.75),
    Number(L1[:2], 1e-6, 10.0, 0.0, log=True, share=0.5),
    Number(("gamma", "min_split_loss"), 1e-4, 10.0, 0.0, log=True, share=0.5),
    Number(ROWS[:1], 0.3, 1.0, 1.0, share=0.75, levels=(0.5, 0.6, 0.7, 0.8, 0.9, 1.0)),
    Number(COLUMNS[:1], 0.2, 1.0, 1.0, share=0.7),
)


def _lightgbm(params: Params, numbers: bool) -> Any:
    import lightgbm

    kind = lightgbm.LGBMRegressor if numbers else lightgbm.LGBMClassifier
    return kind(
        learning_rate=params["lr"],
        n_estimators=params["n_estimators"],
        num_leaves=params["num_leaves"],
        max_depth=params["max_depth"],
        min_child_samples=params["min_samples_leaf"],
        reg_lambda=params["l2"],
        reg_alpha=params["reg_alpha"],
        subsample=params["subsample"],
        subsample_freq=1,
        colsample_bytree=params["colsample_bytree"],
        n_jobs=1,
        random_state=0,
        deterministic=True,
        verbose=-1,
    )


LIGHTGBM: tuple[Parameter, ...] = (
    Number(LR, 1e-3, 1.0, 0.1, log=True, share=1.0, levels=(0.01, 0.03, 0.1, 0.2, 0.3)),
    Number(TREES[:4], 5, 150, 60, whole=True, share=0.85),
    Number(LEAVES[:2], 2, 64, 31, log=True, whole=True, share=0.9, levels=(7, 15, 31, 63)),
    Number(DEPTH, 1, 12, -1, whole=True, share=0.4),
    Number(LEAF_ROWS, 1, 80, 20, log=True, whole=True, share=0.8),
    Number(L2[:5], 1e-8, 100.0, 0.0, log=True, share=0.7),
    Number(L1[:3], 1e-8, 10.0, 0.0, log=True, share=0.5),
    Number(ROWS, 0.3, 1.0, 1.0, share=0.7),
    Number(COLUMNS[:2], 0.2, 1.0, 1.0, share=0.7),
)


def _catboost(params: Params, numbers: bool) -> Any:
    import catboost

    kind = catboost.CatBoostRegressor if numbers else catboost.CatBoostClassifier
    return kind(
        learning_rate=params["lr"],
        iterations=params["n_estimators"],
        depth=params["max_depth"],
        l2_leaf_reg=params["l2"],
        random_strength=params["random_strength"],
        rsm=params["colsample_bytree"],
        thread_count=1,
        random_seed=0,
        verbose=False,
        allow_writing_files=False,
    )


CATBOOST: tuple[Parameter, ...] = (
    Number(LR, 1e-3, 1.0, 0.1, log=True, share=1.0),
    Number(TREES[:4], 5, 60, 40, whole=True, share=0.85),
    Number(DEPTH, 1, 7, 5, whole=True, share=1.0),
    Number(L2, 1e-2, 100.0, 3.0, log=True, share=0.8),
    Number(("random_strength",), 1e-3, 10.0, 1.0, log=True, share=0.6),
    Number((*COLUMNS, "rsm"), 0.2, 1.0, 1.0, share=0.6),
)


def _trees(kind: str, params: Params, numbers: bool) -> Any:
    chosen = params.get("kind", kind)
    name = {"forest": "RandomForest", "extra": "ExtraTrees"}[chosen]
    options = {} if numbers else {"criterion": params["criterion"]}
    model = getattr(ensemble, name + ("Regressor" if numbers else "Classifier"))
    return model(
        params["n_estimators"],
        max_depth=params["max_depth"],
        min_samples_leaf=params["min_samples_leaf"],
        min_samples_split=params["min_samples_split"],
        max_features=params["max_features"],
        bootstrap=params["bootstrap"],
        max_samples=params["max_samples"] if params["bootstrap"] else None,
        random_state=0,
        **options,
    )


def _forest_of(kind: str) -> tuple[Parameter, ...]:
    kinds = (("forest", "rf", "random_forest"), ("extra", "et", "extra_trees"))
    return (
        Options(("kind", "model", "ensemble"), kinds, kind, share=0.45),
        Number(("n_estimators", "trees", "num_trees"), 5, 80, 40, log=True, whole=True, share=0.8),
        Options(("criterion", "crit"), (("gini",), ("entropy",)), "gini", share=0.4),
        Number(DEPTH, 1, 20, None, whole=True, share=0.85, levels=(2, 3, 5, 8, 10, 15, 20)),
        Number(LEAF_ROWS[:2], 1, 40, 1, log=True, whole=True, share=0.85),
        Number(
            ("min_samples_split", "split_rows", "min_split"), 2, 40, 2, log=True, whole=True,
            share=0.5,
        ),
        Number(
            ("max_features", "features", "feature_fraction", "mtry"), 0.05, 1.0, 0.5, share=0.85
        ),
        Options(("bootstrap", "bagging"), ((True,), (False,)), kind == "forest", share=0.6),
        Number(
            ("max_samples", "sample", "subsample"), 0.1, 1.0, None, share=0.6,
            when={"bootstrap": (True,)},
        ),
    )  # fmt: skip


FOREST, EXTRA = _forest_of("forest"), _forest_of("extra")


def _tree(params: Params, numbers: bool) -> Any:
    """A single tree; `cp` and the rest as R's rpart and scikit-learn call them."""
    kind = tree.DecisionTreeRegressor if numbers else tree.DecisionTreeClassifier
    return kind(
        ccp_alpha=params["ccp_alpha"],
        max_depth=params["max_depth"],
        min_samples_split=params["min_samples_split"],
        min_samples_leaf=params["min_samples_leaf"],
        max_features=params["max_features"],
        random_state=0,
    )


TREE: tuple[Parameter, ...] = (
    Number(("ccp_alpha", "cp"), 1e-6, 0.3, 0.0, log=True, share=1.0),
    Number(("max_depth", "depth", "maxdepth"), 1, 30, None, whole=True, share=0.85),
    Number(("min_samples_split", "minsplit"), 2, 100, 2, log=True, whole=True, share=0.8),
    Number(("min_samples_leaf", "minbucket"), 1, 100, 1, log=True, whole=True, share=0.85),
    Number(("max_features",), 0.1, 1.0, 1.0, share=0.3),
)


def _svm(params: Params, numbers: bool) -> Any:
    options = {name: params[name] for name in ("gamma", "degree", "coef0")}
    if numbers:
        options["epsilon"] = params["epsilon"]
    kind = svm.SVR if numbers else svm.SVC
    model = kind(C=params["C"], kernel=params["kernel"], max_iter=4000, **options)
    return _scaled(params, model)


CURVED = ("rbf", "poly", "sigmoid")
SVM: tuple[Parameter, ...] = (
    SCALER,
    Options(
        ("kernel", "kernel_type"),
        (("rbf", "rbf"), ("linear",), ("poly",), ("sigmoid",)),
        "rbf",
        share=0.8,
    ),
    Number(("C", "c", "cost", "reg_C"), 1e-3, 1e4, 1.0, log=True, share=1.0,
           levels=(0.01, 0.1, 1.0, 10.0, 100.0)),
    Number(("gamma", "g", "kernel_gamma"), 1e-6, 10.0, "scale", log=True, share=0.95,
           when={"kernel": CURVED}),
    Number(("degree", "deg"), 2, 5, 3, whole=True, share=0.8, when={"kernel": ("poly",)}),
    Number(("coef0",), -1.0, 1.0, 0.0, share=0.6, when={"kernel": ("poly", "sigmoid")}),
)  # fmt: skip
SVR: tuple[Parameter, ...] = (
    *SVM,
    Number(("epsilon", "eps", "tube"), 1e-4, 1.0, 0.1, log=True, share=0.7),
)


def _logistic(params: Params, numbers: bool) -> Any:
    model = linear_model.LogisticRegression(
        C=params["C"],
        l1_ratio={"l2": 0.0, "l1": 1.0, "elasticnet": params["l1_ratio"]}[params["penalty"]],
        fit_intercept=params["fit_intercept"],
        class_weight=None if params["class_weight"] == "none" else "balanced",
        solver="saga",
        max_iter=params["max_iter"],
        random_state=0,
    )
    return _scaled(params, model)


PENALTY = Options(("penalty", "regularizer"), (("l2",), ("l1",), ("elasticnet",)), "l2", share=0.75)
L1_RATIO = ("l1_ratio", "l1", "mix", "ratio")
LOGISTIC: tuple[Parameter, ...] = (
    SCALER,
    PENALTY,
    Number(("C", "c", "inverse_reg"), 1e-4, 1e4, 1.0, log=True, share=1.0,
           levels=(0.01, 0.1, 1.0, 10.0, 100.0)),
    Number(L1_RATIO, 0.0, 1.0, 0.5, share=0.85, when={"penalty": ("elasticnet",)}),
    Options(("fit_intercept", "intercept"), ((True,), (False,)), True, share=0.4),
    Options(("class_weight",), (("none",), ("balanced",)), "none", share=0.4),
    Number(("max_iter", "iters", "epochs"), 5, 100, 60, log=True, whole=True, share=0.5),
)  # fmt: skip


def _sgd(params: Params, numbers: bool) -> Any:
    kind = linear_model.SGDRegressor if numbers else linear_model.SGDClassifier
    model = kind(
        loss=params["epsilon_loss"] if numbers else params["loss"],
        penalty=params["penalty"],
        alpha=params["alpha"],
        l1_ratio=params["l1_ratio"],
        learning_rate=params["schedule"],
        eta0=params["lr"],
        power_t=params["power_t"],
        average=params["average"],
        max_iter=params["epochs"],
        tol=None,
        random_state=0,
    )
    return _scaled(params, model)


_SGD: tuple[Parameter, ...] = (
    SCALER,
    PENALTY,
    Number(("alpha", "reg", "weight_decay", "l2"), 1e-7, 1.0, 1e-4, log=True, share=0.95),
    Number(L1_RATIO, 0.0, 1.0, 0.15, share=0.85, when={"penalty": ("elasticnet",)}),
    Options(("schedule", "learning_rate", "lr_schedule"),
            (("constant",), ("invscaling",), ("adaptive",)), "invscaling", share=0.7),
    Number(("lr", "eta0", "eta", "initial_lr"), 1e-5, 1.0, 1e-2, log=True, share=1.0),
    Number(("power_t", "power"), 0.0, 1.0, 0.25, share=0.6, when={"schedule": ("invscaling",)}),
    Options(("average", "averaging"), ((False,), (True,)), False, share=0.5),
    Number(("epochs", "max_iter", "n_iter"), 2, 50, 20, log=True, whole=True, share=0.8),
)  # fmt: skip
SGD: tuple[Parameter, ...] = (
    *_SGD,
    Options(("loss", "loss_function"), (("log_loss", "log"), ("modified_huber",)), "log_loss"),
)
SGD_NUMBERS: tuple[Parameter, ...] = (
    *_SGD,
    Options(
        ("epsilon_loss", "loss"),
        (("squared_error",), ("huber",), ("epsilon_insensitive",)),
        "squared_error",
    ),
)


def _elastic(params: Params, numbers: bool) -> Any:
    steps: list[Any] = []
    if params["features"] == "products":
        steps.append(preprocessing.PolynomialFeatures(2))
    if params["features"] == "splines":
        steps.append(preprocessing.SplineTransformer(params["knots"], degree=params["degree"]))
    if steps:
        steps.append(preprocessing.StandardScaler())
    model = linear_model.ElasticNet(
        alpha=params["alpha"],
        l1_ratio=params["l1_ratio"],
        selection=params["selection"],
        max_iter=200,
        random_state=0,
    )
    return _scaled(params, *steps, model)


ELASTIC: tuple[Parameter, ...] = (
    SCALER,
    Options(("features", "prep", "expand"),
            (("plain", "none"), ("products", "poly2"), ("splines", "spline")), "plain"),
    Number(("knots", "n_knots"), 3, 10, 5, whole=True, share=0.8, when={"features": ("splines",)}),
    Number(("degree", "deg"), 1, 3, 2, whole=True, share=0.6, when={"features": ("splines",)}),
    Number(("alpha", "lam", "reg", "strength"), 1e-5, 10.0, 1e-2, log=True, share=1.0),
    Number(L1_RATIO, 0.0, 1.0, 0.5, share=0.9),
    Options(("selection",), (("cyclic",), ("random",)), "cyclic", share=0.3),
)  # fmt: skip


def _neighbours(params: Params, numbers: bool) -> Any:
    steps = []
    if params["reduce"]:
        steps.append(PCA(params["components"], whiten=params["whiten"], random_state=0))
    kind = neighbors.KNeighborsRegressor if numbers else neighbors.KNeighborsClassifier
    model = kind(params["n_neighbors"], weights=params["weights"], p=params["p"])
    return _scaled(params, *steps, model)


NEIGHBOURS: tuple[Parameter, ...] = (
    SCALER,
    Options(("reduce", "pca"), ((True,), (False,)), False, share=0.45),
    Number(("components", "n_components"), 0.3, 0.999, 0.95, share=0.9, when={"reduce": (True,)}),
    Options(("whiten",), ((True,), (False,)), False, share=0.6, when={"reduce": (True,)}),
    Number(("n_neighbors", "k", "neighbors"), 1, 60, 5, log=True, whole=True, share=1.0),
    Options(("weights", "weighting"), (("uniform",), ("distance",)), "uniform", share=0.8),
    Number(("p", "minkowski_p", "power"), 1.0, 4.0, 2.0, share=0.8, levels=(1, 2, 3)),
)

Loss = Callable[[Params, str], float]
ESTIMATORS: dict[str, tuple[tuple[Parameter, ...], Loss]] = {
    "hist": (HIST, partial(loss, _hist)),
    "xgboost": (XGBOOST, partial(loss, _xgboost)),
    "lightgbm": (LIGHTGBM, partial(loss, _lightgbm)),
    "catboost": (CATBOOST, partial(loss, _catboost)),
    "forest": (FOREST, partial(loss, partial(_trees, "forest"))),
    "extra": (EXTRA, partial(loss, partial(_trees, "extra"))),
    "tree": (TREE, partial(loss, _tree, errors=True)),
    "svc": (SVM, partial(loss, _svm)),
    "svr": (SVR, partial(loss, _svm)),
    "logistic": (LOGISTIC, partial(loss, _logistic)),
    "sgd": (SGD, partial(loss, _sgd)),
    "sgd_numbers": (SGD_NUMBERS, partial(loss, _sgd)),
    "elastic": (ELASTIC, partial(loss, _elastic)),
    "neighbours": (NEIGHBOURS, partial(loss, _neighbours)),
}
