"""The native agent against a real server's application, a real driver, and real ranks."""

import os
import signal
import threading
from contextlib import ExitStack, contextmanager

import psutil
import pytest
import served
from agent_sweeps import driven
from simulated_sweeps import make_spec
from waiting import until

from hposvc import api
from hposvc.backends.process.rank_commands import LocalLauncher
from hposvc.errors import LeaseLost, OutOfReach, SpecError
from hposvc.events import Failed, Ordered, Reported
from hposvc.journal.home import sign
from hposvc.remote.agent.agent import Agent, Refused
from hposvc.remote.agent.start import take_trials
from hposvc.remote.http import Http
from trainables.order import Order

SECTIONS = {
    "fidelity": {"max": 3},
    "trials": {"max": 2},
    "parameters": {"lr": {"min": 0.1, "max": 0.2}},
    "resources": {"cpus_per_worker": 0.5},
}


@pytest.fixture
def http(tmp_path):
    with served.client(tmp_path) as client:
        yield Http("http://127.0.0.1:8900", client=client)


@contextmanager
def sweep_of(home, trainable, **sections):
    sign(home, "the journal")  # the folder in which `driven` has checkpoints and logs
    with driven(home, trainable=f"toys:{trainable}", **{**SECTIONS, **sections}) as lab:
        yield lab


def take(http, count=None, said=None, name="here", grace_s=30.0):
    return take_trials(http, "s", count, name, grace_s, print if said is None else said.append)


def state_of(home):
    return api.load(api.Sweeps.open(home), "s").state


def events_of(home, kind):
    events = api.Sweeps.open(home).journal.read("s")
    return [event for _, event in events if isinstance(event, kind)]


@contextmanager
def signalled(home, number):
    """Send this process a signal as soon as a report of the sweep is recorded."""

    def send():
        until(lambda: events_of(home, Reported), "a report")
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=send)
    thread.start()
    yield
    thread.join()


def test_an_agent_trains_all_trials_and_ends_with_the_sweep(http, tmp_path):
    said = []
    with sweep_of(tmp_path, "steady") as lab:
        assert take(http, said=said) == 2
    state = state_of(tmp_path)
    assert state.state == "COMPLETED"
    assert [len(trial.curve) for trial in state.trials.values()] == [3, 3]
    assert len({event.metrics["pid"] for event in events_of(tmp_path, Reported)}) == 1, "warm"
    assert said[0] == "agent here takes trials of s"
    assert said[-1] == "s is over"
    assert lab is not None


def test_a_lease_that_is_lost_while_the_ranks_start_shows_at_each_heartbeat():
    class Gone:
        def tell(self, message):
            raise LeaseLost("here does not have t0001")

    order = Order(1, "t0001", {"lr": 0.1}, None, 1, 3)
    with ExitStack() as stack:
        agent = Agent(Gone(), None, LocalLauncher(), stack, 1.0, print)
        with agent._beating(order, lease_s=0.04):
            heard = [agent._inbox.get(timeout=30) for _ in range(2)]
    assert [type(message) for message in heard] == [Refused, Refused]


@pytest.mark.long
def test_sigterm_gives_the_trial_back_and_it_goes_on_from_its_checkpoint(http, tmp_path):
    with sweep_of(tmp_path, "slow", fidelity={"max": 30}, trials={"max": 1}):
        with signalled(tmp_path, signal.SIGTERM):
            take(http)
        until(lambda: events_of(tmp_path, Failed), "the end of the order")
        take(http, name="there")
    assert [event.cause for event in events_of(tmp_path, Failed)] == ["preempt"]
    _, second = events_of(tmp_path, Ordered)
    assert second.order.start is not None
    assert second.order.first > 1
    assert state_of(tmp_path).state == "COMPLETED"


def test_ranks_that_do_not_leave_within_the_grace_are_killed(http, tmp_path):
    parameters = {"lr": 0.1, "at": 2, "do": "hang"}
    with sweep_of(tmp_path, "obedient", parameters=parameters, trials={"max": 1}):
        with signalled(tmp_path, signal.SIGUSR1):
            assert take(http, grace_s=0.5) == 1
        until(lambda: events_of(tmp_path, Failed), "the end of the order")
    [reported] = events_of(tmp_path, Reported)
    assert not psutil.pid_exists(int(reported.metrics["pid"]))
    assert [event.cause for event in events_of(tmp_path, Failed)] == ["preempt"]


def test_a_checkpoint_of_a_worker_of_another_kind_is_not_for_an_agent(http, tmp_path):
    with sweep_of(tmp_path, "steady", trials={"max": 1}):
        [work] = http.post("sweeps/s/ask", {"client_id": "curl"})
        saved = {"step": 1, "path": "agent:s3://mine/1"}
        report = {"type": "report", "step": 1, "metrics": {"loss": 1.0}, "checkpoint": saved}
        for message in (report, {"type": "outcome", "kind": "preempt"}):
            about = {**message, "order": work["id"]}
            http.post("sweeps/s/tell", {"client_id": "curl", "message": about})
        with pytest.raises(OutOfReach, match="t0001 goes on from s3://mine/1, which a worker of"):
            take(http)
    assert [event.cause for event in events_of(tmp_path, Failed)] == ["preempt"] * 2


@pytest.mark.long  # half a minute until the next try
def test_a_rank_that_dies_is_a_failure_of_infrastructure_and_its_trial_is_tried_again(
    http, tmp_path
):
    parameters = {"mark": f"{tmp_path}/mark", "victim": 0, "lr": 0.1}
    sections = {"parameters": parameters, "resources": {"workers": 2, "cpus_per_worker": 0.5}}
    with sweep_of(tmp_path, "dies_once", trials={"max": 1}, **sections):
        take(http)
    [failed] = events_of(tmp_path, Failed)
    assert failed.cause == "infra"
    assert "killed by SIGKILL" in failed.message
    assert state_of(tmp_path).state == "COMPLETED"


def test_what_was_begun_under_the_same_name_goes_back_at_once(http, tmp_path):
    with sweep_of(tmp_path, "steady", trials={"max": 1}):
        [work] = http.post("sweeps/s/ask", {"client_id": "here"})  # of a process that died
        log = tmp_path / "logs" / work["trial"] / f"{work['id']}-0.log"
        log.parent.mkdir(parents=True)
        log.touch()
        take(http)
    assert [event.cause for event in events_of(tmp_path, Failed)] == ["preempt"]
    assert state_of(tmp_path).state == "COMPLETED"


def test_a_secret_that_is_missing_here_is_named(http, tmp_path, monkeypatch):
    with sweep_of(tmp_path, "steady", environment={"secrets": ["TOKEN_OF_MINE"]}):
        monkeypatch.delenv("TOKEN_OF_MINE", raising=False)
        with pytest.raises(SpecError, match="TOKEN_OF_MINE is not set here"):
            take(http)


def test_a_sweep_with_another_engine_has_no_trials_for_agents(http, tmp_path):
    api.create(api.Sweeps.open(tmp_path), make_spec(), "s")
    with pytest.raises(SpecError, match="engine: is simulate: s trains its trials itself"):
        take(http)
