"""Calls of users' plug-ins that do not return. If these fail, a sweep hangs without a word."""

import re
import threading
from dataclasses import dataclass

import pytest
from simulated_sweeps import make_spec

from hposvc.driver.proposals import BackgroundProposer
from hposvc.driver.slow_plug_ins import SlowPlugIns
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


def warnings(caplog):
    return [record.getMessage() for record in caplog.records]


def test_a_searcher_that_does_not_return_is_named_once_with_its_line(blocked, caplog):
    before = {*threading.enumerate()}
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
    blocked.may_go.set()
    for thread in {*threading.enumerate()} - before:
        thread.join(20)  # or the next test still finds its call
        assert not thread.is_alive()


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
