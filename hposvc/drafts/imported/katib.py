"""Katib Experiments.

Source: the documentation of Kubeflow Katib, "Configuring the Experiment".
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hposvc.drafts.imported.conversion import SpecConversion, choice, drawn_normally
from hposvc.errors import Problem, SpecError, shown
from hposvc.spec.parsing.document import Document, read_value
from searchers import SIGMAS, nearest

SEARCH = {"random": "random", "grid": "grid", "bayesianoptimization": "gp", "tpe": "tpe"}
SEARCH |= {"multivariate-tpe": "tpe", "cmaes": "cmaes", "sobol": "sobol"}
KEYS = (
    *("objective", "algorithm", "parameters", "parallelTrialCount", "maxTrialCount"),
    "trialTemplate",
)
TEMPLATE = ("spec", "trialTemplate")
TRIAL: tuple[str, ...] = (*TEMPLATE, "trialSpec")
REFERENCE = re.compile(r"\$\{trialParameters\.([^}]+)\}")
PARALLEL = 3  # Katib's default
# Katib's collector finds `name=value` in what a container prints.
COLLECTED = r"(?P<name>[\w|-]+)\s*=\s*(?P<value>[+-]?\d+(\.\d+)?([Ee][+-]?\d+)?)"

Words = list[tuple[str, tuple[str | int, ...]]]  # of a command, each with its place


def recognises(data: Mapping[str, object]) -> bool:
    """Return whether a document looks like a Katib Experiment."""
    kinds = ("Experiment", "OptimizationJob")
    return data.get("kind") in kinds and "kubeflow.org" in str(data.get("apiVersion"))


def convert(document: Document) -> SpecConversion:
    """Return the experiment in our words.

    Raises:
        SpecError: the document is an OptimizationJob, whose keys no release has yet, or its
            trials are given what is no parameter.
    """
    if document.data.get("kind") == "OptimizationJob":
        # kubeflow 0.5.0 makes Experiments, and kubeflow-trainer-api 2.3.0 has no model of it.
        message = "no release of Kubeflow's SDK defines this yet; import the Katib Experiment"
        problem = Problem(("kind",), f"{message} that its OptimizerClient makes", at_key=True)
        raise SpecError([document.locate(problem)])
    made = SpecConversion(document)
    spec: Mapping[str, Any] = made.section("spec")
    made.lose_others(document.data, ("apiVersion", "kind", "metadata", "spec"))
    made.lose_others(spec, KEYS, "spec")
    metadata = made.section("metadata")
    made.lose_others(metadata, ("name",), "metadata")
    made.put_name(metadata.get("name"))
    objective = made.section("spec", "objective")
    where = ("spec", "objective")
    made.put_metric(
        objective.get("objectiveMetricName"), str(objective.get("type", "minimize")), *where
    )
    metric = made.spec["metric"]
    if "goal" in objective and isinstance(metric, dict):
        metric["target"] = objective["goal"]
    read_keys = ("type", "goal", "objectiveMetricName", "additionalMetricNames")
    # Every metric is recorded, the additional ones too.
    made.lose_others(objective, read_keys, *where)
    algorithm = made.section("spec", "algorithm")
    name = str(algorithm.get("algorithmName"))
    made.spec["search"] = SEARCH.get(name, "auto")
    if name not in SEARCH:
        made.lose(f"{name} has no counterpart; search is auto", "spec", "algorithm")
    made.lose_others(algorithm, ("algorithmName",), "spec", "algorithm")
    with made.reading("spec", "parameters"):
        made.spec["parameters"] = dict(_domains(made, spec.get("parameters") or []))
    parallel = spec.get("parallelTrialCount", PARALLEL)
    made.put_trials(spec.get("maxTrialCount"), parallel, "spec", "maxTrialCount")
    with made.reading("spec", "trialTemplate"):
        _put_command(made)
    return made


def _domains(made: SpecConversion, parameters: list[Any]) -> Iterator[tuple[str, object]]:
    for at, given in enumerate(parameters):
        path = ("spec", "parameters", at)
        try:
            made.lose_others(given, ("name", "parameterType", "feasibleSpace"), *path)
            read_keys = ("min", "max", "list", "step", "distribution")
            made.lose_others(given["feasibleSpace"], read_keys, *path, "feasibleSpace")
            yield f"{given['name']}", _domain(made, given, at)
        except (KeyError, TypeError, ValueError) as error:
            made.lose(f"no range could be read ({error}); write it", *path)


def _domain(made: SpecConversion, given: Mapping[str, Any], at: int) -> object:
    kind, space = given["parameterType"], given["feasibleSpace"]
    if kind == "categorical":
        return choice([*map(str, space["list"])])
    if kind == "discrete":
        return choice([read_value(str(value)) for value in space["list"]])
    if kind not in ("int", "double"):
        raise ValueError(f"no such parameterType: {kind}")
    number = int if kind == "int" else float
    made_range: dict[str, object] = {"min": number(space["min"]), "max": number(space["max"])}
    if space.get("step"):
        made_range["step"] = number(space["step"])
    shape = space.get("distribution", "uniform")
    if shape in ("logUniform", "logNormal"):
        made_range["log"] = True
    made_range["type"] = "int" if kind == "int" else "float"
    if shape not in ("normal", "logNormal"):
        return made_range
    # As Katib's own service of Hyperopt has it: the range is three sigmas to both sides.
    low, high = float(space["min"]), float(space["max"])
    log = shape == "logNormal"
    if log and not 0 < low < high:
        raise ValueError(f"logNormal from {low:g} to {high:g}; min is above 0 and below max")
    mean = math.sqrt(low * high) if log else (low + high) / 2
    width = math.log(high / low) if log else high - low
    path = ("spec", "parameters", at, "feasibleSpace", "distribution")
    return drawn_normally(made, made_range, shape, mean, width / (2 * SIGMAS), *path)


def _put_command(made: SpecConversion) -> None:
    template = made.section(*TEMPLATE)
    read_keys = ("primaryContainerName", "trialParameters", "trialSpec")
    made.lose_others(template, read_keys, *TEMPLATE)
    references = _references(made)
    is_job = made.section(*TRIAL).get("kind") != "TrainJob"
    words = _container_words(made) if is_job else _trainer_words(made)
    made.spec["command"] = [_with_our_names(made, word, references, path) for word, path in words]
    if not words:
        made.lose("no command of a container is found; it runs train.py", *TEMPLATE)
        made.spec["command"] = ["python", "train.py", "${args}"]
    made.spec["collect"] = {"stdout": COLLECTED}


def _references(made: SpecConversion) -> dict[str, str]:
    """Return the parameter that each name in the template stands for."""
    where = (*TEMPLATE, "trialParameters")
    parameters = made.spec["parameters"]
    assert isinstance(parameters, dict)
    references = {}
    for at, each in enumerate(made.as_list(made.section(*TEMPLATE).get(where[-1]), *where)):
        made.lose_others(each, ("name", "reference", "description"), *where, at)
        name, parameter = str(each["name"]), str(each["reference"])
        if parameter not in parameters:
            message = f"{shown(parameter)} is no parameter that is carried over"
            made.lose(f"{message}; {nearest(parameter, parameters)}", *where, at, "reference")
        references[name] = parameter
    return references


def _trainer_words(made: SpecConversion) -> Words:
    """Return the command of a TrainJob, which Kubeflow's OptimizerClient writes."""
    made.lose_others(made.section(*TRIAL), ("apiVersion", "kind", "spec"), *TRIAL)
    where = (*TRIAL, "spec")
    made.lose_others(made.section(*where), ("trainer",), *where)
    where = (*where, "trainer")
    made.lose_others(made.section(*where), ("command", "args"), *where)
    return _words(made, made.section(*where), *where)


def _container_words(made: SpecConversion) -> Words:
    """Return the command of the primary container of a Job."""
    made.lose_others(made.section(*TRIAL), ("apiVersion", "kind", "spec"), *TRIAL)
    pod = TRIAL
    for key, within in (("spec", "template"), ("template", "spec"), ("spec", "containers")):
        pod = (*pod, key)
        made.lose_others(made.section(*pod), (within,), *pod)
    words: Words = []
    primary = made.section(*TEMPLATE).get("primaryContainerName")
    where = (*pod, "containers")
    for at, container in enumerate(made.as_list(made.section(*pod).get("containers"), *where)):
        if container.get("name") != primary:
            made.lose("only the primary container is carried over", *where, at)
        else:
            words = _words(made, container, *where, at)
            made.lose_others(container, ("name", "command", "args"), *where, at)
    made.lose(
        "of the container only its command and args are carried over; write what it needs of"
        " image, env and resources in environment and resources",
        *pod,
    )
    return words


def _words(made: SpecConversion, container: Mapping[str, object], *path: str | int) -> Words:
    """Return each word of a command and its args, with its place."""
    return [
        (str(word), (*path, key, at))
        for key in ("command", "args")
        for at, word in enumerate(made.as_list(container.get(key), *path, key))
    ]


def _with_our_names(
    made: SpecConversion, word: str, references: Mapping[str, str], path: tuple[str | int, ...]
) -> str:
    """Return a word of the command with `${PARAMETER}` for `${trialParameters.NAME}`.

    Raises:
        SpecError: there is no such name, or it stands for no parameter.
    """
    parameters = made.spec["parameters"]
    assert isinstance(parameters, dict)
    for name in REFERENCE.findall(word):
        if references.get(name) not in parameters:
            declared = [each for each, parameter in references.items() if parameter in parameters]
            message = f"trialParameters has no {shown(name)} for a parameter"
            problem = Problem(path, message, nearest(name, declared))
            raise SpecError([made.document.locate(problem), *made.lost])
    return REFERENCE.sub(lambda found: f"${{{references[found[1]]}}}", word)
