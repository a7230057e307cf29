"""Determined experiment configurations.

Source: the documentation of Determined, "Experiment Configuration Reference".
"""

import difflib
import math
import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hposvc.drafts.imported.conversion import SpecConversion, choice, is_plain, read_choice
from hposvc.drafts.imported.launchers import Started, without_launcher, without_launcher_in_shell
from hposvc.errors import shown
from hposvc.spec.parsing.document import Document

SEARCHERS = ("single", "random", "grid", "adaptive_asha", "asha", "async_halving")
HALVING = ("adaptive_asha", "asha", "async_halving")
KEYS = (
    *("name", "description", "project", "searcher", "hyperparameters", "resources"),
    *("entrypoint", "environment", "max_restarts", "reproducibility"),
)
SEARCH_KEYS = (
    *("name", "metric", "smaller_is_better", "max_trials", "max_length", "max_time", "time_metric"),
    *("max_concurrent_trials", "divisor", "max_rungs", "mode", "num_rungs", "stop_once"),
)
SHELL = re.compile(r"[;&|<>$`()\n]|^\w+=")  # what a shell reads, and a list of words has not
RANGE_KEYS = ("minval", "maxval", "count")
DOMAIN_KEYS = {"const": ("val",), "categorical": ("vals",), "log": (*RANGE_KEYS, "base")}
TYPES = (*DOMAIN_KEYS, "int", "double")
PARALLEL, DIVISOR, RUNGS, RESTARTS = 16, 4, 5, 5  # Determined's defaults


def recognises(data: Mapping[str, object]) -> bool:
    """Return whether a document looks like a Determined experiment."""
    searcher = data.get("searcher")
    return isinstance(searcher, dict) and "metric" in searcher


def convert(document: Document) -> SpecConversion:
    """Return the experiment in our words."""
    document = replace(document, data=_without_nulls(document.data))
    made = SpecConversion(document)
    data, searcher = document.data, made.section("searcher")
    made.lose_others(data, KEYS)
    made.lose_others(searcher, SEARCH_KEYS, "searcher")
    made.put_name(data.get("name"))
    made.put_texts("project", "description")
    goal = "minimize" if searcher.get("smaller_is_better", True) else "maximize"
    made.put_metric(searcher.get("metric"), goal, "searcher", "metric")
    kind = searcher.get("name")
    if kind not in SEARCHERS:
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
        _put_program(made)
    made.spec["failure"] = {"user_retries": data.get("max_restarts", RESTARTS)}
    made.lose_others(made.section("reproducibility"), ("experiment_seed",), "reproducibility")
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
        here = (*path, name)
        if not isinstance(domain, dict):
            if is_plain(domain):
                found[f"{prefix}{name}"] = choice([domain])
            else:
                made.lose("a constant can't hold a mapping; set it in your code", *here)
        elif (wrong := _misspelt_type(domain)) is not None:
            made.lose("is not carried over; did you mean 'type'?", *here, wrong)
        elif "type" not in domain and domain.keys() >= {"minval", "maxval"}:
            made.lose("has no type; write type: int, double or log", *here)
        elif "type" not in domain or isinstance(domain["type"], dict):
            made.lose_nesting(f"{prefix}{name}", *here)
            _read_domains(made, domain, found, f"{prefix}{name}.", *here)
        else:
            try:
                found.update(_domain(made, f"{prefix}{name}", domain, *here))
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                made.lose(f"no range could be read ({error}); write it in the spec", *here)


def _misspelt_type(domain: Mapping[str, object]) -> str | None:
    """Return the key that was meant to be `type`: it is like it, and has one of its values."""
    if "type" in domain:
        return None
    keys = [key for key, value in domain.items() if isinstance(value, str) and value in TYPES]
    return next(iter(difflib.get_close_matches("type", keys, n=1, cutoff=0.7)), None)


def _domain(
    made: SpecConversion, name: str, given: Mapping[str, Any], *path: str
) -> Mapping[str, object]:
    """Return a parameter with its domain; nothing if it can't be carried over."""
    grid = made.spec["search"] == "grid"
    kind = given["type"]
    given = {key: value for key, value in given.items() if value is not None or key == "val"}
    made.lose_others(given, ("type", *DOMAIN_KEYS.get(kind, RANGE_KEYS)), *path)
    if kind == "const":
        if is_plain(given["val"]):
            return {name: choice([given["val"]])}
        made.lose("a constant can't be a mapping; set it in your code", *path)
        return {}
    if kind == "categorical":
        return read_choice(made, name, given["vals"], *path, "vals")
    low, high = given["minval"], given["maxval"]
    if "count" in given and not grid:
        made.lose("is for a grid; not carried over", *path, "count")
    if kind == "int":
        if grid and "count" in given:
            return {
                name: choice([*map(round, _spread(low, high, min(given["count"], 1 + high - low)))])
            }
        return {name: {"min": int(low), "max": int(high), "type": "int"}}
    if kind not in ("double", "log"):
        raise ValueError(f"no such type: {kind}")
    base = given.get("base", 10)
    if grid and "count" in given:
        points = _spread(low, high, given["count"])
        return {name: choice([base**value if kind == "log" else value for value in points])}
    if kind == "log":
        return {name: {"min": float(base**low), "max": float(base**high), "log": True}}
    return {name: {"min": float(low), "max": float(high)}}


def _spread(low: float, high: float, count: int) -> list[float]:
    """Return so many evenly spaced numbers, the ends included."""
    if count == 1:
        return [(low + high) / 2]
    return [float(low + (high - low) * at / (count - 1)) for at in range(count)]


def _put_trials(
    made: SpecConversion, searcher: Mapping[str, Any], domains: dict[str, object]
) -> None:
    kind, limit = searcher.get("name"), searcher.get("max_trials")
    if kind == "single":
        limit = 1
    elif kind == "grid":
        choices = [domain for domain in domains.values() if isinstance(domain, dict)]
        if all("values" in domain for domain in choices):
            limit = math.prod(len(domain["values"]) for domain in choices)
    parallel = None if kind == "single" else searcher.get("max_concurrent_trials", PARALLEL)
    made.put_trials(limit, parallel, "searcher", "max_trials")


def _put_length(made: SpecConversion, searcher: Mapping[str, Any]) -> None:
    length, unit = searcher.get("max_length"), "batches"
    if isinstance(length, dict) and len(length) == 1:
        ((unit, length),) = length.items()
    if length is None:
        length, unit = searcher.get("max_time"), searcher.get("time_metric", "batches")
    eta = searcher.get("divisor", DIVISOR)
    early = searcher.get("name") in HALVING
    for key in ("divisor", "max_rungs", "num_rungs", "stop_once", "mode"):
        if key in searcher and not early:
            made.lose("is for adaptive_asha; not carried over", "searcher", key)
    if not isinstance(length, int):
        if length is not None:
            made.lose(f"is {shown(length)}, no length of a trial; write fidelity", "searcher")
        elif early:
            made.lose("how long a trial is, is not known; write fidelity and scheduler", "searcher")
        return
    made.spec["fidelity"] = {"unit": str(unit), "max": length}
    if early:
        rungs = searcher.get("num_rungs", searcher.get("max_rungs", RUNGS))
        first = max(1, math.ceil(length / eta ** (rungs - 1)))
        made.spec["fidelity"] = {"unit": str(unit), "min": first, "max": length}
        made.spec["scheduler"] = {"type": "asha", "eta": int(eta), **_mode(searcher)}
        if "mode" in searcher:
            made.lose("asha has a single bracket here; hyperband has several", "searcher", "mode")


def _mode(searcher: Mapping[str, Any]) -> dict[str, object]:
    if "stop_once" not in searcher:
        return {}
    return {"mode": "stop" if searcher["stop_once"] else "promote"}


def _put_program(made: SpecConversion) -> None:
    workers = _put_resources(made)
    entry = made.document.data.get("entrypoint")
    if isinstance(entry, str) and SHELL.search(entry.strip()):
        _put_shell(made, entry.strip())
        return
    words = [*map(str, entry)] if isinstance(entry, list) else shlex.split(str(entry or ""))
    legacy = len(words) == 1 and ":" in words[0]
    started = Started([], trial=words[0]) if legacy else without_launcher(words, workers)
    for done in started.done:
        made.lose(done, "entrypoint")
    if started.trial is not None:
        made.spec["trainable"] = started.trial
        made.lose(
            "a trial class of Determined is no trainable; see hposvc docs your-code",
            "entrypoint",
        )
        return
    if started.launch != "rank":
        made.spec["launch"] = started.launch
    made.spec["command"] = [*(started.words or ["python", "train.py"]), "${args}"]
    made.lose("parameters come as arguments; read --NAME=VALUE there", "entrypoint")


def _put_shell(made: SpecConversion, text: str) -> None:
    """Set a command that a shell reads, as Determined has one read it."""
    text, done = without_launcher_in_shell(text)
    if done:
        made.lose(done, "entrypoint")
    text = text.replace("${", "$${")
    made.spec["command"] = ["sh", "-c", f"{text} ${{args}}"]
    made.lose(
        "parameters come as arguments, at the end of the shell's line; move ${args} behind your"
        " program if that is elsewhere",
        "entrypoint",
    )


def _put_resources(made: SpecConversion) -> int:
    """Set workers and variables, and return how many workers there are."""
    resources = made.section("resources")
    slots = resources.get("slots_per_trial", 1)
    if isinstance(slots, int) and slots > 0:
        made.spec["resources"] = {"workers": slots, "gpus_per_worker": 1}
    made.lose_others(resources, ("slots_per_trial",), "resources")
    environment = made.section("environment")
    made.lose_others(environment, ("environment_variables",), "environment")
    given = environment.get("environment_variables")
    if isinstance(given, list):
        pairs = [str(text).partition("=") for text in given]
        made.spec["environment"] = {"env": {name: value for name, _, value in pairs}}
    elif given:
        made.lose("write the variables in environment.env", "environment", "environment_variables")
    return slots if isinstance(slots, int) and slots > 0 else 1
