"""The section `register`: publish the best trial's checkpoint as a model version in MLflow."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from pydantic import PlainValidator, WithJsonSchema

from hposvc.errors import Problem, fail, shown
from hposvc.spec.types import CLOSED, Word
from searchers.names import nearest

if TYPE_CHECKING:
    from hposvc.spec import SweepSpec

ALIAS = re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII)
RESERVED_ALIAS = re.compile(r"latest|v[0-9]+", re.ASCII | re.IGNORECASE)  # MLflow's own
KEYS = ("improvement",)


def read_gate(value: object) -> float:
    """Return the improvement over the champion, from a number or `{improvement: NUMBER}`.

    The improvement is in the metric's unit.
    """
    if isinstance(value, Mapping):
        for key in value:
            if key not in KEYS:
                raise fail("no such key", str(key), fix=nearest(key, KEYS), at_key=True)
        if "improvement" not in value:
            raise fail("is missing", "improvement", fix="give a number from 0 up", at_key=True)
        value = value["improvement"]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= float(value) < math.inf:  # type: ignore[arg-type]
        raise ValueError(f"is {shown(value)}; give a number from 0 up, in the metric's unit")
    return float(value)  # type: ignore[arg-type]


_AMOUNT = {"type": "number", "minimum": 0}
_IMPROVEMENT = {
    **{"type": "object", "properties": {"improvement": _AMOUNT}},
    **{"required": ["improvement"], "additionalProperties": False},
}
Gate = Annotated[
    float, PlainValidator(read_gate), WithJsonSchema({"anyOf": [_AMOUNT, _IMPROVEMENT]})
]


@dataclass(frozen=True)
class Register:
    """The registered model of the best trial, and when its version becomes the champion."""

    model: Word
    alias: Word = "champion"
    gate: Gate = 0.0  # least improvement over the alias's present version, in the metric's unit
    __pydantic_config__ = CLOSED

    def __post_init__(self) -> None:
        if set(self.model) & set("/:'\"%") or set(self.model) <= {"."}:
            message = "leave out slashes and colons, which MLflow refuses, and quotes and %"
            raise fail(f"is {shown(self.model)}", "model", fix=message)
        if not ALIAS.fullmatch(self.alias):
            message = "use letters, digits, '_' and '-', 255 at most"
            raise fail(f"is {shown(self.alias)}", "alias", fix=message)
        if RESERVED_ALIAS.fullmatch(self.alias):
            message = "which MLflow keeps to itself, like v1; choose another, such as champion"
            raise fail(f"is {shown(self.alias)}, {message}", "alias")


def register_problems(spec: "SweepSpec") -> Iterator[Problem]:
    """Check that there is one best trial with a checkpoint, and that MLflow hears of the sweep."""
    metrics = len(spec.objectives)
    if spec.register is None:
        return
    if metrics > 1:
        message = f"asks which trial is the best, and with {metrics} metrics there is a front"
        yield Problem(("register",), message, "remove it", at_key=True)
    if spec.engine.traits.simulated:
        message = "asks for a checkpoint, and a simulated trial has none"
        yield Problem(("register",), message, "remove it", at_key=True)
    if "mlflow" not in spec.tracking.send_to:
        message = "asks for MLflow, which is not in tracking.send_to"
        yield Problem(("register",), message, "add mlflow there", at_key=True)
