"""Handles of recorded sweeps, for Python: from `hposvc.load(ID)` and `Sweep.submit`."""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from hposvc import api
from hposvc.analysis.findings import why
from hposvc.errors import Denied, Interrupted, NotFound, OutOfReach, SpecError
from hposvc.events import BECAUSE, NOTHING, Event, Verb
from hposvc.open_sweep import OpenSweep, Record, Status
from hposvc.reporting import comparison, comparison_checks, writing
from hposvc.reporting.result import Result
from hposvc.spec.extension import more_trials
from hposvc.state.answers import Best
from hposvc.state.receipt import RequestReceipt
from hposvc.state.summary import failures
from hposvc.verbs import resume
from hposvc.verbs.attest import attest
from hposvc.verbs.place import HomeSweeps, Place
from hposvc.verbs.propose import propose
from hposvc.views import result
from hposvc.views.console import console, lasting_stderr
from hposvc.views.live import LiveView

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")
R = TypeVar("R")
log = logging.getLogger("hposvc")


def without_our_frames(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with user errors' tracebacks cut to the caller's frame."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except (SpecError, NotFound, OutOfReach, Denied, Interrupted) as error:
            raise error.with_traceback(None) from None

    return call


def ray_address() -> str | None:
    """Return the address that Ray sets for its jobs, and people for Ray's own commands."""
    return os.environ.get("RAY_ADDRESS") or None


@without_our_frames
def load(sweep: str, home: Path | str | None = None) -> "Handle":
    """Return the handle of a sweep of this home: running, interrupted, or ended.

    Args:
        sweep: the sweep's id, the beginning of the id, or `last`.
        home: folder of the sweeps; None: HPOSVC_HOME, or ~/.hposvc.

    Raises:
        NotFound: there is no such sweep, or several ids begin with `sweep`.
    """
    sweeps = HomeSweeps.open(None if home is None else Path(home))
    return Handle(sweeps, api.load(sweeps, sweep).row.id)


@dataclass(frozen=True, repr=False)
class Handle:
    """A recorded sweep; every method reads its journal anew."""

    sweeps: Place  # those of a home, or of a server
    id: str

    def __repr__(self) -> str:
        return f"Handle({self.id!r})"

    def _repr_html_(self) -> str:
        return self.result()._repr_html_()

    def result(self) -> Result:
        """Return the sweep's result so far."""
        return self._result(self._open().record())

    def status(self) -> Status:
        """Return the sweep's status in a few figures, as `hposvc -o json status` prints them."""
        return self.result().record.status()

    def best(self) -> Best:
        """Return the best trial so far.

        Raises:
            NoValue: no trial has reported a value yet.
        """
        return self.result().best

    def trials(self) -> "pd.DataFrame":
        """Return a table with one row per trial; see `Result.trials`."""
        return self.result().trials

    def curves(self) -> "pd.DataFrame":
        """Return a table with one row per report; see `Result.curves`."""
        return self.result().curves

    def logs(self, trial: str | None = None, rank: int | None = None) -> list[dict[str, Any]]:
        """Return the ranks' logs, as `hposvc logs -o json` prints them.

        Args:
            trial: None: all failed trials, or if none failed, the last trial.
            rank: None: all ranks.
        """
        return self._open().logs(trial, rank)

    @without_our_frames
    def report(
        self,
        out: Path | str | None = None,
        form: writing.Format | None = None,
        others: Sequence["Handle"] = (),
    ) -> list[Path]:
        """Write the sweep's report, and return its files; the first is the one to open.

        Args:
            out: the file; None: `ID-report.html` in the current folder.
            form: html, md or json; None: by the ending of `out`.
            others: sweeps for sections of their own, which are compared with this one.
        """
        opened = [handle._open() for handle in (self, *others)]
        file = None if out is None else Path(out)
        return writing.report(opened, file, form, self.sweeps.home)

    @without_our_frames
    def attest(self, out: Path | str | None = None, key: Path | str | None = None) -> Path:
        """Write the best, and what stands behind it, into a signed file, as `hposvc attest` does.

        Args:
            out: the file; None: `ID-result.json` in the current folder.
            key: the signer's file of PEM; None: the home's own.
        """
        file, signer = (None if it is None else Path(it) for it in (out, key))
        return attest(self._open(), self.sweeps.home, file, signer)

    @without_our_frames
    def why(self) -> list[dict[str, Any]]:
        """Say what the sweep found and how sure that is, as `hposvc why -o json` prints it."""
        record = self._open().record()
        return [asdict(finding) for finding in why(record.row.id, record.state)]

    @without_our_frames
    def compare(
        self,
        others: Sequence["Handle"],
        by: Sequence[str] = (),
        cost: comparison_checks.Cost = "hours",
    ) -> dict[str, Any]:
        """Compare the sweep with others at equal cost, as `hposvc compare -o json` prints it.

        Args:
            by: dotted keys of the spec whose values make groups; empty: each sweep is one.
            cost: hours (GPU-hours, or worker-hours), trials or time.

        Raises:
            SpecError: the sweeps can't be compared.
        """
        opened = [handle._open() for handle in (self, *others)]
        return comparison.compare(opened, by, cost).data()

    def stop(self, trial: str | None = None) -> None:
        """Ask the sweep, or one trial, to stop; running trials stop at their next report."""
        self._steer("stop", trial)

    def kill(self, trial: str | None = None) -> None:
        """Ask for the sweep, or one trial, to be killed at once."""
        self._steer("kill", trial)

    def exclude(self, trial: str, because: str) -> tuple[str, ...]:
        """Let a trial count no longer; it stays in the record, and is stopped if it runs.

        Returns:
            the trials that went on from its weights.
        """
        return self._steer("exclude", trial, {BECAUSE: because}).copies

    def include(self, trial: str) -> None:
        """Let an excluded trial count again."""
        self._steer("include", trial)

    def pause(self) -> None:
        """Ask running trials to release their slots; `resume` continues them."""
        self._steer("pause")

    @without_our_frames
    def propose(
        self, params: Mapping[str, object], run: bool = False, code: str | None = None
    ) -> dict[str, Any]:
        """Return what the model thinks of a configuration, as `hposvc -o json propose` prints it.

        Args:
            params: values of some parameters, or all; the model chooses the others.
            run: have the sweep train it; False: only ask.
            code: a patch or commit, a version of the code that joins the sweep; parameters that
                are left out have the values of the best trial. None: no other version.

        Raises:
            SpecError: no configuration of the sweep has these values, or no version can join it.
        """
        return propose(self.sweeps, self.id, dict(params), run, code)

    @without_our_frames
    def resume(self, progress: bool = True, accept_code: bool = False) -> Result:
        """Continue the sweep in this process, or on its server, and return when it has ended.

        Args:
            progress: show progress on stderr.
            accept_code: continue although the trainable's source has changed.

        Raises:
            Busy: another driver is running the sweep.
            SpecError: the trainable's source has changed.
            OutOfReach: the cluster can't be reached.
        """
        trained = resume.resume(
            self.sweeps, self.id, accept_code, ray_address(), self._watching(progress)
        )
        return conclude(self.sweeps, trained.record, progress)

    @without_our_frames
    def extend(
        self,
        trials: int | None = None,
        set: Mapping[str, object] = NOTHING,
        progress: bool = True,
    ) -> Result:
        """Raise the sweep's limits: more trials, longer trials, or a larger budget.

        An ended sweep continues in this process, or on its server, and the call returns when it
        has ended again.
        If a driver is running the sweep, the driver takes the new limits, and the call returns
        at once.

        Args:
            trials: how many trials to add to the limit.
            set: new limits by their dotted keys, as `hposvc extend --set` takes them.
            progress: show progress on stderr.

        Raises:
            SpecError: a key is no limit, or its value does not fit.
        """
        return self._renew("extend", None, more_trials(set, trials), progress)

    @without_our_frames
    def retry(self, trial: str | None = None, progress: bool = True) -> Result:
        """Retry a failed trial from its last checkpoint; without `trial`, all failed trials.

        Where the trials run, and when the call returns: see `extend`.

        Raises:
            NotFound: there is no such trial, or it did not fail.
        """
        return self._renew("retry", trial, NOTHING, progress)

    @without_our_frames
    def wait(self, progress: bool = True) -> Result:
        """Wait until the sweep has ended or is paused, and return its result.

        Args:
            progress: show a server's sweep on stderr.

        Raises:
            OutOfReach: the driver ended before the sweep did; call `resume`.
        """
        return self._result(self.sweeps.wait(self.id, self._watching(progress)))

    def _watching(self, progress: bool) -> api.Watching:
        """Return what shows the sweep while it goes on, if `progress`."""
        if self.sweeps.url:
            opener = f"hposvc.connect({self.sweeps.url!r}).load"
            return partial(driving, progress=progress, opener=opener)
        return partial(driving, progress=progress)

    def _result(self, record: Record) -> Result:
        return Result(self.id, record.phase, record, self._events)

    def _steer(
        self, verb: Verb, trial: str | None = None, changes: Mapping[str, object] = NOTHING
    ) -> RequestReceipt:
        return self.sweeps.steer(self.id, verb, trial, changes)

    def _renew(
        self, verb: Verb, trial: str | None, changes: Mapping[str, object], progress: bool
    ) -> Result:
        """Return the result of a sweep that went on here, or of one that a driver has."""
        watching = self._watching(progress)
        answer = self.sweeps.renew(self.id, verb, trial, changes, ray_address(), watching)
        if isinstance(answer, Record):
            return conclude(self.sweeps, answer, progress)
        return self.result()

    def _open(self) -> OpenSweep:
        return OpenSweep(self.sweeps, self.id)

    def _events(self) -> Iterator[Event]:
        yield from self._open().history()[1]


@contextmanager
def driving(sweep: str, progress: bool, opener: str = "hposvc.load") -> Iterator[list[LiveView]]:
    """Show a sweep on stderr while it is driven, if `progress`.

    Args:
        opener: the function that opens the sweep elsewhere.

    Raises:
        Interrupted: by Ctrl-C; the message says how to go on.
    """
    try:
        if not progress:
            yield []
            return
        console(sys.stderr).print(f"{sweep}: look at it from elsewhere by {opener}({sweep!r})")
        with lasting_stderr() as stderr, LiveView(sweep, stderr) as view:
            yield [view]
    except Interrupted:
        message = f"{sweep}: go on with hposvc.load({sweep!r}).resume(), or `hposvc resume {sweep}`"
        raise Interrupted(message) from None


def conclude(sweeps: Place, record: Record, progress: bool) -> Result:
    """Return the result of a sweep that was driven; with `progress`, print a summary on stderr."""
    if progress:
        stderr = console(sys.stderr)
        if failed := failures(record.state):
            stderr.print(result.failures(record.row.id, failed))
        stderr.print(*result.summary(record, sweeps.home), sep="\n", crop=False)
    elif record.behind:
        log.warning("%s", result.describe_backlog(record))
    return Handle(sweeps, record.row.id).result()
