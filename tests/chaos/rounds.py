"""One round: a real sweep, something that goes wrong at a random moment, and what became of it.

All of a round follows from its seed but what the machine's own timing adds.
"""

import json
import random
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import promise
from injections import INJECTIONS
from scene import Scene, clear
from terminal import Command, Terminal, pause

SPECS: dict[str, dict[str, Any]] = {
    "asha": {
        "search": "gp",
        "scheduler": {"type": "asha", "eta": 3},
        "fidelity": {"max": 9},
        "trials": {"max": 6, "parallel": 2},
    },
    "pbt": {
        "search": "random",
        "scheduler": {"type": "pbt", "interval": 2, "quantile": 0.5, "mutate": {"lr": {}}},
        "fidelity": {"max": 6},
        "trials": {"max": 4, "parallel": 2},
    },
    "hyperband": {
        "search": "random",
        "scheduler": "hyperband",
        "fidelity": {"max": 9},
        "trials": {"max": 9, "parallel": 2},
    },
}
EVENTS = {"asha": 70, "pbt": 70, "hyperband": 100}  # of a sweep to which nothing happens
FIRST = 6  # before this event nothing goes wrong
LATEST = 0.6  # of the events
EARLY = 0.2


@dataclass(frozen=True)
class Plan:
    """What a round is to be."""

    seed: int
    scheduler: str
    injections: tuple[str, ...]
    neighbour: bool = False  # somebody else keeps Ray up, and looks what the sweep left there

    @property
    def sweep(self) -> str:
        return f"{promise.ROUND}{self.seed}"

    @property
    def trials(self) -> int:
        return int(SPECS[self.scheduler]["trials"]["max"])


@dataclass
class Outcome:
    """What became of it."""

    plan: Plan
    wall_s: float
    bit: tuple[str, ...] = ()  # the injections that really happened
    codes: tuple[int, ...] = ()
    kills: int = 0  # and disks that were full
    verdict: promise.Verdict = field(default_factory=promise.Verdict)

    def __str__(self) -> str:
        plan, verdict = self.plan, self.verdict
        missed = [name for name in plan.injections if name not in self.bit]
        return (
            f"seed {plan.seed}: {plan.scheduler}, {'+'.join(plan.injections)}"
            f"{' (missed: ' + '+'.join(missed) + ')' if missed else ''}"
            f"{', beside a neighbour' if plan.neighbour else ''}: {verdict.events} events, "
            f"{verdict.lost} lost, {verdict.twice} twice, {self.kills} kills, "
            f"{verdict.redone_s:.2f} s done again, exit codes {list(self.codes)}, "
            f"{self.wall_s:.0f} s: {'BROKEN' if verdict.broken else 'kept'}"
            + "".join(f"\n    {each}" for each in verdict.broken)
        )


def plan(seed: int) -> Plan:
    """The round of a seed: mostly one injection, sometimes two.

    Seeds that follow each other take turns at what there is, in a random order.
    """
    rng = random.Random(seed)
    possible = sorted(name for name, injection in INJECTIONS.items() if injection.possible())
    lap, turn = divmod(seed, len(possible))
    first = random.Random(lap).sample(possible, len(possible))[turn]
    scheduler = rng.choice(INJECTIONS[first].schedulers or sorted(SPECS))
    names = [first]
    if rng.random() < 0.3:
        names += rng.sample([name for name in possible if joins(name, first, scheduler)], 1)
    # What has to come early comes first.
    names.sort(key=lambda name: not INJECTIONS[name].early)
    own = all(INJECTIONS[name].place != "ray" for name in names)
    beside = own and rng.random() < 0.25  # a neighbour of an embedded Ray
    return Plan(seed, scheduler, tuple(names), beside)


def joins(name: str, first: str, scheduler: str) -> bool:
    """Whether it can happen in the same round as the first, under this scheduler."""
    one, other = INJECTIONS[name], INJECTIONS[first]
    if name == first or (one.place and one.place == other.place):
        return False
    return not one.schedulers or scheduler in one.schedulers


def play(terminal: Terminal, planned: Plan) -> Outcome:
    """Run the round.

    Raises:
        TimeoutError: the sweep does not come to its end.
    """
    began = time.monotonic()
    place = terminal.home / f"place-{planned.seed}"
    place.mkdir()
    rng = random.Random(planned.seed + 1)
    with ExitStack() as stack:
        spec = described(planned, place)
        scene = Scene(terminal, planned.sweep, place, rng, spec, planned.trials, stack)
        stack.callback(clear, scene)
        for name in planned.injections:
            INJECTIONS[name].plan(scene)
        beside = neighbour(scene) if planned.neighbour else None
        scene.run()
        for name, seq in moments(planned, rng):
            strike(scene, name, seq)
        scene.end()
        verdict = promise.check(scene)
        if beside is not None:
            verdict.broken += let_go(scene, beside)
        events = scene.events()
        bit = [name for name in planned.injections if INJECTIONS[name].proof(scene, events)]
        wall_s = time.monotonic() - began
        kills = scene.kills + sum(name in scene.disks for name in bit)
        return Outcome(planned, wall_s, tuple(bit), tuple(scene.codes), kills, verdict)


def described(planned: Plan, place: Path) -> dict[str, Any]:
    """The sweep."""
    return {
        "trainable": "wandering:wander",
        "metric": {"name": "loss", "goal": "minimize"},
        "parameters": {"lr": {"min": 1e-4, "max": 1e-1, "log": True}, "round": str(place)},
        "resources": {"workers": 2, "cpus_per_worker": 0.25},
        "failure": {"infra_retries": 20},  # many rounds are to end; retries are another test's
        "seed": planned.seed,
        **SPECS[planned.scheduler],
    }


def moments(planned: Plan, rng: random.Random) -> list[tuple[str, int]]:
    """After which event each injection comes."""
    found = []
    for name in planned.injections:
        share = EARLY if INJECTIONS[name].early else LATEST
        found.append((name, rng.randint(FIRST, int(share * EVENTS[planned.scheduler]))))
    return found


def strike(scene: Scene, name: str, seq: int) -> None:
    """Do it, a random while after an event."""
    while not scene.reach(seq):
        if not scene.go_on():
            return
    pause(scene.rng.uniform(0, 0.5))
    if scene.alive:
        INJECTIONS[name].act(scene)


def neighbour(scene: Scene) -> Command:
    """Start somebody who keeps Ray up."""
    go = str(scene.place / "go")
    scene.shared = True
    return scene.terminal.start_python("-m", "neighbour", f"{scene.terminal.home / 'ray'}", go)


def let_go(scene: Scene, beside: Command) -> list[str]:
    """What the neighbour saw that the sweep left in Ray, and the processes behind that."""
    (scene.place / "go").touch()
    code, said = beside.end()
    if code != 0:
        return [f"the neighbour ended with {code}: {said}"]
    seen = json.loads(beside.stdout.read_text())
    scene.shared = False
    left = [f"left in Ray: {what}: {seen[what]}" for what in ("actors", "taken") if seen[what]]
    return [*left, *promise.left(scene)]


def summary(outcomes: Sequence[Outcome], broke_off: int = 0) -> str:
    """The figures of all rounds, as benchmarks/RESULTS.md has them.

    Args:
        broke_off: rounds that came to no end, and so to no outcome.
    """
    kept = sum(not one.verdict.broken for one in outcomes)
    happened = sum(len(one.bit) for one in outcomes)
    planned = sum(len(one.plan.injections) for one in outcomes)
    each = [one.verdict.redone_s / one.kills for one in outcomes if one.kills] or [0.0]
    rows = [
        ("rounds survived", f"{kept} of {len(outcomes) + broke_off}"),
        ("injections that happened", f"{happened} of {planned}"),
        ("events lost", f"{sum(one.verdict.lost for one in outcomes)}"),
        ("points twice", f"{sum(one.verdict.twice for one in outcomes)}"),
        ("kills and full disks", f"{sum(one.kills for one in outcomes)}"),
        ("work redone for each, rank-seconds, median", f"{statistics.median(each):.2f}"),
        ("the same, worst round", f"{max(each):.2f}"),
    ]
    drawn = {name for one in outcomes for name in one.plan.injections}
    names = [name for name in INJECTIONS if name in drawn]
    rows += [(f"`{name}` happened", happenings(name, outcomes)) for name in names]
    return "\n".join(["| what | figure |", "| --- | --- |", *(f"| {a} | {b} |" for a, b in rows)])


def happenings(name: str, outcomes: Sequence[Outcome]) -> str:
    """How often it came about, of how many times that it was planned."""
    planned = sum(name in one.plan.injections for one in outcomes)
    return f"{sum(name in one.bit for one in outcomes)} of {planned}"
