"""Proposals: never repeated, refreshed when results come in, and off the main loop."""

import threading

import pytest
from simulated_sweeps import make_spec
from waiting import until

from hposvc.driver.proposals import BackgroundProposer, SearchExhausted, SyncProposer, propose
from hposvc.errors import PlugInFailed
from searchers.random_search import Random
from searchers.searcher import Observation, Proposal

WIDE = {"lr": {"min": 1e-4, "max": 10.0}}
GRID = {"a": {"values": list(range(6))}, "b": {"values": ["x", "y", "z"]}}


def pending(proposals):
    return [
        Observation(f"t{n}", proposal.params, proposal.note) for n, proposal in enumerate(proposals)
    ]


def collect(proposer, count, results=0):
    """Take `count` proposals as a driver does: each is in the history of the next."""
    taken = []
    for _ in range(count):
        proposer.look_ahead(lambda: pending(taken), count - len(taken), results)
        taken.append(until(proposer.take))
    proposer.look_ahead(lambda: pending(taken), 0, results)
    return taken


@pytest.fixture
def ahead():
    """Return a function that makes proposers, which are closed at the end."""
    proposers = []

    def make(spec, searcher):
        proposers.append(BackgroundProposer(spec, searcher))
        return proposers[-1]

    yield make
    for proposer in proposers:
        proposer.close()


def search(spec):
    return spec.searcher()


@pytest.mark.parametrize("method", ["random", "sobol", "grid", "gp"])
def test_no_proposal_comes_twice_and_the_end_is_told(ahead, method):
    spec = make_spec(parameters=GRID, search=method, trials={"max": 30})
    proposer = ahead(spec, search(spec))
    taken = collect(proposer, 18)
    assert len({tuple(proposal.params.items()) for proposal in taken}) == 18
    proposer.look_ahead(lambda: pending(taken), 12, 0)
    with pytest.raises(SearchExhausted):
        until(proposer.take)


@pytest.mark.parametrize("method", ["random", "sobol", "grid"])
def test_what_does_not_learn_proposes_the_same_whatever_the_timing(ahead, method):
    spec = make_spec(parameters=GRID, search=method, seed=7)
    inline = collect(SyncProposer(spec, search(spec)), 12)
    assert collect(ahead(spec, search(spec)), 12) == inline
    proposer = ahead(spec, search(spec))
    proposer.look_ahead(list, 12, 0)
    assert [until(proposer.take) for _ in range(12)] == inline


@pytest.mark.parametrize("method", ["random", "sobol", "grid", "gp", "tpe"])
def test_what_earlier_sweeps_have_tried_is_not_proposed_again(method):
    spec = make_spec(parameters=GRID, search=method)
    tried = [proposal.params for proposal in collect(SyncProposer(spec, search(spec)), 6)]
    taken = collect(SyncProposer(spec, search(spec), tried=tried), 12)
    keys = {spec.space.key(params) for params in (*tried, *(one.params for one in taken))}
    assert len(keys) == 18
    assert propose(spec, search(spec), pending(taken), tried=tried) is None


def test_initial_points_come_first_and_are_completed():
    spec = make_spec(parameters=GRID, initial=[{"a": 5}, {"b": "z"}], search="random")
    proposer = SyncProposer(spec, search(spec))
    taken = collect(proposer, 3)
    assert [taken[0].params["a"], taken[1].params["b"]] == [5, "z"]
    assert [proposal.note.get("source") for proposal in taken] == ["initial", "initial", None]


class Watching(Random):
    """A searcher that learns, and records the histories that it was given."""

    uses_results = True

    def __init__(self):
        self.seen, self.may_go = [], threading.Event()
        self.may_go.set()
        self.asked = threading.Semaphore(0)

    def suggest(self, space, history, n, rng):
        self.seen.append([observation.params["lr"] for observation in history])
        self.asked.release()
        self.may_go.wait(20)
        return [Proposal({"lr": 1e-3 + len(self.seen)})]


def test_a_ready_proposal_is_made_anew_when_results_come_in(ahead):
    searcher = Watching()
    proposer = ahead(make_spec(parameters=WIDE), searcher)
    proposer.look_ahead(list, 1, 0)
    assert searcher.asked.acquire(timeout=20)
    proposer.look_ahead(list, 1, 1)
    assert searcher.asked.acquire(timeout=20)
    while (proposal := proposer.take()) is None or proposal.params["lr"] < 2:
        pass  # the older proposal may come first, if the newer is not ready yet
    assert len(searcher.seen) == 2


@pytest.mark.parametrize("raised", [SystemExit(3), ZeroDivisionError("the model is singular")])
def test_a_searcher_that_exits_does_not_take_the_thread_of_proposals_along(ahead, raised):
    class Leaving(Random):
        def suggest(self, space, history, n, rng):
            raise raised

    proposer = ahead(make_spec(parameters=WIDE), Leaving())
    proposer.look_ahead(list, 1, 0)
    with pytest.raises(PlugInFailed, match=type(raised).__name__):
        until(proposer.take)


class Answering:
    """A user's searcher, which answers as it is told."""

    uses_results = True

    def __init__(self, answer):
        self.answer = answer

    def suggest(self, space, history, n, rng):
        return self.answer


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (None, "returned None; return a list of one Proposal"),
        (0.5, "returned 0.5; return a list"),
        ([], "returned no proposals for the first trial"),
        ([Proposal({"lr": 0.1})] * 2, "returned 2 proposals where 1 was asked for"),
        ([{"lr": 0.1}], "return a list of one Proposal"),
        ([Proposal({"lr": 50.0})], "suggests what the space does not have: lr: "),
        ([Proposal({"lr": "high"})], "suggests what the space does not have: lr: "),
        ([Proposal({})], "suggests what the space does not have: lr: is missing"),
        ([Proposal({"lr": 0.1, "rate": 1})], "suggests what the space does not have: .*rate"),
        ([Proposal({"lr": 0.1}, {"model": object()})], "which can't be recorded: .*object"),
        ([Proposal([0.1])], "returned Proposal.*; return a list of one Proposal"),
    ],
)
def test_a_wrong_answer_of_a_user_s_searcher_is_named(answer, problem):
    said = rf"search\.method .*{problem}.* \(.*test_proposals\.py:\d+\); .*resume"
    with pytest.raises(PlugInFailed, match=said):
        propose(make_spec(parameters=WIDE), Answering(answer), [])
