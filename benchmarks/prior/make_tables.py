"""Make tuning tables by real trainings: `python -m prior.make_tables [FAMILY ...]`.

Run it in this folder's parent; README.md says what has to be installed. Tables that exist are
skipped, so it goes on where it was ended. First comes a data set of each family, then a second one.
"""

import os
import sys
import time
import zlib
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context

import numpy as np

from prior.cells import CELLS, MODELS, Cell
from prior.spaces import draw, own_names, sample
from prior.tables import TABLES, Table, save_table

CONFIGS = 300
FEWEST = 120  # however long they take
SECONDS = 50.0  # of one core, for a table; no more configurations then
PROCESSES = 2


def make(cell: Cell) -> Table:
    """Train random configurations of a space that the cell's name determines."""
    rng = np.random.default_rng(zlib.crc32(f"{cell.family}-{cell.data}".encode()))
    parameters, loss = MODELS[cell.model]
    space = draw(parameters, rng)
    configs, losses, keys = [], [], set()
    began = time.process_time()
    while len(configs) < CONFIGS:
        seconds = time.process_time() - began
        if seconds > SECONDS and len(configs) >= FEWEST:
            break
        params = sample(space, rng)
        if space.key(params) in keys:
            if len(keys) == space.size:
                break
            continue
        keys.add(space.key(params))
        configs.append(params)
        losses.append(loss(own_names(parameters, params), cell.data))
    return Table(
        cell.family, cell.data, space, configs, np.array(losses), cell.model,
        time.process_time() - began,
    )  # fmt: skip


def make_and_save(cell: Cell) -> str:
    table = make(cell)
    save_table(table)
    low, middle = np.min(table.losses), np.median(table.losses)
    return (
        f"{table.name}: {len(table.losses)} configurations of {', '.join(table.space)} in "
        f"{table.seconds:.0f} s, losses {low:.4g} to {middle:.4g} (median), "
        f"{np.mean(table.losses >= 10):.0%} at 10"
    )


def main(families: list[str]) -> None:
    TABLES.mkdir(exist_ok=True)
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # the processes read them when they import numpy
    wanted = [cell for cell in CELLS if not families or cell.family in families]
    missing = [c for c in wanted if not (TABLES / f"{c.family}-{c.data}.json.gz").exists()]
    began = time.monotonic()
    with ProcessPoolExecutor(PROCESSES, get_context("spawn")) as pool:
        futures = {pool.submit(make_and_save, cell): cell for cell in missing}
        for done, future in enumerate(as_completed(futures), 1):
            said = f"[{time.monotonic() - began:.0f} s, {done}/{len(missing)}]"
            error = future.exception()  # the others go on, and this one is made by the next run
            cell = futures[future]
            name = f"{cell.family}-{cell.data}"
            print(said, future.result() if error is None else f"{name}: {error!r}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
