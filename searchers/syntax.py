"""The `parameters` of a spec, read into domains: {min, max, ...}, {values, ...} or a scalar.

Numbers that add up to a total are declared together: see `share_syntax`. A choice among mappings
declares several parameters that take their values together: see `ties`.

Two ends that are both written without a point or an exponent mean whole numbers.
"""

import math
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import cast

from searchers import share_syntax, ties
from searchers.distributions import Normal
from searchers.domains import (
    MAX_VALUES,
    Choice,
    Constant,
    Domain,
    Float,
    Int,
    Share,
    Tied,
    declared_name,
)
from searchers.names import MAX_LENGTH, is_name, nearest
from searchers.values import Condition, SpaceError, Value, is_number, is_scalar, is_value

Path = tuple[str | int, ...]

MAX_PARAMETERS = 1_000
_RANGE_KEYS = frozenset({"min", "max", "log", "step", "type", "when", "normal"})
_CHOICE_KEYS = frozenset({"values", "ordered", "when", "weights"})
_NORMAL_KEYS = frozenset({"mean", "deviation"})
_NORMAL = "write normal: {mean: M, deviation: D}"
# Words of other tools (Optuna, Ray Tune, W&B, NNI, Ax, scikit-optimize, SageMaker), and ours.
ELSEWHERE = {
    **dict.fromkeys(("low", "lower", "minval", "min_value"), "write min"),
    **dict.fromkeys(("high", "upper", "maxval", "max_value"), "write max"),
    **dict.fromkeys(("choices", "categories", "options", "_value"), "write values: [...]"),
    **dict.fromkeys(("q", "quantization", "step_size"), "write step"),
    **dict.fromkeys(("log_scale", "scale", "scaling", "base"), "write log: true"),
    **dict.fromkeys(("is_ordered", "ordinal"), "write ordered: true"),
    **dict.fromkeys(("simplex", "dirichlet", "fractions", "sum_to"), "write shares: [...]"),
    **dict.fromkeys(("value", "const", "constant"), "write a constant without it, as in `lr: 0.1`"),
    **dict.fromkeys(
        ("probabilities", "probs", "probability", "weight", "p"), "write weights: [...]"
    ),
    **dict.fromkeys(("mean", "mu", "loc", "deviation", "sigma", "std", "stddev", "sd"), _NORMAL),
    **dict.fromkeys(
        ("distribution", "_type", "sampler", "prior"),
        f"a range is uniform, or log-uniform with log: true; for a normal one {_NORMAL}",
    ),
}


def read_domains(parameters: Mapping[str, object]) -> dict[str, Domain]:
    """Return the domain of every parameter; errors carry the path from `parameters` on."""
    if not isinstance(parameters, Mapping):
        raise SpaceError(("parameters",), f"is {parameters!r}; give a mapping of names to ranges")
    check_count(parameters)
    domains: dict[str, Domain] = {}
    members: dict[str, list[str]] = {}
    for name, declared in parameters.items():
        declared = _with_ranges_listed(name, declared, parameters)
        try:
            found = read_declared(name, declared)
            _check_members(name, found, {*parameters, *domains})
        except SpaceError as error:
            raise error.under("parameters", name) from None
        domains |= found
        members[name] = list(found)
    for name, domain in domains.items():
        for parent in domain.when:
            if parent in members and parent not in domains:
                is_share = isinstance(domains[members[parent][0]], Share)
                kind = "has shares" if is_share else "is a choice among mappings"
                message = f"{kind}; name a member: {', '.join(members[parent])}"
                path = ("parameters", declared_name(name, domain), "when", parent)
                raise SpaceError(path, message)
    return ties.with_conditions_on_keys(domains)


def _with_ranges_listed(name: str, declared: object, parameters: Mapping[str, object]) -> object:
    """Return a declaration with each range of its condition as the list of the values in it."""
    if not isinstance(declared, Mapping) or not isinstance(declared.get("when"), Mapping):
        return declared
    when = {
        parent: (
            _values_within(allowed, ("parameters", name, "when", parent), parent, parameters)
            if isinstance(allowed, Mapping)
            else allowed
        )
        for parent, allowed in declared["when"].items()
    }
    return {**declared, "when": when}


def _values_within(
    allowed: Mapping[str, object], path: Path, parent: str, parameters: Mapping[str, object]
) -> list[Value]:
    """Return the values of a parent that a range allows.

    Raises:
        SpaceError: there is none, or there are too many to list.
    """
    try:
        low, high = _read_ends(parent, allowed)
    except SpaceError as error:
        raise error.under(*path[:2]) from None
    domain = next(
        (candidate for name, _, candidate in parameters_of(parameters) if name == parent), None
    )
    if domain is None:
        raise SpaceError(path, f"is no parameter: {nearest(parent, parameters)}")
    if domain.count is None or domain.count > MAX_VALUES:
        count = "real numbers" if domain.count is None else f"{domain.count:,} values"
        message = f"is a range of {parent}, which has {count}"
        raise SpaceError(path, f"{message}; give {parent} a step that leaves {MAX_VALUES:,} values")
    values: list[Value] = [
        value for value in domain.grid(1) if is_number(value) and low <= value <= high
    ]
    if not values:
        message = f"can never be met, since {parent} has no number from {low:g} to {high:g}"
        raise SpaceError(path, message)
    return values


def _read_ends(parent: str, allowed: Mapping[str, object]) -> tuple[float, float]:
    """Return the ends of a range in a condition; one of them may be left out.

    Raises:
        SpaceError: the path is within the declaration.
    """
    try:
        _refuse_unknown(allowed, frozenset({"min", "max"}))
        ends = {key: _read_number(allowed, key) for key in allowed}
    except SpaceError as error:
        raise error.under("when", parent) from None
    if not ends:
        raise SpaceError(("when", parent), "is an empty range; give it a min, a max, or both")
    return ends.get("min", -math.inf), ends.get("max", math.inf)


def _check_members(name: str, found: Mapping[str, Domain], others: Container[str]) -> None:
    for member in found:
        if member != name and member in others:
            message = f"is a parameter of its own too, or a member of another one than {name}"
            raise SpaceError(
                _path_within(member, found[member]), f"{message}; rename one of the two"
            )


def parameters_of(
    declared: Mapping[str, object],
) -> Iterator[tuple[str, tuple[str | int, ...], Domain]]:
    """Yield each parameter that is declared, tied ones too: its name, its path, and its domain.

    Conditions are as written, but their ranges are not listed.

    Raises:
        SpaceError: a declaration can't be read.
    """
    for name, given in declared.items():
        for member, domain in read_declared(name, given).items():
            within = () if member == name else _path_within(member, domain)
            yield member, ("parameters", name, *within), domain


def _path_within(member: str, domain: Domain) -> Path:
    """Return where a declaration of several parameters names one of them."""
    return ("shares", domain.index) if isinstance(domain, Share) else ("values", 0, member)


def read_declared(name: str, declared: object) -> dict[str, Domain]:
    """Return the domains that a declaration gives: its own, or those of its shares or tied members.

    Raises:
        SpaceError: the path is within the declaration.
    """
    if isinstance(declared, Mapping) and ties.are_tied(declared.get("values")):
        _refuse_unknown(declared, _CHOICE_KEYS)
        ordered, when = _read_flag(declared, "ordered"), _read_condition(declared)
        return ties.tie(name, declared["values"], ordered, when, _read_weights(declared))
    if isinstance(declared, Mapping) and "shares" in declared:
        _refuse_unknown(declared, share_syntax.KEYS)
        return {**share_syntax.read_shares(name, declared, _read_condition(declared))}
    return {name: read_domain(declared)}


def check_count(parameters: Mapping[str, object]) -> None:
    """Refuse an empty mapping, and more parameters than any search can handle."""
    if not 1 <= len(parameters) <= MAX_PARAMETERS:
        raise SpaceError(
            ("parameters",), f"has {len(parameters):,} names; give 1 to {MAX_PARAMETERS:,}"
        )


def read_domain(declared: object) -> Domain:
    """Return the domain that one parameter's declaration means; errors carry the path within it."""
    if is_scalar(declared):
        return Constant(declared)
    if isinstance(declared, Sequence) and not isinstance(declared, str | bytes):
        message = "is a list; write {values: [...]} to choose from it"
        raise SpaceError((), f"{message}, {{values: [[...]]}} for a constant that is a list")
    if not isinstance(declared, Mapping):
        raise SpaceError(
            (), f"is {declared!r}; give {{min, max}}, {{values: [...]}}, or a finite constant"
        )
    if "variants" in declared:
        if not isinstance(names := declared["variants"], Mapping):
            message = "are commits and patches of a git repository, which only a sweep's spec has"
            raise SpaceError(("variants",), message)
        return _read_choice({"values": [*names]})
    if "values" in declared:
        return _read_choice(declared)
    if "min" in declared or "max" in declared:
        return _read_range(declared)
    _refuse_unknown(declared, _RANGE_KEYS | _CHOICE_KEYS)
    raise SpaceError((), "has neither min and max, nor values, nor shares")


def write_domains(domains: Mapping[str, Domain]) -> dict[str, object]:
    """Return the declarations that `read_domains` reads as these domains."""
    declared: dict[str, object] = {}
    for name, domain in domains.items():
        tied = ties.write(name, domains)
        if isinstance(domain, Share):
            written = share_syntax.write_shares(domain.shares)
            if domain.when:
                written["when"] = _written_condition(domain.when)
            declared[domain.shares.declared] = written
        elif tied is None:
            declared[name] = write_domain(domain)
        elif isinstance(domain, Choice):  # the key, which has the order and the condition too
            choice = cast(dict[str, object], write_domain(domain))
            declared[tied[0]] = {**choice, "values": [*map(dict, tied[1])]}
    return declared


def write_domain(domain: Domain) -> object:
    """Return the declaration that `read_domain` reads as this domain, which is not tied."""
    if isinstance(domain, Share):
        raise SpaceError((), f"is a share of {domain.shares.declared}, and is written with it")
    if isinstance(domain, Tied):
        raise SpaceError((), f"is tied to {domain.key}, and can't be written without it")
    if isinstance(domain, Constant):
        if not domain.when and is_scalar(domain.value):
            return domain.value
        declared: dict[str, object] = {"values": [domain.value]}
    elif isinstance(domain, Choice):
        declared = {"values": list(domain.values)}
        if domain.ordered:
            declared["ordered"] = True
        if domain.weights:
            declared["weights"] = list(domain.weights)
    else:
        declared = _write_range(domain)
    if domain.when:
        declared["when"] = _written_condition(domain.when)
    return declared


def _written_condition(when: Condition) -> dict[str, object]:
    return {name: list(values) for name, values in when.items()}


def _write_range(domain: Float | Int) -> dict[str, object]:
    declared: dict[str, object] = {"min": domain.low, "max": domain.high}
    declared["type"] = "int" if isinstance(domain, Int) else "float"
    if domain.log:
        declared["log"] = True
    if domain.step is not None:
        declared["step"] = domain.step
    if domain.normal is not None:
        declared["normal"] = vars(domain.normal).copy()
    return declared


def _read_choice(declared: Mapping[str, object]) -> Choice | Constant:
    _refuse_unknown(declared, _CHOICE_KEYS)
    values = declared["values"]
    if not isinstance(values, Sequence) or isinstance(values, str | bytes) or not values:
        raise SpaceError(("values",), f"is {values!r}; give a list of one value or more")
    ordered, when = _read_flag(declared, "ordered"), _read_condition(declared)
    choice = Choice(tuple(values), ordered, when, _read_weights(declared))
    return Constant(choice.values[0], choice.when) if choice.count == 1 else choice


def _read_range(declared: Mapping[str, object]) -> Float | Int:
    _refuse_unknown(declared, _RANGE_KEYS)
    for key in ("min", "max"):
        if key not in declared:
            raise SpaceError((), f"has no {key}; give both ends")
    kind = declared.get("type")
    if kind not in (None, "int", "float"):
        raise SpaceError(("type",), f"is {kind!r}; write int or float")
    low, high = _read_number(declared, "min"), _read_number(declared, "max")
    log, when = _read_flag(declared, "log"), _read_condition(declared)
    step = _read_number(declared, "step") if declared.get("step") is not None else None
    ends_are_ints = isinstance(low, int) and isinstance(high, int)
    if kind == "float" or (kind is None and not ends_are_ints):
        return Float(low, high, log, step, when, _read_normal(declared))
    # A logarithm from 0 is what is wrong first.
    if kind is None and step is None and high - low == 1 and not (log and low <= 0):
        raise SpaceError(
            (),
            f"min {low} and max {high} mean just those two whole numbers; "
            f"write {low}.0 and {high}.0 for a real number, or add type: int",
        )
    for key, number in (("min", low), ("max", high), ("step", step)):
        if number is not None and number != int(number):
            raise SpaceError((key,), f"is {number} in a range of whole numbers; add type: float")
    whole_step = 1 if step is None else int(step)
    return Int(int(low), int(high), log, whole_step, when, _read_normal(declared))


def _read_normal(declared: Mapping[str, object]) -> Normal | None:
    normal = declared.get("normal")
    if normal is None:
        return None
    if not isinstance(normal, Mapping):
        raise SpaceError(("normal",), f"is {normal!r}; write {{mean: M, deviation: D}}")
    try:
        _refuse_unknown(normal, _NORMAL_KEYS)
        for key in ("mean", "deviation"):
            if key not in normal:
                raise SpaceError((), f"has no {key}; give mean and deviation")
        return Normal(**normal)
    except SpaceError as error:
        raise error.under("normal") from None


def _read_weights(declared: Mapping[str, object]) -> tuple[float, ...]:
    weights = declared.get("weights")
    if weights is None:
        return ()
    if not isinstance(weights, Sequence) or isinstance(weights, str | bytes) or not weights:
        raise SpaceError(("weights",), f"is {weights!r}; give a list, a number for each value")
    return tuple(weights)


def _read_number(declared: Mapping[str, object], key: str) -> int | float:
    number = declared[key]
    if not is_number(number):
        raise SpaceError((key,), f"is {number!r}; give a finite number")
    return number


def _read_flag(declared: Mapping[str, object], key: str) -> bool:
    flag = declared.get(key, False)
    if not isinstance(flag, bool):
        raise SpaceError((key,), f"is {flag!r}; write true or false")
    return flag


def _read_condition(declared: Mapping[str, object]) -> Condition:
    when = declared.get("when", {})
    if not isinstance(when, Mapping):
        raise SpaceError(("when",), f"is {when!r}; write {{name: value}} or {{name: [values]}}")
    return {name: _read_allowed(name, allowed) for name, allowed in when.items()}


def _read_allowed(name: str, allowed: object) -> tuple[Value, ...]:
    if isinstance(allowed, Mapping):  # read alone; `read_domains` knows the values in the range
        return _read_ends(name, allowed)
    values = tuple(allowed) if isinstance(allowed, list | tuple) else (allowed,)
    if not values:
        raise SpaceError(("when", name), "allows no value, so nothing can meet it; give some")
    for value in values:
        if not is_value(value):
            message = "give a value, a list of values, or {min, max}"
            raise SpaceError(("when", name), f"is {value!r}; {message}")
    return values


def _refuse_unknown(declared: Mapping[str, object], known: frozenset[str]) -> None:
    for key in declared:
        if key not in known:
            hint = ELSEWHERE.get(key) or nearest(str(key), known)
            raise SpaceError((str(key),), f"is no key of a parameter: {hint}")


def check_name(name: object) -> None:
    """Refuse a name that no parameter can have."""
    if not is_name(name):
        raise SpaceError(
            ("parameters", str(name)[:MAX_LENGTH]),
            "is not a valid name; use letters, digits, _, and - or dots between words, "
            f"{MAX_LENGTH} at most",
        )
