"""Sweeps that break programs that show them: empty, failed, hostile, infinite, very long."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from simulated_sweeps import make_spec

from hposvc import api
from hposvc.events import (
    Attached,
    Cause,
    Decided,
    Ended,
    Event,
    Failed,
    Finished,
    Ordered,
    Proposed,
    Reported,
)
from trainables.order import Order

HOSTILE = "<script>alert('x')</script><img src=x onerror=alert(1)>\"'&"
STEPS = 9


def trial_events(
    number: int,
    params: Mapping[str, Any],
    curve: Sequence[float],
    begun: float,
    failed: tuple[Cause, str] | None = None,
    metric: str = "loss",
) -> Iterator[Event]:
    """Yield the events of a trial whose order has its number; it fails, or ends by itself."""
    name = f"t{number:04d}"
    yield Proposed(begun, name, dict(params), {}, STEPS)
    yield Ordered(begun, Order(number, name, dict(params), None, first=1, until=STEPS))
    for step, value in enumerate(curve, 1):
        yield Reported(begun + step, number, name, step, {metric: value})
    after = begun + len(curve) + 0.5
    if failed is not None:
        yield Failed(after, number, name, *failed)
    elif len(curve) == STEPS:
        yield Ended(after, number, name)
    else:
        yield Decided(after, name, number, len(curve), "stop", "rung", "rank 9 of 9")
        yield Ended(after, number, name)


def record(sweeps: api.Sweeps, sweep: str, events: Sequence[Event], **sections: Any) -> api.Sweeps:
    """Record a sweep that has ended with these events of its trials."""
    api.create(sweeps, make_spec(**sections), sweep)
    last = events[-1].time if events else 1.0
    end = [Finished(last + 1, "COMPLETED", "trials")]
    sweeps.journal.append(sweep, 0, [Attached(1.0, "here:1"), *events, *end])
    return sweeps


def _all(trials: int, make: Callable[[int], Iterator[Event]]) -> list[Event]:
    return [event for number in range(1, trials + 1) for event in make(number)]


def fill(sweeps: api.Sweeps) -> list[str]:
    """Record the odd sweeps, and return their ids."""
    lr = {"lr": 0.01}
    record(sweeps, "empty", [])
    record(sweeps, "one", [*trial_events(1, lr, [0.5] * STEPS, 2.0)])
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
