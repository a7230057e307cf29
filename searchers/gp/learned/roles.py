"""The role of a hyperparameter, by its name: learning rate, weight decay, number of trees, ...

A family is a kind of model whose hyperparameters have roles. A space belongs to the family that has
most roles for it, if these are three or more and half of what is searched, or all of two; other
spaces have no roles.

A role of numbers has a scale, in the user's units, on which all spaces place its values from -1 to
1; a role of choices has one name for each value, whatever a space calls it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from searchers.names import nearest
from searchers.space import Choice, Domain, Space
from searchers.values import SpaceError, Value, is_number

# What may stand before a parameter's own name: a model, or which of several values it is.
PREFIX = re.compile(
    "^(model|net|network|encoder|decoder|head|clf|classifier|reg|regressor|estimator|opt|optim|"
    "optimizer|sgd|adam|adamw|mlp|svm|rf|xgb|lgb|lgbm|cat|catboost|train|trainer|max|init|base)"
    "[-_]+",
    re.IGNORECASE,
)
MIN_ROLES = 3  # names alone match by accident; three of one family do not


@dataclass(frozen=True)
class NumberRole:
    """Numbers on a scale on which `low` is -1 and `high` is 1."""

    names: str  # separated by spaces, in small letters, without underscores
    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class ChoiceRole:
    """Values with names; each line of `values` has the spellings of one value, the first ours."""

    names: str
    values: tuple[str, ...] = ()

    def value(self, written: Value) -> str:
        """Return our name of a value."""
        word = _plain(str(written))
        return next((line.split()[0] for line in self.values if word in line.split()), word)


Role = NumberRole | ChoiceRole
Names = Mapping[str, str | None]  # by parameter


@dataclass(frozen=True)
class Family:
    """A kind of model.

    By its roles `warm_start` finds a parameter that another sweep calls otherwise, and gp's learned
    prior, which networks and adapters have not, what is good for such models.

    Attributes:
        roles: by name.
        needs: roles of which a space of this family must have one.
    """

    roles: Mapping[str, Role]
    needs: frozenset[str]

    def role_of(self, words: Iterable[str], domain: Domain) -> str | None:
        """Return the role that has one of the names, the first if there are several.

        Returns:
            a role that can have these values; None: there is none.
        """
        named = (
            role for word in words for role, one in self.roles.items() if word in one.names.split()
        )
        return next((role for role in named if _suits(domain, self.roles[role])), None)


LR = "lr learningrate learningrateinit eta0 eta stepsize baselr maxlr peaklr initlr initiallr"
DECAY = "weightdecay wd decay l2"
L2 = "l2 reglambda lambdal2 lambda lam l2regularization l2leafreg"
TREES = (
    "nestimators trees numtrees ntrees ntree numboostround iterations numiterations maxiter "
    "nrounds rounds"
)
DEPTH = "maxdepth depth"
LEAVES = "numleaves leaves maxleafnodes maxleaves"
LEAF_ROWS = (
    "minsamplesleaf leafrows mindatainleaf minchildsamples minleaf minbucket minnodesize nodesize"
)
SPLIT_ROWS = "minsamplessplit minsplit splitrows mss"
COLUMNS = "maxfeatures features maxfeat colsamplebytree colsample featurefraction rsm mtry"
ROWS = "subsample sample baggingfraction rowsample maxsamples maxsamp samplefraction"
BATCH = "batch batchsize bs minibatch perdevicetrainbatchsize trainbatchsize"
EPOCHS = "epochs nepochs numepochs maxiter numtrainepochs niter iters"
WARMUP = "warmup warmupratio warmupshare warmupfrac warmupfraction pctstart"
SCALER = ChoiceRole(
    "scaler scaling scale preprocessing", ("standard std zscore", "range minmax", "none off plain")
)
SCHEDULE = ChoiceRole(
    "schedule sched lrschedule scheduler lrscheduler lrschedulertype decayschedule",
    (
        "constant none off const constantlr",
        "cosine cos cosineannealing cosineannealinglr",
        "linear lin linearlr",
    ),
)
TRAINING: Mapping[str, Role] = {
    "lr": NumberRole(LR, 1e-5, 1.0, log=True),
    "weight_decay": NumberRole(f"{DECAY} alpha", 1e-7, 10.0, log=True),
    "beta1": NumberRole("beta1 adambeta1", 0.5, 1.0),
    "beta2": NumberRole("beta2 adambeta2", 0.9, 1.0),
    "eps": NumberRole("eps epsilon adameps adamepsilon", 1e-9, 1e-3, log=True),
    "dropout": NumberRole("dropout drop dropoutrate droprate pdrop", 0.0, 0.8),
    "batch": NumberRole(BATCH, 8, 512, log=True),
    "epochs": NumberRole(EPOCHS, 1, 60, log=True),
    "warmup": NumberRole(WARMUP, 0.0, 0.5),
    "label_smoothing": NumberRole("labelsmoothing smoothing ls", 0.0, 0.3),
    "clip": NumberRole(
        "clip gradclip clipnorm maxgradnorm gradientclipval clipgradnorm", 0.1, 10.0, log=True
    ),
    "optimizer": ChoiceRole("optimizer opt optim solver"),
    "schedule": SCHEDULE,
}

FAMILIES: Mapping[str, Family] = {
    "network": Family(
        {
            **TRAINING,
            "momentum": NumberRole("momentum mom", 0.0, 1.0),
            "nesterov": ChoiceRole("nesterov"),
            "width": NumberRole(
                "width hidden nhidden units hiddensize hiddendim hiddenunits nunits dmodel dim "
                "nembd embeddim channels basechannels filters nfilters",
                4,
                512,
                log=True,
            ),
            "layers": NumberRole(
                "layers nlayers numlayers nlayer hiddenlayers depth blocks", 1, 8, log=True
            ),
            "heads": NumberRole("heads nheads numheads nhead", 1, 16, log=True),
            "context": NumberRole("context blocksize seqlen contextlength", 8, 512, log=True),
            "kernel_size": NumberRole("kernel kernelsize ksize", 1, 9),
            "activation": ChoiceRole("activation act nonlinearity activationfn activationfunction"),
            "norm": ChoiceRole("norm normalization", ("batch batchnorm",)),
            "scaler": SCALER,
        },
        frozenset({"lr"}),
    ),
    "adapter": Family(
        {
            **TRAINING,
            "rank": NumberRole("rank r lorarank lorar", 1, 64, log=True),
            "alpha": NumberRole("loraalpha alpha scaling", 1, 128, log=True),
            "dropout": NumberRole("loradropout dropout drop", 0.0, 0.8),
            "targets": ChoiceRole("targets targetmodules modules"),
            "weight_decay": NumberRole(DECAY, 1e-7, 10.0, log=True),
        },
        frozenset({"rank"}),
    ),
    "boosting": Family(
        {
            "shrinkage": NumberRole(f"{LR} shrinkage", 5e-3, 1.0, log=True),
            "trees": NumberRole(TREES, 5, 200, log=True),
            "leaves": NumberRole(LEAVES, 2, 64, log=True),
            "depth": NumberRole(DEPTH, 1, 12),
            "leaf_rows": NumberRole(LEAF_ROWS, 1, 100, log=True),
            "child_weight": NumberRole("minchildweight minsumhessianinleaf", 0.1, 30.0, log=True),
            "l2": NumberRole(L2, 1e-8, 100.0, log=True),
            "l1": NumberRole("regalpha alpha lambdal1 l1", 1e-8, 100.0, log=True),
            "split_gain": NumberRole(
                "gamma minsplitloss minsplitgain mingaintosplit", 1e-4, 10.0, log=True
            ),
            "columns": NumberRole(f"{COLUMNS} colsamplebylevel colsamplebynode", 0.05, 1.0),
            "rows": NumberRole(ROWS, 0.1, 1.0),
            "bins": NumberRole("maxbins maxbin bins bordercount", 8, 255, log=True),
            "random_strength": NumberRole("randomstrength", 1e-3, 10.0, log=True),
        },
        frozenset({"shrinkage"}),
    ),
    "forest": Family(
        {
            "trees": NumberRole(TREES, 5, 200, log=True),
            "leaves": NumberRole(LEAVES, 2, 64, log=True),
            "depth": NumberRole(DEPTH, 1, 20),
            "leaf_rows": NumberRole(LEAF_ROWS, 1, 100, log=True),
            "split_rows": NumberRole(SPLIT_ROWS, 2, 40, log=True),
            "columns": NumberRole(COLUMNS, 0.05, 1.0),
            "rows": NumberRole(ROWS, 0.1, 1.0),
            "criterion": ChoiceRole("criterion crit", ("entropy logloss",)),
            "bootstrap": ChoiceRole("bootstrap bagging boot"),
            "kind": ChoiceRole("kind model", ("forest rf", "extra et extratrees")),
        },
        frozenset({"trees", "leaf_rows", "split_rows", "columns"}),
    ),
    "tree": Family(
        {
            "pruning": NumberRole("ccpalpha cp", 1e-6, 0.3, log=True),
            "depth": NumberRole(DEPTH, 1, 30),
            "split_rows": NumberRole(SPLIT_ROWS, 2, 100, log=True),
            "leaf_rows": NumberRole(LEAF_ROWS, 1, 100, log=True),
            "columns": NumberRole(COLUMNS, 0.05, 1.0),
        },
        frozenset({"pruning"}),
    ),
    "kernel": Family(
        {
            "penalty": NumberRole("c cost regc", 1e-3, 1e3, log=True),
            "gamma": NumberRole("gamma g kernelgamma", 1e-5, 10.0, log=True),
            "degree": NumberRole("degree deg", 1, 5),
            "coef0": NumberRole("coef0", -1.0, 1.0),
            "epsilon": NumberRole("epsilon eps tube", 1e-4, 1.0, log=True),
            "kernel": ChoiceRole("kernel"),
            "scaler": SCALER,
        },
        frozenset({"gamma", "kernel"}),
    ),
    "linear": Family(
        {
            "alpha": NumberRole("alpha weightdecay l2 reg lambda lam strength", 1e-7, 10.0, True),
            "inverse_alpha": NumberRole("c cost inversereg", 1e-3, 1e3, log=True),
            "l1_ratio": NumberRole("l1ratio l1 mix", 0.0, 1.0),
            "lr": NumberRole(LR, 1e-5, 1.0, log=True),
            "power": NumberRole("power powert", 0.0, 1.0),
            "epochs": NumberRole(EPOCHS, 2, 1000, log=True),
            "knots": NumberRole("knots nknots", 3, 12),
            "degree": NumberRole("degree deg", 1, 5),
            "penalty": ChoiceRole("penalty regularizer"),
            "loss": ChoiceRole("loss lossfunction", ("logloss log logistic",)),
            "schedule": ChoiceRole("schedule learningrate lrschedule sched"),
            "average": ChoiceRole("average averaging"),
            "solver": ChoiceRole("solver"),
            "class_weight": ChoiceRole("classweight"),
            "products": ChoiceRole(
                "prep features expand", ("products poly2", "splines spline", "plain none")
            ),
            "scaler": SCALER,
        },
        frozenset({"l1_ratio", "penalty", "loss", "alpha", "inverse_alpha"}),
    ),
    "neighbours": Family(
        {
            "neighbours": NumberRole("nneighbors k neighbors neighbours", 1, 60, log=True),
            "power": NumberRole("p minkowskip power", 1, 4),
            "components": NumberRole("components ncomponents", 2, 50, log=True),
            "weights": ChoiceRole("weights weighting"),
            "metric": ChoiceRole("metric"),
            "reduce": ChoiceRole("reduce pca"),
            "whiten": ChoiceRole("whiten"),
            "scaler": SCALER,
        },
        frozenset({"neighbours"}),
    ),
}


@dataclass(frozen=True)
class Roles:
    """The family of a space, and the roles of its searched parameters."""

    family: str
    of: Mapping[str, str]  # role by parameter


def roles_of(space: Space, names: Names = MappingProxyType({})) -> Roles | None:
    """Return the roles of a space's parameters; None: it is of no family that we know.

    Args:
        space: the space.
        names: other names for parameters, by which their roles are found; None: it has no role.
    """
    named = {parameter: names.get(parameter, parameter) for parameter in space.searched}
    words_of = {parameter: _words(name) for parameter, name in named.items() if name}
    matches = [Roles(name, _matched(space, family, words_of)) for name, family in FAMILIES.items()]
    able = [match for match in matches if FAMILIES[match.family].needs & {*match.of.values()}]
    best = max(able, key=lambda match: len(match.of), default=None)
    if best is None or len(best.of) < max(MIN_ROLES, len(space.searched) / 2):
        return best if best and len(best.of) == len(space.searched) > 1 else None
    return best


def check(space: Space, names: Names) -> None:
    """Check that names are given to searched parameters, and that a role of them has such a name.

    Raises:
        SpaceError: one is not; the path is ("roles", PARAMETER).
    """
    for parameter, name in names.items():
        if parameter not in space.searched:
            kind = "a constant" if parameter in space else "no parameter of this space"
            raise SpaceError(
                ("roles", parameter), f"is {kind}; {nearest(parameter, space.searched)}"
            )
        if name is None:
            continue
        if not isinstance(name, str):
            raise SpaceError(("roles", parameter), f"is {name!r}; give a text, or None")
        sought = _words(name)
        called = [role for role in _all_roles() if not {*sought}.isdisjoint(role.names.split())]
        if not called:
            words = {word for role in _all_roles() for word in role.names.split()}
            raise SpaceError(("roles", parameter), f"{name} is no role; {nearest(name, words)}")
        if not any(_suits(space[parameter], role) for role in called):
            kind = "numbers" if isinstance(called[0], NumberRole) else "unordered choices"
            raise SpaceError(("roles", parameter), f"{name} is a role of {kind} only")


def _all_roles() -> list[Role]:
    return [role for family in FAMILIES.values() for role in family.roles.values()]


def _matched(space: Space, family: Family, words_of: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Return the role of each parameter that has one.

    The first parameter of a role gets it, and with it those that differ by a number alone, as
    those of layers do.
    """
    matched: dict[str, str] = {}
    stems: dict[str, str] = {}  # of the parameters that have a role, without numbers
    for parameter, words in words_of.items():
        role = family.role_of(words, space[parameter])
        stem = re.sub(r"\d+", "#", parameter)
        if role is not None and stems.setdefault(role, stem) == stem:
            matched[parameter] = role
    return matched


def _suits(domain: Domain, role: Role) -> bool:
    """Return whether a role can have the values: a role of numbers has numbers only."""
    if isinstance(role, NumberRole):
        return not isinstance(domain, Choice) or all(map(is_number, domain.values))
    return isinstance(domain, Choice) and not domain.ordered


def _words(parameter: str) -> list[str]:
    """Return the names by which a parameter's role is sought, the likeliest first.

    Of optimizer.lr, model__lr and train/lr it is lr, of min.node.size also nodesize and
    minnodesize; of max_dropout, dropout_1 and n_units_l2 also dropout, dropout and nunits.
    """
    parts = re.split(r"\.|__|/", parameter)
    tails = ["_".join(parts[-count:]) for count in range(1, len(parts) + 1)]
    bare = [re.sub(r"[-_](l|layer|block)?[-_]?\d+$", "", tail) for tail in tails]
    ours = [re.sub(PREFIX, "", tail) for tail in bare]
    return list(dict.fromkeys(map(_plain, (*tails, *bare, *ours))))


def _plain(name: str) -> str:
    return re.sub(r"[-_ ]", "", name).lower()
