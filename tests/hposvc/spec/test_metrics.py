"""Metrics and limits on them."""

import math

from hposvc.spec.metrics import read_limit


def test_limits_bound_from_above_and_below_in_the_metrics_unit():
    assert read_limit("latency ms<=2e1").excess({"latency ms": 25.0}) == 5.0
    assert read_limit("acc >= 0.9").excess({"acc": 0.5}) == 0.4
    assert read_limit("acc >= 0.9").excess({"acc": math.nan}) == math.inf
