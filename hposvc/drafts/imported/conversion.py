"""The common form of imported specs: our own keys, and what could not be carried over."""

import difflib
import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hposvc.errors import Problem, SpecError, shown
from hposvc.spec.parsing.document import Document
from searchers import SpaceError, are_tied, identity, read_declared, read_domain

ROUNDING = 1e-9  # of a quotient of decimals: 0.3 / 0.1 is 2.9999999999999996
DIGITS = 12  # of a multiple of a decimal: 3 * 0.1 is 0.30000000000000004
TRIALS = 20  # where the other tool goes on until somebody stops it
KEYS = (
    *("version", "name", "project", "description", "command", "trainable", "collect"),
    *("metric", "metrics", "fidelity", "parameters", "search", "scheduler", "trials"),
    *("budget", "resources"),
    *("environment", "failure", "tags", "seed"),
)


@dataclass
class SpecConversion:
    """A spec in the making."""

    document: Document  # the other tool's
    spec: dict[str, object] = field(default_factory=lambda: {"version": 1})
    lost: list[Problem] = field(default_factory=list)

    def lose(self, message: str, *path: str | int) -> None:
        """Note what is not carried over, and what to write instead."""
        self.lost.append(self.document.locate(Problem(path, message, at_key=True)))

    def lose_others(
        self, data: Mapping[str, object], known: Collection[str], *path: str | int
    ) -> None:
        """Note each key of a section for which hposvc has no word, or which is misspelt."""
        for key in data:
            if key not in known:
                close = difflib.get_close_matches(str(key), known, n=1, cutoff=0.8)
                hint = f"; did you mean {close[0]!r}?" if close else ""
                self.lose(f"is not carried over; hposvc has no such key{hint}", *path, key)

    def lose_shape(self, name: str, low: float, high: float, *path: str | int) -> None:
        """Note that a distribution becomes a range."""
        self.lose(
            f"{name} becomes a range from {low:.6g} to {high:.6g}, all values of which are"
            " equally likely; write min and max if you want others",
            *path,
        )

    def lose_nesting(self, name: str, *path: str | int) -> None:
        """Note that parameters of a group have names with points on a command line."""
        self.lose(f"is nested: a command gets --{name}.NAME=VALUE, a function a mapping", *path)

    @contextmanager
    def reading(self, *path: str | int) -> Iterator[None]:
        """Read a section: a value in it that is of no use is an error with the section's place.

        Raises:
            SpecError: the block could not compute with a value.
        """
        try:
            yield
        except SpecError:
            raise  # it has its place
        except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            missing = isinstance(error, KeyError)
            reason = f"{error} is missing" if missing else f"{error}"
            problem = Problem(path, f"can't be read ({reason})", "correct it first", at_key=True)
            raise SpecError([self.document.locate(problem)]) from error

    def section(self, *path: str) -> dict[str, object]:
        """Return a section of the document; it is empty if there is none.

        What stands there instead of a mapping is noted, once.
        """
        section: dict[str, object] = self.document.data
        for depth, key in enumerate(path, 1):
            value = section.get(key)
            if not isinstance(value, dict):
                if value is not None and all(loss.path != path[:depth] for loss in self.lost):
                    self.lose(f"is {shown(value)}; give a mapping, key: value", *path[:depth])
                return {}
            section = value
        return section

    def as_list(self, value: object, *path: str | int) -> list[Any]:
        """Return a value that is due to be a list; note any other, which is an empty list."""
        if isinstance(value, list):
            return value
        if value is not None:
            self.lose(f"is {shown(value)}; give a list", *path)
        return []

    def put_texts(self, *keys: str) -> None:
        """Carry over keys that mean here what they mean there; note a value that is no text."""
        for key in keys:
            value = self.document.data.get(key)
            if isinstance(value, str):
                self.spec[key] = value
            elif value is not None:
                self.lose(f"is {shown(value)}; give text", key)

    def put_name(self, name: object) -> None:
        """Set the sweep's name, without characters that an id can't have."""
        slug = re.sub(r"[^A-Za-z0-9._-]+", "-", str(name or "sweep")).strip("-._")
        self.spec["name"] = slug[:40].rstrip("-._") or "sweep"

    def put_metric(self, name: object, goal: str, *path: str) -> None:
        """Set the metric; without a name it is `loss`, which is noted."""
        if not isinstance(name, str) or not name:
            self.lose("has no name; metric.name is loss, write the metric you report", *path)
            name = "loss"
        self.spec["metric"] = {"name": name, "goal": goal}

    def put_trials(self, number: object, parallel: object, *path: str) -> None:
        """Set how many trials there are, and how many at once; None: the document does not say."""
        if number is None:
            self.lose(f"no limit is given; trials.max is {TRIALS}, write how many you want", *path)
            number = TRIALS
        self.spec["trials"] = {"max": number} | ({"parallel": parallel} if parallel else {})

    def text(self) -> str:
        """Return the spec as YAML."""
        lines = []
        for key in sorted(self.spec, key=KEYS.index):
            value = self.spec[key]
            if key == "parameters" and isinstance(value, dict):
                lines += ["parameters:"]
                lines += [f"  {flow(name)}: {flow(domain)}" for name, domain in value.items()]
            else:
                lines.append(f"{key}: {flow(value)}")
        return "\n".join(lines) + "\n"


def flow(value: object) -> str:
    """Return a value as one line of YAML; numbers read back exactly."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{flow(key)}: {flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z_][\w./-]*", value, re.ASCII):
        reserved = ("true", "false", "null", "yes", "no", "on", "off", "nan", "inf", "y", "n")
        return json.dumps(value) if value.lower() in reserved else value
    return json.dumps(value, ensure_ascii=False)


def choice(values: Sequence[object]) -> object:
    """Return a choice among values; a single value is a constant, in brackets if it is a list."""
    is_constant = len(values) == 1 and not isinstance(values[0], list)
    return values[0] if is_constant else {"values": [*values]}


def tied(name: str, values: object) -> list[dict[str, object]] | None:
    """Return a choice among mappings with members called NAME.MEMBER; None: it can't be tied."""
    if not are_tied(values) or not all(isinstance(value, Mapping) for value in values):
        return None
    mappings = [
        {f"{name}.{member}": given for member, given in value.items()}
        for value in values
        if isinstance(value, Mapping)
    ]
    try:
        read_declared(name, {"values": mappings})
    except SpaceError:
        return None
    return mappings


def read_choice(
    conversion: SpecConversion, name: str, values: object, *path: str | int
) -> dict[str, object]:
    """Return a parameter with the values that it can have; nothing if there are none."""
    if mappings := tied(name, values):
        conversion.lose_nesting(name, *path)
        return {name: {"values": mappings}}
    plain = keep_plain(conversion, values, *path)
    return {name: choice(plain)} if plain else {}


def drawn_normally(
    conversion: SpecConversion,
    made: Mapping[str, Any],
    name: str,
    mean: float,
    deviation: float,
    *path: str | int,
) -> dict[str, object]:
    """Return a range whose values are drawn by a normal distribution.

    A distribution that does not suit the range is lost, and so is any where the search is a grid.

    Args:
        name: of the distribution in the other tool.
        mean: in the unit of the range, also on a logarithmic scale.
        deviation: on a logarithmic scale that of the natural logarithm.
    """
    normal = {"mean": float(f"{mean:.{DIGITS}g}"), "deviation": float(f"{deviation:.{DIGITS}g}")}
    drawn = {**made, "normal": normal}
    try:
        read_domain(drawn)
    except SpaceError:
        suits = False
    else:
        suits = conversion.spec.get("search") != "grid"
    if not suits:
        conversion.lose_shape(name, made["min"], made["max"], *path)
    return drawn if suits else dict(made)


def stepped(low: float, high: float, q: float) -> dict[str, object]:
    """Return the range of the multiples of q between two ends, with whole numbers if q is one.

    Raises:
        ValueError: there is no such multiple.
    """
    first, last = math.ceil(low / q - ROUNDING), math.floor(high / q + ROUNDING)
    if first > last:
        raise ValueError(f"no multiple of {q:g} is between {low:g} and {high:g}")
    low, high = round(first * q, DIGITS), round(last * q, DIGITS)
    if float(q).is_integer():
        return {"min": int(low), "max": int(high), "step": int(q), "type": "int"}
    return {"min": float(low), "max": float(high), "step": q, "type": "float"}


def is_plain(value: object) -> bool:
    """Return whether hposvc takes a value as a parameter's: a scalar, or a list of such values."""
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def keep_plain(conversion: SpecConversion, values: object, *path: str | int) -> list[object]:
    """Return those of the values that a parameter can have, and note the others."""
    if not isinstance(values, list):
        conversion.lose(f"is {shown(values)}, no list of values", *path)
        return []
    for at, value in enumerate(values):
        if not is_plain(value):
            conversion.lose(
                "a value can't be a mapping beside others; give it a name, and look it up in "
                "your code",
                *path,
                at,
            )
    plain = [value for value in values if is_plain(value)]
    return list({(type(value), identity(value)): value for value in plain}.values())
