"""Start a new sweep, from a spec or from the spec of another sweep, and run it to its end."""

import os
from collections.abc import Mapping
from dataclasses import replace

from hposvc import api
from hposvc import spec as specs
from hposvc.open_sweep import Record
from hposvc.operations.delete import delete_if_refused
from hposvc.spec import SweepSpec

# Debuggers need one trial in this process.
DEBUG = {
    "trials.max": 1,
    "trials.parallel": 1,
    "resources.workers": 1,
    "training.strategy": "single",
    "failure.user_retries": 0,
}


def run(
    sweeps: api.Sweeps,
    spec: SweepSpec,
    identifier: str | None = None,
    address: str | None = None,
    watching: api.Watching = api.unwatched,
    debug: bool = False,
    embedded: api.Embedded | None = None,
) -> Record:
    """Record a new sweep, and run it to its end; if it is refused, delete its record.

    Args:
        identifier: None: the spec's name with six random digits.
        address: of a Ray cluster; None: start Ray on this machine.
        debug: run one trial in this process.
        embedded: see `api.drive`.

    Raises:
        SpecError: the spec needs a secret that is missing; see `api.create` for more.
        OutOfReach: the cluster does not answer, or can never give the resources.
        Interrupted: by Ctrl-C; the sweep can be resumed.
    """
    if debug:
        engine = {} if spec.engine.traits.simulated else {"engine": "local"}
        spec = api.validate(specs.dump(spec), {**DEBUG, **engine})
    spec.environment.reveal(os.environ)  # refuse a missing secret before the sweep begins
    row = api.create(sweeps, spec, identifier)
    with delete_if_refused(sweeps, row), watching(row.id) as watchers:
        return api.drive(sweeps, row, watchers, address, embedded=embedded)


def fork(
    sweeps: api.Sweeps,
    sweep: str,
    set: Mapping[str, object],
    identifier: str | None = None,
    address: str | None = None,
    watching: api.Watching = api.unwatched,
) -> Record:
    """Run a new sweep with the spec of another, from whose trials it learns.

    Args:
        set: changes of the spec, by dotted keys.

    Raises:
        NotFound: there is no such sweep.
        SpecError: the changed spec is not valid, or has other metrics than the first sweep.
    """
    data = fork_data(api.load(sweeps, sweep))
    return run(sweeps, api.validate(data, set), identifier, address, watching)


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
