"""The inspection of a cluster's nodes; its use by a sweep is tested in tests/hposvc/backends."""

import re
import time

import pytest
import ray
from waiting import until

from cluster import inspection, launch
from cluster.inspection import Inspection, PendingProbe, collect, stored_results

pytestmark = pytest.mark.ray
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Start a Ray of one node, and join it."""
    connection = launch.connect(tmp_path_factory.mktemp("home") / "ray")
    yield
    connection.close()


def found(speed, **changes):
    """Return a probe's answer for a node with a core of this speed."""
    part = {"what": "matmul", "part": "a core", "model": "x", "value": speed, "unit": "GFLOPS"}
    now = time.time()
    times = {"began": now, "time": now}
    return {"speeds": [part], "problems": [], "notes": [], **times, **changes}


class Fleet:
    """Simulated nodes, each with its answers to successive probes."""

    def __init__(self, monkeypatch, prefix):
        self.answers, self.asked, self.prefix = {}, [], prefix
        monkeypatch.setattr(inspection, "start_probe", self.start_probe)
        monkeypatch.setattr(inspection.ray, "nodes", self.nodes)

    def nodes(self):
        return [
            {"NodeID": f"{self.prefix}{name}", "NodeName": name, "Alive": True, "Resources": {}}
            for name in self.answers
        ]

    def start_probe(self, node):
        name = node["NodeName"]
        self.asked.append(name)
        answer = self.answers[name].pop(0)
        reference = answer if isinstance(answer, ray.ObjectRef) else ray.put(answer)
        return PendingProbe(node, reference, time.time())

    def look(self):
        """Judge all nodes, and return the problems of each judged node."""
        looking, judged = Inspection(), {}
        looking.look(self.nodes())
        deadline = time.monotonic() + DEADLINE_S
        while looking.busy:
            assert time.monotonic() < deadline
            judged |= looking.judged()
        return {fitness.name: fitness.unfit for fitness in (judged | looking.judged()).values()}


@pytest.fixture
def fleet(cluster, monkeypatch, request):
    return Fleet(monkeypatch, f"{request.node.name}-")


def test_a_node_is_looked_at_once(cluster):
    [node] = ray.nodes()
    looking = Inspection()
    looking.look([node])
    assert looking.busy
    judged = until(looking.judged)
    assert not looking.busy
    assert judged[node["NodeID"]].name == node["NodeName"]
    assert stored_results()[node["NodeID"]]["speeds"]
    for again in (looking, Inspection()):
        again.look([node])
        assert not again.busy


def test_of_nodes_that_are_alike_none_is_unfit(fleet):
    fleet.answers = {"a": [found(50)], "b": [found(48)], "c": [found(53)]}
    assert fleet.look() == {"a": "", "b": "", "c": ""}
    assert sorted(fleet.asked) == ["a", "b", "c"]


def test_a_node_that_is_slow_twice_is_unfit(fleet):
    fleet.answers = {"a": [found(50)], "b": [found(9), found(10)], "c": [found(53)]}
    unfit = fleet.look()
    assert unfit.pop("b") == "matmul of a core (x): 10 GFLOPS, the median of its like is 50"
    assert set(unfit.values()) == {""}
    assert sorted(fleet.asked) == ["a", "b", "b", "c"]


def test_a_node_that_only_seemed_slow_is_not(fleet):
    fleet.answers = {"a": [found(50)], "b": [found(9), found(49)], "c": [found(53)]}
    assert set(fleet.look().values()) == {""}


def test_one_that_comes_later_is_held_against_those_that_were_there(fleet):
    fleet.answers = {"a": [found(50)], "b": [found(52)]}
    fleet.look()
    fleet.answers["late"] = [found(9), found(9)]
    assert "the median of its like is 50" in fleet.look()["late"]
    assert sorted(fleet.asked) == ["a", "b", "late", "late"]


def test_what_is_wrong_with_a_node_by_itself_is_told_at_the_first_look(fleet):
    fleet.answers = {
        "a": [found(50, problems=[["GPU 0: no", "replace it", True]])],
        "b": [found(50)],
    }
    assert fleet.look() == {"a": "GPU 0: no", "b": ""}


def test_a_node_whose_clock_is_far_off_is_unfit(fleet):
    then = time.time() - 3600
    fleet.answers = {"a": [found(50)], "b": [found(50, began=then, time=then)]}
    assert re.search(r"its clock is 36\d\d\.\d s behind ours", fleet.look()["b"])


@pytest.mark.parametrize(
    ("began", "ended", "offset_s"),
    [(7.0, -1.0, 0.0), (-7.0, -9.0, -7.0), (9.0, 7.0, 7.0), (0.0, 0.0, 0.0)],
)
def test_a_clock_is_as_far_off_as_the_times_of_its_answer_show(cluster, began, ended, offset_s):
    """A slow start, or a late answer, is not a wrong clock."""
    now = time.time()
    answer = ray.put({"began": now + began, "time": now + ended})
    assert collect(PendingProbe({}, answer, now))["clock"] == pytest.approx(offset_s, abs=0.5)


def test_a_node_that_does_not_answer_holds_nobody_up_for_long(fleet, monkeypatch):
    monkeypatch.setattr(inspection, "ANSWER_S", 0.5)
    never = ray.remote(num_cpus=0)(lambda: time.sleep(600)).remote()
    fleet.answers = {"a": [found(50)], "b": [never]}
    begun = time.monotonic()
    assert fleet.look() == {"a": ""}
    assert time.monotonic() - begun >= 0.5
    ray.cancel(never, force=True)


def test_a_node_that_can_not_be_asked_is_left_to_the_trials(fleet):
    def breaks():
        raise OSError("no such probe")

    fleet.answers = {"a": [ray.remote(num_cpus=0)(breaks).remote()], "b": [found(50)]}
    assert fleet.look() == {"b": ""}
