"""Shares follow weights, priorities, quotas and gangs, whatever the claims are."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hposvc.queue.allocation import Allocation
from hposvc.queue.claim import IDLE, Account, Claim, Held
from hposvc.queue.fair import divide_by_weight
from hposvc.queue.gangs import FreeResources
from hposvc.queue.rules import Member, Quota, Rules
from hposvc.queue.shares import Shortage, SlotShare, shares

NOW = 1e6
RULES = Rules(max_ahead=60.0)
ONE = {"n1": {"GPU": 4.0, "CPU": 16.0}}


def claim(sweep: str, wanted: int, held: int = 0, node: str = "n1", **more: object) -> Claim:
    values = {"queue": "default", "user": "u", "project": "p", "since": NOW, "ranks": 1, **more}
    ranks = values["ranks"]
    slots = tuple(
        Held(f"{sweep}/{n}", {node: int(f"{ranks}")}, NOW + 10.0 * n) for n in range(held)
    )
    return Claim(sweep, wanted=wanted, needs={"GPU": 1.0}, held=slots, **values)  # type: ignore[arg-type]


def wait_of(share: SlotShare) -> Shortage:
    assert share.wait is not None
    return share.wait


def slots(answer: Mapping[str, SlotShare]) -> dict[str, int]:
    return {sweep: share.slots for sweep, share in answer.items()}


names = st.sampled_from(["a", "b", "c"])
clusters = st.lists(st.integers(1, 8), min_size=1, max_size=4).map(
    lambda sizes: {f"n{n}": {"GPU": float(gpus), "CPU": 32.0} for n, gpus in enumerate(sizes)}
)
accounts = st.builds(
    Account,
    used=st.floats(0, 1e7),
    due=st.floats(0, 1e7),
    at=st.floats(NOW - 1e6, NOW),
)
rule_sets = st.builds(
    Rules,
    max_ahead=st.sampled_from([1.0, 60.0, 3600.0]),
    half_life=st.sampled_from([60.0, 86400.0]),
    queues=st.just({})
    | st.dictionaries(names, st.builds(Member, weight=st.none() | st.floats(0, 5)), max_size=2),
    users=st.dictionaries(names, st.builds(Member, gpus=st.none() | st.integers(0, 9)), max_size=2),
    projects=st.dictionaries(
        names, st.builds(Quota, gpus=st.none() | st.integers(0, 9)), max_size=2
    ),
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Claim], dict[str, dict[str, float]], Rules]:
    """Draw sweeps that hold slots which fit into the cluster, and rules."""
    nodes = draw(clusters)
    room, claims = FreeResources.of(nodes), []
    for number in range(draw(st.integers(1, 6))):
        made = Claim(
            f"s{number}",
            *(draw(names), draw(names), draw(names)),
            since=draw(st.floats(NOW - 1e4, NOW)),
            wanted=draw(st.integers(0, 8)),
            needs={"GPU": draw(st.sampled_from([0.25, 1.0, 1.0, 2.0])), "CPU": 1.0},
            ranks=draw(st.sampled_from([1, 1, 2, 4, 8])),
            placement=draw(st.sampled_from(["pack", "strict_pack", "spread"])),
            priority=draw(st.sampled_from([0, 0, 0, 1, -5])),
            weight=draw(st.sampled_from([0.0, 0.5, 1.0, 1.0, 3.0])),
            preemptible=draw(st.sampled_from([True, True, False])),
            order_s=draw(st.none() | st.floats(1, 1000)),
            account=draw(accounts),
        )
        held: list[Held] = []
        for slot in range(draw(st.integers(0, 4))):
            free_at = draw(st.none() | st.floats(NOW - 10, NOW + 1000))
            node = draw(st.sampled_from(sorted(nodes)))
            places = {node: made.ranks}
            if room.fits(places, made.needs):
                room.take(places, made.needs)
                held.append(Held(f"{made.sweep}/{slot}", places, free_at))
        claims.append(replace(made, held=tuple(held)))
    return claims, nodes, draw(rule_sets)


def allocated(
    claims: Sequence[Claim], nodes: Mapping[str, Mapping[str, float]], rules: Rules
) -> Allocation:
    allocation = Allocation(claims, nodes, rules, NOW)
    allocation.allocate()
    return allocation


@given(tables())
def test_nothing_is_promised_twice_and_no_rank_alone(
    drawn: tuple[list[Claim], dict[str, dict[str, float]], Rules],
) -> None:
    claims, nodes, _ = drawn
    allocation, room = allocated(*drawn), FreeResources.of(nodes)
    for one in claims:
        for held in allocation.kept[one.sweep]:
            assert room.fits(held.nodes, one.needs)
            room.take(held.nodes, one.needs)
        for reserved in allocation.reserved[one.sweep]:
            assert sum(reserved.places.values()) == one.ranks
            assert one.placement != "strict_pack" or len(reserved.places) == 1
            assert room.fits(reserved.places, one.needs)
            room.take(reserved.places, one.needs)
        granted = len(allocation.kept[one.sweep]) + len(allocation.reserved[one.sweep])
        assert granted <= one.wanted


@given(tables())
def test_nothing_stays_idle_while_something_fits(
    drawn: tuple[list[Claim], dict[str, dict[str, float]], Rules],
) -> None:
    claims, _, _ = drawn
    allocation = allocated(*drawn)
    for one in claims:
        granted = len(allocation.kept[one.sweep]) + len(allocation.reserved[one.sweep])
        if granted < one.wanted and not allocation.quotas.refusal(one, one.ranks):
            # What a slot that is given back leaves goes to those that come after it.
            assert allocation._reserve(one) is None


@given(tables())
def test_quotas_are_kept_at_every_moment(
    drawn: tuple[list[Claim], dict[str, dict[str, float]], Rules],
) -> None:
    claims, _, rules = drawn
    allocation = allocated(*drawn)
    for kind, members in (("user", rules.users), ("project", rules.projects)):
        for name, quota in members.items():
            held = sum(
                one.needs["GPU"]
                * (
                    sum(h.ranks for h in allocation.kept[one.sweep])
                    + one.ranks * len(allocation.reserved[one.sweep])
                )
                for one in claims
                if getattr(one, kind) == name
            )
            assert held <= quota.amounts.get("GPU", math.inf) + 1e-6


@given(tables(), st.randoms())
def test_every_driver_computes_the_same(
    drawn: tuple[list[Claim], dict[str, dict[str, float]], Rules], shuffle: object
) -> None:
    claims, nodes, rules = drawn
    before = shares(claims, nodes, rules, NOW)
    mixed = [Claim.of(asdict(one)) for one in claims]
    shuffle.shuffle(mixed)  # type: ignore[attr-defined]
    assert shares(mixed, nodes, Rules.of(asdict(rules)), NOW) == before


@given(tables())
def test_sweeps_come_to_rest_and_do_not_take_slots_from_each_other_for_ever(
    drawn: tuple[list[Claim], dict[str, dict[str, float]], Rules],
) -> None:
    """Sweeps that preempted each other did so for ever in Kueue (kueue#14683)."""
    claims, nodes, rules = drawn
    for look in range(5):
        allocation = allocated(claims, nodes, rules)
        after = [
            replace(
                one,
                held=(
                    *allocation.kept[one.sweep],
                    *(
                        Held(f"{one.sweep}/{look}-{n}", reserved.places, NOW + 60.0)
                        for n, reserved in enumerate(allocation.reserved[one.sweep])
                    ),
                ),
            )
            for one in claims
        ]
        if all(one.held == before.held for one, before in zip(after, claims, strict=True)):
            return
        claims = after
    raise AssertionError("slots still change hands at the fifth look")


@given(tables())
def test_only_a_higher_priority_interrupts(
    drawn: tuple[list[Claim], dict[str, dict[str, float]], Rules],
) -> None:
    claims, nodes, rules = drawn
    highest = max(one.priority for one in claims)
    answer = shares(claims, nodes, rules, NOW)
    for one in claims:
        share = answer.get(one.sweep, SlotShare())
        assert {*share.interrupted} <= {*share.lost}
        if one.priority == highest or not one.preemptible:
            assert not share.interrupted


@given(
    st.lists(
        st.tuples(st.just(0.0) | st.floats(0.01, 10), st.floats(0, 100)), min_size=1, max_size=8
    ),
    st.floats(0, 200),
)
def test_parts_add_up_and_follow_the_weights(
    pairs: list[tuple[float, float]], amount: float
) -> None:
    wanted = dict(enumerate(pairs))
    parts = divide_by_weight(wanted, amount)
    total = sum(most for _, most in pairs)
    assert math.isclose(sum(parts.values()), min(amount, total), rel_tol=1e-9, abs_tol=1e-9)
    for one, (weight, most) in wanted.items():
        assert -1e-9 <= parts[one] <= most + 1e-9
        for other, (other_weight, _) in wanted.items():
            # Whoever gets less than it wants has at least its weight's part beside every other.
            if weight and other_weight and parts[one] < most - 1e-6:
                assert parts[one] / weight >= parts[other] / other_weight - 1e-6


def test_two_sweeps_share_by_default() -> None:
    answer = shares([claim("a", 20, held=4, since=0.0), claim("b", 4)], ONE, RULES, NOW)
    assert slots(answer) == {"a": 2, "b": 2}
    assert answer["a"].lost == ("a/0", "a/1")  # those that come to a rung first
    assert wait_of(answer["b"]).behind == ("a",)
    assert wait_of(answer["b"]).until == NOW  # of a/0


def test_three_weights_share_by_weight() -> None:
    heavy = [claim("a", 9, weight=2.0), claim("b", 9), claim("c", 9)]
    assert slots(shares(heavy, ONE, RULES, NOW)) == {"a": 2, "b": 1, "c": 1}


def test_users_share_and_not_their_sweeps() -> None:
    """A user does not get more by submitting more sweeps."""
    many = [claim(f"a{n}", 4, user="anna") for n in range(9)]
    answer = shares([*many, claim("b", 4, user="ben")], ONE, RULES, NOW)
    assert answer["b"].slots == 2


def test_a_weight_of_zero_gets_only_what_is_left() -> None:
    """Kueue preferred it to all others (kueue#13481)."""
    pair = [claim("zero", 4, weight=0.0, since=0.0), claim("one", 3)]
    assert slots(shares(pair, ONE, RULES, NOW)) == {"zero": 1, "one": 3}


def test_the_smallest_debt_decides() -> None:
    """Kueue lost what was below its unit of usage (kueue#13763)."""
    account = Account(used=1e-3, at=NOW)
    pair = [claim("a", 1, account=account, since=0.0), claim("b", 1)]
    one = {"n1": {"GPU": 1.0}}
    assert slots(shares(pair, one, RULES, NOW)) == {"a": 0, "b": 1}


def test_a_debt_decays_and_goes_with_the_user_but_for_no_longer() -> None:
    """Kueue kept penalties of what was aborted or came again (kueue#12786, #14153)."""
    gone = claim("old", 0, user="anna", account=Account(used=1000.0, at=NOW))
    pair = [claim("a", 1, user="anna", since=0.0), claim("b", 1, user="ben")]
    one = {"n1": {"GPU": 1.0}}
    assert slots(shares([gone, *pair], one, RULES, NOW))["b"] == 1
    assert slots(shares([gone, *pair], one, RULES, NOW + 100 * RULES.half_life))["a"] == 1
    assert slots(shares(pair, one, RULES, NOW))["a"] == 1


def test_a_queue_that_is_gone_stops_nobody() -> None:
    """A deleted queue hung Kueue's scheduler (kueue#13264)."""
    rules = replace(RULES, queues={"vision": Member()})
    pair = [claim("a", 4, queue="deleted"), claim("b", 4, queue="vision")]
    assert slots(shares(pair, ONE, rules, NOW)) == {"a": 2, "b": 2}


@pytest.mark.parametrize("nodes", [{}, {"n1": {"CPU": 8.0}}, {"n1": {"GPU": 0.0, "CPU": 8.0}}])
def test_a_cluster_without_such_resources_has_shares_too(
    nodes: dict[str, dict[str, float]],
) -> None:
    """A share of nothing was infinite in Kueue (kueue#14674)."""
    [share] = shares([claim("a", 4)], nodes, RULES, NOW).values()
    assert (share.due, share.slots) == (0.0, 0)
    assert "no node" in wait_of(share).reason


def test_a_gang_is_placed_whole_and_its_places_are_kept() -> None:
    nodes = {"n1": {"GPU": 8.0}, "n2": {"GPU": 8.0}}
    small = [
        claim("a", 16, held=5, node="n1"),
        claim("b", 16, held=6, node="n2"),
    ]
    gang = claim("gang", 1, ranks=8, placement="strict_pack", account=Account(due=1e4, at=NOW))
    answer = shares([*small, gang], nodes, RULES, NOW)
    assert answer["gang"].slots == 1
    # The emptier node is cleared, and the other one shared.
    assert (len(answer["a"].lost), len(answer["b"].lost)) == (5, 2)
    assert answer["a"].avoid or answer["b"].avoid


def test_kept_places_are_used_by_orders_that_end_in_time() -> None:
    gang = claim("gang", 1, ranks=4, account=Account(due=1e4, at=NOW), since=0.0)
    holder = replace(
        claim("a", 4, held=2),
        held=(Held("a/0", {"n1": 1}, NOW + 100), Held("a/1", {"n1": 1}, NOW + 50)),
    )
    short, long = claim("short", 4, order_s=30.0), claim("long", 4, order_s=300.0)
    answer = shares([gang, holder, short, long], ONE, RULES, NOW)
    assert wait_of(answer["gang"]).until == NOW + 100
    assert (answer["short"].slots, answer["long"].slots) == (2, 0)


def test_the_node_that_is_being_cleared_for_a_gang_stays_the_same() -> None:
    """The one of whoever was furthest ahead was chosen anew at each look, and both stood idle."""
    nodes = {"n1": {"GPU": 8.0}, "n2": {"GPU": 8.0}}
    gang = claim("gang", 1, ranks=8, account=Account(due=1e5, at=NOW))
    for ahead, behind in (("a", "b"), ("b", "a")):
        used = {ahead: Account(used=1e3, at=NOW), behind: Account()}
        pair = [
            claim("a", 16, held=8, node="n1", account=used["a"]),
            claim("b", 16, held=5, node="n2", account=used["b"]),
        ]
        answer = shares([gang, *pair], nodes, RULES, NOW)
        assert len(answer["b"].lost) == 5


def test_a_slot_in_kept_places_works_until_its_order_ends_and_no_longer() -> None:
    """Else a slot is started and closed again at every look."""
    gang = claim("gang", 1, ranks=4, account=Account(due=1e4, at=NOW), since=0.0)
    holder = replace(claim("a", 2, held=2), held=(Held("a/0", {"n1": 1}, NOW + 100),))
    short = claim("short", 4, held=2, order_s=30.0)
    idle = tuple(replace(held, free_at=IDLE) for held in short.held)
    share = shares([gang, holder, replace(short, held=idle)], ONE, RULES, NOW)["short"]
    assert (share.slots, share.lost) == (3, ())
    late = shares([gang, holder, replace(short, held=idle)], ONE, RULES, NOW + 80)["short"]
    assert (late.slots, len(late.lost)) == (0, 2)
    busy = shares([gang, holder, short], ONE, RULES, NOW)["short"]
    assert len(busy.lost) == 2, "it gives them back at the rung"


def test_kept_places_are_not_used_beyond_a_quota() -> None:
    gang = claim("gang", 1, ranks=4, user="v", account=Account(due=1e4, at=NOW), since=0.0)
    holder = claim("a", 2, held=2, user="v")
    holder = replace(holder, held=(Held("a/0", {"n1": 1}, NOW + 100),))
    pair = [claim(name, 4, order_s=30.0, user="w") for name in ("b", "c")]
    rules = replace(RULES, users={"w": Member(gpus=2)})
    answer = shares([gang, holder, *pair], ONE, rules, NOW)
    assert answer["b"].slots + answer["c"].slots == 2


def test_as_many_slots_are_interrupted_as_the_higher_priority_needs() -> None:
    low = claim("low", 4, held=4, since=0.0)
    answer = shares([low, claim("even", 4), claim("high", 1, priority=5)], ONE, RULES, NOW)
    assert len(answer["low"].interrupted) == 1
    assert len(answer["low"].lost) > 1


def test_a_sweep_is_not_behind_one_that_has_nothing() -> None:
    one = {"n1": {"GPU": 1.0}}
    trio = [claim(name, 1, held=name == "a") for name in ("a", "b", "c")]
    answer = shares(trio, one, RULES, NOW)
    assert wait_of(answer["b"]).behind == wait_of(answer["c"]).behind == ("a",)


def test_only_who_could_use_a_slot_contests_it() -> None:
    """What a sweep has on nodes that nobody else can use is not held against it."""
    nodes = {"a": {"GPU": 2.0}, "h": {"GPU": 2.0}}
    alone = claim("alone", 2, held=2, node="a", nodes=("a",))
    pair = [claim("one", 2, held=2, node="h", nodes=("h",)), claim("two", 2, nodes=("h",))]
    answer = shares([alone, *pair], nodes, RULES, NOW)
    assert not answer["alone"].contested
    assert answer["one"].contested


def test_what_is_held_outside_is_waited_for_in_the_line_of_the_cluster() -> None:
    [share] = shares([claim("a", 1)], {"n1": {"GPU": 0.0}}, RULES, NOW, ONE).values()
    assert (share.slots, share.wait) == (1, None)


def test_a_slot_that_a_quota_refuses_leaves_room_for_smaller_ones() -> None:
    wide = replace(claim("a", 2, ranks=1), held=(Held("a/0", {"n1": 4}), Held("a/1", {"n1": 1})))
    rules = replace(RULES, users={"u": Member(gpus=2)})
    [share] = shares([wide], {"n1": {"GPU": 8.0}}, rules, NOW).values()
    assert (share.slots, share.lost) == (1, ("a/0",))


def test_a_quota_bounds_what_is_due() -> None:
    rules = replace(RULES, users={"u": Member(gpus=1)})
    answer = shares([claim("a", 4), claim("b", 4), claim("c", 4, user="v")], ONE, rules, NOW)
    assert answer["a"].due + answer["b"].due == 1.0
    assert answer["c"].due == 3.0


def test_a_claim_of_another_version_is_read_as_far_as_it_is_known() -> None:
    data = asdict(claim("a", 1, held=1))
    data["held"][0]["later"] = data["account"]["later"] = data["later"] = 1
    assert Claim.of(data) == claim("a", 1, held=1)
    data["account"] = {"used": math.inf, "due": 0.0, "at": NOW}
    assert Claim.of(data).account == Account()


def test_a_quota_is_said() -> None:
    rules = replace(RULES, users={"u": Member(gpus=1)})
    [share] = shares([claim("a", 4, held=1)], ONE, rules, NOW).values()
    assert share.slots == 1
    assert wait_of(share).reason == "the quota of user u, 1 GPU"


def test_a_sweep_that_keeps_its_slots_keeps_them() -> None:
    pair = [claim("a", 4, held=4, preemptible=False), claim("b", 4, priority=9)]
    assert slots(shares(pair, ONE, RULES, NOW)) == {"a": 4, "b": 0}


@pytest.mark.parametrize(("wanted", "given_back"), [(1, "a/new"), (2, None)])
def test_a_sweep_that_wants_less_gives_back_a_slot_that_starts(
    wanted: int, given_back: str | None
) -> None:
    works = Held("a/works", {"n1": 1}, NOW + 5.0)
    starts = Held("a/new", {"n1": 1}, None, start_s=1.0, work_s=None)
    [share] = shares([replace(claim("a", wanted), held=(works, starts))], ONE, RULES, NOW).values()
    assert share.lost == (() if given_back is None else (given_back,))
