"""Sweeps from Python: `Sweep(trainable=train, metric=..., parameters=...).run()`."""

import hashlib
import inspect
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import cloudpickle

from hposvc import api
from hposvc import spec as specs
from hposvc.errors import fail
from hposvc.events import NOTHING
from hposvc.journal.home import Home
from hposvc.python.handle import Handle, conclude, driving, ray_address, without_our_frames
from hposvc.python.server import Server, connect
from hposvc.remote import cluster_server
from hposvc.reporting.result import Result
from hposvc.spec.engines import Engine
from hposvc.spec.metrics import Metric
from hposvc.spec.registry import REFERENCE
from hposvc.spec.sections import Checkpoints, Failure, Fidelity, Resources, Trials
from hposvc.spec.sinks import Tracking
from hposvc.verbs.place import HomeSweeps
from hposvc.verbs.run import run_or_resume
from trainables.contract import PICKLE, Training

if TYPE_CHECKING:
    from hposvc.analysis.forecast.plan import Plan

Section: TypeAlias = Mapping[str, object] | None
log = logging.getLogger("hposvc")


class Sweep:
    """A sweep that is not recorded yet.

    The arguments are the sections of a spec (`hposvc docs spec`), as mappings or as dataclasses.
    None leaves a section out; `warm_start=None` learns from no earlier sweep.

    Args:
        trainable: a class or function, or its name (`module:Name`, `path/to/file.py:Name`). An
            object that cannot be imported by name (one defined in a notebook, a script or another
            function) is pickled; so are functions in `datasets`.
        unknown: any other keyword; refused, with the nearest section's name.
    """

    def __init__(
        self,
        trainable: Callable[..., Any] | str | None = None,
        *,
        parameters: Mapping[str, object] | None = None,
        metric: Section | Metric = None,
        metrics: Sequence[Mapping[str, object] | Metric] | None = None,
        fidelity: Section | Fidelity = None,
        scale: Section = None,
        search: Section | str = None,
        scheduler: Section | str = None,
        trials: Section | Trials = None,
        resources: Section | Resources = None,
        name: str | None = None,
        project: str | None = None,
        command: Sequence[str] | None = None,
        serve: Section = None,
        datasets: Mapping[str, Callable[..., Any] | str] | None = None,
        launch: Literal["rank", "node"] | None = None,
        collect: Section = None,
        constraints: Sequence[str] | None = None,
        limits: Sequence[str] | None = None,
        initial: Sequence[Mapping[str, object]] | None = None,
        warm_start: Section | str = "auto",
        memo: bool | None = None,
        driver: Section = None,
        queue: Section = None,
        engine: Section | Engine | str = None,
        training: Section | Training = None,
        budget: Section = None,
        stop: Section = None,
        finalists: Section = None,
        baseline: Section = None,
        price: Section = None,
        failure: Section | Failure = None,
        checkpoints: Section | Checkpoints = None,
        environment: Section = None,
        folder: Path | str | None = None,
        storage: Path | str | None = None,
        tracking: Section | Tracking = None,
        register: Section = None,
        notify: Mapping[str, object] | Sequence[Mapping[str, object]] | None = None,
        seed: int | None = None,
        description: str | None = None,
        tags: Section = None,
        version: int | None = None,
        **unknown: object,
    ) -> None:
        given = {**locals(), **unknown}
        for name_ in ("self", "trainable", "unknown"):
            del given[name_]
        self._trainable = trainable
        if warm_start == "auto":
            del given["warm_start"]
        self._sections = {
            key: _to_plain(value)
            for key, value in given.items()
            if value is not None or key == "warm_start"
        }

    def __repr__(self) -> str:
        given = {"trainable": self._trainable, **self._sections}
        arguments = (
            f"{key}={_abbreviate(value)}" for key, value in given.items() if value is not None
        )
        return f"Sweep({', '.join(arguments)})"

    @classmethod
    @without_our_frames
    def load(cls, path: Path | str, set: Mapping[str, object] = NOTHING) -> "Sweep":
        """Read a sweep from a file, and replace the values at the dotted keys of `set`.

        Raises:
            SpecError: the file is wrong; the message has file, line and column.
        """
        return cls(**specs.dump(api.validate(Path(path), set)))  # type: ignore[arg-type]

    @without_our_frames
    def run(
        self,
        home: Path | str | None = None,
        address: str | None = None,
        progress: bool = True,
        id: str | None = None,
        resume: bool = False,
    ) -> Result:
        """Run the sweep to its end.

        Args:
            home: folder of the sweeps; None: HPOSVC_HOME, or ~/.hposvc.
            address: address of a Ray cluster; None: RAY_ADDRESS, which Ray sets for its jobs, or
                start Ray on this machine.
            progress: print the sweep's id, its progress and its summary on stderr.
            id: of the sweep; None: its name with six random digits.
            resume: continue the sweep of this id, if there is one.

        Raises:
            SpecError: the spec is wrong.
            OutOfReach: the cluster does not answer, or can never give the resources.
            Interrupted: by Ctrl-C; the sweep can be resumed.
        """
        sweeps = HomeSweeps.open(None if home is None else Path(home))
        spec = api.validate(self.sections(sweeps.home.path), {})
        watching = partial(driving, progress=progress)
        address = address or ray_address()
        if not resume:
            record = sweeps.run(spec, id, address, watching)
        elif id is None:
            raise fail("needs the sweep's id", "resume")
        else:
            record = run_or_resume(sweeps, spec, id, address, watching).record
        return conclude(sweeps, record, progress)

    @without_our_frames
    def plan(
        self,
        pilot: bool = False,
        sources: Sequence[str] = (),
        seconds_per_step: float | None = None,
        gpu_memory: str | None = None,
        home: Path | str | None = None,
        address: str | None = None,
    ) -> "Plan":
        """Forecast the sweep's trials, time, money and disk; nothing runs without a pilot.

        Args:
            pilot: run a few short trials first, to measure.
            sources: ids of earlier sweeps to take times from; empty: the newest of the same code.
            seconds_per_step: what a step takes; without fidelity, what a trial takes.
            gpu_memory: a size, or the name of a GPU, to compare with what a trial needs.
            home: see `run`.
            address: of a Ray cluster for the pilot; None: as for `run`.

        Raises:
            SpecError: the spec is wrong, or two sources of times are named.
            NotFound: there is no such earlier sweep.
            OutOfReach: the cluster does not answer, or can never give the pilot's resources.
        """
        from hposvc.analysis.forecast.plan import Question
        from hposvc.verbs import plan as planning

        sweeps = HomeSweeps.open(None if home is None else Path(home))
        spec = api.validate(self.sections(sweeps.home.path), {})
        question = Question(pilot, tuple(sources), seconds_per_step, gpu_memory)
        return planning.plan(sweeps, spec, question, address or ray_address())

    @without_our_frames
    def submit(
        self,
        address: str | None = None,
        id: str | None = None,
        new: bool = False,
        home: Path | str | None = None,
        server: Server | str | None = None,
    ) -> Handle:
        """Run the sweep on a Ray cluster, or on a server; a second submit attaches to it.

        Args:
            address: address of the cluster's dashboard, http://HEAD:8265; its token is
                RAY_AUTH_TOKEN. None: this home's own cluster (`hposvc cluster up`). The first
                submit to a cluster starts a server there.
            id: id of the sweep; None: a hash of the spec and of the files sent along.
            new: use an id that was never used, so that another sweep starts.
            home: see `run`.
            server: a server, or its URL, in place of a cluster; `hposvc.connect` has more.

        Raises:
            SpecError: the spec is wrong.
            JobsError: no dashboard answers, or it wants another token.
            OutOfReach: the cluster's server can't be reached.
        """
        if server is None:
            place = Home.of(None if home is None else Path(home))
            connected = Server(cluster_server.find_or_start(place, address, log.info))
        elif address is not None:
            raise fail("is Ray's, which a server has", "address", fix="leave it out")
        else:
            connected = connect(server, home=home) if isinstance(server, str) else server
        return connected.submit(self, id=id, new=new)

    def sections(self, home: Path) -> dict[str, object]:
        """Return the sections of the sweep's spec.

        Args:
            home: folder for the trainable, if it has to be pickled, and for others' functions.
        """
        folder, sections = home / "pickles", dict(self._sections)
        if isinstance(datasets := sections.get("datasets"), Mapping):
            sections["datasets"] = {name: _reference(datasets[name], folder) for name in datasets}
        if self._trainable is not None:
            sections["trainable"] = _reference(self._trainable, folder)
        return sections


def _reference(trainable: Callable[..., Any] | str, folder: Path) -> str:
    """Return the name under which any process can load the trainable."""
    if isinstance(trainable, str):
        return trainable
    module, name = trainable.__module__, getattr(trainable, "__qualname__", "")
    reference = f"{module}:{name}"
    can_be_imported = module != "__main__" and REFERENCE.fullmatch(reference)
    # In other processes too, the name must give this very object.
    if can_be_imported and getattr(sys.modules.get(module), name, None) is trainable:
        return reference
    return _pickle(trainable, folder)


def _pickle(trainable: object, folder: Path) -> str:
    """Pickle the trainable into a file named by its checksum, and return its reference."""
    try:
        content = cloudpickle.dumps(trainable)
    except Exception as error:
        raise fail(_explain_pickling_error(trainable, error), "trainable") from error
    file = folder / f"{hashlib.sha256(content).hexdigest()}.pkl"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        draft = file.with_suffix(f".{os.getpid()}")
        draft.write_bytes(content)
        draft.rename(file)
    return f"{PICKLE}{file}"


def _to_plain(value: object) -> object:
    if isinstance(value, list | tuple):
        return [_to_plain(item) for item in value]
    return asdict(value) if is_dataclass(value) and not isinstance(value, type) else value


def _explain_pickling_error(trainable: object, error: Exception) -> str:
    """Return the error message: the function's variables that can't be pickled, and a remedy."""
    variables_used: dict[str, object] = {}
    if inspect.isfunction(trainable):
        variables = inspect.getclosurevars(trainable)
        variables_used = {**variables.globals, **variables.nonlocals}
    unpicklable = [
        f"{name} ({type(value).__name__})"
        for name, value in variables_used.items()
        if _cannot_be_pickled(value)
    ]
    name = getattr(trainable, "__qualname__", repr(trainable))
    cause = f"uses {', '.join(unpicklable)}, which" if unpicklable else "refers to something that"
    return (
        f"{name} {cause} can't be pickled ({error}); make it inside the function, or put the "
        "function into a module that workers can import"
    )


def _cannot_be_pickled(value: object) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:  # noqa: BLE001 - whatever a class's own pickling raises
        return True
    return False


def _abbreviate(value: object) -> str:
    """Return a short text for a value; of a section, only the names of its keys."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(map(str, value)) + "}"
    return getattr(value, "__qualname__", repr(value))
