"""Searchers held against each other: ours, and the peers that are installed.

`python benchmarks/searchers.py [--quick] [--table] [--latency]` prints Markdown; README.md says
what the figures mean.

This file has the name of the package that it measures, and Python looks into a script's folder
first: so, to any benchmark that imports `searchers`, it gives way.
"""

import os
import sys
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent


def give_way() -> None:
    """Import the package of this name: the installed one, else the one beside this folder."""
    before = list(sys.path)
    sys.modules.pop("searchers", None)
    elsewhere = [entry for entry in before if Path(entry).resolve() != HERE]
    sys.path[:] = [*elsewhere, str(HERE.parent)]
    try:
        import_module("searchers")
    finally:
        sys.path[:] = before


give_way()
if __name__ == "__main__":
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")  # numpy reads them when it is imported
    from contest import main

    main()
