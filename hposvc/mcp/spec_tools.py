"""The tools that read a spec; each call has a process of its own, which imports the code anew.

A token is a keyed hash of the frozen spec and its code, so it is stored nowhere. The key is a file
of this home, which only its user can read: whoever has not called `plan` has no token.
"""

import faulthandler
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from cluster.tokens import make_token
from hposvc import api
from hposvc import spec as specs
from hposvc.errors import FixableError, OutOfReach, SpecError, fail
from hposvc.events import NOTHING
from hposvc.remote import cluster_server
from hposvc.spec import SweepSpec, fingerprint, registry
from hposvc.state.doubts import repeated_points
from hposvc.verbs import plan as planning
from hposvc.verbs.place import HomeSweeps, Place

NO_BUDGET = "give budget.wall (like 2h), budget.gpu_hours, budget.cpu_hours or budget.cost"
QUESTION = "hposvc.analysis.forecast.plan:Question"
LEFT_OUT = ("rungs", "checkpoint", "memory", "simulated")  # of a plan's data
LIMIT_S = 180.0  # for a call; of it a driver may need BEGIN_S of hposvc/verbs/background.py
SHOWN = 6  # lines of where a process was when it ended
Answer = dict[str, Any]
Settings = Mapping[str, Any]


@dataclass(frozen=True)
class SpecTools:
    """The tools for a home, or for a server; each returns data for JSON."""

    place: Place

    def validate(self, spec: str, set: Settings = NOTHING) -> Answer:
        """Check a spec without running it. Returns it as it was understood, without defaults."""
        checked = self._read(spec, set)
        doubts = [f"{problem}" for problem in repeated_points(checked)]
        return {"valid": True, "spec": specs.given(checked), "doubts": doubts}

    def plan(
        self, spec: str, set: Settings = NOTHING, seconds_per_step: float | None = None
    ) -> Answer:
        """Preview a sweep: trials, hours, money and wall time with 90% intervals, what is unknown,
        what would save most, and the token that submit needs. Runs nothing. seconds_per_step: if
        no earlier sweep of this code shows it."""
        checked = self._read(spec, set)
        # By name: loading torch takes seconds, which other tools need not wait.
        question = registry.resolve(QUESTION)(seconds_per_step=seconds_per_step)
        data = planning.plan(self.place, checked, question).data()
        figures = {name: value for name, value in data.items() if name not in LEFT_OUT}
        figures |= {"savings": data["savings"][:3], "budget": vars(checked.budget)}
        try:
            sweep, token = self._preview(checked)
        except SpecError as error:
            return {**figures, "refused": f"{error}"}
        return {**figures, "sweep": sweep, "token": token}

    def submit(self, spec: str, token: str, set: Settings = NOTHING) -> Answer:
        """Run the sweep that plan showed: same spec and set, and its token. The spec needs a
        budget. Sent again, it returns the same sweep. The sweep goes on without you."""
        checked = self._read(spec, set)
        sweep, right = self._preview(checked)
        if token != right:
            message = "does not fit this spec, `set` and code: one of them has changed, or there"
            fix = "call `plan` with them, and look at it"
            raise fail(f"{message} was no preview", "token", fix=fix)
        return {"sweep": sweep, "state": self.place.begin_apart(checked, sweep)}

    def _read(self, spec: str, set: Settings) -> SweepSpec:
        """Read and check a spec; on a server, the operator's defaults may complete it."""
        if "\n" in spec:
            raise fail("is the text of a spec", "spec", fix="write it to a file; give its path")
        return (specs.check_for_server if self.place.url else api.validate)(Path(spec), set)

    def _preview(self, spec: SweepSpec) -> tuple[str, str]:
        """Return the id of the spec's sweep in this place, and its token.

        Raises:
            SpecError: the spec has no budget, or a file of its code does not exist.
        """
        if not spec.budget.limited:
            raise fail("is missing: an agent's sweep needs a limit", "budget", fix=NO_BUDGET)
        made_of = [specs.dump(spec), fingerprint.describe(spec), self.place.url]
        file = self.place.home.path / "mcp.key"
        make_token(file)
        frozen = json.dumps(made_of, sort_keys=True).encode()
        digest = hmac.digest(file.read_bytes(), frozen, "sha256").hex()
        return f"{spec.name}-{digest[:10]}", digest[10:42]


def apart(place: Place, name: str, **arguments: object) -> Answer:
    """Return the answer of a method of SpecTools, called in a process of its own.

    Raises:
        OutOfReach: the process died, as it does by itself after LIMIT_S.
    """
    spawning = get_context("spawn")
    answers, sender = spawning.Pipe(duplex=False)
    with NamedTemporaryFile("r") as trace, answers:
        given = (sender, trace.name, LIMIT_S, place.home.path, place.url, name, arguments)
        # No pool: its worker waits for ever if this process is killed before it has sent the task.
        process = spawning.Process(target=_answer, args=given)
        process.start()
        sender.close()
        wait([answers, process.sentinel])
        try:
            if not answers.poll():  # a process that the user's code forked keeps the pipe open
                raise EOFError
            answer: Answer | FixableError | SpecError = answers.recv()
        except EOFError as error:
            last = "".join(trace.readlines()[:SHOWN]) or "os._exit, or out of memory?"
            message = f"the process with the spec's code ended before it had answered:\n{last}"
            raise OutOfReach(message.strip(), f"a call may take {LIMIT_S:g} s") from error
        finally:
            process.kill()  # threads of the user's code could keep it
            process.join()
    if isinstance(answer, Exception):
        raise answer
    return answer


def _answer(
    sender: Connection,
    trace: str,
    limit_s: float,
    home: Path,
    url: str,
    name: str,
    arguments: Mapping[str, object],
) -> None:
    """Send a tool's answer, or its error.

    A process that needs longer than the limit crashes, with where it was in the file `trace`.
    """
    file = os.open(trace, os.O_WRONLY)  # stays open, as faulthandler demands
    faulthandler.enable(file)
    faulthandler.dump_traceback_later(limit_s, exit=True, file=file)
    try:
        place = cluster_server.at(url, home=home) if url else HomeSweeps.open(home)
        sender.send(getattr(SpecTools(place), name)(**arguments))
    except (FixableError, SpecError) as error:
        sender.send(error)
    except Exception as error:
        os.write(file, f"{type(error).__name__}: {error}\n".encode())
        raise
