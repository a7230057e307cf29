"""Determined experiment configurations: the keys that most of them have; the others are named.

Source: the documentation of Determined, "Experiment Configuration Reference".
"""

import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hposvc.drafts.imported.conversion import SpecConversion, choice, is_plain, read_choice
from hposvc.errors import shown
from hposvc.spec.parsing.document import Document

HALVING = ("adaptive_asha", "asha")
KEYS = (
    *("name", "description", "project", "searcher", "hyperparameters", "resources"),
    *("entrypoint", "environment", "max_restarts", "reproducibility"),
)
SEARCH_KEYS = (
    *("name", "metric", "smaller_is_better", "max_trials", "max_length", "max_time", "time_metric"),
    "max_concurrent_trials",
)
INNER_KEYS = {
    "resources": ("slots_per_trial",),
    "environment": ("environment_variables",),
    "reproducibility": ("experiment_seed",),
}
VALUE_KEYS = {"const": ("val",), "categorical": ("vals",), "log": ("minval", "maxval", "base")}
LAUNCHER = re.compile(
    r"\S*python\S*\s+-m\s+determined\.launch\.(torch_distributed|deepspeed)\s+(--\s+)?(?!-)"
)
SHELL = re.compile(r"[;&|<>$`()\n]|^\w+=")  # what a shell reads, and a list of words has not
PARALLEL, DIVISOR, RUNGS, RESTARTS = 16, 4, 5, 5  # Determined's defaults


def recognises(data: Mapping[str, object]) -> bool:
    """Return whether a document looks like a Determined experiment."""
    searcher = data.get("searcher")
    return isinstance(searcher, dict) and "metric" in searcher


def convert(document: Document) -> SpecConversion:
    """Return the experiment in our words."""
    made = SpecConversion(replace(document, data=_without_nulls(document.data)))
    data, searcher = made.document.data, made.section("searcher")
    kind = searcher.get("name")
    made.lose_others(data, KEYS)
    rungs = ("divisor", "max_rungs") if kind in HALVING else ()
    made.lose_others(searcher, (*SEARCH_KEYS, *rungs), "searcher")
    for name, known in INNER_KEYS.items():
        made.lose_others(made.section(name), known, name)
    made.put_name(data.get("name"))
    made.put_texts("project", "description")
    goal = "minimize" if searcher.get("smaller_is_better", True) else "maximize"
    made.put_metric(searcher.get("metric"), goal, "searcher", "metric")
    if kind not in ("single", "random", "grid", *HALVING):
        made.lose("no such searcher of Determined is known; random is written", "searcher", "name")
    made.spec["search"] = "grid" if kind == "grid" else "random"
    domains: dict[str, object] = {}
    with made.reading("hyperparameters"):
        _read_domains(made, made.section("hyperparameters"), domains, "", "hyperparameters")
    made.spec["parameters"] = domains
    with made.reading("searcher"):
        _put_trials(made, searcher, domains)
        _put_length(made, searcher)
    with made.reading("entrypoint"):
        _put_program(made, data.get("entrypoint", "python train.py"))
    _put_resources(made)
    made.spec["failure"] = {"user_retries": data.get("max_restarts", RESTARTS)}
    if (seed := made.section("reproducibility").get("experiment_seed")) is not None:
        made.spec["seed"] = seed
    return made


def _without_nulls(data: Mapping[str, object]) -> dict[str, object]:
    """Return a document without its nulls, which mean that Determined takes its default."""
    return {
        key: _without_nulls(value)
        if isinstance(value, dict) and key != "hyperparameters"
        else value
        for key, value in data.items()
        if value is not None
    }


def _read_domains(
    made: SpecConversion,
    given: Mapping[str, object],
    found: dict[str, object],
    prefix: str,
    *path: str,
) -> None:
    for name, domain in given.items():
        here, full = (*path, name), f"{prefix}{name}"
        if not isinstance(domain, dict):
            if is_plain(domain):
                found[full] = choice([domain])
            else:
                made.lose("a constant can't hold a mapping; set it in your code", *here)
        elif isinstance(domain.get("type", {}), dict) and not domain.keys() & {"minval", "vals"}:
            made.lose_nesting(full, *here)
            _read_domains(made, domain, found, f"{full}.", *here)
        else:
            try:
                found.update(_domain(made, full, domain, *here))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                made.lose(f"no range could be read ({error}); write it in the spec", *here)


def _domain(
    made: SpecConversion, name: str, given: Mapping[str, Any], *path: str
) -> Mapping[str, object]:
    """Return a parameter with its domain; nothing if it can't be carried over."""
    kind, grid = given["type"], made.spec["search"] == "grid"
    given = {key: value for key, value in given.items() if value is not None or key == "val"}
    known = VALUE_KEYS.get(kind, ("minval", "maxval"))
    made.lose_others(given, ("type", *known, *(("count",) if grid else ())), *path)
    if kind == "const":
        return read_choice(made, name, [given["val"]], *path, "val")
    if kind == "categorical":
        return read_choice(made, name, given["vals"], *path, "vals")
    if kind not in ("int", "double", "log"):
        raise ValueError(f"no such type: {kind}")
    low, high, base = given["minval"], given["maxval"], given.get("base", 10)
    if grid and "count" in given:
        last = (min(given["count"], 1 + high - low) if kind == "int" else given["count"]) - 1
        steps = [at / last for at in range(last + 1)] if last else [0.5]
        points = [low + (high - low) * step for step in steps]
        if kind == "int":
            return {name: choice([round(point) for point in points])}
        return {name: choice([base**point if kind == "log" else point for point in points])}
    if kind == "int":
        return {name: {"min": int(low), "max": int(high), "type": "int"}}
    if kind == "log":
        return {name: {"min": float(base**low), "max": float(base**high), "log": True}}
    return {name: {"min": float(low), "max": float(high)}}


def _put_trials(
    made: SpecConversion, searcher: Mapping[str, Any], domains: Mapping[str, object]
) -> None:
    limit, parallel = searcher.get("max_trials"), searcher.get("max_concurrent_trials", PARALLEL)
    if searcher.get("name") == "single":
        limit, parallel = 1, None
    choices = [domain for domain in domains.values() if isinstance(domain, dict)]
    if searcher.get("name") == "grid" and all("values" in domain for domain in choices):
        limit = math.prod(len(domain["values"]) for domain in choices)
    made.put_trials(limit, parallel, "searcher", "max_trials")


def _put_length(made: SpecConversion, searcher: Mapping[str, Any]) -> None:
    length, unit = searcher.get("max_length"), "batches"
    if isinstance(length, dict) and len(length) == 1:
        ((unit, length),) = length.items()
    if length is None:
        length, unit = searcher.get("max_time"), searcher.get("time_metric", "batches")
    early = searcher.get("name") in HALVING
    if not isinstance(length, int):
        if length is not None or early:
            made.lose(f"{shown(length)} is no length; write fidelity, and scheduler", "searcher")
        return
    made.spec["fidelity"] = {"unit": str(unit), "max": length}
    if early:
        eta, rungs = searcher.get("divisor", DIVISOR), searcher.get("max_rungs", RUNGS)
        first = max(1, math.ceil(length / eta ** (rungs - 1)))
        made.spec["fidelity"] = {"unit": str(unit), "min": first, "max": length}
        made.spec["scheduler"] = {"type": "asha", "eta": int(eta)}


def _put_program(made: SpecConversion, entry: object) -> None:
    given = shlex.join(map(str, entry)) if isinstance(entry, list) else str(entry).strip()
    text = LAUNCHER.sub("", given)
    if re.fullmatch(r"[\w./-]+:\w+", text):
        made.spec["trainable"] = text
        made.lose("a trial class is no trainable; see hposvc docs your-code", "entrypoint")
        return
    if text != given:
        made.lose("the launcher is left out; hposvc starts each rank itself", "entrypoint")
    if "determined.launch" in text:
        made.lose("the launcher does not run here; take it out, and see launch", "entrypoint")
    if isinstance(entry, list) or not SHELL.search(text):
        made.spec["command"] = [*shlex.split(text), "${args}"]
    else:
        made.spec["command"] = ["sh", "-c", f"{text.replace('${', '$${')} ${{args}}"]
    made.lose(
        "parameters come as arguments where ${args} is; read --NAME=VALUE there. A program that"
        " starts its ranks itself, such as torchrun, needs launch: node",
        "entrypoint",
    )


def _put_resources(made: SpecConversion) -> None:
    slots = made.section("resources").get("slots_per_trial")
    if isinstance(slots, int) and slots > 0:
        made.spec["resources"] = {"workers": slots, "gpus_per_worker": 1}
    given = made.section("environment").get("environment_variables")
    if isinstance(given, list):
        pairs = [str(text).partition("=") for text in given]
        made.spec["environment"] = {"env": {name: value for name, _, value in pairs}}
    elif given:
        made.lose("write the variables in environment.env", "environment", "environment_variables")
