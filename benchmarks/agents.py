"""Trials a second, asked for and told: our server, and Optuna's ways to share a study.

`python benchmarks/agents.py` prints Markdown. Workers are threads of a few processes, and a trial
is one report of one number, so all that is measured is the exchange. `agents_exchange.py` has each
way.
"""

import argparse

from apart import measure
from tables import figure, heading, median, spread, table

WAYS = {
    "hposvc": "hposvc, HTTP, journal in SQLite",
    "proxy": "Optuna, gRPC proxy, storage in SQLite",
    "proxy_journal": "Optuna, gRPC proxy, journal storage",
    "journal": "Optuna, journal storage, without a server",
}
HEAD = ("", "trials/s", "ask, ms: p50", "p99", "tell, ms: p50", "p99", "trials", "twice or lost")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=64)
    parser.add_argument("--processes", type=int, default=4, help="that the workers are threads of")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--quick", action="store_true", help="small, to see that it works")
    chosen = parser.parse_args()
    if chosen.quick:
        chosen.workers, chosen.seconds, chosen.repeats = 8, 3.0, 1
    print(heading(("optuna", "fastapi", "uvicorn", "httpx", "grpcio")))
    print(
        f"{chosen.workers} workers; {chosen.seconds:g} s a run, {chosen.repeats} runs, in turn.\n"
    )
    runs = [
        {
            way: measure(
                "agents_exchange.py",
                way,
                workers=chosen.workers,
                processes=chosen.processes,
                seconds=chosen.seconds,
            )
            for way in chosen.only
        }
        for _ in range(chosen.repeats)
    ]
    rows = []
    for way in chosen.only:
        figures = [run[way] for run in runs]
        times = [
            figure(median([each[name] for each in figures]), 1)
            for name in ("ask_p50", "ask_p99", "tell_p50", "tell_p99")
        ]
        trials = sum(each["trials"] for each in figures)
        wrong = sum(each["wrong"] for each in figures)
        rates = [each["rate"] for each in figures]
        rows.append([WAYS[way], spread(rates, 0), *times, f"{trials:,}", f"{wrong}"])
    print(table(HEAD, rows))


if __name__ == "__main__":
    main()
