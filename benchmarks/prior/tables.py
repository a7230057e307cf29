"""Tuning tables: random configurations of a model on a data set, each with its loss.

A table is a file, `tables/FAMILY-DATA.json.gz`. Axes: N configurations.
"""

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from searchers import Space

Array = NDArray[np.float64]
Params = Mapping[str, Any]
TABLES = Path(__file__).parent / "tables"


@dataclass(frozen=True)
class Table:
    """Losses of random configurations; lower is better."""

    family: str
    data: str
    space: Space
    configs: list[dict[str, Any]]
    losses: Array  # N; 10 where a training failed
    model: str  # a key of `models.MODELS`
    seconds: float  # of one core, for all of them

    @property
    def name(self) -> str:
        return f"{self.family}-{self.data}"


def load_tables(folder: Path = TABLES) -> list[Table]:
    """Return the tables in a folder, in the order of their names."""
    return [load_table(path) for path in sorted(folder.glob("*.json.gz"))]


def load_table(path: Path) -> Table:
    with gzip.open(path, "rt", encoding="utf-8") as file:
        told = json.load(file)
    space = Space.from_dict(told["space"])
    columns = told["columns"]  # null: the parameter is inactive
    configs = [
        {name: column[row] for name, column in columns.items() if column[row] is not None}
        for row in range(len(told["losses"]))
    ]
    losses = np.array(told["losses"], float)
    return Table(
        told["family"], told["data"], space, configs, losses, told["model"], told["seconds"]
    )


def save_table(table: Table, folder: Path = TABLES) -> None:
    """Write a table whole or not at all; equal tables give equal bytes."""
    told = {
        "family": table.family,
        "data": table.data,
        "model": table.model,
        "seconds": round(table.seconds, 1),
        "space": table.space.to_dict(),
        "columns": {name: [one.get(name) for one in table.configs] for name in table.space},
        "losses": [float(f"{loss:.6g}") for loss in table.losses],
    }
    text = json.dumps(told, separators=(",", ":"))
    partial = folder / f"{table.name}.partial"
    partial.write_bytes(gzip.compress(text.encode(), mtime=0))
    partial.replace(folder / f"{table.name}.json.gz")
