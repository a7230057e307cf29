"""Events come from a server as they were recorded."""

import json
import math

from hposvc.events import Reported, WarmStarted, to_json
from hposvc.remote.server.event_data import event_from_data
from searchers.searcher import Observation


def words(value):
    """Return data as a server sends it, with words for numbers that JSON has not."""
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dict):
        return {key: words(item) for key, item in value.items()}
    return [words(item) for item in value] if isinstance(value, list) else value


def test_events_come_as_they_were_recorded():
    curve = ((1, math.inf), (2, 0.5))
    seen = Observation("s/t1", {"kind": "NaN", "x": 1.0}, {}, -math.inf, curve=curve)
    for event in (
        Reported(3.0, 1, "t0001", 2, {"loss": math.nan, "best": -math.inf, "speed": 2.5}),
        WarmStarted(1.0, (seen,)),
    ):
        data = json.loads(json.dumps(words(json.loads(to_json(event))), allow_nan=False))
        assert to_json(event_from_data(event.kind, event.time, data)) == to_json(event)
