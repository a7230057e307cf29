"""A chart: data that a program can read, and what they say in a sentence."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hposvc.text import finite

DIGITS = 6  # significant digits of a number in a chart's data


@dataclass(frozen=True)
class Chart:
    """A picture of a sweep as data; the page `charts` documents the columns of each kind."""

    kind: str  # the name of its module in reporting/charts
    title: str
    message: str  # what it says of this sweep, in one sentence
    data: Mapping[str, Any]  # JSON: floats are short, and those that are not finite are None

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", finite(self.data, DIGITS))
