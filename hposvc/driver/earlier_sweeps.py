"""The earlier sweeps that a new sweep with `warm_start: auto` learns from.

They are of the same project, run the same code for the same metric, and searched the same
parameters for the most part; parameters of other names are matched by their roles. The ids of those
with enough results are recorded with the sweep, so that the same journal always gives the same
proposals, whatever sweeps there are later.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, pairwise
from typing import Any

from hposvc import spec as specs
from hposvc.driver.warm_start import translate_trials
from hposvc.errors import SpecError, StoreError
from hposvc.events import UnknownEvent
from hposvc.journal.journal import Journal, SweepRow
from hposvc.spec import SweepSpec
from searchers import Domain, Space, SpaceError, names_by_role

MOST = 10  # sweeps that are taken
NEWEST = 500  # sweeps of the project that are compared
READ = 20_000  # events that are read at most, in some two seconds
MIN_OVERLAP = 0.5  # of the searched parameters
PLACES = 33  # of a domain whose values are tried in another
SCRIPTS = (".py", ".sh")
# What a journal that is damaged, or of another version, raises.
UNREADABLE = (SpecError, StoreError, UnknownEvent, LookupError, TypeError, ValueError)
MIN_RESULTS = 10  # trials with a result that the new space can hold


def with_sweeps_found(
    journal: Journal, spec: SweepSpec, readable: Callable[[SweepRow], bool]
) -> SweepSpec:
    """Return the spec with the sweeps that `auto` finds; with none if there are none.

    Args:
        readable: whether the owner of the new sweep may read an earlier one.
    """
    if spec.warm_start is None or not spec.warm_start.auto:
        return spec
    found = tuple(islice(_found(journal, spec, readable), MOST)) if spec.finds_earlier else ()
    return replace(spec, warm_start=replace(spec.warm_start, sweeps=found))


def _found(
    journal: Journal, spec: SweepSpec, readable: Callable[[SweepRow], bool]
) -> Iterator[str]:
    """Yield the ids of sweeps with enough results, the most alike first."""
    newest = journal.sweeps(spec.project, limit=NEWEST)
    rows = alike([row for row in newest if readable(row)], spec)
    known, read = journal.listed([row.id for row in rows]), 0
    for row in rows:
        if row.id in known and read + known[row.id].seq <= READ:
            read += known[row.id].seq
            if _count_results(journal, row, spec) >= MIN_RESULTS:
                yield row.id


def alike(rows: Sequence[SweepRow], spec: SweepSpec) -> list[SweepRow]:
    """Return the sweeps of the same task, those that share most parameters first.

    Args:
        rows: sweeps, newest first; of equal ones the newer stays before the older.
    """
    code = _code_of(specs.dump(spec))
    same = [row for row in rows if code is not None and _code_of(row.spec) == code]
    overlaps = [(_overlap_of(row, spec), row) for row in same]
    enough = [(overlap, row) for overlap, row in overlaps if overlap >= MIN_OVERLAP]
    return [row for _, row in sorted(enough, key=lambda pair: -pair[0])]


def overlap(theirs: Space, ours: Space) -> float:
    """Return the share of our searched parameters that the other space searched, too."""
    names = names_by_role(theirs, ours)
    pairs = [(name, names.get(name, name)) for name in theirs.searched]
    shared = [
        our_name
        for name, our_name in pairs
        if our_name in ours.searched and _have_common_values(theirs[name], ours[our_name])
    ]
    return len(shared) / len(ours.searched) if ours.searched else 0.0


def _have_common_values(one: Domain, other: Domain) -> bool:
    """Return whether values of one domain are in the other, as far as some of them tell."""
    places = [index / (PLACES - 1) for index in range(PLACES)]
    return any(
        domain.problem(within.from_unit(place)) is None
        for domain, within in ((one, other), (other, one))
        for place in places
    )


def _overlap_of(row: SweepRow, spec: SweepSpec) -> float:
    """Return how much of a new sweep's space an earlier one searched; 0 for other metrics."""
    try:
        theirs = specs.thaw(row.spec)
        goals = {metric.name: metric.goal for metric in theirs.objectives}
        same = all(goals.get(metric.name) == metric.goal for metric in spec.objectives)
        same = same and theirs.engine.traits.simulated == spec.engine.traits.simulated
        if theirs.fidelity and spec.fidelity:
            same = same and theirs.fidelity.unit == spec.fidelity.unit
        return overlap(theirs.space, spec.space) if same else 0.0
    except (SpecError, SpaceError):  # of another version; or its space was made by a function
        return 0.0


def _code_of(frozen: Mapping[str, Any]) -> tuple[object, ...] | None:
    """Return what names the code of a recorded spec; None: nothing does.

    It is a reference within the sweep's folder, so that a copy in another folder is the same; of a
    command the script or module alone, since its flags are a matter of parameters.
    """
    if frozen.get("trainable"):
        return "trainable", _within(frozen, str(frozen["trainable"]))
    if command := frozen.get("command") or (frozen.get("serve") or {}).get("load"):
        items = [str(item) for item in command]
        scripts = [item for item in items if item.endswith(SCRIPTS)]
        modules = [after for item, after in pairwise(items) if item == "-m"]
        return "command", _within(frozen, next(iter([*scripts, *modules, *items])))
    curve = (frozen.get("engine") or {}).get("curve")
    return ("curve", _within(frozen, str(curve))) if curve else None


def _within(frozen: Mapping[str, Any], reference: str) -> str:
    """Return a path as it is within the sweep's folder."""
    folder = frozen.get("folder")
    return reference.removeprefix(f"{folder}/") if folder else reference


def _count_results(journal: Journal, row: SweepRow, spec: SweepSpec) -> int:
    """Return the number of an earlier sweep's results that the new space can hold."""
    try:
        trials = list(translate_trials(journal, row, spec))
    except UNREADABLE:  # nothing can be learned from it
        return 0
    return sum(seen.loss is not None or bool(seen.losses) for seen in trials)
