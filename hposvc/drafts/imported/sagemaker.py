"""SageMaker's tuning jobs.

Source: the reference of Amazon SageMaker's API, "CreateHyperParameterTuningJob": the JSON that
`aws sagemaker create-hyper-parameter-tuning-job` takes, or its HyperParameterTuningJobConfig alone.
"""

import re
from collections.abc import Mapping
from typing import Any

from hposvc.drafts.imported.conversion import MEDIAN, Conversion, choice
from hposvc.errors import shown
from hposvc.spec.parsing.document import Document, read_value

CONFIG, DEFINITION = "HyperParameterTuningJobConfig", "TrainingJobDefinition"
OBJECTIVE = "HyperParameterTuningJobObjective"
SEARCH = {"bayesian": "gp", "random": "random", "grid": "grid", "hyperband": "random"}
KEYS = ("HyperParameterTuningJobName", CONFIG, DEFINITION, "Tags")
CONFIG_KEYS: tuple[str, ...] = (
    "Strategy",
    "StrategyConfig",
    OBJECTIVE,
    "ResourceLimits",
    "ParameterRanges",
    "TrainingJobEarlyStoppingType",
)
CONFIG_KEYS += ("TuningJobCompletionCriteria", "RandomSeed")
DEFINITION_KEYS = ("StaticHyperParameters", "AlgorithmSpecification", "Environment")
NUMBERS = {"IntegerParameterRanges": int, "ContinuousParameterRanges": float}
PROGRAM = "sagemaker_program"  # the script, among the static hyperparameters


def recognises(data: Mapping[str, object]) -> bool:
    """Return whether a document looks like a tuning job of SageMaker."""
    return isinstance(data.get(CONFIG, data), dict) and "ParameterRanges" in _config(data)


def _config(data: Mapping[str, object]) -> Mapping[str, object]:
    config = data.get(CONFIG, data)
    return config if isinstance(config, dict) else {}


def convert(document: Document) -> Conversion:
    """Return the tuning job in our words."""
    made = Conversion(document)
    path = (CONFIG,) if CONFIG in document.data else ()
    if path:
        made.lose_others(document.data, KEYS)
    config: Mapping[str, Any] = made.section(*path)
    made.lose_others(config, CONFIG_KEYS, *path)
    made.put_name(document.data.get("HyperParameterTuningJobName"))
    _put_metric(made, *path)
    _put_search(made, *path)
    made.spec["parameters"] = _parameters(made, *path)
    limits: Mapping[str, Any] = made.section(*path, "ResourceLimits")
    known = ("MaxNumberOfTrainingJobs", "MaxParallelTrainingJobs", "MaxRuntimeInSeconds")
    made.lose_others(limits, known, *path, "ResourceLimits")
    parallel = limits.get("MaxParallelTrainingJobs")
    made.put_trials(limits.get("MaxNumberOfTrainingJobs"), parallel, *path, "ResourceLimits")
    if seconds := limits.get("MaxRuntimeInSeconds"):
        made.spec["budget"] = {"wall": f"{seconds}s"}
    if "RandomSeed" in config:
        made.spec["seed"] = config["RandomSeed"]
    _put_definition(made)
    data: Mapping[str, Any] = document.data
    with made.reading("Tags"):
        for at, each in enumerate(data.get("Tags") or []):
            made.lose_others(each, ("Key", "Value"), "Tags", at)
        if tags := {each["Key"]: each["Value"] for each in data.get("Tags") or []}:
            made.spec["tags"] = tags
    return made


def _put_metric(made: Conversion, *path: str) -> None:
    objective = made.section(*path, OBJECTIVE)
    made.lose_others(objective, ("Type", "MetricName"), *path, OBJECTIVE)
    goal = str(objective.get("Type", "Minimize")).lower()
    made.put_metric(objective.get("MetricName"), goal, *path, OBJECTIVE)
    where = (*path, "TuningJobCompletionCriteria")
    criteria = made.section(*where)
    made.lose_others(criteria, ("TargetObjectiveMetricValue",), *where)
    metric = made.spec["metric"]
    if "TargetObjectiveMetricValue" in criteria and isinstance(metric, dict):
        metric["target"] = criteria["TargetObjectiveMetricValue"]


def _put_search(made: Conversion, *path: str) -> None:
    config: Mapping[str, Any] = made.section(*path)
    strategy = str(config.get("Strategy", "Bayesian"))
    made.spec["search"] = SEARCH.get(strategy.lower(), "auto")
    if strategy.lower() not in SEARCH:
        made.lose("no such strategy is known; search is auto", *path, "Strategy")
    where = (*path, "StrategyConfig")
    made.lose_others(made.section(*where), ("HyperbandStrategyConfig",), *where)
    where = (*where, "HyperbandStrategyConfig")
    steps = made.section(*where)
    made.lose_others(steps, ("MinResource", "MaxResource"), *where)
    if strategy.lower() == "hyperband":
        made.spec["fidelity"] = {
            "unit": "step",
            "min": steps.get("MinResource", 1),
            "max": steps.get("MaxResource", 100),
        }
        made.spec["scheduler"] = "hyperband"
        if "MaxResource" not in steps:
            made.lose("no MaxResource is given; fidelity.max is 100", *where)
        return
    if steps:
        made.lose("is for the strategy Hyperband; not carried over", *where)
    if config.get("TrainingJobEarlyStoppingType", "Off") != "Off":
        key = "TrainingJobEarlyStoppingType"
        made.lose(f"how long a trial is, is not known; {MEDIAN}", *path, key)


def _parameters(made: Conversion, *path: str) -> dict[str, object]:
    found: dict[str, object] = {}
    where = (*path, "ParameterRanges")
    ranges: Mapping[str, Any] = made.section(*where)
    known = (*NUMBERS, "CategoricalParameterRanges")
    made.lose_others(ranges, known, *where)
    for kind, given in ((kind, given) for kind, given in ranges.items() if kind in known):
        for at, each in enumerate(made.as_list(given, *where, kind)):
            here: tuple[str | int, ...] = (*where, kind, at)
            try:
                if kind == "CategoricalParameterRanges":
                    made.lose_others(each, ("Name", "Values"), *here)
                    found[str(each["Name"])] = choice([*map(str, each["Values"])])
                else:
                    range_keys = ("Name", "MinValue", "MaxValue", "ScalingType")
                    made.lose_others(each, range_keys, *here)
                    found[str(each["Name"])] = _range(made, each, kind, *here)
            except (KeyError, TypeError, ValueError, IndexError) as error:
                made.lose(f"no range could be read ({error}); write it in the spec", *here)
    static = made.section(DEFINITION, "StaticHyperParameters")
    for name, value in static.items():
        if not name.startswith("sagemaker_"):
            found[name] = read_value(value) if isinstance(value, str) else value
    return found


def _range(
    made: Conversion, given: Mapping[str, Any], kind: str, *path: str | int
) -> dict[str, object]:
    number = NUMBERS[kind]
    ends: dict[str, object] = {
        "min": number(given["MinValue"]),
        "max": number(given["MaxValue"]),
        "type": "int" if number is int else "float",
    }
    scale = given.get("ScalingType", "Auto")
    if scale == "Logarithmic":
        return {**ends, "log": True}
    if scale != "Linear":
        made.lose(f"{shown(scale)} becomes linear; write log: true for a logarithm", *path)
    return ends


def _put_definition(made: Conversion) -> None:
    definition: Mapping[str, Any] = made.section(DEFINITION)
    made.lose_others(definition, DEFINITION_KEYS, DEFINITION)
    static = made.section(DEFINITION, "StaticHyperParameters")
    program = str(static.get(PROGRAM, "")).strip("\"'")
    if not program:
        made.lose("no program is given; the command runs train.py", DEFINITION)
    made.spec["command"] = ["python", program or "train.py", "${args}"]
    if variables := made.section(DEFINITION, "Environment"):
        made.spec["environment"] = {"env": dict(variables)}
    where = (DEFINITION, "AlgorithmSpecification")
    algorithm: Mapping[str, Any] = made.section(*where)
    made.lose_others(algorithm, ("MetricDefinitions",), *where)
    with made.reading(*where, "MetricDefinitions"):
        _put_patterns(made, algorithm.get("MetricDefinitions") or [], *where, "MetricDefinitions")


def _put_patterns(made: Conversion, given: list[Any], *path: str) -> None:
    """Read the pattern for a printed metric: SageMaker's has a group, ours names it."""
    for at, each in enumerate(given):
        name, pattern = str(each["Name"]), each["Regex"]
        made.lose_others(each, ("Name", "Regex"), *path, at)
        if len(given) == 1 and name.isidentifier() and re.compile(pattern).groups == 1:
            named = re.sub(r"(?<!\\)\((?!\?)", f"(?P<{name}>", pattern, count=1)
            made.spec["collect"] = {"stdout": named}
        else:
            made.lose(
                "write it in collect.stdout, with the metric's name in its group: (?P<NAME>...)",
                *path,
                at,
            )
