"""Calls of users' plug-ins that do not return. If these fail, a sweep hangs without a word."""

import re
import threading
from dataclasses import dataclass

import pytest
from simulated_sweeps import make_spec

from hposvc.driver.proposals import BackgroundProposer
from hposvc.driver.slow_plug_ins import SlowPlugIns
from hposvc.driver.stop_rules import StopRules
from hposvc.schedulers.fifo import Fifo
from hposvc.schedulers.guarded import begin_scheduler
from hposvc.schedulers.scheduler import Plan, Wait
from hposvc.state.sweep import SweepState
from searchers.random_search import Random


class Blocked:
    """Waits in a plug-in until the test lets it go on."""

    def __init__(self):
        self.there, self.may_go = threading.Event(), threading.Event()

    def wait(self):
        self.there.set()
        self.may_go.wait(20)


@pytest.fixture
def blocked():
    blocked = Blocked()
    yield blocked
    blocked.may_go.set()


@dataclass(frozen=True)
class Thinking:
    """A searcher that thinks until it may go on."""

    blocked: Blocked

    def suggest(self, space, history, n, rng):
        self.blocked.wait()
        return Random().suggest(space, history, n, rng)


@dataclass(frozen=True)
class Hesitant:
    """A scheduler that hesitates until it may go on."""

    blocked: Blocked

    def scheduler(self, plan):
        return self

    def next(self):
        self.blocked.wait()
        return Wait()


def warnings(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_searcher_that_does_not_return_is_named_once_with_its_line(blocked, caplog):
    searcher = Thinking(blocked)
    slow = SlowPlugIns("s", {"search.method mine:Thinking": searcher})
    proposer = BackgroundProposer(make_spec(), searcher)
    proposer.look_ahead(list, 1, 0)
    assert blocked.there.wait(20)
    slow.look()
    assert warnings(caplog) == []
    slow.look()
    slow.look()
    (said,) = warnings(caplog)
    place = re.escape(__file__)
    assert re.match(rf"s: search\.method mine:Thinking has not returned .* \({place}:\d+\)", said)
    proposer.close()


def test_a_scheduler_that_does_not_return_is_named(blocked, caplog):
    policy = Hesitant(blocked)
    slow = SlowPlugIns("s", {"scheduler.type mine:Hesitant": policy})
    guarded = begin_scheduler("mine:Hesitant", policy, Plan(1, 9))
    guarded.running.add("t0001")
    driver = threading.Thread(target=guarded.next)
    driver.start()
    assert blocked.there.wait(20)
    slow.look()
    slow.look()
    assert "scheduler.type mine:Hesitant has not returned" in warnings(caplog)[0]
    blocked.may_go.set()
    driver.join()


def test_a_rule_that_does_not_return_is_named_among_other_plug_ins_of_its_file(blocked, caplog):
    def rule(history):
        blocked.wait()

    state = SweepState(make_spec(stop=["mine:rule"]))
    plug_ins = {"search.method mine:Thinking": Thinking(blocked), "stop.rules mine:rule": rule}
    slow = SlowPlugIns("s", plug_ins)
    driver = threading.Thread(target=StopRules({"mine:rule": rule}).ask, args=(state, 0.0))
    driver.start()
    assert blocked.there.wait(20)
    slow.look()
    slow.look()
    (said,) = warnings(caplog)
    assert said.startswith("s: stop.rules mine:rule has not returned")
    blocked.may_go.set()
    driver.join()


def test_calls_that_return_and_other_code_of_its_file_are_not_named(blocked, caplog):
    searcher = Thinking(blocked)
    slow = SlowPlugIns("s", {"search.method mine:Thinking": searcher})
    trial = threading.Thread(target=blocked.wait)
    trial.start()
    assert blocked.there.wait(20)
    slow.look()
    slow.look()
    assert warnings(caplog) == []
    blocked.may_go.set()
    trial.join()


def test_built_in_plug_ins_are_not_watched():
    with SlowPlugIns("s", {"scheduler.type fifo": Fifo(), "search.method random": Random()}):
        assert "slow plug-ins" not in [thread.name for thread in threading.enumerate()]
