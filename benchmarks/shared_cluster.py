"""A simulated cluster that many sweeps share: our shares, first come first served, Kueue's rules.

`python benchmarks/shared_cluster.py [--quick] [--plot FILE]` prints Markdown; README.md says what
the figures mean. The same sweeps come to each policy, with the same trials.
"""

import argparse
import math
import resource
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from cluster_model import Cluster, Live, Policy
from cluster_policies import FirstCome, Kueue, Ours
from cluster_sweeps import ON_A_NODE, Sweep, draw_sweeps, entitled, weights_of
from tables import figure, heading, table

HOUR_S = 3600.0
POLICIES = ("ours", "first come", "Kueue's", "Kueue's, elastic")


@dataclass(frozen=True)
class Size:
    """How large a simulation is."""

    nodes: int = 1250  # of 8 GPUs
    sweeps: int = 1000
    users: int = 40
    window_s: float = 24 * HOUR_S  # in which the sweeps come
    load: float = 1.5  # GPU-seconds of all trials by those of the window
    look_s: float = 60.0
    seed: int = 0

    @property
    def gpus(self) -> int:
        """GPUs of the cluster."""
        return self.nodes * ON_A_NODE


QUICK = Size(nodes=8, sweeps=20, users=5, window_s=8 * HOUR_S)


@dataclass
class Record:
    """What a policy did, by look and by hour; U users."""

    weights: dict[str, float]
    look_s: float
    had_U: list[np.ndarray] = field(default_factory=list)  # GPU-seconds, by hour
    due_U: list[np.ndarray] = field(default_factory=list)  # by weighted max-min shares
    crowded: list[bool] = field(default_factory=list)  # by hour: whether it was all the time
    idle: list[tuple[float, float, bool]] = field(default_factory=list)  # time, GPUs, crowded
    fitting_gpu_s: float = 0.0  # idle after a look, though a slot that somebody wants has room

    def see(self, cluster: Cluster) -> None:
        """Count what each user holds and is entitled to until the next look."""
        hour = int(cluster.now // HOUR_S)
        while len(self.had_U) <= hour:
            self.had_U.append(np.zeros(len(self.weights)))
            self.due_U.append(np.zeros(len(self.weights)))
            self.crowded.append(True)
        had, wanted = dict.fromkeys(self.weights, 0), dict.fromkeys(self.weights, 0)
        fits = False
        for live in cluster.live.values():
            ranks = live.sweep.ranks
            had[live.sweep.user] += len(live.slots) * ranks
            wanted[live.sweep.user] += live.wanted * ranks
            fits = fits or (live.wanted > len(live.slots) and cluster.room.count(ranks) > 0)
        due = entitled([*wanted.values()], [*self.weights.values()], cluster.room.total)
        self.had_U[hour] += self.look_s * np.array([*had.values()])
        self.due_U[hour] += self.look_s * np.array(due)
        crowded = sum(wanted.values()) > cluster.room.total
        self.crowded[hour] &= crowded
        self.idle.append((cluster.now, cluster.room.total - cluster.busy, crowded))
        self.fitting_gpu_s += fits * cluster.room.idle * self.look_s

    def deviation(self) -> float:
        """Return how far users are from what is due to them in crowded hours, as a share of it."""
        pairs = [*zip(self.had_U, self.due_U, self.crowded, strict=True)]
        apart = sum(np.abs(had - due).sum() for had, due, crowded in pairs if crowded)
        total = sum(due.sum() for _, due, crowded in pairs if crowded)
        return float(apart / total) if total else math.nan

    def deviation_of_all_hours(self) -> float:
        """Return the same of all crowded hours together."""
        pairs = [*zip(self.had_U, self.due_U, self.crowded, strict=True)]
        had = sum((had for had, _, crowded in pairs if crowded), np.zeros(len(self.weights)))
        due = sum((due for _, due, crowded in pairs if crowded), np.zeros(len(self.weights)))
        return float(np.abs(had - due).sum() / due.sum()) if due.sum() else math.nan


@dataclass
class Outcome:
    """A policy, and what became of the sweeps."""

    name: str
    policy: Policy
    cluster: Cluster
    record: Record
    seconds: float  # of computing, the whole simulation

    def waits(self, sweeps: Sequence[Live]) -> np.ndarray:
        """Return the minutes from arrival to the first slot."""
        starts = [(each.first_slot_at or math.inf) - each.sweep.arrives_at for each in sweeps]
        return np.array(starts) / 60

    def slowdown(self, sweeps: Sequence[Live]) -> float:
        """Return the geometric mean of turnaround by that in an empty cluster."""
        ratios = [
            ((each.ended_at or math.inf) - each.sweep.arrives_at) / each.sweep.alone_s()
            for each in sweeps
        ]
        return float(np.exp(np.mean(np.log(ratios))))

    def small(self) -> list[Live]:
        """Return the quarter of the sweeps with the least GPU-seconds."""
        ranked = sorted(self.cluster.ended, key=lambda each: each.sweep.gpu_s)
        return ranked[: -(-len(ranked) // 4)]


def simulate(name: str, size: Size, sweeps: Sequence[Sweep]) -> Outcome:
    """Run the sweeps under a policy."""
    weights = weights_of(size.users)
    policies: dict[str, Policy] = {
        "ours": Ours.of(weights),
        "first come": FirstCome(),
        "Kueue's": Kueue(weights),
        "Kueue's, elastic": Kueue(weights, keeps_idle=False),
    }
    began = time.process_time()
    cluster = Cluster(sweeps, size.nodes, policies[name], size.look_s)
    record = Record(weights, size.look_s)
    cluster.run(record)
    return Outcome(name, policies[name], cluster, record, time.process_time() - began)


def draw(size: Size) -> list[Sweep]:
    """Return the sweeps of a simulation."""
    return draw_sweeps(size.sweeps, size.gpus, size.users, size.window_s, size.load, seed=size.seed)


def waiting_rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return the rows of the table of waiting times and turnaround."""
    rows = []
    for each in outcomes:
        waits, small = each.waits(each.cluster.ended), each.waits(each.small())
        rows.append(
            [
                each.name,
                *(figure(float(np.percentile(waits, at)), 1) for at in (50, 90, 99)),
                *(figure(float(np.percentile(small, at)), 1) for at in (50, 90, 99)),
                figure(each.slowdown(each.cluster.ended)),
                figure(each.slowdown(each.small())),
                figure(max(live.ended_at or 0.0 for live in each.cluster.ended) / HOUR_S, 1),
            ]
        )
    return rows


def sharing_rows(outcomes: Sequence[Outcome]) -> list[list[str]]:
    """Return the rows of the table of shares, idle GPUs and what is lost."""
    rows = []
    for each in outcomes:
        cluster = each.cluster
        crowded_gpu_s = cluster.crowded_s * cluster.room.total
        orders = sum(live.changes for live in cluster.ended)
        rows.append(
            [
                each.name,
                figure(100 * each.record.deviation(), 1),
                figure(100 * each.record.deviation_of_all_hours(), 1),
                figure(100 * cluster.idle_gpu_s / crowded_gpu_s, 1),
                figure(100 * each.record.fitting_gpu_s / crowded_gpu_s, 2),
                figure(100 * cluster.lost_gpu_s / cluster.done_gpu_s, 2),
                figure(100 * cluster.start_gpu_s / cluster.done_gpu_s, 2),
                f"{orders:,}",
            ]
        )
    return rows


def kind_table(outcomes: Sequence[Outcome]) -> str:
    """Return the table of waiting times by the GPUs of a trial, and of a raised priority."""
    ended = outcomes[0].cluster.ended
    kinds = sorted({live.sweep.ranks for live in ended})
    rows = []
    for each in outcomes:
        of_kinds = [
            *([live for live in each.cluster.ended if live.sweep.ranks == kind] for kind in kinds),
            [live for live in each.cluster.ended if live.sweep.priority > 0],
        ]
        waits = [each.waits(listed) for listed in of_kinds]
        texts = [
            [figure(float(np.percentile(w, at)), 1) for at in (90, 99)] for w in waits if w.size
        ]
        rows.append([each.name, *(" / ".join(pair) for pair in texts)])
    columns = [f"{kind} GPU{'s' * (kind > 1)}" for kind in kinds]
    if any(live.sweep.priority > 0 for live in ended):
        columns.append("a higher priority")
    return table(["wait, min: 90 % / 99 %", *columns], rows)


def computing(ours: Outcome) -> str:
    """Return what a look costs the driver of a sweep."""
    assert isinstance(ours.policy, Ours)
    seconds = np.array(ours.policy.seconds)
    largest = max(ours.policy.slots)
    return (
        f"Computing the shares of all sweeps once: {figure(float(np.median(seconds)), 3)} s in the "
        f"median, {figure(float(np.percentile(seconds, 99)), 3)} s at the 99th percentile, with up "
        f"to {largest:,} slots held.\n"
    )


def show(size: Size, outcomes: Sequence[Outcome]) -> None:
    """Print the tables."""
    print(
        f"{size.gpus:,} GPUs, {size.sweeps:,} sweeps of {size.users} users in "
        f"{size.window_s / HOUR_S:g} h, load {size.load:g}, a look each {size.look_s:g} s, seed "
        f"{size.seed}.\n"
    )
    head = ["policy", "wait, min: median", "90 %", "99 %", "small sweeps: median", "90 %", "99 %"]
    print(table([*head, "slowdown", "of small", "all done, h"], waiting_rows(outcomes)))
    head = ["policy", "% from weights, hour by hour", "all hours", "idle, %", "though one fits, %"]
    print(table([*head, "trained twice, %", "starts, %", "moved"], sharing_rows(outcomes)))
    print(kind_table(outcomes))
    print(computing(outcomes[0]))
    for each in outcomes:
        if isinstance(each.policy, Kueue):
            print(f"- {each.name}: {each.policy.evictions:,} evictions of sweeps")
    total = sum(each.seconds for each in outcomes)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"- the simulations took {total:.0f} s of a core and {memory:,.0f} MiB")


def main() -> None:
    """Simulate each policy, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small, to see that it works")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plot", type=Path, help="an image file for the picture")
    options = parser.parse_args()
    size = Size(**{**vars(QUICK if options.quick else Size()), "seed": options.seed})
    sweeps = draw(size)
    print(heading(("numpy",)))
    outcomes = [simulate(name, size, sweeps) for name in POLICIES]
    show(size, outcomes)
    if options.plot:
        from cluster_picture import draw_picture  # matplotlib is no dependency of the figures

        draw_picture(outcomes, size.window_s, options.plot)


if __name__ == "__main__":
    main()
