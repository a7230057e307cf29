"""Who gets the slots of a simulated cluster: our shares, first come first served, Kueue's rules.

Kueue is modelled after its documentation (kueue.sigs.k8s.io/docs/concepts: cluster_queue,
workload, fair_sharing, preemption): a workload is admitted with all of its pods or not at all;
each user has a ClusterQueue with `fairSharing.weight` in one cohort, whose quota is the cohort's;
a share is what a queue uses, by what the cohort has, by its weight; of the queues the one whose
share would be least is first, and in a queue the highest priority, then the first that came
(`BestEffortFIFO`: who does not fit holds up nobody); `reclaimWithinCohort: Any` with both
strategies of preemption in turn (`LessThanOrEqualToFinalShare`, `LessThanInitialShare`), and
`withinClusterQueue: LowerPriority`. Nothing is taken from its source.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from cluster_model import SAVE_S, Cluster, Live, Slot
from cluster_sweeps import ON_A_NODE

from hposvc.queue.claim import Account, Claim, Held
from hposvc.queue.gangs import Nodes
from hposvc.queue.rules import Member, Rules
from hposvc.queue.shares import SlotShare, shares

NEEDS = {"GPU": 1.0}


@dataclass
class Ours:
    """Shares of claims, as `hposvc/driver/queue_member.py` makes them, for all sweeps at once."""

    rules: Rules
    keeps_idle = False
    seconds: list[float] = field(default_factory=list)  # of computing the shares, by look
    slots: list[int] = field(default_factory=list)  # held, by look
    shares: dict[str, SlotShare] = field(default_factory=dict)  # by the last look
    _accounts: dict[str, Account] = field(default_factory=dict)
    _nodes: Nodes = field(default_factory=dict)
    _gone: dict[str, Claim] = field(default_factory=dict)  # sweeps that have ended
    _looked_at: float | None = None  # None: not yet

    @classmethod
    def of(cls, weights: Mapping[str, float]) -> "Ours":
        """Return the policy with these weights of users, and no other rules."""
        return cls(Rules(users={user: Member(weight=each) for user, each in weights.items()}))

    def look(self, cluster: Cluster) -> None:
        """Charge the accounts, compute the shares, and act as each driver and Ray would."""
        if not self._nodes:
            self._nodes = {node: {"GPU": float(ON_A_NODE)} for node in cluster.room.free}
        self._charge(cluster)
        claims = [self._claim(live, cluster.now) for live in cluster.live.values()]
        for live in cluster.ended[len(self._gone) :]:
            self._gone[live.sweep.name] = self._claim(live, cluster.now)
        began = time.process_time()
        self.shares = shares([*claims, *self._gone.values()], self._nodes, self.rules, cluster.now)
        self.seconds.append(time.process_time() - began)
        self.slots.append(sum(len(claim.held) for claim in claims))
        for live in [*cluster.live.values()]:
            self._give_back(cluster, live, self.shares[live.sweep.name])
        for live in [*cluster.live.values()]:
            share = self.shares[live.sweep.name]
            while len(live.slots) < share.slots and live.runnable:
                if not cluster.open(live, share.avoid):
                    break

    def _give_back(self, cluster: Cluster, live: Live, share: SlotShare) -> None:
        lost, interrupted = {*share.lost}, {*share.interrupted}
        for slot in [*live.slots.values()]:
            slot.lost = slot.name in lost
            if slot.lost and cluster.now < slot.ready_at:
                cluster.abandon(live, slot)
                continue
            slot.late = False
            if slot.name in interrupted and not slot.leaves:
                slot.leaves, slot.stop_due = True, float("inf")
                cluster.give_back_early(live, slot, cluster.now + SAVE_S)
            elif slot.lost and self._saves(live, slot):
                slot.late = slot.rung_at() > cluster.now + self.rules.max_ahead
                if slot.late:
                    cluster.give_back_early(live, slot, slot.step_at(cluster.now))

    def _saves(self, live: Live, slot: Slot) -> bool:
        """Whether an order that ends at a step goes on from there: not before its first rung."""
        assert slot.order is not None
        return live.sweep.saves_each_step and slot.order.rung > 0

    def _charge(self, cluster: Cluster) -> None:
        """Add what sweeps had, and what was due to them, since the last look."""
        passed_s = 0.0 if self._looked_at is None else cluster.now - self._looked_at
        for name, live in cluster.live.items():
            account = self._accounts.get(name, Account(at=cluster.now))
            account = account.at_time(cluster.now, self.rules.half_life)
            slots = [self._held(live, slot, cluster.now) for slot in live.slots.values()]
            start = float(live.sweep.ranks * sum(held.starts for held in slots))
            work = live.sweep.ranks * len(slots) - start
            share = self.shares.get(name, SlotShare())
            self._accounts[name] = account.charge_slots(
                work, start, share.due, share.contested, passed_s
            )
        self._looked_at = cluster.now

    def _claim(self, live: Live, now: float) -> Claim:
        sweep = live.sweep
        ended = live.ended_at is not None
        return Claim(
            sweep=sweep.name,
            queue="default",
            user=sweep.user,
            project="default",
            since=sweep.arrives_at,
            wanted=0 if ended else live.wanted,
            needs=NEEDS,
            ranks=sweep.ranks,
            placement="strict_pack" if sweep.ranks <= ON_A_NODE else "pack",
            priority=sweep.priority,
            held=tuple(self._held(live, slot, now) for slot in live.slots.values()),
            order_s=self._order_s(live),
            account=self._accounts.get(sweep.name, Account(at=now)),
        )

    def _order_s(self, live: Live) -> float | None:
        if live.step_s is None:
            return None
        start_s = live.sweep.start_s
        work_s = max(live.step_s, min(start_s, self.rules.max_ahead))  # the first rung is at step 1
        if not live.suspended:
            return start_s + work_s
        return start_s + max(work_s, self.rules.max_ahead) if live.sweep.saves_each_step else None

    def _held(self, live: Live, slot: Slot, now: float) -> Held:
        start_s = min(now, slot.ready_at) - slot.opened_at
        work_s = None if now < slot.ready_at else now - slot.ready_at
        held = Held(slot.name, slot.nodes, start_s=start_s, work_s=work_s)
        return replace(held, free_at=None if held.starts else self._free_at(live, slot, now))

    def _free_at(self, live: Live, slot: Slot, now: float) -> float | None:
        order = slot.order
        assert order is not None
        if slot.leaves:
            return now
        own = order.trial.step_s if order.rung else live.step_s  # it has reported, or not
        if own is None:
            return None
        at = slot.trains_from + (order.trial.rungs[order.rung] - order.steps) * own
        if at > now + self.rules.max_ahead and self._saves(live, slot):
            return now + own
        return at


class FirstCome:
    """The sweep that came first gets all that it can use, and keeps it while it has orders."""

    keeps_idle = False

    def look(self, cluster: Cluster) -> None:
        """Give what is free to the first in line; those behind it wait until it has all."""
        for live in [*cluster.live.values()]:
            while live.runnable and len(live.slots) < live.sweep.parallel:
                if not cluster.open(live):
                    return


@dataclass
class Kueue:
    """Sweeps are admitted and evicted as wholes."""

    weights: Mapping[str, float]
    keeps_idle: bool = True  # False: elastic, it gives back what it has no order for
    evictions: int = 0
    _used: dict[str, int] = field(default_factory=dict)  # GPUs, by user

    def look(self, cluster: Cluster) -> None:
        """Admit sweeps, those first whose users would have the least share; evict for them."""
        self._used = dict.fromkeys(self.weights, 0)
        waiting: dict[str, list[Live]] = {}
        for live in cluster.live.values():
            self._used[live.sweep.user] += len(live.slots) * live.sweep.ranks
            if not live.slots:
                waiting.setdefault(live.sweep.user, []).append(live)
        for queue in waiting.values():
            queue.sort(key=lambda live: (-live.sweep.priority, live.sweep.arrives_at))
        while waiting:
            user = min(waiting, key=lambda name: (self._share(name, _asks(waiting[name][0])), name))
            head = waiting[user].pop(0)
            if not waiting[user]:
                del waiting[user]
            victims = [] if _fits(cluster, head) else self._victims(cluster, head)
            if victims is not None:
                self._admit(cluster, head, victims)

    def _admit(self, cluster: Cluster, head: Live, victims: Iterable[Live]) -> None:
        for victim in victims:
            self.evictions += 1
            self._used[victim.sweep.user] -= len(victim.slots) * victim.sweep.ranks
            cluster.evict(victim)
        while len(head.slots) < head.wanted and cluster.open(head):
            pass
        self._used[head.sweep.user] += len(head.slots) * head.sweep.ranks

    def _share(self, user: str, more: int = 0) -> float:
        return (self._used[user] + more) / self.weights[user]

    def _victims(self, cluster: Cluster, head: Live) -> list[Live] | None:
        """Return the sweeps to evict for another; None: it has to wait."""
        asks, user = _asks(head), head.sweep.user
        most = max((self._share(other) for other in self._used if other != user), default=0.0)
        if most <= self._share(user, asks) and not self._lower(cluster, head):
            return None  # both strategies refuse all
        for allows in (self._less_than_final, self._less_than_initial):
            victims: list[Live] = []
            used = dict(self._used)
            for victim in self._candidates(cluster, head):
                if allows(head, victim, asks) and self._evict_in_thought(cluster, victim):
                    victims.append(victim)
                    if _fits(cluster, head):
                        break
            fits = _fits(cluster, head)
            for victim in reversed(victims[:]):  # those that are not needed stay
                self._restore(cluster, victim)
                if fits and not _fits(cluster, head):
                    self._evict_in_thought(cluster, victim)
                else:
                    victims.remove(victim)
            kept = [*victims]
            for victim in kept:
                self._restore(cluster, victim)
            self._used = used
            if fits:
                return kept
        return None

    def _candidates(self, cluster: Cluster, head: Live) -> Iterator[Live]:
        """Yield sweeps, from the queue with the highest share at each moment."""
        yield from sorted(self._lower(cluster, head), key=_victims_first)
        queues: dict[str, list[Live]] = {}
        for live in cluster.live.values():
            if live.slots and live.sweep.user != head.sweep.user:
                queues.setdefault(live.sweep.user, []).append(live)
        for queue in queues.values():
            queue.sort(key=_victims_first, reverse=True)
        while queues:
            user = max(queues, key=lambda name: (self._share(name), name))
            yield queues[user].pop()
            if not queues[user]:
                del queues[user]

    def _lower(self, cluster: Cluster, head: Live) -> list[Live]:
        """Return the sweeps of the same queue with a lower priority."""
        return [
            live
            for live in cluster.live.values()
            if live.slots
            and live.sweep.user == head.sweep.user
            and live.sweep.priority < head.sweep.priority
        ]

    def _less_than_final(self, head: Live, victim: Live, asks: int) -> bool:
        if victim.sweep.user == head.sweep.user:
            return True
        left = -len(victim.slots) * victim.sweep.ranks
        return self._share(head.sweep.user, asks) <= self._share(victim.sweep.user, left)

    def _less_than_initial(self, head: Live, victim: Live, asks: int) -> bool:
        if victim.sweep.user == head.sweep.user:
            return True
        return self._share(head.sweep.user, asks) < self._share(victim.sweep.user)

    def _evict_in_thought(self, cluster: Cluster, victim: Live) -> bool:
        for slot in victim.slots.values():
            cluster.room.take(slot.nodes, sign=-1)
        self._used[victim.sweep.user] -= len(victim.slots) * victim.sweep.ranks
        return True

    def _restore(self, cluster: Cluster, victim: Live) -> None:
        for slot in victim.slots.values():
            cluster.room.take(slot.nodes)
        self._used[victim.sweep.user] += len(victim.slots) * victim.sweep.ranks


def _asks(live: Live) -> int:
    """Return the GPUs that a sweep is admitted with."""
    return live.wanted * live.sweep.ranks


def _fits(cluster: Cluster, live: Live) -> bool:
    return cluster.room.count(live.sweep.ranks) >= live.wanted


def _victims_first(live: Live) -> tuple[int, float]:
    """Return the place of a sweep among those to evict: lower priority, then the latest."""
    return live.sweep.priority, -live.sweep.arrives_at
