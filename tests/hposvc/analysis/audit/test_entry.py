import json
import math

from hposvc.analysis.audit.entry import Line


def test_a_line_is_json_with_null_for_what_is_not_finite():
    detail = {"value": math.nan, "rivals": [{"value": -math.inf}, (1.5, math.inf)], "of": 3}
    data = Line(1.0, 2, "stopped", "by ASHA", detail).data()
    assert json.loads(json.dumps(data, allow_nan=False)) == {
        "time": 1.0,
        "step": 2,
        "what": "stopped",
        "why": "by ASHA",
        "detail": {"value": None, "rivals": [{"value": None}, [1.5, None]], "of": 3},
    }
