"""Rows of `hposvc trials`, of which a test names what it is about."""

from dataclasses import fields
from typing import Any

from hposvc.state.answers import Trial


def row(trial: str, state: str, value: float | None, **others: Any) -> Trial:
    """Return a trial's row; what is not given is 0 or empty."""
    empty = {each.name: "" if each.type is str else 0 for each in fields(Trial)}
    named = {"trial": trial, "state": state, "value": value}
    return Trial(**{**empty, "params": {}, "metrics": {}, **named, **others})
