"""NNI experiments.

Source: the documentation of NNI 3, "Experiment Config Reference" and "Search Space".
"""

import math
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hposvc.drafts.imported.conversion import (
    MEDIAN,
    Conversion,
    choice,
    drawn_normally,
    is_plain,
    read_choice,
    stepped,
)
from hposvc.errors import shown
from hposvc.spec.parsing.document import Document, read_file
from searchers.distributions import ends_of

SEARCH = {"random": "random", "gridsearch": "grid", "tpe": "tpe", "gp": "gp", "smac": "gp"}
SEARCH |= {"bohb": "tpe", "hyperband": "random"}
GOALS = ("minimize", "maximize")
MINIMIZING = ("tpe", "anneal")  # NNI 3.0; its other tuners maximize unless they are told
ASSESSORS = ("medianstop",)
KEYS: tuple[str, ...] = (
    "experimentName",
    "searchSpace",
    "searchSpaceFile",
    "trialCommand",
    "trialConcurrency",
    "trialGpuNumber",
    "maxTrialNumber",
)
KEYS += ("maxExperimentDuration", "maxTrialDuration", "tuner", "advisor", "assessor")
OF_TYPE = {"uniform": 2, "quniform": 3, "loguniform": 2, "qloguniform": 3, "randint": 2}
OF_TYPE |= {"normal": 2, "qnormal": 3, "lognormal": 2, "qlognormal": 3}  # how many numbers


def recognises(data: Mapping[str, object]) -> bool:
    """Return whether a document looks like an experiment of NNI."""
    return "trialCommand" in data and ("searchSpace" in data or "searchSpaceFile" in data)


def is_search_space(data: Mapping[str, object]) -> bool:
    """Return whether a document is a search space without its experiment."""
    return bool(data) and all(isinstance(each, dict) and "_type" in each for each in data.values())


def convert(document: Document) -> Conversion:
    """Return the experiment in our words."""
    made = Conversion(document)
    data: Mapping[str, Any] = document.data
    made.lose_others(data, KEYS)
    made.put_name(data.get("experimentName"))
    _put_tuner(made)
    _put_space(made)
    made.put_trials(data.get("maxTrialNumber"), data.get("trialConcurrency"), "maxTrialNumber")
    if duration := data.get("maxExperimentDuration"):
        made.spec["budget"] = {"wall": _duration(duration)}
    if duration := data.get("maxTrialDuration"):
        made.spec["failure"] = {"timeout": _duration(duration)}
    gpus = data.get("trialGpuNumber")
    if isinstance(gpus, int) and gpus > 0:
        made.spec["resources"] = {"gpus_per_worker": gpus}
    with made.reading("trialCommand"):
        made.spec["command"] = [*shlex.split(str(data.get("trialCommand"))), "${args}"]
    made.lose(
        "nni does not reach hposvc: for nni.get_next_parameter read --NAME=VALUE, and for its"
        " reports call hposvc.report",
        "trialCommand",
    )
    return made


def _duration(value: object) -> object:
    """Return a duration in our words: NNI takes capital letters, too."""
    return value.lower() if isinstance(value, str) else value


def _put_tuner(made: Conversion) -> None:
    where = "advisor" if "advisor" in made.document.data else "tuner"
    tuner, given = made.section(where), made.section(where, "classArgs")
    name = str(tuner.get("name", tuner.get("className", "tpe")))
    made.spec["search"] = SEARCH.get(name.lower(), "auto")
    if name.lower() not in SEARCH:
        made.lose(f"{name} has no counterpart; search is auto", where)
    if name.lower() in ("bohb", "hyperband"):
        wanted = f"fidelity: {{max: STEPS}} and scheduler: {name.lower()}"
        made.lose(f"how long a trial is, is not known; write {wanted}", where)
    made.lose_others(tuner, ("name", "classArgs"), where)
    made.lose_others(given, ("optimize_mode", "seed"), where, "classArgs")
    if "seed" in given:
        made.spec["seed"] = given["seed"]
    made.lose("nothing names the metric; metric.name is loss, write the one you report", where)
    goal = given.get("optimize_mode")
    if goal not in GOALS:
        goal = "minimize" if name.lower() in MINIMIZING else "maximize"
        made.lose(f"no optimize_mode is given; metric.goal is {goal}, as NNI has it", where)
    made.spec["metric"] = {"name": "loss", "goal": goal}
    assessor = made.section("assessor")
    name = str(assessor.get("name", ""))
    if name.lower() in ASSESSORS:
        made.lose(f"how long a trial is, is not known; {MEDIAN}", "assessor")
        made.lose_others(assessor, ("name",), "assessor")
    elif assessor:
        made.lose("is not carried over; choose a scheduler in docs/schedulers.md", "assessor")


def _put_space(made: Conversion) -> None:
    file = made.document.data.get("searchSpaceFile")
    path = ("searchSpace",) if "searchSpace" in made.document.data or not file else ()
    space = made
    if not path:
        space = Conversion(read_file(Path(made.document.name).parent / f"{file}"))
    found: dict[str, object] = {}
    with space.reading(*path):
        _read_ranges(space, space.section(*path), found, "", *path)
    made.spec["parameters"] = found
    if space is not made:
        made.lost += space.lost


def _read_ranges(
    made: Conversion,
    given: Mapping[str, Any],
    found: dict[str, object],
    prefix: str,
    *path: str | int,
) -> None:
    for name, domain in given.items():
        here = (*path, name)
        try:
            kind, values = domain["_type"], domain["_value"]
            made.lose_others(domain, ("_type", "_value"), *here)
            if kind == "choice":
                _read_choice(made, f"{prefix}{name}", values, found, *here)
            elif (numbers := OF_TYPE.get(kind)) is None:
                made.lose(f"no such _type: {shown(kind)}; write the range in the spec", *here)
            elif not isinstance(values, list) or len(values) != numbers:
                made.lose(f"{kind} has {numbers} numbers; write the range in the spec", *here)
            else:
                found[f"{prefix}{name}"] = _range(made, kind, values, *here)
        except (KeyError, TypeError, ValueError, OverflowError, ZeroDivisionError) as error:
            made.lose(f"no range could be read ({error}); write it in the spec", *here)


def _read_choice(
    made: Conversion, name: str, values: Any, found: dict[str, object], *path: str | int
) -> None:
    """Read a choice; one among nested spaces becomes their names, and parameters beneath them."""
    if isinstance(values, list) and values and all(_is_space(value) for value in values):
        chosen = f"{name}._name"
        found[chosen] = choice([value["_name"] for value in values])
        made.lose_nesting(name, *path)
        for at, value in enumerate(values):
            inner: dict[str, object] = {}
            space = {key: each for key, each in value.items() if key != "_name"}
            _read_ranges(made, space, inner, f"{name}.", *path, "_value", at)
            for key, domain in inner.items():
                if key in found or not isinstance(domain, dict):
                    made.lose(f"{key} is in several branches; give each a name", *path)
                    continue
                found[key] = {**domain, "when": {chosen: value["_name"]}}
    else:
        found |= read_choice(made, name, values, *path, "_value")


def _is_space(value: object) -> bool:
    return isinstance(value, dict) and is_plain(value.get("_name", {})) and len(value) > 0


def _range(made: Conversion, kind: str, values: list[Any], *path: str | int) -> object:
    low, high = values[:2]
    if kind == "randint":
        return {"min": int(low), "max": int(high) - 1, "type": "int"}  # NNI excludes the upper end
    log, is_normal = "log" in kind, kind.endswith("normal")
    if is_normal:
        low, high = ends_of(low, high)
        low, high = (math.exp(low), math.exp(high)) if log else (low, high)
    if kind.startswith("q") and log:
        made.lose("a logarithmic range is not rounded to q; round in your code", *path)
    ends: dict[str, object] = {"min": float(low), "max": float(high)}
    if kind.startswith("q") and not log:
        ends = stepped(low, high, values[2])
    elif log:
        ends["log"] = True
    if not is_normal:
        return ends
    mu, sigma = values[:2]
    return drawn_normally(made, ends, kind, math.exp(mu) if log else mu, sigma, *path)
