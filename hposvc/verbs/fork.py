"""`fork`: run a new sweep with the spec of another, from whose trials it learns."""

from collections.abc import Mapping
from dataclasses import replace
from secrets import token_hex

import click

from hposvc import api
from hposvc import spec as specs
from hposvc.open_sweep import Record
from hposvc.remote.place import Place
from hposvc.remote.server import following, submission
from hposvc.remote.server.connection import ServedSweeps, path_of
from hposvc.spec.parsing import overrides
from hposvc.spec.parsing.document import from_mapping
from hposvc.verbs.foreground import conclude, relaunched, starting
from hposvc.verbs.options import Shared, ray_address, read_settings, settings, sweep_id, verb
from hposvc.verbs.run import run


@verb
@sweep_id
@settings
@click.option("--id", "name", metavar="ID", help="Name the new sweep.")
@ray_address
def fork_command(
    shared: Shared, sweep: str, sets: tuple[str, ...], name: str | None, address: str | None
) -> int:
    """Run a new sweep that learns from this one's trials.

    --set changes its settings; the others are those of this sweep.
    """
    changes = read_settings(sets)
    place = shared.open_place()
    watching = relaunched(shared, place, address, starting)
    record = fork(place, sweep, changes, name, address, watching)
    return conclude(shared, record, shared.find_home())


def fork(
    place: Place,
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
    if not isinstance(place, ServedSweeps):
        data = fork_data(api.load(place, sweep))
        return run(place, api.validate(data, set), identifier, address, watching)
    spec = overrides.apply(from_mapping(place.facts(sweep)["row"]["spec"]), set).data
    body = {"set": dict(set), "secrets": submission.find_variables(spec)}
    wish = {} if identifier is None else {"id": identifier}
    answer = place.http.post(path_of(sweep, "fork"), {**body, **wish}, key=token_hex(16))
    with watching(answer["sweep"]) as watchers:
        return following.show(place, answer["sweep"], watchers, answer["operation"])


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
