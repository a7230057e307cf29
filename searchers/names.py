"""Names of parameters, methods and options: their syntax, and hints for misspelled ones."""

import difflib
import operator
import re
from collections.abc import Iterable

MAX_LENGTH = 250  # MLflow, which stores every parameter, takes no longer names
_WORD = r"[A-Za-z_]\w*(-\w+)*"
_NAME = re.compile(rf"{_WORD}(\.{_WORD})*", re.ASCII)

# Other tools' words, in small letters without _ and -, and their names here.
OUR_NAMES = {
    **dict.fromkeys(("bayes", "bayesian", "bayesopt", "gaussianprocess", "bo", "botorch"), "gp"),
    **dict.fromkeys(("optuna", "optunasearch", "hyperopt", "hyperoptsearch"), "tpe"),
    **dict.fromkeys(("basicvariant", "randomsearch"), "random"),
    **dict.fromkeys(("ashascheduler", "asynchyperband", "asynchyperbandscheduler"), "asha"),
    **dict.fromkeys(("successivehalving", "sha"), "asha"),
    "gridsearch": "grid",
    "hyperbandscheduler": "hyperband",
    "hyperbandforbohb": "bohb",
    "populationbasedtraining": "pbt",
    "medianstoppingrule": "median",
    "fifoscheduler": "fifo",
    **dict.fromkeys(("numsamples", "ntrials", "maxtrials", "runcap"), "trials.max"),
    **dict.fromkeys(("maxconcurrent", "maxconcurrenttrials", "njobs"), "trials.parallel"),
    **dict.fromkeys(("graceperiod", "miniter", "minresource"), "fidelity.min"),
    **dict.fromkeys(("maxt", "maxiter", "maxresource", "epochs", "maxepochs"), "fidelity.max"),
    "timeattr": "fidelity.unit",
    "reductionfactor": "scheduler.eta",
    "timebudgets": "budget.wall",
    "objective": "metric",
    **dict.fromkeys(("direction", "mode"), "metric.goal"),
    "distribution": "log",
    **dict.fromkeys(("min", "minimise"), "minimize"),
    **dict.fromkeys(("max", "maximise"), "maximize"),
}


def is_name(text: object) -> bool:
    """Return whether `text` is a word of letters, digits, _ and -, or several joined by dots."""
    return isinstance(text, str) and len(text) <= MAX_LENGTH and _NAME.fullmatch(text) is not None


def as_identifier(name: str) -> str:
    """Return a name as constraints write it: `batch_size` for `batch-size`, as - is a minus."""
    return name.replace("-", "_")


def our_name(word: str) -> str:
    """Return the name here for another tool's word (a dotted key or a value); empty: none."""
    return OUR_NAMES.get(re.sub(r"[_\W]", "", word).lower(), "")


def closest(wrong: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """Return the known name that is spelled most alike; empty: none is alike.

    Of three, one with another letter alone comes first: `rum` is `run`, rather than `rm`.

    Args:
        likeness: from which two names are alike, up to 1 for equal ones; difflib's ratio.
    """
    matches = difflib.get_close_matches(wrong[:MAX_LENGTH], sorted(known), 3, likeness)
    alike = (name for name in matches if len(name) == len(wrong))
    one_off = (name for name in alike if sum(map(operator.ne, name, wrong)) == 1)
    return next(one_off, next(iter(matches), ""))


def nearest(wrong: str, known: Iterable[str]) -> str:
    """Return a hint for an error message: the name that was probably meant, or all names."""
    names = sorted(known)
    translated = our_name(wrong)
    match = next(
        (name for name in (translated, translated.rpartition(".")[2]) if name in names), None
    )
    if match is not None:
        return f"did you mean {match!r}?"
    if "." in translated:
        return f"here that is {translated}"
    if close := closest(wrong, names):
        return f"did you mean {close!r}?"
    if not names:
        return "there are none here"
    ellipsis = ", ..." if len(names) > 12 else ""
    return f"known: {', '.join(names[:12])}{ellipsis}"
