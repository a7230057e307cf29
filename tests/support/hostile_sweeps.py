"""Sweeps that break programs that show them: empty, failed, hostile, infinite, very long."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from simulated_sweeps import make_spec
from sweep_stories import trial, trial_name

from hposvc import api
from hposvc.events import Attached, Cause, Event, Failed, Finished

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&"
STEPS = 9


def trial_events(
    number: int,
    params: Mapping[str, Any],
    curve: Sequence[float],
    begun: float,
    failed: tuple[Cause, str] | None = None,
    metric: str = "loss",
) -> list[Event]:
    """Return the events of a trial whose order has its number; it fails, or ends by itself."""
    end = failed and Failed(begun + len(curve) + 0.5, number, trial_name(number), *failed)
    return trial(number, curve, begun, 1.0, end, metric, params=params)


def record(sweeps: api.Sweeps, sweep: str, events: Sequence[Event], **sections: Any) -> api.Sweeps:
    """Record a sweep that has ended with these events of its trials."""
    api.create(sweeps, make_spec(**sections), sweep)
    last = events[-1].time if events else 1.0
    end = [Finished(last + 1, "COMPLETED", "trials")]
    sweeps.journal.append(sweep, 0, [Attached(1.0, "here:1"), *events, *end])
    return sweeps


def _all(trials: int, make: Callable[[int], list[Event]]) -> list[Event]:
    return [event for number in range(1, trials + 1) for event in make(number)]


def fill(sweeps: api.Sweeps) -> list[str]:
    """Record the odd sweeps, and return their ids."""
    lr = {"lr": 0.01}
    record(sweeps, "empty", [])
    record(sweeps, "one", trial_events(1, lr, [0.5] * STEPS, 2.0))
    record(
        sweeps,
        "failed",
        _all(3, lambda n: trial_events(n, lr, [], 10.0 * n, ("user", f"{HOSTILE}: no luck"))),
        stop={"max_failed": {"share": 1.0}},
    )
    odd = {1: math.nan, 2: math.inf, 3: -math.inf, 4: 1e308, 5: -0.0, 6: 5e-324}
    record(
        sweeps,
        "infinite",
        _all(6, lambda n: trial_events(n, lr, [1.0] * (STEPS - 1) + [odd[n]], 20.0 * n)),
    )
    record(
        sweeps,
        "bare",
        _all(2, lambda n: trial_events(n, {}, [1.0 / n] * STEPS, 20.0 * n)),
        parameters={"width": 64},
    )
    record(
        sweeps,
        "conditional",
        _all(
            4,
            lambda n: trial_events(
                n,
                {"optimizer": "sgd", "momentum": 0.1 * n} if n % 2 else {"optimizer": None},
                [1.0 / n] * STEPS,
                20.0 * n,
            ),
        ),
        parameters={
            "optimizer": {"values": ["sgd", None]},
            "momentum": {"min": 0.0, "max": 1.0, "when": {"optimizer": "sgd"}},
        },
    )
    record(
        sweeps,
        "hostile",
        _all(
            3,
            lambda n: trial_events(
                n,
                {"kind": HOSTILE if n % 2 else "b", HOSTILE: n},
                [1.0 / n] * STEPS,
                20.0 * n,
                ("user", HOSTILE) if n == 3 else None,
                metric=HOSTILE,
            ),
        ),
        parameters={"kind": {"values": [HOSTILE, "b"]}},
        metric={"name": HOSTILE, "goal": "minimize"},
        tags={"note": HOSTILE},
        description=HOSTILE,
    )
    return ["empty", "one", "failed", "infinite", "bare", "conditional", "hostile"]
