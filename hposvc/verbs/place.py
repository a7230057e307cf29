"""The sweeps that a verb works with: those of this home, which this process drives, or a server's.

Both kinds of Place do the same: HomeSweeps here, and ServedSweeps by requests to its server, which
has drivers of its own.
"""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import ClassVar, TypeAlias

from hposvc import api
from hposvc import spec as specs
from hposvc.analysis import reproduction
from hposvc.analysis.reproduction import ReproductionResult
from hposvc.driver.warm_start import resolve
from hposvc.errors import OutOfReach, fail, shown
from hposvc.journal.journal import SweepRow
from hposvc.open_sweep import Record
from hposvc.remote.server.connection import ServedSweeps
from hposvc.spec import SweepSpec
from hposvc.spec.variants import with_versions
from hposvc.verbs import background, reading, steering
from hposvc.verbs.deletion import delete_if_refused

FOLLOW_S = 0.5  # seconds between two looks at a sweep that another process drives
NAMED = 5  # differences of two specs that are named


@dataclass(frozen=True)
class HomeSweeps(api.Sweeps):
    """An open home, whose sweeps this process drives."""

    url: ClassVar[str] = ""  # a server's, as `--server` takes it
    scopes: ClassVar[Sequence[str]] = ("read", "submit", "steer")  # what an agent may do
    ls = reading.ls
    events = reading.events
    steer = steering.steer
    renew = steering.renew

    def has(self, sweep: str) -> bool:
        """Return whether a sweep has this very id."""
        return self.journal.find(sweep) is not None

    def newest(self, most: int | None = None) -> Iterator[SweepRow]:
        """Yield the newest sweeps, the newest first.

        Args:
            most: None: all.
        """
        yield from islice(self.journal.sweeps(), most)

    def run(
        self,
        spec: SweepSpec,
        identifier: str | None = None,
        address: str | None = None,
        watching: api.Watching = api.unwatched,
        embedded: api.Embedded | None = None,
    ) -> Record:
        """Record a new sweep, and run it to its end; if it is refused, delete its record.

        Args:
            identifier: None: the spec's name with six random digits.
            address: of a Ray cluster; None: start Ray on this machine.
            embedded: see `api.drive`.

        Raises:
            SpecError: the spec needs a secret that is missing; see `api.create` for more.
            OutOfReach: the cluster does not answer, or can never give the resources.
            Interrupted: by Ctrl-C; the sweep can be resumed.
        """
        spec.environment.reveal(os.environ)  # refuse a missing secret before the sweep begins
        row = api.create(self, spec, identifier)
        with delete_if_refused(self, row), watching(row.id) as watchers:
            return api.drive(self, row, watchers, address, embedded=embedded)

    def fork(
        self,
        sweep: str,
        set: Mapping[str, object],
        identifier: str | None,
        address: str | None,
        watching: api.Watching,
    ) -> Record:
        """Run a new sweep with the spec of another, from whose trials it learns.

        Args:
            set: changes of the spec, by dotted keys.

        Raises:
            NotFound: there is no such sweep.
            SpecError: the changed spec is not valid, or has other metrics than the first sweep.
        """
        spec = api.validate(fork_data(api.load(self, sweep)), set)
        return self.run(spec, identifier, address, watching)

    def reproduce(
        self,
        sweep: str,
        trial: str,
        accept_code: bool,
        address: str | None,
        watching: api.Watching,
    ) -> tuple[Record, ReproductionResult | None]:
        """Train a trial again in a new sweep, and compare it with the original as that was before.

        Raises:
            NotFound, SpecError: see `reproduction.original`.
            Interrupted: by Ctrl-C; the sweep can be resumed.
        """
        before = reproduction.original(self, sweep, trial, accept_code)
        record = self.run(before.spec, before.again, address, watching)
        return record, reproduction.compare(before, record.state)

    def resume(
        self, sweep: str, accept_code: bool, address: str | None, watching: api.Watching
    ) -> tuple[Record, bool]:
        """Continue a sweep; of an ended one, bring MLflow up to date.

        Args:
            accept_code: continue although the trainable's source has changed.

        Returns:
            the sweep, and whether it had ended before.

        Raises:
            NotFound: there is no such sweep.
            SpecError: the trainable's source changed since the sweep began.
        """
        before = api.load(self, sweep)
        ended = before.state.finished
        with watching(before.row.id) as watchers:
            return api.drive(self, before.row, watchers, address, accept_code), ended

    def check_same(self, spec: SweepSpec, identifier: str) -> bool:
        """Check that a recorded sweep has this spec; return whether its server drives it on.

        Raises:
            SpecError: it has another one; the message has the values that differ.
        """
        _check_same_spec(self.find(identifier), resolve(self.journal, spec))
        return False

    def wait(self, sweep: str, watching: api.Watching = api.unwatched) -> Record:
        """Wait until a sweep that another process drives has ended or is paused.

        Args:
            watching: what shows a server's sweep meanwhile; nothing shows one of this home.

        Raises:
            OutOfReach: the driver ended before the sweep did.
        """
        follow = self.follow(sweep)
        while True:
            record = self.record_of(follow.row, follow.look)
            # A driver that starts Ray has the sweep, but has not begun it yet.
            is_starting = record.phase == "QUEUED" and record.driver == "alive"
            if record.phase != "RUNNING" and not is_starting:
                break
            time.sleep(FOLLOW_S)
        if not record.state.finished and record.phase != "PAUSED":
            message = f"{sweep} is {record.phase}: no driver is at work"
            raise OutOfReach(message, fix="resume() goes on")
        return record

    def begin_apart(self, spec: SweepSpec, sweep: str) -> str:
        """Have a sweep begin that outlives this process, unless it has begun; return its state."""
        row = self.journal.find(sweep) or api.create(self, spec, sweep)
        if api.load(self, sweep).phase in ("QUEUED", "INTERRUPTED"):
            with delete_if_refused(self, row):
                background.resume(self, sweep)
        return api.load(self, sweep).phase

    def resume_apart(self, sweep: str) -> None:
        """Have a sweep go on that outlives this process; who holds it briefly is waited for."""
        background.resume(self, sweep)


Place: TypeAlias = HomeSweeps | ServedSweeps


def fork_data(record: Record) -> dict[str, object]:
    """Return the data of a sweep's spec for another sweep that learns from it.

    The points of `initial` that the first sweep has tried are not tried again.
    """
    spec = record.state.spec
    if spec.baseline is not None and spec.baseline.params is None:
        first, *others = spec.initial  # the baseline stays the same when the others are left out
        baseline = replace(spec.baseline, params=first)
        spec = replace(spec, baseline=baseline, initial=tuple(others))
    tried = max(0, len(record.state.trials) - (spec.baseline is not None))
    data = specs.dump(replace(spec, initial=spec.initial[tried:]))
    return {**data, "warm_start": {"from": [record.row.id]}}


def _check_same_spec(row: SweepRow, spec: SweepSpec) -> None:
    """Check that a recorded sweep has this spec.

    Raises:
        SpecError: it has another one; the message has the values that differ.
    """
    before = specs.restore(row.spec)
    recorded, given = specs.flat(specs.dump(before)), specs.dump(spec)
    then, now = before.variants, spec.variants
    if then and now and [*then.names] == [*now.names]:  # frozen, whatever became of the branches
        given = with_versions(given, then, dict(zip(now.trees, then.trees, strict=True)))
    given = specs.flat(given)
    found_then = spec.warm_start is not None and spec.warm_start.auto
    passed_over = {"chosen", "warm_start"} if found_then else {"chosen"}
    differing = [
        f"{key} is {shown(recorded.get(key))} there and {shown(given.get(key))} here"
        for key in dict.fromkeys([*recorded, *given])
        if recorded.get(key) != given.get(key) and key.partition(".")[0] not in passed_over
    ]
    if differing:
        more = f"; and {len(differing) - NAMED} more" if len(differing) > NAMED else ""
        raise fail(
            f"the sweep {row.id} has another spec: {'; '.join(differing[:NAMED])}{more}. "
            f"`hposvc resume {row.id}` continues it as it is, `hposvc extend {row.id}` with more "
            "trials; a new sweep needs another id",
            "--id",
        )
