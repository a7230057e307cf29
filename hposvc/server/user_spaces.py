"""Define-by-run spaces of submitted sweeps, called in a process of their own.

The server imports no code of users. This process has a time limit, none of the server's variables
but those of any program, and whatever it answers is checked like a spec from anywhere.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from hposvc.errors import Problem, SpecError, fail
from hposvc.spec import paths
from hposvc.spec.define_by_run import SPACE, resolve_space

TIMEOUT_S = 30.0
MAX_BYTES = 2**20  # of the answer, as of a spec
VARIABLES = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "PYTHONPATH",
    "VIRTUAL_ENV",
    "LD_LIBRARY_PATH",
)


def resolve(
    data: Mapping[str, object], folder: Path, timeout_s: float = TIMEOUT_S
) -> dict[str, object]:
    """Return a spec's data with plain parameters, if a function of the user's suggests them.

    Args:
        folder: of the sweep's files.

    Raises:
        SpecError: the function cannot be imported, takes too long, or no declaration can hold what
            it suggests.
    """
    parameters = data.get("parameters")
    if not isinstance(parameters, Mapping) or not isinstance(parameters.get("space"), str):
        return dict(data)
    with tempfile.TemporaryFile() as answer:
        _call(json.dumps({"data": dict(data), "folder": f"{folder}"}), folder, answer, timeout_s)
        answer.seek(0)
        text = answer.read(MAX_BYTES + 1)
    try:
        answered = json.loads(text)
        problems = [_problem(*fields) for fields in answered.get("problems", ())]
        located = {} if problems else {key: answered[key] for key in ("parameters", "tags")}
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError) as error:
        message = "its process ended without parameters, or with more than a spec can hold"
        raise fail(message, *SPACE) from error
    if problems:
        raise SpecError(problems)
    return {**data, **located}


def _problem(path: list[object], message: object, fix: object) -> Problem:
    """Return a problem that the process found, whatever the process made of it."""
    parts = tuple(part for part in path if isinstance(part, str | int))
    return Problem(parts, f"{message}", f"{fix}")


def _call(question: str, folder: Path, answer: IO[bytes], timeout_s: float) -> None:
    """Let a child process answer into a file, and end all that it began."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "hposvc.server.user_spaces"],
        stdin=subprocess.PIPE,
        stdout=answer,
        stderr=subprocess.DEVNULL,
        cwd=folder,
        env={name: os.environ[name] for name in VARIABLES if name in os.environ},
        start_new_session=True,
    )
    try:
        process.communicate(question.encode(), timeout_s)
    except subprocess.TimeoutExpired:
        fix = "let it only suggest values"
        raise fail(f"took more than {timeout_s:g} s", *SPACE, fix=fix) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _answer() -> None:
    """Answer the question on stdin; what the user's code prints goes nowhere."""
    question = json.load(sys.stdin)
    with os.fdopen(os.dup(1), "w") as out:
        os.dup2(2, 1)
        try:
            paths.import_first(question["folder"])
            data = resolve_space(paths.locate(question["data"], Path(question["folder"])))
            answer = {"parameters": data["parameters"], "tags": data.get("tags", {})}
            text = json.dumps(answer)
        except SpecError as error:
            problems = [(problem.path, problem.message, problem.fix) for problem in error.problems]
            text = json.dumps({"problems": problems})
        except Exception as error:  # noqa: BLE001 - whatever the user's code raises
            message = f"fails when it is called: {type(error).__name__}: {error}"
            text = json.dumps({"problems": [[SPACE, message, ""]]})
        out.write(text)


if __name__ == "__main__":
    _answer()
