"""Katib Experiments.

Source: the documentation of Kubeflow Katib, "Configuring the Experiment".
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hposvc.drafts.imported.conversion import Conversion, choice
from hposvc.spec.parsing.document import Document, read_value

SEARCH = {"random": "random", "grid": "grid", "bayesianoptimization": "gp", "tpe": "tpe"}
SEARCH |= {"multivariate-tpe": "tpe", "cmaes": "cmaes", "sobol": "sobol"}
KEYS: tuple[str, ...] = (
    "objective",
    "algorithm",
    "parameters",
    "parallelTrialCount",
    "maxTrialCount",
)
KEYS += ("trialTemplate",)
PARALLEL = 3  # Katib's default
# Katib's collector finds `name=value` in what a container prints.
COLLECTED = r"(?P<name>[\w|-]+)\s*=\s*(?P<value>[+-]?\d+(\.\d+)?([Ee][+-]?\d+)?)"


def recognises(data: Mapping[str, object]) -> bool:
    """Return whether a document looks like a Katib Experiment."""
    return data.get("kind") == "Experiment" and "kubeflow.org" in str(data.get("apiVersion"))


def convert(document: Document) -> Conversion:
    """Return the experiment in our words."""
    made = Conversion(document)
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
    known = ("type", "goal", "objectiveMetricName", "additionalMetricNames")
    made.lose_others(objective, known, *where)  # every metric is recorded, the additional ones too
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


def _domains(made: Conversion, parameters: list[Any]) -> Iterator[tuple[str, object]]:
    for at, given in enumerate(parameters):
        path = ("spec", "parameters", at)
        try:
            made.lose_others(given, ("name", "parameterType", "feasibleSpace"), *path)
            known = ("min", "max", "list", "step", "distribution")
            made.lose_others(given["feasibleSpace"], known, *path, "feasibleSpace")
            yield f"{given['name']}", _domain(made, given, at)
        except (KeyError, TypeError, ValueError) as error:
            made.lose(f"no range could be read ({error}); write it", *path)


def _domain(made: Conversion, given: Mapping[str, Any], at: int) -> object:
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
    if shape in ("normal", "logNormal"):
        message = "all values of the range are equally likely in hposvc"
        made.lose(message, "spec", "parameters", at, "feasibleSpace", "distribution")
    return {**made_range, "type": "int" if kind == "int" else "float"}


def _put_command(made: Conversion) -> None:
    template = made.section("spec", "trialTemplate")
    known = ("primaryContainerName", "trialParameters", "trialSpec")
    made.lose_others(template, known, "spec", "trialTemplate")
    where = ("spec", "trialTemplate", "trialParameters")
    given = made.as_list(template.get("trialParameters"), *where)
    for at, each in enumerate(given):
        made.lose_others(each, ("name", "reference", "description"), *where, at)
    names = {each["name"]: each["reference"] for each in given}
    pod = ("spec", "trialTemplate", "trialSpec", "spec", "template", "spec")
    containers = made.as_list(made.section(*pod).get("containers"), *pod, "containers")
    primary = template.get("primaryContainerName")
    container = next((each for each in containers if each.get("name") == primary), None)
    if container is None:
        made.lose("no primary container; the command runs train.py", "spec", "trialTemplate")
        made.spec["command"] = ["python", "train.py", "${args}"]
    else:
        here = (*pod, "containers", containers.index(container))
        words = [
            word
            for key in ("command", "args")
            for word in made.as_list(container.get(key), *here, key)
        ]
        made.spec["command"] = [
            re.sub(
                r"\$\{trialParameters\.([^}]+)\}",
                lambda found: f"${{{names.get(found[1], found[1])}}}",
                word,
            )
            for word in map(str, words)
        ]
        made.lose(
            "of the container only its command and args are carried over; write what it needs of"
            " image, env and resources in environment and resources",
            *pod,
        )
    made.spec["collect"] = {"stdout": COLLECTED}
