"""Sweeps from Python: `Sweep(trainable=train, metric=..., parameters=...).run()`."""

import hashlib
import logging
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle

from hposvc import api
from hposvc import spec as specs
from hposvc.plugins import REFERENCE
from hposvc.remote import following, submission
from hposvc.result import Best, Result
from hposvc.runner import Interrupted
from hposvc.views import outcome
from hposvc.views.console import console
from hposvc.views.live import Watching
from trainables.load import PICKLE

if TYPE_CHECKING:
    import pandas as pd

NOTHING: Mapping[str, object] = {}
log = logging.getLogger("hposvc")


class Sweep:
    """A sweep that is not recorded yet.

    Args:
        trainable: a class or function, or its name (`module:Name`, `path/to/file.py:Name`). What
            cannot be imported by name (of a notebook, a script, another function) is pickled.
        sections: those of a spec, docs/CONTRACT.md section 2; mappings, or the dataclasses.
    """

    def __init__(
        self, trainable: Callable[..., Any] | str | None = None, **sections: object
    ) -> None:
        self._trainable = trainable
        self._sections = {name: _plain(value) for name, value in sections.items()}

    @classmethod
    def load(cls, path: Path | str, set: Mapping[str, object] = NOTHING) -> "Sweep":
        """The sweep in a file, with the values at the dotted keys of `set`.

        Raises:
            SpecError: what is wrong with it, with file, line and column.
        """
        return cls(**specs.dump(api.validate(Path(path), set)))  # type: ignore[arg-type]

    def run(
        self,
        home: Path | str | None = None,
        address: str | None = None,
        show: bool = True,
    ) -> Result:
        """Run the sweep to its end.

        Args:
            home: where sweeps live; None: HPOSVC_HOME, or ~/.hposvc.
            address: of a Ray cluster; None: one of this machine's own.
            show: how it goes, on stderr.

        Raises:
            SpecError: what is wrong with the spec.
            OutOfReach: the cluster, or resources that it can never give.
            Interrupted: by Ctrl-C; it can be resumed.
        """
        sweeps = api.Sweeps.open(None if home is None else Path(home))
        spec = api.validate(self._spec(sweeps.home.path), {})
        spec.environment.reveal(os.environ)  # a secret that is missing is told before it begins
        row = api.create(sweeps, spec)
        view = Watching(row.id, console(sys.stderr)) if show else nullcontext()
        try:
            with view as watching:
                watchers = [] if watching is None else [watching]
                record = api.drive(sweeps, row, watchers, address)
        except Interrupted as error:
            raise Interrupted(f"{row.id}: go on with `hposvc resume {row.id}`") from error
        if record.behind:
            log.warning("%s", outcome.behind(record))
        return Result(row.id, record.state.state, record)

    def submit(
        self,
        address: str | None = None,
        id: str | None = None,
        new: bool = False,
        ephemeral: bool = False,
        home: Path | str | None = None,
    ) -> "Handle":
        """Run the sweep as a job of a Ray cluster; the same again attaches to that job.

        Args:
            address: of the cluster's dashboard, http://HEAD:8265; its token is RAY_AUTH_TOKEN.
                None: this home's own cluster (`hposvc cluster up`).
            id: of the sweep; None: a hash of the spec and of the files that go along.
            new: under an id that was never used.
            ephemeral: keep journal and tracker on the head of the cluster.
            home: see `run`.

        Raises:
            SpecError: what is wrong with the spec.
            JobsError: no dashboard answers, or it wants another token.
            OutOfReach: journal, tracker or storage are not there for the cluster.
        """
        sweeps = api.Sweeps.open(None if home is None else Path(home))
        spec = api.validate(self._spec(sweeps.home.path), {})
        wish = submission.Wish(address, id, new, ephemeral)
        return Handle(sweeps, submission.submit(sweeps.home, spec, wish, log.info).submitted)

    def _spec(self, home: Path) -> dict[str, object]:
        if self._trainable is None:
            return self._sections
        return {**self._sections, "trainable": _reference(self._trainable, home / "pickles")}


@dataclass(frozen=True)
class Handle:
    """A sweep that was submitted; every answer is of the moment at which it is asked for."""

    sweeps: api.Sweeps
    submitted: submission.Submitted

    @property
    def id(self) -> str:
        """The sweep's id."""
        return self.submitted.sweep

    def result(self) -> Result:
        """What it has come to so far."""
        record = following.record(self.sweeps, self.id, self._address)
        return Result(self.id, record.state.state, record)

    def status(self) -> dict[str, Any]:
        """The sweep in a few figures, as `hposvc -o json status` has them."""
        return self.result().record.status()

    def best(self) -> Best:
        """The best trial so far.

        Raises:
            NoValue: none reported a value yet.
        """
        return self.result().best

    def trials(self) -> "pd.DataFrame":
        """A row a trial."""
        return self.result().trials

    def logs(self, trial: str | None = None, rank: int | None = None) -> list[dict[str, Any]]:
        """What ranks wrote: trial, order, rank, path, text; without `trial`, of failed ones."""
        return following.logs(self.sweeps, self.id, trial, rank, self._address)

    def stop(self) -> None:
        """Ask for its end: running trials stop at their next report."""
        following.steer(self.sweeps, self.id, "stop", address=self._address)

    def pause(self) -> None:
        """Ask for a rest: running trials give their slots back; `hposvc resume` goes on."""
        following.steer(self.sweeps, self.id, "pause", address=self._address)

    def wait(self, show: bool = True) -> Result:
        """Return when it has ended.

        Args:
            show: what its driver writes, on stderr.

        Raises:
            OutOfReach: the job ended and the sweep did not; submit it again to go on.
        """
        jobs = submission.dial(self.sweeps.home, self.submitted.address)
        job = following.wait(jobs, self.id, _write if show else _keep_quiet)
        if job.exit_code not in submission.OVER:
            raise submission.refusal(job, jobs.log(job.id))
        return self.result()

    @property
    def _address(self) -> str | None:
        """Whom to ask; None: the journal is ours too."""
        return None if self.submitted.shared else self.submitted.address


def _reference(trainable: Callable[..., Any] | str, folder: Path) -> str:
    """The name by which any process finds the trainable."""
    if isinstance(trainable, str):
        return trainable
    reference = f"{trainable.__module__}:{trainable.__qualname__}"
    return reference if _importable(trainable, reference) else _pickled(trainable, folder)


def _importable(trainable: object, reference: str) -> bool:
    """Whether the name alone finds this very object, in other processes too."""
    place, _, name = reference.partition(":")
    if place == "__main__" or not REFERENCE.fullmatch(reference):
        return False
    return getattr(sys.modules.get(place), name, None) is trainable


def _pickled(trainable: object, folder: Path) -> str:
    """Keep the trainable by value, in a file that has its checksum for a name."""
    content = cloudpickle.dumps(trainable)
    file = folder / f"{hashlib.sha256(content).hexdigest()}.pkl"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(content)
        draft.rename(file)
    return f"{PICKLE}{file}"


def _plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _write(text: str) -> None:
    sys.stderr.write(text)


def _keep_quiet(text: str) -> None:
    """Nobody wants to see it."""
