"""Sweeps of several users share a real cluster of three nodes by their weights, whatever dies.

Weights and gangs take minutes of a machine of their own: they are tried at night, and by day on a
simulated cluster, by tests/hposvc/queue/test_simulated.py and
tests/hposvc/driver/test_queue_member.py.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import services
from sqlalchemy import select
from terminal import Command, Terminal, until

import hposvc
from hposvc.events import PRIORITY, QUEUE, Decided, Ordered, Reported
from hposvc.journal import claims
from hposvc.journal.database import LEASES
from hposvc.queue.claim import Account

pytestmark = [
    pytest.mark.ray,
    pytest.mark.long,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

CODE = '''
"""A trial that takes half a second for a step, and trains nothing."""

import time


def train(params, worker):
    before = worker.restore()
    assert before is None or (before / "at").exists()
    for step in worker.steps():
        time.sleep(0.5)
        folder = worker.scratch()
        (folder / "at").write_text(str(step))
        worker.report(step, {"loss": (params["lr"] - 0.3) ** 2 + 1 / step}, checkpoint=folder)
'''
# A user's weight, and the ranks of a trial: dan's take two thirds of the cluster.
USERS = {"ann": (3.0, 1), "bob": (1.0, 1), "dan": (2.0, 2)}
# At each change of sweeps ranks start anew, so less would keep the machine busy with that.
RULES = "queue: {max_ahead: 12s, half_life: 30d}\n"
KILLED_AT, ENOUGH = 40.0, 160.0  # CPU-seconds of all together, before the kill and after it
HALF_LIFE_S = 30 * 86400.0
LONG_S = 900.0  # for the sweeps to be even on a busy machine
MAX_AHEAD_S = 5.0  # beside a gang that starts slowly


def spec(user: str, storage: Path) -> dict[str, Any]:
    weight, ranks = USERS[user]
    return {
        "name": "shared",
        "trainable": "train.py:train",
        "metric": {"name": "loss", "goal": "minimize"},
        "fidelity": {"max": 9},
        "parameters": {"lr": {"min": 0.0, "max": 1.0}},
        "search": "random",
        "scheduler": "asha",
        "trials": {"max": 1000},
        "resources": {"workers": ranks},
        "queue": {"weight": weight},
        "failure": {"infra_retries": 50},
        "storage": f"{storage}",
        "tracking": {"send_to": []},
    }


def serve(terminal: Terminal, dashboard: str, port: int) -> Command:
    server = terminal.start("serve", "--port", f"{port}", "--cluster", dashboard, "--drivers", "8")
    until(lambda: " on http://" in server.stderr.read_text(), "the server answers")
    return server


def accounts(terminal: Terminal) -> dict[str, Account]:
    """Return the account of each sweep that has one, as of the same moment."""
    rows = claims.read(terminal.journal.store)
    read = {row.sweep: Account(**row.claim["account"]) for row in rows}
    now = max((account.at for account in read.values()), default=0.0)
    return {sweep: account.at_time(now, HALF_LIFE_S) for sweep, account in read.items()}


def parts(amounts: Mapping[str, float]) -> dict[str, float]:
    """Return the part of the sum that each amount is."""
    return {name: amount / sum(amounts.values()) for name, amount in amounts.items()}


def works(terminal: Terminal, sweep: str) -> bool:
    """Whether a sweep has a driver, and slots."""
    rows = claims.read(terminal.journal.store)
    return any(row.live and row.claim["held"] for row in rows if row.sweep == sweep)


def kill_driver(terminal: Terminal, sweep: str) -> None:
    with terminal.journal.store.reading() as connection:
        pid = connection.execute(select(LEASES.c.pid).where(LEASES.c.sweep == sweep)).scalar()
    assert pid is not None
    psutil.Process(pid).kill()


@pytest.mark.full
def test_users_share_three_nodes_by_weight_whatever_is_killed(terminal: Terminal):
    """Ray calls several jobs on one cluster "not recommended in production"."""
    up = terminal.ask("cluster", "up", "--local", "3", "--cpus", "1")
    try:
        terminal.variables["RAY_AUTH_TOKEN"] = Path(
            up["environment"]["RAY_AUTH_TOKEN_PATH"]
        ).read_text()
        (rules := terminal.home / "operator.yaml").write_text(RULES)
        terminal.variables["HPOSVC_CONFIG"] = f"{rules}"
        _share(terminal, up["dashboard"])
    finally:
        terminal.ask("cluster", "down")


def _share(terminal: Terminal, dashboard: str) -> None:
    port = services.free_port()
    server = serve(terminal, dashboard, port)
    scopes = ("--scope", "submit", "--scope", "steer")
    for user in USERS:
        token = terminal.ask("token", "create", "--owner", user, *scopes)["token"]
        place = hposvc.connect(f"http://127.0.0.1:{port}", token, terminal.home / user)
        place.submit(spec(user, terminal.home / "storage"), files={"train.py": CODE}, id=user)
    until(lambda: len(accounts(terminal)) == len(USERS), "an account for each")
    until(lambda: all(it.used > 0 for it in accounts(terminal).values()), "a slot for each")
    before = accounts(terminal)

    def had() -> dict[str, float]:
        return {user: it.used - before[user].used for user, it in accounts(terminal).items()}

    until(lambda: sum(had().values()) > KILLED_AT, "some work of each")
    kill_driver(terminal, "bob")
    server.kill()
    server = serve(terminal, dashboard, port)
    until(lambda: works(terminal, "bob"), "another driver")
    back = sum(had().values())
    due: dict[str, float] = {}

    def even() -> bool:
        """Whether each has had, to a twentieth of all, what was due to it."""
        spent, after = had(), accounts(terminal)
        due.update(parts({user: after[user].due - before[user].due for user in USERS}))
        apart = [abs(part - due[user]) for user, part in parts(spent).items()]
        return sum(spent.values()) > back + ENOUGH and max(apart) < 0.05

    # A gang has the cluster for a turn, the others then for some: who has too much is less and less
    # of the whole. On a busy machine an order to a rung takes much longer than a turn.
    until(even, "what was due to each", LONG_S)
    rows = json.loads(json.dumps(terminal.ask("queue")))
    assert {row["user"] for row in rows} == {*USERS}
    server.kill()
    # Nothing is due for a start, of which two ranks have the longest; so what was due to dan is
    # less than its weight says, and the others' parts of the rest are as theirs say.
    small = parts({user: due[user] for user in USERS if user != "dan"})
    assert small == pytest.approx(parts({user: USERS[user][0] for user in small}), abs=0.05)
    assert 0.08 < due["dan"] < 0.3
    assert sum(parked_orders(terminal, user) for user in USERS) > 0


def test_a_higher_priority_gets_a_slot_at_once_and_nothing_is_trained_twice(terminal: Terminal):
    """A scheduler below the application kills, and what was trained since a checkpoint is lost."""
    (terminal.home / "train.py").write_text(CODE)
    long = {**spec("ann", terminal.home / "storage"), "folder": f"{terminal.home}"}
    long |= {"fidelity": {"max": 1000}, "scheduler": "fifo"}  # without a rung
    low = terminal.run(long, "low")
    until(lambda: len(running(terminal, "low")) > 1, "a full machine")
    high = {**long, "fidelity": {"max": 3}, "trials": {"max": 1}, "queue": {"priority": 5}}
    code, said = terminal.run(high, "high").end()
    assert code == 0, said
    assert "waiting for 1 CPU since" in said
    assert low.process.poll() is None
    until(lambda: parked_orders(terminal, "low", PRIORITY) > 0, "the interrupted trial")
    low.kill()


@pytest.mark.full
def test_a_gang_whose_ranks_import_for_three_turns_works_beside_a_small_sweep(terminal: Terminal):
    """Its slot was given back before its first order, again and again, and charged to it."""
    up = terminal.ask("cluster", "up", "--local", "2", "--cpus", "2")
    try:
        terminal.variables.update(up["environment"])
        (terminal.home / "train.py").write_text(CODE)
        (terminal.home / "slow.py").write_text(
            f"import time\n\ntime.sleep({3 * MAX_AHEAD_S})\n{CODE}"
        )
        small = {**spec("ann", terminal.home / "storage"), "folder": f"{terminal.home}"}
        gang = {**small, "trainable": "slow.py:train", "queue": {"name": "gangs"}}
        gang |= {"resources": {"workers": 2, "cpus_per_worker": 2}}
        commands = [terminal.run(small, "small")]
        until(lambda: len(running(terminal, "small")) > 3, "work of the small sweep")
        claims.publish_rules(terminal.journal.store, {"max_ahead": MAX_AHEAD_S})
        commands.append(terminal.run(gang, "gang"))
        free: dict[float, float] = {}  # what was not charged, by what was

        def started(account: Account) -> bool:
            free[account.used] = account.free
            return account.used > 0.0

        until(lambda: (it := account(terminal, "gang")) is not None and started(it), "its slot")
        assert free.get(0.0, 0.0) > 0.0, "the start was charged"
        until(lambda: len(running(terminal, "gang")) > 0, "the gang's first order")
        for sweep in ("small", "gang"):
            here = len(running(terminal, sweep))
            until(lambda of=sweep, n=here: len(running(terminal, of)) > n, f"{sweep}'s turn")
        for command in commands:
            command.process.terminate()
            command.end()
    finally:
        terminal.ask("cluster", "down")


def account(terminal: Terminal, sweep: str) -> Account | None:
    """Return the account of a sweep as its claim says; None: it has none yet."""
    row = claims.find(terminal.journal.store, sweep)
    return None if row is None else Account(**row.claim["account"])


def running(terminal: Terminal, sweep: str) -> set[str]:
    """Return the trials that have reported."""
    events = (event for _, event in terminal.journal.read(sweep))
    return {event.trial for event in events if isinstance(event, Reported)}


def parked_orders(terminal: Terminal, sweep: str, why: str = QUEUE) -> int:
    """Check that orders which gave their slot back were gone on with at the next step."""
    at: dict[str, int] = {}
    parked: dict[str, int] = {}
    count = 0
    for _, event in terminal.journal.read(sweep):
        if isinstance(event, Reported):
            at[event.trial] = max(event.step, at.get(event.trial, 0))
        elif isinstance(event, Decided) and event.verdict == "park" and event.reason == why:
            parked[event.trial] = event.step
        elif isinstance(event, Ordered) and event.order.trial in parked:
            assert event.order.first == at[event.order.trial] + 1
            del parked[event.order.trial]
            count += 1
    return count
