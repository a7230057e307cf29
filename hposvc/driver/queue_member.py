"""The sweep's part in the queue: its claim, the share that follows, and who waits for whom.

`hposvc/queue/shares.py` computes the shares of all sweeps from their claims in the journal. Here
the claim of one sweep is written, and its account is kept: nobody else writes either.
"""

import logging
import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from hposvc.backends.backend import Backend, OnSharedCluster
from hposvc.driver.claim_builder import ClaimBuilder, HeldSlots, late
from hposvc.errors import SpecError
from hposvc.journal import claims
from hposvc.journal.claims import ClaimRow
from hposvc.journal.lease import Lease
from hposvc.journal.waiting import SweepWait
from hposvc.queue.allocation import total_of
from hposvc.queue.claim import Account, Claim
from hposvc.queue.fair import size
from hposvc.queue.gangs import FreeResources, Nodes
from hposvc.queue.quotas import Quotas, quotas_of
from hposvc.queue.rules import Rules
from hposvc.queue.shares import Shortage, SlotShare, shares
from hposvc.state.remaining import remaining
from hposvc.state.sweep import SweepState

log = logging.getLogger("hposvc")

LOOK_S = 0.5  # between two looks at the claims, at least
BUSY = 0.05  # share of its time that a driver looks at them, at most
NOTICE_S = 10.0  # between two texts about the same wait
WRITE_S = 5.0  # at most, between two writes of the own claim
RULES_S = 10.0  # between two looks at the operator's rules
KEPT = 20  # half-lives after which the account of a sweep that has ended is deleted
LOOKS = 6  # in all of which something outside the sweeps must hold a resource, to count
LONGEST_S = 10.0  # between two looks, for which a sweep is charged: a clock may jump
AWAY_S = 600.0  # without a driver, for which at most a sweep is made up


@dataclass
class QueueJournal:
    """The queue in the journal: the operator's rules, others' claims, and the sweep's own."""

    lease: Lease
    cluster: str = ""
    rules: Rules = field(default_factory=Rules)
    _rules_at: float = 0.0
    _unread: set[str] = field(default_factory=set)  # sweeps whose claims can't be read
    _written: dict[str, Any] | None = None  # the claim; None: not yet
    _urgent: object = None  # what of it is written at once when it changes
    _written_at: float = 0.0

    def begin(self, cluster: str, now: float) -> ClaimRow | None:
        """Return what the sweep's last driver wrote; None: nothing."""
        self.cluster = cluster
        self.read_rules(now)
        claims.drop_before(self.lease.store, now - KEPT * self.rules.half_life)
        return claims.find(self.lease.store, self.lease.sweep)

    def read_rules(self, now: float) -> None:
        """Read the operator's rules now and then."""
        if not 0.0 <= now - self._rules_at < RULES_S:
            self._rules_at = now
            try:
                self.rules = Rules.of(claims.read_rules(self.lease.store))
            except SpecError as error:  # of a server of another version
                log.warning("the operator's rules of the queue can't be read: %s", error)

    def others(self) -> list[Claim]:
        """Return the claims of the other sweeps; one without a driver holds and wants nothing."""
        others = []
        for row in claims.read(self.lease.store, self.cluster):
            if row.sweep == self.lease.sweep:
                continue
            claim = Claim.read(row.claim)
            if claim is not None:
                others.append(claim if row.live else replace(claim, wanted=0, held=()))
            elif row.sweep not in self._unread:
                self._unread.add(row.sweep)
                log.warning("%s: its claim is of another version, and counts as none", row.sweep)
        return others

    def write(
        self, mine: Claim, share: SlotShare, wait: SweepWait | None, state: SweepState, now: float
    ) -> None:
        """Write the claim if it has changed, or has not been written for a while."""
        claim = asdict(mine)
        shown = {
            "due": round(share.due, 3),
            "slots": share.slots,
            "wait": None if wait is None else wait.data(),
        }
        held = [each.slot for each in mine.held]
        urgent = ({**claim, "held": held, "account": None, "order_s": None}, shown)
        if urgent == self._urgent and now - self._written_at < WRITE_S:
            return
        rest = remaining(state)
        ahead = {
            "money": state.money,
            "currency": state.spec.price.currency,
            "ends_at": None if rest is None else now + rest.value,
        }
        claims.write(self.lease, self.cluster, claim, {**shown, **ahead})
        self._written, self._written_at, self._urgent = claim, now, urgent

    def withdraw(self, account: Account) -> None:
        """Give up the sweep's claim; its account stays."""
        if self._written is not None:
            nothing = {"wanted": 0, "held": [], "account": asdict(account)}
            claims.write(self.lease, self.cluster, {**self._written, **nothing}, {})


@dataclass
class UsageAccount:
    """The account of the resources that the sweep had and was due, charged from look to look."""

    account: Account = field(default_factory=Account)
    charged_at: float | None = None  # in seconds of the epoch; None: not yet

    def go_on(self, row: ClaimRow, before: Claim, rules: Rules, now: float) -> None:
        """Go on with the account of an earlier driver, with what was due since that died."""
        self.account = before.account.at_time(now, rules.half_life)
        if before.wanted:
            away_s = min(max(0.0, now - row.written), AWAY_S)
            self.account = self.account.charge(0.0, row.share.get("due", 0.0) * away_s)

    def charge(
        self, mine: Claim, share: SlotShare, nodes: Nodes, rules: Rules, now: float
    ) -> Account:
        """Add what the sweep had, and what was due to it by its share, since the last look."""
        account = self.account.at_time(now, rules.half_life)
        if self.charged_at is not None:
            passed_s = min(max(0.0, now - self.charged_at), LONGEST_S)
            total = total_of(nodes)
            start, work = (
                sum(size(mine.needs, each.ranks, total) for each in mine.held if each.starts == new)
                for new in (True, False)
            )
            if math.isfinite(work + start):  # a node of its slots has gone
                account = account.charge_slots(work, start, share.due, share.contested, passed_s)
        self.account, self.charged_at = account, now
        return account


@dataclass
class WaitNotice:
    """The last message of what the sweep waits for."""

    idle_since: float  # when the sweep last had a slot, or began
    wait: SweepWait | None = None  # None: nothing
    said_at: float = 0.0

    def update(self, shortage: Shortage | None, what: str, now: float) -> str:
        """Return what the sweep waits for: at once if it begins to wait, later now and then."""
        if shortage is None:
            self.wait = None
            return ""
        if self.wait is None or now - self.said_at >= NOTICE_S:
            soon = shortage.until is None or shortage.until <= now + 1
            until = None if soon else shortage.until
            self.wait = SweepWait(what, self.idle_since, shortage.behind, until, shortage.reason)
            self.said_at = now
        return self.wait.describe()


@dataclass
class OutsideUse:
    """The resources of nodes that others than the sweeps held, at each of the last looks."""

    seen: deque[Mapping[str, Mapping[str, float]]] = field(
        default_factory=lambda: deque(maxlen=LOOKS)
    )

    def subtract(self, all_claims: Sequence[Claim], nodes: Nodes, free: Nodes) -> Nodes:
        """Return the resources of each node, without what others than the sweeps hold."""
        room = FreeResources.of(nodes)
        for claim in all_claims:
            for held in claim.held:
                room.take(held.nodes, claim.needs)
        outside = {
            node: {
                # Ray leaves out what is used up on a node.
                name: max(0.0, left - free[node].get(name, 0.0)) if node in free else 0.0
                for name, left in amounts.items()
            }
            for node, amounts in room.nodes.items()
        }
        # A slot that was placed a moment ago is not in its sweep's claim yet.
        self.seen.append(outside)
        return {
            node: {
                name: amount - min(each.get(node, {}).get(name, 0.0) for each in self.seen)
                for name, amount in amounts.items()
            }
            for node, amounts in nodes.items()
        }


@dataclass
class QueueMember:
    """The sweep among others on its cluster: it keeps the sweep's claim, and knows its share."""

    backend: OnSharedCluster
    clock: Callable[[], float]  # the driver's, by which events are dated
    journal: QueueJournal
    builder: ClaimBuilder
    notice: WaitNotice
    usage: UsageAccount = field(default_factory=UsageAccount)
    outside: OutsideUse = field(default_factory=OutsideUse)
    share: SlotShare = field(default_factory=SlotShare)
    lost: frozenset[int] = frozenset()  # orders whose slots are to be given back
    interrupted: frozenset[int] = frozenset()  # of these, those that are not to wait for a rung
    _next_look: float = 0.0  # monotonic seconds

    @classmethod
    def of(cls, lease: Lease, user: str, backend: Backend) -> "QueueMember | None":
        """Return the part of a sweep in the queue; None: its backend is its own."""
        if not isinstance(backend, OnSharedCluster):
            return None
        now = backend.now()
        builder = ClaimBuilder(lease.sweep, user, since=now)
        return cls(backend, backend.now, QueueJournal(lease), builder, WaitNotice(now))

    def begin(self) -> None:
        """Go on with the sweep's account.

        If its driver died, its sweep wanted slots meanwhile: it keeps its place in the queue, and
        what was due to it.
        """
        now = self.clock()
        row = self.journal.begin(self.backend.cluster(), now)
        before = None if row is None else Claim.read(row.claim)
        if row is None or before is None:
            return
        self.usage.go_on(row, before, self.journal.rules, now)
        if before.wanted:
            self.builder.since = before.since

    def look(self, state: SweepState, needed: int) -> int:
        """Look at the claims as they are now, and return how many orders may run by the share.

        Args:
            needed: orders that the sweep could run at once.
        """
        began, at_once = time.monotonic(), state.spec.training.orders_at_once
        worked_s = time.thread_time()  # a busy machine makes a look longer, but not dearer
        if began < self._next_look or not self.backend.answers:
            return self.share.slots * at_once
        now = self.clock()
        self.journal.read_rules(now)
        rules, backend = self.journal.rules, self.backend
        held, slot, (whole, free) = backend.held(), backend.new_slot(), backend.room()
        mine = self.builder.build(state, needed, slot, held, rules.max_ahead, now)
        others = self.journal.others()
        nodes = self.outside.subtract([mine, *others], whole, free)
        mine = replace(mine, account=self.usage.charge(mine, self.share, nodes, rules, now))
        answer = shares([mine, *others], nodes, rules, now, whole)
        self.share = answer.get(mine.sweep, SlotShare())
        if any(quota.amounts for _, _, quota in quotas_of(mine, rules)):
            self.share = replace(self.share, crowded=True)  # wider slots might exceed it
        orders = {each.slot: numbers for each, numbers in held}
        self.lost = frozenset(order for slot in self.share.lost for order in orders[slot])
        self.interrupted = _victims(state, held, {*self.share.interrupted})
        self.notice.idle_since = now if held else self.notice.idle_since
        waiting = self.notice.update(self.share.wait, slot.text, now)
        backend.apply_share(self.share, waiting, self._missing(state, [mine, *others]))
        self.journal.write(mine, self.share, self.notice.wait, state, now)
        pause_s = (time.thread_time() - worked_s) / BUSY
        self._next_look = began + min(max(LOOK_S, pause_s), LONGEST_S)
        return self.share.slots * at_once

    def late(self, state: SweepState, now: float) -> frozenset[int]:
        """Return the lost orders whose next rung is too far, and that lose nothing at any step."""
        return late(state, self.lost, self.journal.rules.max_ahead, now)

    def end(self) -> None:
        """Give up the sweep's claim; its account stays."""
        self.journal.withdraw(self.usage.account)

    def _missing(self, state: SweepState, all_claims: Sequence[Claim]) -> int:
        """Return for how many slots new nodes are to be asked for.

        These are the ones that the sweep's quotas permit beyond its share; with `auto`, which means
        as many as there is room for, one while it has none.
        """
        mine, quotas = all_claims[0], Quotas(self.journal.rules)
        for claim in all_claims:
            for held in claim.held:
                quotas.take(claim, held.ranks)
        most = len(mine.held)
        while most < mine.wanted and not quotas.refusal(mine, mine.ranks):
            quotas.take(mine, mine.ranks)
            most += 1
        missing = max(0, most - max(self.share.slots, len(mine.held)))
        if state.spec.trials.parallel == "auto":
            return 0 if self.share.slots or mine.held else min(1, missing)
        return missing


def _victims(state: SweepState, held: HeldSlots, named: set[str]) -> frozenset[int]:
    """Return the orders to interrupt: on the nodes of the named slots, those of the least worth."""
    victims: set[int] = set()
    for nodes in {tuple(sorted(each.nodes.items())) for each, _ in held if each.slot in named}:
        there = [
            (each, orders)
            for each, orders in held
            if orders and tuple(sorted(each.nodes.items())) == nodes
        ]
        count = sum(each.slot in named for each, _ in there)
        there.sort(key=lambda pair: max(worth(state, order) for order in pair[1]))
        victims.update(order for _, orders in there[:count] for order in orders)
    return frozenset(victims)


def worth(state: SweepState, order: int) -> float:
    """Return the share of the sweep's trials that were no better at an order's last step.

    A trial that has no value yet has one half, and a replicate of a finalist is worth more than
    any trial.
    """
    trial = state.by_order(order)
    if trial is None or trial.replicate_of is not None:
        return 1.0
    if not trial.step:
        return 0.5
    mine = trial.loss_at(trial.step)
    others = [other for other in state.trials.values() if other.step >= trial.step]
    return sum(mine <= other.loss_at(trial.step) for other in others) / max(1, len(others))
