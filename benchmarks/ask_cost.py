"""What an ask costs after many observations: CPU time, with the model's refits.

The observations are told beforehand (`add`): random configurations of eight mixed parameters, with
noise. Then follow asks, each told its loss. A method that takes over a minute for one stops there.
"""

import math
import sys
import time
from collections.abc import Sequence

import numpy as np
import tables
from peers import roster
from peers.method import Params

from searchers import Choice, Float, Int, Space

COUNTS = (100, 500, 1000, 2000, 5000)
ASKS, PEER_ASKS = 25, 5
LONGEST = 60.0  # s
NOISE = 0.02
SPACE = Space(
    {
        "lr": Float(1e-5, 1.0, log=True),
        "decay": Float(1e-8, 0.1, log=True),
        "dropout": Float(0.0, 0.8),
        "momentum": Float(0.0, 0.99),
        "width": Int(16, 1024, log=True),
        "depth": Int(1, 20),
        "activation": Choice(("relu", "tanh", "gelu")),
        "batch": Choice((16, 32, 64, 128, 256), ordered=True),
    }
)


def loss(params: Params) -> float:
    """A smooth bowl with an effect of the choice and a ripple."""
    unit = SPACE.encode(params)
    kind = {"relu": 0.0, "tanh": 0.2, "gelu": 0.05}[params["activation"]]
    return float(np.sum((unit - 0.4) ** 2) + kind + 0.05 * math.sin(9 * unit[0]) * unit[1])


def seconds(method: str, count: int) -> list[float]:
    """CPU time of each ask and its tell after `count` results."""
    rng = np.random.default_rng(count)
    asks = PEER_ASKS if method in roster.PEERS else ASKS
    in_progress = roster.start(method, SPACE, 0, count + asks)
    for _ in range(count):
        told = SPACE.sample(rng)
        in_progress.add(told, loss(told) + NOISE * rng.normal())
    taken = []
    for _ in range(asks):
        began = time.process_time()
        params, asked = in_progress.ask()
        in_progress.tell(asked, loss(params) + NOISE * rng.normal())
        taken.append(time.process_time() - began)
        if taken[-1] > LONGEST:
            break
    return taken


def measure(methods: Sequence[str], counts: Sequence[int]) -> None:
    """Print the table of all methods; a dash where one was stopped before."""
    rows = []
    for method in methods:
        row, slowest = [method], 0.0
        for count in counts:
            if slowest > LONGEST:
                row.append("–")
                continue
            try:
                taken = seconds(method, count)
            except Exception as error:  # noqa: BLE001 - a peer's fault is its own
                print(f"{method} after {count}: {error!r}"[:300], file=sys.stderr)
                row.append("failed")
                continue
            slowest = max(taken)
            figures = 1e3 * np.quantile(taken, [0.5, 0.95, 1.0])
            row.append(" / ".join(tables.figure(value, 0) for value in figures))
            print(f"{method} after {count}: {row[-1]} ms of {len(taken)}", file=sys.stderr)
        rows.append(row)
    print(f"CPU ms: median / 95 % / longest of {ASKS} asks, of the peers {PEER_ASKS}.\n")
    print(tables.table(["observations", *(f"{count:,}" for count in counts)], rows))
