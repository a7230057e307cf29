"""How long it takes from what people have to the first result, by each page's first example.

`python benchmarks/first_result.py` prints Markdown. Each page of docs/ that is for users of another
library, or its section, begins with a whole example. It runs here as a user would run it: in a new
process, in an empty folder and with an empty home. `--install` also times `pip install` into a new
environment.
"""

import argparse
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from pathlib import Path

from tables import heading, table

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LIMIT_S = 600
# What one has, and the page for it.
PAGES = {
    "a script with argparse": "how-to/scripts.md",
    "an Optuna study": "how-to/optuna.md",
    "a scikit-learn estimator": "how-to/scikit-learn.md",
    "XGBoost or LightGBM": "how-to/frameworks.md#xgboost-and-lightgbm",
    "a Hydra application": "how-to/hydra.md",
    "a Hugging Face Trainer": "how-to/frameworks.md#transformers-and-trl",
    "a Lightning module": "how-to/frameworks.md#lightning",
    "a Keras model": "how-to/frameworks.md#keras",
    "a notebook": "how-to/your-code.md",
}


def commands(page: str) -> tuple[Mapping[str, str], list[str]]:
    """Return the files and the command of the first example of a page, or of its section.

    Python alone is run. With a spec behind it, `hposvc run` runs the spec; with a shell's lines
    behind it, the one that calls Python is run.
    """
    path, _, anchor = page.partition("#")
    text = (ROOT / "docs" / path).read_text()
    title = anchor.replace("-", " ")
    begin = text.lower().index(f"\n## {title}\n") if anchor else 0
    (_, code), *others = BLOCK.findall(text[begin:])
    language, text = others[0] if others else ("", "")
    files = {"train.py": code}
    if language == "yaml":
        return files | {"sweep.yaml": text}, [sys.executable, "-m", "hposvc", "run", "sweep.yaml"]
    if language == "bash":
        (line,) = (line for line in text.splitlines() if line.startswith("python "))
        return files, [sys.executable, *shlex.split(line)[1:]]
    return files, [sys.executable, "train.py"]


def seconds(page: str) -> float:
    """Return how long a page's first example takes."""
    files, command = commands(page)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            Path(folder, name).write_text(text)
        environment = {**os.environ, "HPOSVC_HOME": f"{folder}/home", "PYTHONPATH": f"{ROOT}"}
        began = time.perf_counter()
        ran = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=LIMIT_S
        )
        took = time.perf_counter() - began
    if ran.returncode:
        raise SystemExit(f"{page} fails:\n{ran.stdout}{ran.stderr}")
    return took


def install_seconds() -> float:
    """Return how long pip takes to install the project and all that it needs."""
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        began = time.perf_counter()
        subprocess.run(
            [f"{folder}/bin/pip", "install", "-q", "-c", "constraints.txt", "."],
            cwd=ROOT,
            check=True,
        )
        return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one page, to see that it works")
    parser.add_argument("--install", action="store_true", help="time the installation, too")
    arguments = parser.parse_args()
    print(heading())
    if arguments.install:
        print(f"`pip install -c constraints.txt .`: {install_seconds():.0f} s.\n")
    pages = dict([next(iter(PAGES.items()))]) if arguments.quick else PAGES
    rows = [[what, page, f"{seconds(page):.0f}"] for what, page in pages.items()]
    print(table(["what one has", "page", "s"], rows))


if __name__ == "__main__":
    main()
