"""A chart: data that a program can read, and what they say in a sentence."""

import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from hposvc.text import finite

DIGITS = 6  # significant digits of a number in a chart's data
PLAIN = 4096  # characters of JSON that are not worth compressing


@dataclass(frozen=True)
class Chart:
    """A picture of a sweep as data; the page `charts` documents the columns of each kind."""

    kind: str  # the name of its module in reporting/charts
    title: str
    message: str  # what it says of this sweep, in one sentence
    data: Mapping[str, Any]  # JSON: floats are short, and those that are not finite are None

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", finite(self.data, DIGITS))


def packed(data: Any) -> Markup:
    """Return a script element with JSON, compressed if it is long."""
    text = json.dumps(finite(data, DIGITS), separators=(",", ":"))
    if len(text) < PLAIN:
        # No text of a user may end the element.
        return Markup('<script type="application/json">{}</script>').format(
            Markup(text.replace("<", "\\u003c").replace("&", "\\u0026"))
        )
    body = base64.b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode()
    return Markup('<script type="application/json" data-encoding="gzip">{}</script>').format(body)
