"""The command of `public.py`: what to run, and what to print."""

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Sequence
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import runs
import tables

from suites import attainment, players
from suites.catalogue import SUITES, Key, build

PACKAGES = (
    *("numpy", "coco-experiment", "ioh", "optuna", "cma", "nevergrad"),
    *("smac", "hebo", "botorch", "ax-platform", "torch"),
)
Job = tuple[str, Key, int]  # method, problem, evaluations


def main() -> None:
    args = _parser().parse_args()
    _quiet()
    keys = [key for suite in args.suites for key in SUITES[suite].keys(suite) if _is_in(key, args)]
    if args.quick:
        keys, args.budget = keys[:2], 12
    if not args.table:
        race(keys, args)
    if args.race:
        return
    print(tables.heading(PACKAGES))
    print(attainment.report(_wanted(keys, args), args.against, args.at))
    if args.picture:
        from suites.picture import draw  # takes a package of its own

        draw(_wanted(keys, args), args.at[-1], args.picture)


def race(keys: Sequence[Key], args: argparse.Namespace) -> None:
    """Make the runs that are not there yet."""
    done = {
        (run.method, run.problem)
        for run in runs.kept(args.results)
        if len(run.incumbent) >= args.budget
    }
    methods = {key.suite: SUITES[key.suite].methods for key in keys}
    wanted = [method for method in args.methods or players.ALL if _is_here(method)]
    jobs = [
        (method, key, args.budget)
        for key in keys
        for method in wanted
        if method in methods[key.suite] and (method, key.name) not in done
    ]
    with get_context("spawn").Pool(args.processes, _quiet) as pool:
        for said, run in pool.imap_unordered(_searched, jobs):
            if run is not None:
                runs.keep(run, args.results)
            print(said, file=sys.stderr, flush=True)


def search(method: str, key: Key, budget: int) -> runs.Run:
    """Evaluate `budget` configurations one after the other; the seed is the problem's instance."""
    problem = build(key)
    player = players.start(method, problem, key.instance, budget)
    configurations, outcomes, ask_ms = [], [], []
    for _ in range(budget):
        began = time.process_time()
        params, asked = player.ask()
        seconds = time.process_time() - began
        configurations.append(params)
        outcomes.append(problem.evaluate(params))
        began = time.process_time()
        player.tell(asked, outcomes[-1])
        ask_ms.append(1e3 * (seconds + time.process_time() - began))
    gaps = problem.gaps(configurations, outcomes)
    return runs.Run(method, key.name, key.instance, 1, gaps, np.round(ask_ms, 2).tolist())


def _searched(job: Job) -> tuple[str, runs.Run | None]:
    """Return a line about a run, and the run; None: the peer failed."""
    method, key, budget = job
    began = time.perf_counter()
    try:
        run = search(method, key, budget)
    except Exception as error:
        if method in players.OURS:
            raise  # a fault of ours is to be seen; a peer's is its own
        return f"{method} {key.name}: {error!r}"[:300], None
    took = time.perf_counter() - began
    return f"{method} {key.name}: {run.incumbent[-1]:.5g}, {took:.1f} s", run


def _quiet() -> None:
    warnings.simplefilter("ignore")  # the libraries have many
    logging.disable(logging.WARNING)


def _is_here(method: str) -> bool:
    """Whether a method is installed; a line says what is not."""
    problem = players.missing(method)
    if problem:
        print(f"{method} is left out: {problem}", file=sys.stderr)
    return not problem


def _is_in(key: Key, args: argparse.Namespace) -> bool:
    """Whether a problem is of the part of its suite that the command names."""
    instances = SUITES[key.suite].instances[: args.instances]
    chosen = SUITES[key.suite].functions[:: args.every]
    return (
        key.function in chosen
        and key.instance in instances
        and (not args.dimensions or key.dimensions in args.dimensions)
    )


def _wanted(keys: Sequence[Key], args: argparse.Namespace) -> list[tuple[Key, runs.Run]]:
    """Return the kept runs that the command is about; of a method, all that it has."""
    known = {key.name: key for key in keys}
    return [
        (known[run.problem], run)
        for run in runs.kept(args.results)
        if run.problem in known and (not args.methods or run.method in args.methods)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="public.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two problems, to see that it works")
    parser.add_argument("--table", action="store_true", help="only print what was run before")
    parser.add_argument("--race", action="store_true", help="only run; print no table")
    parser.add_argument("--suites", nargs="+", choices=SUITES, default=list(SUITES))
    parser.add_argument("--methods", nargs="+", choices=players.ALL, metavar="METHOD")
    parser.add_argument("--dimensions", type=int, nargs="+", help="of the problems; default: all")
    parser.add_argument(
        "--every", type=int, default=1, help="2: every second function, from the 1st"
    )
    parser.add_argument("--instances", type=int, default=9, help="of each function; default: all")
    parser.add_argument("--budget", type=int, default=100, help="evaluations of a run")
    parser.add_argument("--at", type=int, nargs="+", default=[25, 50, 100], help="what tables show")
    parser.add_argument(
        "--against", default="gp", help="the method that the others are paired with"
    )
    parser.add_argument("--processes", type=int, default=1, help="runs at the same time")
    parser.add_argument("--picture", type=Path, help="draw attainment over evaluations into it")
    parser.add_argument("--results", type=Path, default=runs.folder().parent / "public")
    return parser
