"""What MLflow's recorder costs the training of a trial: with a core to spare, and without.

`python benchmarks/recorder.py` prints Markdown; README.md says what the figures mean.
"""

import argparse
from collections.abc import Sequence
from itertools import pairwise, product

from apart import Figures, measure
from tables import figure, heading, interval, median, table

HEAD = (
    "ranks, 2 cores",
    "batch",
    "ms an epoch, recorder halted",
    "at work",
    "more, % (95 %)",
    "waits for a core, more, % of time (95 %)",
    "recorder, % of a core",
    "reports/s",
)


def row(ranks: int, batch: int, figures: Figures) -> list[str]:
    """The cells of a measurement; what more an epoch takes is the median over pairs."""
    more = excess(figures["halted_ms"], figures["working_ms"])
    low, high = interval(more)
    waits = increase(figures["halted_wait"], figures["working_wait"])
    least, most = interval(waits)
    return [
        f"{ranks}",
        f"{batch}",
        figure(median(figures["halted_ms"]), 1),
        figure(median(figures["working_ms"]), 1),
        f"{figure(median(more))} ({figure(low)} – {figure(high)})",
        f"{figure(median(waits))} ({figure(least)} – {figure(most)})",
        figure(100 * figures["share"]),
        figure(figures["reports"], 1),
    ]


def excess(halted_ms: Sequence[float], working_ms: Sequence[float]) -> list[float]:
    """How many percent each stretch lies above those before and after it."""
    beside = [(before + after) / 2 for before, after in pairwise(halted_ms)]
    return [100 * (each / other - 1) for each, other in zip(working_ms, beside, strict=True)]


def increase(halted: Sequence[float], working: Sequence[float]) -> list[float]:
    """By how many hundredths each stretch lies above those before and after it."""
    beside = [(before + after) / 2 for before, after in pairwise(halted)]
    return [100 * (each - other) for each, other in zip(working, beside, strict=True)]


def show_trials(ranks: Sequence[int], batches: Sequence[int], pairs: int) -> None:
    """A row a number of ranks and size of batch."""
    rows = []
    for batch, count in product(batches, ranks):
        found = measure("beside_recorder.py", "epochs", ranks=count, batch=batch, pairs=pairs)
        rows.append(row(count, batch, found))
    print(f"DigitsCNN, a report an epoch, 1,437 samples; {pairs} pairs of stretches.\n")
    print(table(HEAD, rows))


def show_paced(rates: Sequence[float]) -> None:
    """A row a rate of reports."""
    found = [measure("paced_recorder.py", "paced", rate=rate) for rate in rates]
    rows = [
        [
            figure(one["reports"], 1),
            figure(100 * one["share"]),
            figure(1e3 * one["share"] / one["reports"], 1),
        ]
        for one in found
    ]
    print("A stand-in for the driver writes reports of 26 metrics; nothing trains.\n")
    print(table(("reports/s", "recorder, % of a core", "CPU ms a report"), rows))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=30, metavar="N", help="stretches of each kind")
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2], metavar="N")
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 16], metavar="N")
    parser.add_argument("--rates", type=float, nargs="*", default=[1, 2, 4, 8], metavar="HZ")
    options = parser.parse_args()
    print(heading())
    if options.ranks:
        show_trials(options.ranks, options.batches, options.pairs)
    if options.rates:
        show_paced(options.rates)


if __name__ == "__main__":
    main()
