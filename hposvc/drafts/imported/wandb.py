"""W&B sweep configurations.

Source: the documentation of W&B, "Sweep configuration structure".
"""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from hposvc.drafts.imported.conversion import (
    SpecConversion,
    choice,
    drawn_normally,
    is_plain,
    read_choice,
    stepped,
)
from hposvc.errors import shown
from hposvc.spec.parsing.document import Document
from searchers import SpaceError, ends_of, read_declared

SEARCH = {"grid": "grid", "random": "random", "bayes": "gp"}
KEYS = (
    *("name", "project", "description", "program", "method", "metric", "metrics", "parameters"),
    *("early_terminate", "run_cap", "command", "scheduler"),
)
METRIC_KEYS = ("name", "goal", "target")
DOMAIN_KEYS = ("value", "values", "distribution", "min", "max", "q", "mu", "sigma", "a", "b")
GRID = 1000  # values that a whole-number range of a grid may have
SAME = ("${args}", "${args_no_hyphens}", "${args_no_boolean_flags}", "${args_json}")
MACROS = {"${interpreter}": "python", **{name: name for name in SAME}}
ITEMS_EACH = {  # macros that hposvc has no word for: what each parameter becomes
    "${args_no_equals}": ("--{0}", "${{{0}}}"),
    "${args_append_hydra}": ("+{0}=${{{0}}}",),
    "${args_override_hydra}": ("++{0}=${{{0}}}",),
}


def recognises(data: Mapping[str, object]) -> bool:
    """Return whether a document looks like a W&B sweep."""
    custom = data.get("method") == "custom" and "scheduler" in data
    return custom or (str(data.get("method")) in SEARCH and "parameters" in data)


def convert(document: Document) -> SpecConversion:
    """Return the sweep in our words."""
    made = SpecConversion(document)
    data = document.data
    made.lose_others(data, KEYS)
    made.put_name(data.get("name") or data.get("program"))
    made.put_texts("project", "description")
    _put_metrics(made)
    method = str(data.get("method"))
    made.spec["search"] = SEARCH.get(method, "auto")
    _lose_scheduler(made)
    domains = _Domains(made, grid=method == "grid")
    with made.reading("parameters"):
        domains.read(made.section("parameters"), "", "parameters")
    made.spec["parameters"] = domains.found
    limit = data.get("run_cap")
    if limit is None and method == "grid":
        limit = _grid_size(domains.found)
    made.put_trials(limit, None, "run_cap")
    _put_command(made)
    with made.reading("early_terminate"):
        _put_early_termination(made)
    return made


def _put_metrics(made: SpecConversion) -> None:
    several = made.as_list(made.document.data.get("metrics"), "metrics")
    if not several:
        metric = made.section("metric")
        made.put_metric(metric.get("name"), str(metric.get("goal", "minimize")), "metric")
        if "target" in metric:
            made.spec["metric"] = {**_mapping(made.spec["metric"]), "target": metric["target"]}
        made.lose_others(metric, METRIC_KEYS, "metric")
        return
    made.spec["metrics"] = [
        {"goal": "minimize", **{key: each[key] for key in METRIC_KEYS if key in each}}
        for each in map(_mapping, several)
    ]
    for at, each in enumerate(map(_mapping, several)):
        made.lose_others(each, METRIC_KEYS, "metrics", at)
    if "metric" in made.document.data:
        made.lose("is not carried over beside metrics; hposvc takes one or the other", "metric")


def _lose_scheduler(made: SpecConversion) -> None:
    """Name what a scheduler of the user's own is in hposvc."""
    given = made.section("scheduler")
    made.lose_others(given, ("engine", "source", "optimizer", "search_space"), "scheduler")
    if given:
        made.lose(f"{shown(given.get('engine'))} is not carried over; choose search", "scheduler")
    if "search_space" in given:
        made.lose(
            "a function is not read; write parameters: {space: FILE.py:NAME} if it takes an"
            " Optuna trial",
            *("scheduler", "search_space"),
        )


class _Domains:
    """Reads parameters, nested ones by dotted names."""

    def __init__(self, made: SpecConversion, grid: bool) -> None:
        self.made, self.grid = made, grid
        self.found: dict[str, object] = {}

    def read(self, parameters: Mapping[str, object], prefix: str, *path: str) -> None:
        for name, given in parameters.items():
            here = (*path, name)
            domain: Mapping[str, Any] = given if isinstance(given, dict) else {"value": given}
            if isinstance(domain.get("parameters"), dict):
                self.read(domain["parameters"], f"{prefix}{name}.", *here, "parameters")
                self.made.lose_nesting(f"{prefix}{name}", *here)
                self.made.lose_others(domain, ("parameters",), *here)
                continue
            members = {key for key, member in domain.items() if isinstance(member, dict)}
            own_keys = {*DOMAIN_KEYS, "probabilities"} & domain.keys()
            # A group has parameters in it, and no key of a parameter's own.
            if members and own_keys <= members and "value" not in domain:
                self.read(domain, f"{prefix}{name}.", *here)
                message = "has no key `parameters` around its members; it is read as a group"
                self.made.lose(message, *here)
                continue
            try:
                self._add(f"{prefix}{name}", domain, *here)
            except (KeyError, TypeError, ValueError, OverflowError) as error:
                self.made.lose(f"no range could be read ({error}); write it in the spec", *here)

    def _add(self, name: str, domain: Mapping[str, Any], *path: str) -> None:
        if "value" in domain and is_plain(domain["value"]):
            self.found[name] = choice([domain["value"]])
        elif "values" in domain:
            self.found |= read_choice(self.made, name, domain["values"], *path, "values")
        elif "value" in domain:
            self.made.lose("a constant can't be a mapping; set it in your code", *path)
        else:
            made: Any = self._range(domain, *path)
            if self.grid and made.get("type") == "int":  # W&B's grid tries every whole number
                values = range(made["min"], made["max"] + 1, made.get("step", 1))
                made = choice([*values]) if len(values) <= GRID else made
            self.found[name] = made
        if "probabilities" in domain:
            self._weigh(name, domain, *path, "probabilities")
        self.made.lose_others(domain, (*_keys_used(domain), "distribution", "probabilities"), *path)

    def _range(self, domain: Mapping[str, Any], *path: str) -> dict[str, object]:
        name = domain.get("distribution")
        if name is None:
            of_integers = all(isinstance(domain[key], int) for key in ("min", "max"))
            name = "int_uniform" if of_integers else "uniform"
        quantized = name.startswith("q_")
        kind = name.removeprefix("q_")
        low, high, log = _ends(kind, domain)
        if kind == "beta":
            self.made.lose_shape(name, low, high, *path)
        if quantized and log:
            self.made.lose("a logarithmic range is not rounded to q; round in your code", *path)
        made: dict[str, object] = {"min": float(low), "max": float(high)}
        if quantized and not log:
            made = stepped(low, high, domain.get("q", 1))
        elif kind == "int_uniform":
            made = {"min": int(low), "max": int(high), "type": "int"}
        elif log:
            made["log"] = True
        if kind not in ("normal", "log_normal"):
            return made
        mu, sigma = _mu_and_sigma(domain)
        return drawn_normally(self.made, made, name, math.exp(mu) if log else mu, sigma, *path)

    def _weigh(self, name: str, domain: Mapping[str, Any], *path: str) -> None:
        """Give a choice the probabilities of its values as weights; those of 0 are left out."""
        domain_found, given = self.found.get(name), domain["probabilities"]
        values = domain_found.get("values", ()) if isinstance(domain_found, dict) else ()
        if self.grid or not isinstance(given, list) or len(given) != len(values):
            self.made.lose("values are equally likely in hposvc", *path)
            return
        pairs = [(value, weight) for value, weight in zip(values, given, strict=True) if weight]
        weighed = {
            "values": [value for value, _ in pairs],
            "weights": [weight for _, weight in pairs],
        }
        try:
            read_declared(name, weighed)
        except SpaceError as error:
            self.made.lose(f"values are equally likely in hposvc: {error}", *path)
            return
        self.found[name] = weighed if len(pairs) > 1 else choice([pairs[0][0]])


def _keys_used(domain: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of a parameter that say which values it has."""
    for key in ("value", "values"):
        if key in domain:
            return (key,)
    name = str(domain.get("distribution", "uniform"))
    quantum = ("q",) if name.startswith("q_") else ()
    if name.endswith("beta"):
        return ("min", "max", "a", "b", *quantum)
    return ("min", "max", *(("mu", "sigma") if name.endswith("normal") else ()), *quantum)


def _mu_and_sigma(domain: Mapping[str, Any]) -> tuple[float, float]:
    return domain.get("mu", 0.0), domain.get("sigma", 1.0)


def _ends(kind: str, domain: Mapping[str, Any]) -> tuple[float, float, bool]:
    """Return the smallest and the largest value, and whether the scale is logarithmic."""
    mu, sigma = _mu_and_sigma(domain)
    match kind:
        case "uniform" | "int_uniform":
            return domain["min"], domain["max"], False
        case "log_uniform_values" | "inv_log_uniform_values":
            return domain["min"], domain["max"], True
        case "log_uniform":
            return math.exp(domain["min"]), math.exp(domain["max"]), True
        case "inv_log_uniform":
            return math.exp(-domain["max"]), math.exp(-domain["min"]), True
        case "normal":
            return *_bounded(*ends_of(mu, sigma), domain), False
        case "log_normal":
            low, high = ends_of(mu, sigma)
            return *_bounded(math.exp(low), math.exp(high), domain), True
        case "beta":
            return *_bounded(0.0, 1.0, domain), False
    raise ValueError(f"no such distribution: {kind}")


def _bounded(low: float, high: float, domain: Mapping[str, Any]) -> tuple[float, float]:
    """Return the ends that a parameter gives beside its distribution, or else these."""
    low, high = float(domain.get("min", low)), float(domain.get("max", high))
    if low >= high:
        raise ValueError(f"its values are between {low:g} and {high:g}")
    return low, high


def _put_command(made: SpecConversion) -> None:
    program = str(made.document.data.get("program") or "train.py")
    if "program" not in made.document.data:
        made.lose("no program is given; the command runs train.py", "program")
    given = made.as_list(made.document.data.get("command"), "command")
    words = given or ["${interpreter}", "${program}", "${args}"]
    names = [*_names(_mapping(made.spec["parameters"]))]
    items = []
    for at, word in enumerate(map(str, words)):
        if word == "${env}":
            continue
        if word in ITEMS_EACH:
            items += [text.format(name) for name in names for text in ITEMS_EACH[word]]
            continue
        item = MACROS.get(word, word.replace("${program}", program))
        macros = re.findall(r"\$\{[^}]*\}", item)
        if unknown := [macro for macro in macros if macro not in MACROS.values()]:
            made.lose(f"{unknown[0]} has no counterpart; write the value", "command", at)
            continue
        items.append(item)
    if names and not any("${" in item for item in items):
        # hposvc refuses parameters that a command does not name.
        items = ["env", "PARAMETERS=${args_json}", *items]
        message = "passes no parameters: the program has them in wandb.config, and in PARAMETERS"
        made.lose(message, "command")
    made.spec["command"] = items
    made.lose("wandb.log does not reach hposvc: call hposvc.report, or set collect", "program")


def _names(domains: Mapping[str, object]) -> Iterator[str]:
    """Yield the parameters by their names, tied ones by those of their members."""
    for name, domain in domains.items():
        values = _mapping(domain).get("values")
        first = values[0] if isinstance(values, list) and values else None
        yield from first if isinstance(first, dict) else [name]


def _put_early_termination(made: SpecConversion) -> None:
    given: Mapping[str, Any] = made.section("early_terminate")
    if not given:
        return
    where = "early_terminate"
    made.lose_others(given, ("type", "eta", "min_iter", "max_iter", "s", "strict"), where)
    eta, longest, brackets = given.get("eta", 3), given.get("max_iter"), given.get("s")
    if given.get("type") != "hyperband" or int(eta) != eta or eta < 2:
        made.lose("is not carried over; choose a scheduler in hposvc docs schedulers", where)
        return
    if longest is None:
        first = given.get("min_iter", 1)
        made.lose(
            "how long a run is, is not known; write fidelity: {min: "
            f"{first}, max: STEPS}} and scheduler: {{type: asha, eta: {int(eta)}}}",
            where,
        )
        return
    first = max(1, int(longest / eta ** (brackets or 1)))
    made.spec["fidelity"] = {"unit": "step", "min": first, "max": int(longest)}
    made.spec["scheduler"] = {"type": "asha", "eta": int(eta)}
    for key in ("min_iter", "strict"):
        if key in given:
            made.lose("is not carried over; a trial stops at the rungs of asha", where, key)


def _grid_size(domains: Mapping[str, object]) -> int | None:
    """Return the number of configurations of a grid; None: a range has no end of values."""
    sizes = [
        len(domain["values"]) if "values" in domain else None
        for domain in domains.values()
        if isinstance(domain, dict)
    ]
    return math.prod(size for size in sizes if size) if None not in sizes else None


def _mapping(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
