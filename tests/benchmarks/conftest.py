"""The benchmarks are scripts, so their folder is where their modules are found: at the path's end,
since one of them has the name of the package `searchers`.
"""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
