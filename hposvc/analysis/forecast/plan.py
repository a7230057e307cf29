"""The plan of a sweep: what it will cost, from what is known, before anything runs."""

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from hposvc import spec as specs
from hposvc.analysis.forecast import kept, pilot
from hposvc.analysis.forecast.evidence import Evidence, join, read
from hposvc.analysis.forecast.forecast import (
    Forecast,
    Saving,
    forecast,
    forecast_data,
    savings,
)
from hposvc.analysis.forecast.simulation import UNTIMED
from hposvc.analysis.memory import OwnMemory, own_memory
from hposvc.errors import SpecError, fail
from hposvc.estimate import Estimate
from hposvc.journal.home import Home
from hposvc.open_sweep import OpenSweep
from hposvc.spec import SweepSpec, fingerprint

MOST = 3  # earlier sweeps that are read
# Sections that say how trials run; with others, an earlier sweep's times hold only roughly.
SETUP = ("resources", "engine", "training")
CODE = ("trainable", "command", "serve")


@dataclass(frozen=True)
class Question:
    """A request for a plan, with what the person states."""

    run_pilot: bool = False
    sources: tuple[str, ...] = ()  # ids of earlier sweeps; empty: they are looked for
    seconds_per_step: float | None = None
    gpu_memory: str | None = None  # a size, or the name of a GPU


@dataclass(frozen=True)
class Earlier:
    """Where earlier sweeps are read from."""

    alike: Callable[[], Iterable[str]]  # ids of sweeps of the same code, newest first
    open: Callable[[str], OpenSweep]


@dataclass(frozen=True)
class Plan:
    """The forecast of a sweep, with its sources and what nobody knows."""

    spec: SweepSpec
    forecast: Forecast
    evidence: Evidence | None  # None: no source of times
    notes: tuple[str, ...]  # about the source
    unknown: tuple[str, ...]  # what the forecast leaves open, each with the way to mend it
    memory: OwnMemory | None  # None: only a Task's is known
    checkpoint: int | None  # bytes of one
    savings: tuple[Saving, ...]

    @property
    def money(self) -> Estimate | None:
        """The cost of the workers' hours; None: the price is unknown, or the hours are."""
        hours, price = self.forecast.rank_hours, self.spec.money(3600)
        return None if hours is None or price is None else hours.map(lambda hour: hour * price)

    def data(self) -> dict[str, Any]:
        """Return the output of `hposvc plan -o json`."""
        made = self.forecast.data()
        kept_figures = ("trials", "rungs", "steps", "failed", "gpu_hours", "cpu_hours", "wall_s")
        timed = self.evidence is not None
        return {
            **{name: made[name] for name in kept_figures},
            "money": forecast_data(self.money),
            "currency": self.spec.price.currency,
            "checkpoints": made["disk"],
            "checkpoint": self.checkpoint,
            "memory": None if self.memory is None else self.memory.data(),
            "slots": None if made["wall_s"] is None else made["slots"],
            "source": None if self.evidence is None else self.evidence.data(),
            "notes": list(self.notes),
            "unknown": list(self.unknown),
            "savings": [
                {
                    **asdict(saving),
                    "hours": saving.hours if timed else None,
                    "wall": saving.wall if made["wall_s"] else None,
                }
                for saving in self.savings
            ],
            "simulated": made["sweeps"],
        }


def plan(
    spec: SweepSpec, question: Question, home: Home, earlier: Earlier, address: str | None = None
) -> Plan:
    """Forecast a sweep, and keep a forecast of all of it in the home for the end of the sweep.

    Args:
        address: of a Ray cluster for the pilot; None: start Ray on this machine.

    Raises:
        SpecError: the question names two sources; no trial of a source shows what a step takes; the
            GPU is not known.
        NotFound: there is no such earlier sweep.
        OutOfReach, Interrupted: see `pilot.run`.
    """
    given = {
        "--pilot": question.run_pilot,
        "--from": bool(question.sources),
        "--seconds-per-step": question.seconds_per_step is not None,
    }
    names = [name for name, is_given in given.items() if is_given]
    if len(names) > 1:
        raise fail(f"is given with {names[1]}", names[0], fix="choose one source of times")
    evidence, slots, notes = _source(spec, question, home, earlier, address)
    memory = own_memory(spec, question.gpu_memory)
    checkpoint = None if evidence is None else evidence.checkpoint
    if checkpoint is None and memory is not None:
        checkpoint = memory.checkpoint
    counted = spec
    if spec.finalists is not None and spec.finalists.set:  # nobody knows what these trainings cost
        counted = replace(spec, finalists=None, budget=replace(spec.budget, reserve=None))
    made = forecast(counted, evidence, slots, checkpoint)
    cuts = savings(counted, evidence, slots)
    if evidence is None:  # without times, a change of the wall time is unknown
        cuts = [saving for saving in cuts if saving.steps < 0.95]
    unknown = _unknown(spec, evidence, slots, checkpoint, question)
    answer = Plan(
        spec, made, evidence, tuple(notes), tuple(unknown), memory, checkpoint, tuple(cuts)
    )
    if counted is spec:  # what a sweep costs in the end can't be compared with a part of it
        kept.keep(home, spec, answer.data(), time.time())
    return answer


def same_code(frozen: Mapping[str, Any], spec: SweepSpec) -> bool:
    """Return whether a recorded spec runs the same trainable, command or curve, by its name."""
    data = specs.dump(spec)
    if any(map(data.get, CODE)):
        return all(frozen.get(key) == data.get(key) for key in CODE)
    engine = frozen.get("engine") or {}
    return spec.engine.curve is not None and engine.get("curve") == spec.engine.curve


def _source(
    spec: SweepSpec, question: Question, home: Home, earlier: Earlier, address: str | None
) -> tuple[Evidence | None, int | None, list[str]]:
    """Return the source of times, how many trials run at once, and notes on the source."""
    if question.run_pilot:
        evidence, room = pilot.run(spec, home, address)
        return evidence, room, []
    if question.seconds_per_step is not None:
        stated = Evidence("stated", names=(), step_s=(question.seconds_per_step,))
        return stated, _slots(spec, None), []
    return _earlier(spec, question.sources, earlier)


# The evidence of an earlier sweep, its trials at once if known, and how it differs from ours.
_Source = tuple[Evidence, int | None, list[str]]


def _earlier(
    spec: SweepSpec, named: tuple[str, ...], earlier: Earlier
) -> tuple[Evidence | None, int | None, list[str]]:
    """Return what the named sweeps show, or else the newest ones of the same code.

    Of those that were not named, sweeps that ran with other resources count only if all did.
    """
    sources: list[_Source] = []
    for name in named or earlier.alike():
        source = _read(spec, name, earlier)
        if source is not None:
            sources.append(source)
        elif named:
            message = f"names {name}, of which no trial got anywhere; name another sweep"
            raise fail(message, "--from")
        if len(sources) == MOST and not named:
            break
    alike = [source for source in sources if not source[0].other_setup]
    if not named:
        sources = alike or sources
    if not sources:
        return None, _slots(spec, None), []
    evidence, slots, notes = zip(*sources, strict=True)
    known = (at_once for at_once in slots if at_once is not None)
    return join(evidence), next(known, None), [note for each in notes for note in each]


def _read(spec: SweepSpec, name: str, earlier: Earlier) -> _Source | None:
    """Return what an earlier sweep shows; None: no trial of it got anywhere."""
    row, events = earlier.open(name).history()
    before = specs.restore(row.spec)
    evidence = read(before, events, "earlier", row.id)
    if evidence is None:
        return None
    now, then = specs.dump(spec), specs.dump(before)
    differing = [section for section in SETUP if now.get(section) != then.get(section)]
    notes = [f"{row.id} ran with other {', '.join(differing)}"] if differing else []
    with suppress(SpecError):  # a file that is only there when it runs
        code = fingerprint.describe(spec)
        if row.code and code and dict(row.code) != code:
            notes.append(f"the code has changed since {row.id}")
    evidence = replace(evidence, other_setup=bool(differing))
    return evidence, _slots(spec, before, evidence), notes


def _slots(
    spec: SweepSpec, before: SweepSpec | None, evidence: Evidence | None = None
) -> int | None:
    """Return how many trials run at once; None: nobody knows before it runs.

    Args:
        before: spec of an earlier sweep, and `evidence` what it showed.
    """
    parallel = spec.trials.parallel
    programs = spec.command is not None and spec.resources.ranks == 1
    if spec.engine.traits.in_process and (not programs or parallel == "auto"):
        return 1
    if parallel == "auto" and spec.engine.traits.simulated:
        return 1
    if isinstance(parallel, int):
        return parallel
    if before is None or evidence is None or before.resources != spec.resources:
        return None
    return evidence.slots if before.trials.parallel == "auto" else None


def _unknown(
    spec: SweepSpec,
    evidence: Evidence | None,
    slots: int | None,
    checkpoint: int | None,
    question: Question,
) -> list[str]:
    """Return what the forecast leaves open, each with the way to mend it."""
    changed = spec.finalists is not None and spec.finalists.set
    left_out = "what finalists cost with finalists.set: the forecast leaves them out"
    unknown = [left_out] if changed else []
    if evidence is None:
        what = "a trial takes" if spec.last_step is None else "a step takes"
        unknown.append(f"how long {what}: give --pilot, --from ID or --seconds-per-step S")
        if spec.trials.max is None and spec.budget.limited and spec.space.size is None:
            what = f"how many trials the budget pays for: the figures are those of {UNTIMED} trials"
            unknown.append(what)
    if slots is None:
        unknown.append("how many trials run at once: --set trials.parallel=N, or --pilot")
    if checkpoint is None:
        unknown.append("the size of a checkpoint: a pilot or an earlier sweep shows it")
    if spec.resources.gpus_per_worker and spec.price.gpu_hour is None:
        unknown.append("the price of a GPU-hour: --set price.gpu_hour=P")
    if any(metric.target is not None for metric in spec.objectives):
        unknown.append("whether the target is reached, which would end the sweep earlier")
    if spec.stop.worth is not None:
        unknown.append("when more trials are no longer worth it, which would end the sweep earlier")
    rules = spec.plateau is not None or spec.stop.plateau is not None
    if rules and (evidence is None or evidence.curves is None):
        unknown.append("when the plateau rule stops something: curves of an earlier sweep show it")
    if spec.resources.max_workers > spec.resources.ranks:
        unknown.append(
            "how much sooner trials end that get more workers: the forecast has the fewest"
        )
    return unknown
